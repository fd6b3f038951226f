#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/data/transforms/transform.h"

namespace downpour::data {
namespace {

struct Crop {
  const char* name;
  std::int64_t height;
  std::int64_t width;
  std::int64_t padding;
  bool random;
};

// Empty: it is large enough, as far as that is known.
std::string TooSmall(const Crop& crop, const std::vector<std::int64_t>& shape) {
  const auto small = [&crop](std::int64_t extent, std::int64_t kept) {
    return extent != kAnyExtent && extent + 2 * crop.padding < kept;
  };
  if (!small(shape[1], crop.height) && !small(shape[2], crop.width)) return "";
  return absl::StrCat(crop.name, " to ", crop.height, " x ", crop.width, ": the image is ", ShapeText(shape),
                      crop.padding > 0 ? absl::StrCat(" with a padding of ", crop.padding) : "", ", expected no less");
}

absl::StatusOr<Value> Cropped(const Crop& crop, const Value& value, Random* random) {
  if (std::string wrong = TooSmall(crop, value.shape); !wrong.empty()) return absl::DataLossError(wrong);
  const std::int64_t channels = value.shape[0];
  const std::int64_t height = value.shape[1];
  const std::int64_t width = value.shape[2];
  // Of the first row and column that is kept; negative: in the padding.
  const auto begin = [&](std::int64_t extent, std::int64_t kept) {
    return DrawCrop(extent, kept, crop.padding, crop.random ? random : nullptr);
  };
  const std::int64_t top = begin(height, crop.height);
  const std::int64_t left = begin(width, crop.width);
  Value result{{channels, crop.height, crop.width}, std::vector<std::byte>(channels * crop.height * crop.width)};
  const std::int64_t first = std::max<std::int64_t>(0, -left);  // column of the result within the image
  const std::int64_t count = std::min(crop.width, width - left) - first;
  for (std::int64_t channel = 0; channel < channels; ++channel) {
    for (std::int64_t row = 0; row < crop.height; ++row) {
      const std::int64_t from = top + row;
      if (from < 0 || from >= height || count <= 0) continue;
      std::copy_n(value.bytes.data() + (channel * height + from) * width + left + first, count,
                  result.bytes.data() + (channel * crop.height + row) * crop.width + first);
    }
  }
  return result;
}

absl::StatusOr<Transform> Bind(const Column& column, const Crop& crop) {
  if (absl::Status status = CheckImage(column, crop.name); !status.ok()) return status;
  if (std::string wrong = TooSmall(crop, column.shape); !wrong.empty()) return absl::InvalidArgumentError(wrong);
  Column output = column;
  output.shape = {column.shape[0], crop.height, crop.width};
  return Transform{std::move(output),
                   [crop](const Value& value, Random* random) { return Cropped(crop, value, random); }, crop.random,
                   BatchStep{.type = BatchStep::Type::kCrop,
                             .height = crop.height,
                             .width = crop.width,
                             .padding = crop.padding,
                             .random = crop.random}};
}

}  // namespace

absl::StatusOr<Transform> CenterCrop(const Column& column, std::int64_t height, std::int64_t width) {
  return Bind(column, {"CenterCrop", height, width, 0, false});
}

absl::StatusOr<Transform> RandomCrop(const Column& column, std::int64_t height, std::int64_t width,
                                     std::int64_t padding) {
  return Bind(column, {"RandomCrop", height, width, padding, true});
}

}  // namespace downpour::data
