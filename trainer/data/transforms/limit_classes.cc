#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/data/transforms/numbers.h"
#include "trainer/data/transforms/transform.h"

namespace downpour::data {

absl::StatusOr<Transform> LimitClasses(const Column& column, std::int64_t classes) {
  if (column.text || column.type == ElementType::kF32 || !column.shape.empty()) {
    return absl::InvalidArgumentError(absl::StrCat("classes are of one integer, not of ", TypeText(column)));
  }
  if (column.classes > classes) {
    return absl::InvalidArgumentError(
        absl::StrCat("the data have ", column.classes, " classes, expected at most ", classes));
  }
  Column output = column;
  output.classes = classes;
  output.class_names.clear();
  return Transform{std::move(output),
                   [classes, type = column.type](Value value, Random* /*random*/) -> absl::StatusOr<Value> {
                     const std::int64_t label = IntegerOf(value, type);
                     if (label >= 0 && label < classes) return value;
                     return absl::DataLossError(absl::StrCat("label ", label, ", expected 0 to ", classes - 1));
                   }};
}

}  // namespace downpour::data
