#include "trainer/model/batch_check.h"

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/strings/str_format.h"

namespace downpour::model {
namespace {

absl::Status CheckArray(const data::Field& field, const std::vector<data::Array>& arrays, std::int64_t size) {
  if (arrays.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrFormat("a batch of %d fields, expected one: %s", arrays.size(), data::ToString(field)));
  }
  const data::Array& array = arrays.front();
  std::vector<std::int64_t> expected = field.shape;
  expected.insert(expected.begin(), size);
  if (field.ragged() && array.shape.size() == expected.size()) expected[1] = array.shape[1];
  std::size_t bytes = data::BytesOf(field.type);
  for (const std::int64_t extent : expected) bytes *= static_cast<std::size_t>(extent);
  const std::size_t lengths = field.ragged() ? static_cast<std::size_t>(size) : 0;
  if (size > 0 && array.type == field.type && array.shape == expected && array.bytes.size() == bytes &&
      array.lengths.size() == lengths) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrFormat(
      "a batch with %s %s of %d bytes and %d lengths, expected at least one sample of %s", data::Name(array.type),
      data::ShapeText(array.shape), array.bytes.size(), array.lengths.size(), data::ToString(field)));
}

template <typename T>
absl::Status CheckBelow(const data::Field& field, const data::Array& array) {
  for (const T value : array.values<T>()) {
    if (value < 0 || static_cast<std::int64_t>(value) >= field.classes) {
      return absl::InvalidArgumentError(
          absl::StrFormat("%s %d, expected 0 to %d", field.name, value, field.classes - 1));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckValues(const data::Field& field, const data::Array& array) {
  if (field.classes == 0) return absl::OkStatus();
  if (field.type == data::ElementType::kI64) return CheckBelow<std::int64_t>(field, array);
  if (field.type == data::ElementType::kI32) return CheckBelow<std::int32_t>(field, array);
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckBatch(const data::Field& input, const data::Field& target, const data::Batch& batch) {
  if (absl::Status status = CheckArray(input, batch.inputs, batch.size()); !status.ok()) return status;
  if (absl::Status status = CheckArray(target, batch.targets, batch.size()); !status.ok()) return status;
  if (absl::Status status = CheckValues(input, batch.inputs[0]); !status.ok()) return status;
  return CheckValues(target, batch.targets[0]);
}

}  // namespace downpour::model
