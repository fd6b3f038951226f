#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_ARRAY_SOURCE_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_ARRAY_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/files/files.h"
#include "trainer/data/formats/stored_type.h"
#include "trainer/data/sample_source.h"

// What formats of whole arrays have in common: a column is an array, whose first dimension is the samples.
namespace downpour::data {

struct StoredArray {
  std::string name;    // of the column
  std::string origin;  // what errors begin with: "faces.npz: labels.npy"
  StoredType type = StoredType::kF32;
  bool big_endian = false;
  std::vector<std::int64_t> shape;
  // Row-major, from `offset` on. That the file is long enough was looked at.
  std::shared_ptr<const RandomAccessFile> file;
  std::uint64_t offset = 0;
};

// The bytes of `shape` of elements of so many bytes; false: an extent is negative, or the product overflows.
bool BytesOfShape(const std::vector<std::int64_t>& shape, std::uint64_t element_bytes, std::uint64_t* bytes);

// kDataLoss: there is no array, a name is empty or there twice, an array is a single number or has samples of no
// values, or their first extents differ. `path` begins what is not about one array.
absl::StatusOr<std::unique_ptr<SampleSource>> MakeArraySource(const std::string& path, std::vector<StoredArray> arrays);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_ARRAY_SOURCE_H_
