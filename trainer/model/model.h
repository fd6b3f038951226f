#ifndef DOWNPOUR_TRAINER_MODEL_MODEL_H_
#define DOWNPOUR_TRAINER_MODEL_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

// What the worker knows of a neural network. No LibTorch type appears here: the backend is linked behind it, and no
// translation unit sees both LibTorch and gRPC headers.
namespace downpour::model {

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  std::int64_t elements() const {
    std::int64_t product = 1;
    for (std::int64_t dimension : shape) product *= dimension;
    return product;
  }
};

enum class DeviceChoice { kAuto, kCpu, kCuda };
enum class PrecisionChoice { kFp32, kBf16 };
// How convolutions are computed. kAuto takes the fastest of the others by a short measurement at creation. kFused:
// convolution, ReLU and average pooling in one pass over the samples, fp32 on the CPU only.
enum class LayoutChoice { kAuto, kContiguous, kChannelsLast, kFused };

struct ModelOptions {
  std::string name;                        // "LeNet" or "MLP"
  std::vector<std::int64_t> sample_shape;  // {1, 28, 28}
  int classes = 10;
  DeviceChoice device = DeviceChoice::kAuto;
  PrecisionChoice precision = PrecisionChoice::kFp32;
  int threads = 0;              // 0: one
  std::int64_t batch_size = 0;  // for choosing the layout by measurement; 0: no measurement, kAuto is kContiguous
  std::uint64_t seed = 1;       // of the initial parameters, which are a pure function of it
  LayoutChoice layout = LayoutChoice::kAuto;
};

// A minibatch: row-major samples scaled to [0, 1], and their labels. The memory belongs to the caller.
struct Batch {
  absl::Span<const float> samples;
  absl::Span<const std::int64_t> labels;
  std::int64_t size() const { return static_cast<std::int64_t>(labels.size()); }
};

struct StepResult {
  double loss = 0;  // mean cross-entropy of the batch
  double forward_seconds = 0;
  double backward_seconds = 0;
};

struct EvaluationResult {
  double loss_sum = 0;
  std::int64_t correct = 0;
};

// Not thread-safe: one thread calls it. Parameters are fp32 whatever the precision of the computation.
class Model {
 public:
  virtual ~Model() = default;

  // In the order of registration; the order of every index below.
  virtual const std::vector<Tensor>& tensors() const = 0;

  // Row-major (contiguous) values, whatever layout the backend computes in; exactly tensors()[tensor].elements() of
  // them.
  virtual void SetParameter(std::size_t tensor, absl::Span<const float> values) = 0;
  virtual void GetParameter(std::size_t tensor, absl::Span<float> values) const = 0;

  // Called during backward on the calling thread, once a tensor, as soon as its gradient is complete; later layers
  // first. `gradient` is row-major and valid only during the call.
  using OnGradient = std::function<void(std::size_t tensor, absl::Span<const float> gradient)>;

  // Called once after forward and before backward with the mean loss. Returning false leaves backward out.
  using OnLoss = std::function<bool(double loss)>;

  // Dropout and augmentation take their seeds from `update_seed`. kInternal carries what the backend said;
  // kInvalidArgument: a batch of the wrong shape or a label outside the classes.
  virtual absl::StatusOr<StepResult> ComputeGradients(const Batch& batch, std::uint64_t update_seed,
                                                      const OnLoss& on_loss, const OnGradient& on_gradient) = 0;

  virtual absl::StatusOr<EvaluationResult> Evaluate(const Batch& batch) = 0;

  // "cpu, channels_last, 1 thread" - what was chosen, for people.
  virtual std::string description() const = 0;
};

// kNotFound: no such model, with the known names; kInvalidArgument: a sample shape that the model cannot take;
// kFailedPrecondition: CUDA asked for and no device found, or a layout that the device or precision does not have.
// Sets LibTorch's thread count, which belongs to the calling thread: use the model on one thread.
absl::StatusOr<std::unique_ptr<Model>> CreateModel(const ModelOptions& options);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_MODEL_H_
