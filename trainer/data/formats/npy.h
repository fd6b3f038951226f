#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_NPY_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_NPY_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/files/files.h"
#include "trainer/data/formats/stored_type.h"

namespace downpour::data {

struct NpyHeader {
  StoredType type = StoredType::kF32;
  bool big_endian = false;
  std::vector<std::int64_t> shape;
  std::uint64_t data_begin = 0;  // from the beginning of the array's bytes
};

// Of the array in the `bytes` bytes from `begin` of the file on, which its values fill to the end. Trusts no length.
// kDataLoss and kUnimplemented say what was found and what is expected, without a file name.
absl::StatusOr<NpyHeader> ReadNpyHeader(const RandomAccessFile& file, std::uint64_t begin, std::uint64_t bytes);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_NPY_H_
