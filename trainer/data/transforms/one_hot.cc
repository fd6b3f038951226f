#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/data/transforms/numbers.h"
#include "trainer/data/transforms/transform.h"

namespace downpour::data {

absl::StatusOr<Transform> OneHot(const Column& column, std::int64_t classes) {
  if (column.text || column.type == ElementType::kF32 || !column.shape.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("OneHot is for one integer, not for ", TypeText(column)));
  }
  if (classes == 0) classes = column.classes;
  if (classes == 0)
    return absl::InvalidArgumentError("OneHot needs `classes`: the column does not say how many it has");
  if (column.classes > classes) {
    return absl::InvalidArgumentError(absl::StrCat("OneHot has ", classes, " classes, the column ", column.classes));
  }
  Column output = column;
  output.type = ElementType::kF32;
  output.shape = {classes};
  output.classes = 0;
  output.class_names.clear();
  return Transform{std::move(output),
                   [classes, type = column.type](const Value& value, Random* /*random*/) -> absl::StatusOr<Value> {
                     const std::int64_t label = IntegerOf(value, type);
                     if (label < 0 || label >= classes) {
                       return absl::DataLossError(absl::StrCat("label ", label, ", expected 0 to ", classes - 1));
                     }
                     Value result{{classes}, std::vector<std::byte>(static_cast<std::size_t>(classes) * sizeof(float))};
                     reinterpret_cast<float*>(result.bytes.data())[label] = 1;
                     return result;
                   }};
}

}  // namespace downpour::data
