#include "trainer/data/fields.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace downpour::data {
namespace {

Array Zeros(ElementType type, std::vector<std::int64_t> shape) {
  std::size_t elements = 1;
  for (const std::int64_t extent : shape) elements *= static_cast<std::size_t>(extent);
  Array array;
  array.type = type;
  array.shape = std::move(shape);
  array.bytes.resize(elements * BytesOf(type));
  return array;
}

}  // namespace

std::size_t BytesOf(ElementType type) {
  switch (type) {
    case ElementType::kU8:
      return 1;
    case ElementType::kI64:
      return 8;
    case ElementType::kI32:
    case ElementType::kF32:
      break;
  }
  return 4;
}

const char* Name(ElementType type) {
  switch (type) {
    case ElementType::kU8:
      return "u8";
    case ElementType::kI32:
      return "i32";
    case ElementType::kI64:
      return "i64";
    case ElementType::kF32:
      break;
  }
  return "fp32";
}

std::string ShapeText(const std::vector<std::int64_t>& shape) {
  return absl::StrCat("[",
                      absl::StrJoin(shape, ", ",
                                    [](std::string* text, std::int64_t extent) {
                                      absl::StrAppend(text, extent == kRagged ? "*" : absl::StrCat(extent));
                                    }),
                      "]");
}

std::string ToString(const Field& field) {
  std::string text = absl::StrCat(field.name, ": ", Name(field.type), " ", ShapeText(field.shape));
  if (field.classes > 0) absl::StrAppend(&text, " below ", field.classes);
  return text;
}

std::string ToString(const SampleFields& fields) {
  const auto list = [](const std::vector<Field>& some) {
    return absl::StrJoin(some, ", ", [](std::string* text, const Field& field) { text->append(ToString(field)); });
  };
  return absl::StrCat("inputs {", list(fields.inputs), "}, targets {", list(fields.targets), "}");
}

Array MakeArray(const Field& field, std::int64_t samples) {
  std::vector<std::int64_t> shape = field.shape;
  shape.insert(shape.begin(), samples);
  return Zeros(field.type, std::move(shape));
}

Array MakeRaggedArray(const Field& field, std::vector<std::int64_t> lengths) {
  std::vector<std::int64_t> shape = field.shape;
  shape.front() = lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
  shape.insert(shape.begin(), static_cast<std::int64_t>(lengths.size()));
  Array array = Zeros(field.type, std::move(shape));
  array.lengths = std::move(lengths);
  return array;
}

std::int64_t Batch::size() const {
  const std::vector<Array>& some = inputs.empty() ? targets : inputs;
  return some.empty() ? static_cast<std::int64_t>(indices.size()) : some.front().shape.front();
}

}  // namespace downpour::data
