#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/data/transforms/transform.h"

namespace downpour::data {

std::string TypeText(const Column& column) {
  return column.text ? "text" : absl::StrCat(Name(column.type), " ", ShapeText(column.shape));
}

absl::Status CheckImage(const Column& column, const char* transform) {
  if (!column.text && column.type == ElementType::kU8 && column.shape.size() == 3 && column.shape[0] > 0) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(transform, " is for images, u8 [channels, height, width], not for ", TypeText(column)));
}

}  // namespace downpour::data
