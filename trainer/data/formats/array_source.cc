#include "trainer/data/formats/array_source.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace downpour::data {
namespace {

class ArraySource final : public SampleSource {
 public:
  explicit ArraySource(std::vector<StoredArray> arrays) : arrays_(std::move(arrays)), size_(arrays_[0].shape[0]) {
    for (const StoredArray& array : arrays_) {
      Column column;
      column.name = array.name;
      column.type = ElementTypeOf(array.type);
      column.shape.assign(array.shape.begin() + 1, array.shape.end());
      if (array.type == StoredType::kBool) column.classes = 2;
      std::uint64_t elements = 0;
      BytesOfShape(column.shape, 1, &elements);
      elements_.push_back(elements);
      columns_.push_back(std::move(column));
    }
  }

  std::int64_t size() const override { return size_; }
  const std::vector<Column>& columns() const override { return columns_; }

  absl::StatusOr<Sample> Read(std::int64_t index) const override {
    Sample sample;
    std::vector<std::uint8_t> stored;
    for (std::size_t i = 0; i < arrays_.size(); ++i) {
      const StoredArray& array = arrays_[i];
      stored.resize(elements_[i] * BytesOf(array.type));
      const std::uint64_t offset = array.offset + static_cast<std::uint64_t>(index) * stored.size();
      if (absl::Status read = array.file->ReadAt(offset, absl::MakeSpan(stored)); !read.ok()) return read;
      Value value{columns_[i].shape, std::vector<std::byte>(elements_[i] * BytesOf(columns_[i].type))};
      if (absl::Status converted = Convert(array.type, array.big_endian, stored, absl::MakeSpan(value.bytes));
          !converted.ok()) {
        return absl::Status(converted.code(),
                            absl::StrFormat("%s: sample %d: %s", array.origin, index, converted.message()));
      }
      sample.push_back(std::move(value));
    }
    return sample;
  }

 private:
  const std::vector<StoredArray> arrays_;
  const std::int64_t size_;
  std::vector<std::uint64_t> elements_;  // of one sample, in the order of arrays_
  std::vector<Column> columns_;
};

}  // namespace

bool BytesOfShape(const std::vector<std::int64_t>& shape, std::uint64_t element_bytes, std::uint64_t* bytes) {
  std::uint64_t product = element_bytes;
  for (const std::int64_t extent : shape) {
    if (extent < 0 || __builtin_mul_overflow(product, static_cast<std::uint64_t>(extent), &product)) return false;
  }
  *bytes = product;
  return true;
}

absl::StatusOr<std::unique_ptr<SampleSource>> MakeArraySource(const std::string& path,
                                                              std::vector<StoredArray> arrays) {
  if (arrays.empty()) return absl::DataLossError(absl::StrCat(path, ": found no array, expected one or more"));
  std::set<std::string> names;
  for (const StoredArray& array : arrays) {
    if (array.name.empty()) return absl::DataLossError(absl::StrCat(array.origin, ": found an array without a name"));
    if (!names.insert(array.name).second) {
      return absl::DataLossError(
          absl::StrFormat("%s: the name \"%s\" is there twice, expected one array of it", path, array.name));
    }
    if (array.shape.empty()) {
      return absl::DataLossError(absl::StrCat(
          array.origin, ": found a single number, expected an array whose first dimension is the samples"));
    }
    if (std::find(array.shape.begin() + 1, array.shape.end(), 0) != array.shape.end()) {
      return absl::DataLossError(absl::StrFormat("%s: found the shape %s, whose samples have no values", array.origin,
                                                 ShapeText(array.shape)));
    }
    if (array.shape[0] != arrays[0].shape[0]) {
      return absl::DataLossError(absl::StrFormat("%s: found %d samples, but %s has %d", array.origin, array.shape[0],
                                                 arrays[0].origin, arrays[0].shape[0]));
    }
  }
  return std::make_unique<ArraySource>(std::move(arrays));
}

}  // namespace downpour::data
