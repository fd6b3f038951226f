#ifndef DOWNPOUR_TRAINER_DATA_SAMPLE_SOURCE_H_
#define DOWNPOUR_TRAINER_DATA_SAMPLE_SOURCE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/fields.h"

// What files hold, sample by sample, as it is stored: what the readers of the formats have in common. What a model is
// given is made of it by the fields and transforms of a data set (dataset.h).
namespace downpour::data {

// One extent of a column in which samples differ: the words of a text, the height of an image.
inline constexpr std::int64_t kAnyExtent = kRagged;

// What every sample has one value of. Names are unique in a source. What is stored in other types is given in the
// next one that holds it: bool as kU8, i8, i16 and u16 as kI32, u32 as kI64, f16 and bf16 as kF32; u64 as kI64 and f64
// as kF32, rounded, a value beyond its range making the sample a broken one.
struct Column {
  std::string name;
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t> shape = {};       // of a value; empty: one number
  bool text = false;                          // UTF-8: kU8 [kAnyExtent]
  std::int64_t classes = 0;                   // integers are in [0, classes); 0: no bound is known
  std::vector<std::string> class_names = {};  // none, or `classes` of them
  friend bool operator==(const Column&, const Column&) = default;
};

struct Value {
  std::vector<std::int64_t> shape;  // that of the column, with the sample's own extents for kAnyExtent
  std::vector<std::byte> bytes;     // row-major
};

// In the order of the columns.
using Sample = std::vector<Value>;

// Samples by index. Opening one looks at all that can be told without reading every sample, and refuses what is broken:
// errors name the file, the position (line, row, byte), what was found and what is expected. Memory is a few bytes a
// sample at most. Thread-safe.
class SampleSource {
 public:
  virtual ~SampleSource() = default;
  virtual std::int64_t size() const = 0;
  virtual const std::vector<Column>& columns() const = 0;
  // `index` is in [0, size()). kDataLoss: this sample is broken, with such an error; the others can be read all the
  // same. Other codes are those of the files (files/files.h). Neighbours are cheaper than samples far apart where the
  // format or the store is read in blocks.
  virtual absl::StatusOr<Sample> Read(std::int64_t index) const = 0;
};

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_SAMPLE_SOURCE_H_
