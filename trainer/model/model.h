#ifndef DOWNPOUR_TRAINER_MODEL_MODEL_H_
#define DOWNPOUR_TRAINER_MODEL_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/data/dataset.h"
#include "trainer/data/fields.h"
#include "trainer/model/device_traffic.h"
#include "trainer/model/model_plan.h"

// What the worker knows of a neural network. No LibTorch type appears here: the backend is linked behind it, and no
// translation unit sees both LibTorch and gRPC headers.
namespace downpour::model {

enum class TensorKind {
  kParameter,  // trained: has a gradient
  kBuffer,     // follows the batches (BatchNorm's running mean): has a difference, see OnGradient
};

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  TensorKind kind = TensorKind::kParameter;
  std::int64_t elements() const {
    std::int64_t product = 1;
    for (std::int64_t dimension : shape) product *= dimension;
    return product;
  }
};

enum class DeviceChoice { kAuto, kCpu, kCuda };
// kTf32: fp32, but for the factors of products on a GPU, which are rounded to 10 bits; elsewhere kFp32.
enum class PrecisionChoice { kFp32, kTf32, kBf16 };
// Whether a device holds a whole data set. kAuto: one that is small against its memory.
enum class HoldChoice { kAuto, kNever, kAlways };
// How convolutions are computed. kAuto takes the fastest of the others by a short measurement at creation. kFused:
// convolution, ReLU and average pooling in one pass over the samples, fp32 on the CPU only.
enum class LayoutChoice { kAuto, kContiguous, kChannelsLast, kFused };

// How a model trains itself (spec.update.localOptimizer), by the formulas and names of torch.optim.
struct LocalOptimizer {
  enum class Type { kSgd, kMomentum, kAdam, kAdamW };
  Type type = Type::kSgd;
  double learning_rate = 0.01;
  double momentum = 0.9;              // of kMomentum
  double beta1 = 0.9, beta2 = 0.999;  // of kAdam and kAdamW
  double epsilon = 1e-8;              // likewise
  double weight_decay = 0;            // of all; decoupled (Loshchilov and Hutter 2019) for kAdamW
  double clip_norm = 0;               // the gradient of each step is scaled down to this norm; 0: it is not
};

struct ModelOptions {
  ModelSpec model;
  data::SampleFields fields;  // of the data set
  DeviceChoice device = DeviceChoice::kAuto;
  int device_number = 0;   // which of the CUDA devices that the process sees
  bool pin_memory = true;  // batches go to a GPU through page-locked memory, the next one while this one computes
  PrecisionChoice precision = PrecisionChoice::kFp32;
  int threads = 0;              // 0: one
  std::int64_t batch_size = 0;  // for choosing the layout by measurement; 0: no measurement, kAuto is kContiguous
  std::uint64_t seed = 1;       // of the initial parameters, which are a pure function of it
  LayoutChoice layout = LayoutChoice::kAuto;
  std::optional<LocalOptimizer> local_optimizer = std::nullopt;
};

struct StepResult {
  double loss = 0;  // mean over the batch
  double forward_seconds = 0;
  double backward_seconds = 0;
};

// A mean as its sum and count, so that those of several batches are added exactly.
struct Measured {
  std::string name;  // "Accuracy"
  double sum = 0;
  std::int64_t count = 0;
};

struct EvaluationResult {
  Measured loss;
  std::vector<Measured> metrics;  // in the order of the manifest
};

// Not thread-safe: one thread calls it. Parameters are fp32 whatever the precision of the computation.
class Model {
 public:
  virtual ~Model() = default;

  // What is shared by the workers, in the order of registration, parameters before buffers; the order of every index
  // below.
  virtual const std::vector<Tensor>& tensors() const = 0;

  // Parameters that are not trained (spec.model.frozen): a function of the options alone, the same at every worker.
  struct Frozen {
    Tensor tensor;
    std::vector<float> values;
  };
  virtual std::vector<Frozen> frozen() const { return {}; }
  // Gives frozen()[index] other values, row-major and as many as it has: those of spec.model.initialWeights, say.
  virtual void SetFrozen(std::size_t /*index*/, absl::Span<const float> /*values*/) {}

  // Row-major (contiguous) values, whatever layout the backend computes in; exactly tensors()[tensor].elements() of
  // them. What is set is copied before SetParameter returns, and from there to a device by itself; what goes wrong with
  // that is an error of the next computation.
  virtual void SetParameter(std::size_t tensor, absl::Span<const float> values) = 0;
  virtual void GetParameter(std::size_t tensor, absl::Span<float> values) const = 0;

  // Called during backward on the calling thread, once a tensor, as soon as its gradient is complete; later layers
  // first, buffers at the end. For a buffer it is the value before the step less the value after it, and the buffer
  // itself is as before. `gradient` is row-major and valid only during the call.
  using OnGradient = std::function<void(std::size_t tensor, absl::Span<const float> gradient)>;

  // Called once after forward and before backward with the mean loss. Returning false leaves backward out.
  using OnLoss = std::function<bool(double loss)>;

  // Whatever is drawn in forward (dropout) is a function of `update_seed`. On the CPU, where LibTorch draws from one
  // generator for the whole process, models that draw take turns with forward.
  // kInternal carries what the backend said; kInvalidArgument: a batch of other fields or a label outside the classes.
  virtual absl::StatusOr<StepResult> ComputeGradients(const data::Batch& batch, std::uint64_t update_seed,
                                                      const OnLoss& on_loss, const OnGradient& on_gradient) = 0;

  // The same, with gradients left where they were computed: `values` are row-major fp32 in the memory of the device, or
  // of the host where that computes, tensors()[tensor].elements() of them, and for a buffer its difference. They are
  // complete when the stream compute_stream() has come so far as it is at the call, and stay until ReleaseGradients or
  // the next step of any kind; nobody writes to them. Called once a tensor during backward, as it is handed to the
  // device, perhaps by another thread, for which the calling one waits: whoever is called puts work into streams behind
  // what compute_stream() has, and waits for nothing. On a device that is before the loss is known and `on_loss`
  // is called; where `on_loss` returns false, what was given means nothing. Returns when the loss is here, while the
  // device may still run backward, so that StepResult::backward_seconds is what the host was busy for.
  using OnDeviceGradient = std::function<void(std::size_t tensor, const float* values)>;
  virtual absl::StatusOr<StepResult> ComputeDeviceGradients(const data::Batch& /*batch*/, std::uint64_t /*update_seed*/,
                                                            const OnLoss& /*on_loss*/,
                                                            const OnDeviceGradient& /*on_gradient*/) {
    return absl::FailedPreconditionError("this model gives its gradients to the host");
  }
  // Whoever reads them in another stream has done so: memory that is given back is used again in compute_stream().
  virtual void ReleaseGradients() {}

  // SetParameter of all tensors, from the memory that gradients are left in: row-major fp32, as many as each has. They
  // are read behind what compute_stream() has at the call, which does not wait.
  virtual absl::Status SetDeviceParameters(absl::Span<const float* const> /*values*/) {
    return absl::FailedPreconditionError("this model takes its parameters from the host");
  }

  // Where it computes: CUDA's number of the device, or none of the host.
  virtual std::optional<int> cuda_device() const { return std::nullopt; }
  // The stream of that device that the calling thread computes in, a cudaStream_t; null: CUDA's default stream, or the
  // host.
  virtual void* compute_stream() const { return nullptr; }

  // Where the minibatch that comes next is to be had, or null while it is not here: asked in ComputeGradients and
  // TakeStep, once the device has been given all of a step, so that the next is on its way there while it computes. It
  // is what it is given as long as it is the same object. A model on the CPU does not ask.
  using NextBatch = std::function<std::shared_ptr<const data::Batch>()>;
  virtual void StageFrom(const NextBatch& /*next*/) {}

  // Before the first minibatch of a data set with options.fields. A model on a GPU has it deferred (Dataset::Defer) and
  // does what is left for each minibatch there. True: it holds all samples as well, and minibatches are to be those of
  // data::MakeIndexDataset from now on. kFailedPrecondition: it may not hold them, with kAlways; else the errors of
  // the data set. On the CPU nothing is done.
  virtual absl::StatusOr<bool> TakeData(data::Dataset* /*dataset*/, HoldChoice /*hold*/) { return false; }

  // One step of options.local_optimizer by the gradient of `batch`: the values of parameters and buffers move on, and
  // what the optimizer remembers (moments) is kept for the next. Where `on_loss` returns false nothing moves. Errors as
  // of ComputeGradients; kFailedPrecondition: there is no such optimizer.
  virtual absl::StatusOr<StepResult> TakeStep(const data::Batch& /*batch*/, std::uint64_t /*update_seed*/,
                                              const OnLoss& /*on_loss*/) {
    return absl::FailedPreconditionError("this model has no optimizer of its own");
  }
  // Of the steps from now on; at first it is that of the options.
  virtual void SetLearningRate(double /*learning_rate*/) {}
  // The next step is taken as if it were the first.
  virtual void ForgetSteps() {}

  virtual absl::StatusOr<EvaluationResult> Evaluate(const data::Batch& batch) = 0;

  // "cpu, channels_last, 1 thread" - what was chosen, for people.
  virtual std::string description() const = 0;
  // Where DeviceChoice::kAuto took the CPU: why there is no GPU. Otherwise empty.
  virtual std::string without_gpu() const { return ""; }
  // The CUDA devices that it computes on, as CUDA counts those that it sees.
  virtual std::vector<int> gpus() const { return {}; }
  // To and from them since the beginning. From any thread.
  virtual DeviceTraffic traffic() const { return {}; }
  // On so many it computes a batch.
  virtual int devices() const { return 1; }
};

// Errors as of PlanModel for what does not fit; kInvalidArgument as well: spec.model.frozen matches nothing or all;
// kFailedPrecondition: CUDA asked for and no device found, or a layout that the device or precision does not have.
// Sets LibTorch's thread count and CUDA's current device, which belong to the calling thread: use the model on one
// thread.
absl::StatusOr<std::unique_ptr<Model>> CreateModel(const ModelOptions& options);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_MODEL_H_
