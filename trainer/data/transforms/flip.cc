#include <algorithm>
#include <utility>

#include "trainer/data/transforms/transform.h"

namespace downpour::data {

absl::StatusOr<Transform> RandomFlip(const Column& column, double probability) {
  if (absl::Status status = CheckImage(column, "RandomFlip"); !status.ok()) return status;
  return Transform{column,
                   [probability](Value value, Random* random) -> absl::StatusOr<Value> {
                     if (!DrawFlip(probability, random)) return value;
                     const std::int64_t width = value.shape[2];
                     const auto end = value.bytes.end();
                     for (auto row = value.bytes.begin(); row != end; row += width) std::reverse(row, row + width);
                     return value;
                   },
                   true, BatchStep{.type = BatchStep::Type::kFlip, .probability = probability, .random = true}};
}

}  // namespace downpour::data
