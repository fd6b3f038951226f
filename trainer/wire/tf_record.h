#ifndef DOWNPOUR_TRAINER_WIRE_TF_RECORD_H_
#define DOWNPOUR_TRAINER_WIRE_TF_RECORD_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "trainer/wire/crc32c.h"

// TFRecord, TensorFlow's way to put records behind each other: the length of each (u64), the masked checksum of these
// 8 bytes (u32), the data and their masked checksum, little-endian.
namespace downpour::wire {

// A checksum of what has checksums in it would be weak: it is turned and shifted.
inline std::uint32_t MaskedCrc32c(absl::Span<const std::uint8_t> bytes) {
  const std::uint32_t checksum = Crc32c(bytes);
  return (checksum >> 15U | checksum << 17U) + 0xa282ead8U;
}

inline void AppendTfRecord(absl::string_view data, std::string* to) {
  const auto append = [to](std::uint64_t number, int bytes) {
    for (int i = 0; i < bytes; ++i) to->push_back(static_cast<char>(number >> (8 * i)));
  };
  const auto masked = [](absl::string_view text) {
    return MaskedCrc32c({reinterpret_cast<const std::uint8_t*>(text.data()), text.size()});
  };
  const std::size_t begin = to->size();
  append(data.size(), 8);
  append(masked(absl::string_view(*to).substr(begin)), 4);
  to->append(data.data(), data.size());
  append(masked(data), 4);
}

}  // namespace downpour::wire

#endif  // DOWNPOUR_TRAINER_WIRE_TF_RECORD_H_
