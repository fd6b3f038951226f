#ifndef DOWNPOUR_TRAINER_MODEL_DEVICE_DATA_H_
#define DOWNPOUR_TRAINER_MODEL_DEVICE_DATA_H_

#include <torch/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "trainer/data/dataset.h"
#include "trainer/data/deferred.h"
#include "trainer/model/model.h"

namespace downpour::model {

// What Auto lets a device hold: this part of the memory that is free there when the training begins, and so many bytes,
// as all of them are read before it does.
inline constexpr std::int64_t kPartOfFreeMemory = 4;
inline constexpr std::int64_t kMostHeldBytes = std::int64_t{1} << 30;

// Why a device may not hold `samples` of a data set; empty: it may. `free`: of its memory; none: any amount.
std::string WhyNotHeld(const data::Deferred& deferred, std::int64_t samples, std::optional<std::int64_t> free,
                       HoldChoice choice);

// The memory of a device that nobody has; none: of the host's it is not asked.
std::optional<std::int64_t> FreeMemory(at::Device device);

// What a data set leaves to the device: the last steps of its samples, for a whole minibatch at once, with the draws
// and the values of the host; and all of its samples, if it holds them. Plain operations of LibTorch. Not thread-safe.
// What LibTorch throws, its methods throw, but Check.
class DeviceData {
 public:
  DeviceData(at::Device device, data::Deferred deferred);

  // Reads all samples and puts them there. Errors are those of the data set and of Check; kFailedPrecondition: a sample
  // is left out.
  absl::Status Hold(const data::Dataset& dataset);

  // Gives the memory back.
  void Release();

  // Whether it is a minibatch of which something is left; and whether by its indices alone, so of what is held.
  static bool IsDeferred(const data::Batch& batch) { return !batch.indices.empty(); }
  static bool IsByIndex(const data::Batch& batch) { return batch.inputs.empty() && batch.targets.empty(); }
  // kInvalidArgument: of such a one, it is not as the data set has it before the steps, or is not held.
  absl::Status Check(const data::Batch& batch) const;

  // What has to travel of a minibatch besides its arrays, if there are any.
  std::vector<at::Tensor> Travelling(const data::Batch& batch) const;
  // Input and target, from what travelled, on the device: its arrays and then those.
  std::vector<at::Tensor> Make(const std::vector<at::Tensor>& here) const;

 private:
  const data::Field& input() const { return deferred_.inputs.front().stored; }
  const data::Field& target() const { return deferred_.targets.front().stored; }
  struct Step {
    data::BatchStep of;
    // Of kNormalise: what becomes of a value is (value / divisor - mean) / deviation, by channel.
    at::Tensor divisor, mean, deviation;
  };
  struct Chain {
    std::vector<Step> steps;
    at::Tensor held;
  };
  at::Tensor Apply(const Chain& chain, at::Tensor value, const at::Tensor& draws, std::int64_t* row) const;

  const at::Device device_;
  const data::Deferred deferred_;
  std::vector<Chain> chains_;  // of the input and the target
  std::int64_t rows_ = 0;      // of draws: two for a crop, one for a flip
  std::int64_t held_ = 0;      // samples
};

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_DEVICE_DATA_H_
