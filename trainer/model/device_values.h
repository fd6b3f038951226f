#ifndef DOWNPOUR_TRAINER_MODEL_DEVICE_VALUES_H_
#define DOWNPOUR_TRAINER_MODEL_DEVICE_VALUES_H_

#include <torch/types.h>

#include <cstddef>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"

namespace downpour::model {

// `to` become the row-major fp32 `values`, one address each, in memory of the device of `to`; in its current stream.
// kInvalidArgument: there are not as many. What LibTorch throws, this throws.
inline absl::Status CopyDeviceValues(absl::Span<const float* const> values, const std::vector<at::Tensor>& to) {
  if (values.size() != to.size()) {
    return absl::InvalidArgumentError(absl::StrCat(values.size(), " tensors are given to a model of ", to.size()));
  }
  const at::NoGradGuard no_grad;
  std::vector<at::Tensor> from;
  from.reserve(to.size());
  for (std::size_t i = 0; i < to.size(); ++i) {
    from.push_back(at::from_blob(const_cast<float*>(values[i]), to[i].sizes(),
                                 at::TensorOptions(at::kFloat).device(to[i].device())));
  }
  // On a device all of them are one piece of work, not one each.
  at::_foreach_copy_(to, from);
  return absl::OkStatus();
}

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_DEVICE_VALUES_H_
