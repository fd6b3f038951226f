#ifndef DOWNPOUR_TRAINER_MODEL_TORCH_TYPES_H_
#define DOWNPOUR_TRAINER_MODEL_TORCH_TYPES_H_

#include <torch/types.h>

#include "trainer/data/fields.h"

namespace downpour::model {

inline torch::ScalarType TorchType(data::ElementType type) {
  switch (type) {
    case data::ElementType::kU8:
      return torch::kByte;
    case data::ElementType::kI32:
      return torch::kInt;
    case data::ElementType::kI64:
      return torch::kLong;
    case data::ElementType::kF32:
      break;
  }
  return torch::kFloat;
}

// As networks and losses of the user's own are promised it: words and labels are i64, pixels in [0, 1].
inline torch::Tensor AsPromised(const torch::Tensor& value) {
  if (value.scalar_type() == torch::kInt) return value.to(torch::kLong);
  if (value.scalar_type() == torch::kByte) return value.to(torch::kFloat).div_(255);
  return value;
}

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_TORCH_TYPES_H_
