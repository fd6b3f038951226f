#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_TESTING_RECORD_BUILDER_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_TESTING_RECORD_BUILDER_H_

#include <cstdint>
#include <string>

#include "trainer/data/encoding.h"
#include "trainer/wire/crc32c.h"

namespace downpour::data {

// A record of a TFRecord file.
inline std::string Record(const std::string& data) {
  const auto masked = [](const std::string& bytes) {
    const std::uint32_t checksum = wire::Crc32c(AsBytes(bytes));
    return (checksum >> 15U | checksum << 17U) + 0xa282ead8U;
  };
  Encoder length;
  length.Put<std::uint64_t>(data.size());
  Encoder length_checksum;
  length_checksum.Put<std::uint32_t>(masked(length.bytes()));
  Encoder checksum;
  checksum.Put<std::uint32_t>(masked(data));
  return length.bytes() + length_checksum.bytes() + data + checksum.bytes();
}

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_TESTING_RECORD_BUILDER_H_
