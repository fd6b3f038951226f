#ifndef DOWNPOUR_TRAINER_WORKER_DEVICE_GRADIENTS_H_
#define DOWNPOUR_TRAINER_WORKER_DEVICE_GRADIENTS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/core/codec/gradient_encoder.h"
#include "trainer/core/layout.h"
#include "trainer/cuda/device_error_feedback.h"
#include "trainer/cuda/device_kernels.h"
#include "trainer/model/model.h"

namespace downpour::worker {

// Of the device that the model computes on, in a stream of their own; null: it computes on the host, and nothing is
// loaded. Errors of cuda::LoadPlugin and cuda::MakePluginKernels.
absl::StatusOr<std::shared_ptr<cuda::DeviceKernels>> KernelsOf(const model::Model& model);

// The gradients of a worker, from backward to what is sent, where the model computes: added up over the minibatches of
// an update, checked and encoded there, and here when they have arrived. Buffers, which are small, arrive with every
// minibatch, as they are. Used by the thread that the model is used by.
class DeviceGradients {
 public:
  // `model` outlives it; the slices are those of its tensors.
  DeviceGradients(model::Model* model, std::vector<core::Slice> slices, const core::CodecOptions& codec,
                  std::shared_ptr<cuda::DeviceKernels> kernels);
  DeviceGradients(const DeviceGradients&) = delete;
  DeviceGradients& operator=(const DeviceGradients&) = delete;
  ~DeviceGradients();

  // Has what has arrived.
  core::GradientEncoder* encoder() { return &feedback_; }

  // An update of so many minibatches begins; `flush`: see GradientEncoder. Errors of DeviceErrorFeedback::Begin.
  absl::Status Begin(std::uint32_t minibatches, bool flush);

  struct Arrived {
    std::size_t tensor = 0;
    bool finite = true;
    double sum_of_squares = 0;            // in the order of cuda::GradientChecks, and then of the slices
    absl::Span<const float> buffer = {};  // the difference of a buffer; empty: it is a parameter
  };
  // The next minibatch, whose gradients count `weight`. `on_arrived` is called for each buffer, and with the last
  // minibatch for each parameter, in the order of backward, of which the device may still run the rest; not where
  // `on_loss` returns false. Errors of the model, of the kernels, and of a device that hangs.
  absl::StatusOr<model::StepResult> Compute(const data::Batch& batch, std::uint64_t update_seed, float weight,
                                            const model::Model::OnLoss& on_loss,
                                            const std::function<void(const Arrived&)>& on_arrived);

 private:
  // The memory of sums, by tensor; empty where there are none.
  absl::Status AllocateSums();
  void Take(std::size_t tensor, const float* values, float weight);
  absl::Status Begin(std::size_t tensor, const float* values, float weight);
  absl::StatusOr<Arrived> Await(std::size_t tensor);
  absl::Status AwaitAll(const std::function<void(const Arrived&)>& on_arrived);
  // Nothing reads what the model gave any more.
  absl::Status Finish();
  bool last() const { return minibatch_ + 1 == minibatches_; }
  bool is_buffer(std::size_t tensor) const { return model_->tensors()[tensor].kind == model::TensorKind::kBuffer; }

  model::Model* const model_;
  const std::vector<core::Slice> slices_;
  std::vector<std::uint32_t> first_;  // of the slices of each tensor, and their number
  const std::shared_ptr<cuda::DeviceKernels> kernels_;
  cuda::DeviceErrorFeedback feedback_;

  std::uint32_t minibatches_ = 0;
  std::uint32_t minibatch_ = 0;
  bool flush_ = false;
  std::vector<void*> sums_;
  void* done_ = nullptr;            // an event behind everything
  std::vector<std::size_t> taken_;  // that arrive with the minibatch
  absl::Status taking_;             // what went wrong on the way
  std::vector<float> buffer_;
};

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_DEVICE_GRADIENTS_H_
