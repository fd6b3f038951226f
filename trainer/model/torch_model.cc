// The LibTorch backend of Model: the one adapter where LibTorch's exceptions become Status.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <limits>
#include <mutex>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "trainer/core/name_pattern.h"
#include "trainer/model/batch_check.h"
#include "trainer/model/copied_model.h"
#include "trainer/model/copy_meter.h"
#include "trainer/model/cuda_runtime.h"
#include "trainer/model/device_copies.h"
#include "trainer/model/device_data.h"
#include "trainer/model/device_values.h"
#include "trainer/model/held_gradients.h"
#include "trainer/model/local_optimizer.h"
#include "trainer/model/model.h"
#include "trainer/model/network.h"
#include "trainer/model/own_network.h"
#include "trainer/model/plugin_network.h"
#include "trainer/model/seeded_draws.h"
#include "trainer/model/staged_batches.h"
#include "trainer/model/staged_values.h"
#include "trainer/model/tf32.h"
#include "trainer/model/thrown.h"
#include "trainer/model/torch_script_network.h"
#include "trainer/model/torch_types.h"

namespace downpour::model {
namespace {

double Seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The status of `body`, or kInternal with what was thrown; `where` says by whom. kResourceExhausted: the device has no
// more memory.
template <typename Body>
auto Caught(const std::string& where, const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const c10::OutOfMemoryError& error) {
    return OutOfMemory(where, error);
  } catch (...) {
    return absl::InternalError(absl::StrCat(where, ": ", WhatWasThrown()));
  }
}

// bf16 for the operations where LibTorch holds it to be safe, while it lives. Thread-local.
class Autocast {
 public:
  Autocast(at::DeviceType device, bool enabled) : device_(device), enabled_(enabled) {
    if (!enabled_) return;
    at::autocast::set_autocast_dtype(device_, at::kBFloat16);
    at::autocast::set_autocast_enabled(device_, true);
  }
  ~Autocast() {
    if (!enabled_) return;
    at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(device_, false);
  }
  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

 private:
  const at::DeviceType device_;
  const bool enabled_;
};

// For what takes milliseconds.
constexpr absl::Duration kDeviceLimit = absl::Minutes(2);

const char* Name(LayoutChoice layout) {
  switch (layout) {
    case LayoutChoice::kChannelsLast:
      return "channels_last";
    case LayoutChoice::kFused:
      return "fused";
    default:
      return "contiguous";
  }
}

// Takes the parameters that `patterns` name out of training.
absl::Status Freeze(const std::vector<std::string>& patterns, const Network& network) {
  const std::vector<NamedTensor> parameters = network.Parameters();
  for (std::size_t i = 0; i < patterns.size(); ++i) {
    bool matched = false;
    for (const NamedTensor& named : parameters) {
      if (!core::MatchesName(patterns[i], named.name)) continue;
      named.value.set_requires_grad(false);
      matched = true;
    }
    if (matched) continue;
    const auto name = [](std::string* text, const NamedTensor& named) { text->append(named.name); };
    return absl::InvalidArgumentError(absl::StrCat("spec.model.frozen[", i, "]: no parameter is called \"", patterns[i],
                                                   "\"; there are ", absl::StrJoin(parameters, ", ", name)));
  }
  for (const NamedTensor& named : parameters) {
    if (named.value.requires_grad()) return absl::OkStatus();
  }
  return absl::InvalidArgumentError(parameters.empty() ? "spec.model: has no parameters, so there is nothing to train"
                                                       : "spec.model.frozen: leaves no parameter to train");
}

// The memory of the batch itself.
at::Tensor View(const data::Array& array) {
  return at::from_blob(const_cast<std::byte*>(array.bytes.data()), array.shape, TorchType(array.type));
}

at::Tensor LossOf(const Objective& objective, const at::Tensor& output, const at::Tensor& target,
                  at::Reduction::Reduction reduction) {
  switch (objective.loss) {
    case LossType::kBinaryCrossEntropy:
      return at::binary_cross_entropy_with_logits(output, target.view(output.sizes()).to(at::kFloat), {}, {},
                                                  reduction);
    case LossType::kMeanSquaredError:
      return at::mse_loss(output, target, reduction);
    case LossType::kHuber:
      return at::huber_loss(output, target, reduction, objective.delta);
    case LossType::kCrossEntropy:
      break;
  }
  return at::cross_entropy_loss(output, target.to(at::kLong), {}, reduction, -100, objective.label_smoothing);
}

Measured Measure(MetricType type, const at::Tensor& output, const at::Tensor& target) {
  Measured measured{Name(type), 0, target.numel()};
  switch (type) {
    case MetricType::kAccuracy:
      measured.sum = output.argmax(1).eq(target).sum().item<double>();
      break;
    case MetricType::kTop5Accuracy: {
      const at::Tensor best = std::get<1>(output.topk(std::min<std::int64_t>(5, output.size(1)), 1));
      measured.sum = best.eq(target.unsqueeze(1)).sum().item<double>();
      break;
    }
    case MetricType::kBinaryAccuracy:
      // A logit above zero is a probability above one half.
      measured.sum = output.gt(0).eq(target.view(output.sizes()).gt(0.5)).sum().item<double>();
      break;
    case MetricType::kMeanAbsoluteError:
      measured.sum = (output - target).abs().sum(at::kDouble).item<double>();
      break;
  }
  return measured;
}

// What TorchModel is made of.
struct Parts {
  data::Field input;
  data::Field target;
  std::shared_ptr<Network> network;
  std::string where = "LibTorch";         // what is to blame if it throws
  const plugin::Registry* own = nullptr;  // if there is a plug-in
  Objective objective;
};

class TorchModel final : public Model {
 public:
  TorchModel(const ModelOptions& options, Parts parts, at::Device device, std::string without_gpu,
             const MakeQueue& make_queue)
      : parts_(std::move(parts)),
        without_gpu_(std::move(without_gpu)),
        threads_(std::max(1, options.threads)),
        bf16_(options.precision == PrecisionChoice::kBf16),
        tf32_(options.precision == PrecisionChoice::kTf32),
        device_(device),
        network_(parts_.network.get()) {
    for (const NamedTensor& named : network_->Parameters()) {
      Tensor tensor{named.name, named.value.sizes().vec()};
      if (!named.value.requires_grad()) {
        frozen_.emplace_back(std::move(tensor), named.value);
        continue;
      }
      tensors_.push_back(std::move(tensor));
      values_.push_back(named.value);
    }
    parameters_ = values_.size();
    for (const NamedTensor& named : network_->Buffers()) {
      Tensor tensor{named.name, named.value.sizes().vec(), TensorKind::kBuffer};
      if (IsShared(named.value)) {
        tensors_.push_back(std::move(tensor));
        values_.push_back(named.value);
      } else {
        frozen_.emplace_back(std::move(tensor), named.value);
      }
    }
    for (std::size_t index = 0; index < parameters_; ++index) {
      values_[index].register_hook([this, index](const at::Tensor& gradient) { Deliver(index, gradient); });
    }
    if (options.local_optimizer.has_value()) {
      local_ = MakeLocalOptimizer(*options.local_optimizer, Trained());
      clip_norm_ = options.local_optimizer->clip_norm;
    }
    if (!device_.is_cpu()) {
      std::vector<std::int64_t> elements;
      for (const Tensor& tensor : tensors_) elements.push_back(tensor.elements());
      elements.push_back(1);  // the loss
      copies_ = std::make_unique<DeviceCopies>(device_, elements, &copy_meter_);
    }
    if (make_queue != nullptr || !device_.is_cpu()) {
      const auto queue = [&] { return make_queue != nullptr ? make_queue() : MakeCopyQueue(device_, &copy_meter_); };
      staged_values_ = std::make_unique<StagedValues>(queue(), values_);
      uses_told_ = network_->TellUse([this](const std::string& layer) { UseLayer(layer); });
      if (options.pin_memory) staged_batches_ = std::make_unique<StagedBatches>(queue());
    }
    SetThreads();
    if (!network_->has_convolutions()) return;  // nothing to choose
    if (options.layout != LayoutChoice::kAuto) {
      SetLayout(options.layout);
    } else if (device_.is_cpu() && options.batch_size > 0) {
      ChooseLayout(options.batch_size);
    } else if (!device_.is_cpu() && options.precision != PrecisionChoice::kFp32) {
      SetLayout(LayoutChoice::kChannelsLast);  // as tensor cores take it
    }
  }
  // The hooks hold `this`.
  TorchModel(const TorchModel&) = delete;
  TorchModel& operator=(const TorchModel&) = delete;

  const std::vector<Tensor>& tensors() const override { return tensors_; }

  std::vector<Frozen> frozen() const override {
    std::vector<Frozen> all;
    for (const auto& [tensor, value] : frozen_) {
      all.push_back({tensor, std::vector<float>(static_cast<std::size_t>(tensor.elements()))});
      at::from_blob(all.back().values.data(), tensor.shape, at::kFloat).copy_(value);
    }
    return all;
  }

  void SetFrozen(std::size_t index, absl::Span<const float> values) override {
    const auto& [tensor, value] = frozen_[index];
    CheckSize(tensor, values.size());
    const at::NoGradGuard no_grad;
    value.copy_(at::from_blob(const_cast<float*>(values.data()), tensor.shape, at::kFloat));
  }

  void SetParameter(std::size_t tensor, absl::Span<const float> values) override {
    CheckSize(tensors_[tensor], values.size());
    if (staged_values_ != nullptr) return staged_values_->Set(tensor, values);
    const at::NoGradGuard no_grad;
    values_[tensor].copy_(at::from_blob(const_cast<float*>(values.data()), tensors_[tensor].shape, at::kFloat));
  }

  void GetParameter(std::size_t tensor, absl::Span<float> values) const override {
    CheckSize(tensors_[tensor], values.size());
    if (staged_values_ != nullptr) staged_values_->Use(tensor);
    const at::NoGradGuard no_grad;
    at::from_blob(values.data(), tensors_[tensor].shape, at::kFloat).copy_(values_[tensor]);
  }

  absl::StatusOr<StepResult> ComputeGradients(const data::Batch& batch, std::uint64_t update_seed,
                                              const OnLoss& on_loss, const OnGradient& on_gradient) override {
    if (absl::Status status = Check(batch); !status.ok()) return status;
    return Caught(parts_.where, [&]() -> absl::StatusOr<StepResult> {
      SetThreads();
      draw_seed_ = update_seed;
      UseBuffers();
      StepResult result;
      const BuffersAsBefore buffers(*network_);
      const auto end_of_step = absl::MakeCleanup([&] {
        on_gradient_ = nullptr;
        ForgetGradients();
      });
      held_.Release();
      delivered_.assign(parameters_, false);
      if (copies_ != nullptr) {
        ComputeOnDevice(batch, buffers.values(), on_loss, on_gradient, &result);
        return result;
      }
      const std::optional<at::Tensor> loss = Forward(batch, on_loss, &result);
      if (!loss.has_value()) return result;
      on_gradient_ = &on_gradient;
      const double backward = Seconds(CLOCK_MONOTONIC);
      StageNext();
      loss->backward();
      ReportAbsent(on_gradient);
      for (const auto& [index, change] : BufferChanges(buffers.values())) Report(index, change);
      result.backward_seconds = Seconds(CLOCK_MONOTONIC) - backward;
      return result;
    });
  }

  absl::StatusOr<StepResult> ComputeDeviceGradients(const data::Batch& batch, std::uint64_t update_seed,
                                                    const OnLoss& on_loss,
                                                    const OnDeviceGradient& on_gradient) override {
    if (absl::Status status = Check(batch); !status.ok()) return status;
    return Caught(parts_.where, [&]() -> absl::StatusOr<StepResult> {
      held_.Release();
      SetThreads();
      draw_seed_ = update_seed;
      UseBuffers();
      StepResult result;
      const BuffersAsBefore buffers(*network_);
      const auto end_of_step = absl::MakeCleanup([&] {
        on_device_gradient_ = nullptr;
        ForgetGradients();
      });
      delivered_.assign(parameters_, false);
      if (copies_ != nullptr) {
        GiveOnDevice(batch, buffers.values(), on_loss, on_gradient, &result);
        return result;
      }
      const std::optional<at::Tensor> loss = Forward(batch, on_loss, &result);
      if (!loss.has_value()) return result;
      const double backward = Seconds(CLOCK_MONOTONIC);
      StageNext();
      GiveGradients(*loss, buffers.values(), on_gradient);
      result.backward_seconds = Seconds(CLOCK_MONOTONIC) - backward;
      return result;
    });
  }

  void ReleaseGradients() override { held_.Release(); }

  absl::Status SetDeviceParameters(absl::Span<const float* const> values) override {
    return Caught(parts_.where, [&] {
      // Those that are on their way are older.
      if (staged_values_ != nullptr) staged_values_->UseAll();
      return CopyDeviceValues(values, values_);
    });
  }

  std::optional<int> cuda_device() const override {
    return device_.is_cuda() ? std::optional<int>(device_.index()) : std::nullopt;
  }

  void* compute_stream() const override {
    if (device_.is_cpu()) return nullptr;
    return c10::impl::VirtualGuardImpl(device_.type()).getStream(device_).native_handle();
  }

  absl::StatusOr<StepResult> TakeStep(const data::Batch& batch, std::uint64_t update_seed,
                                      const OnLoss& on_loss) override {
    held_.Release();
    if (local_ == nullptr) return Model::TakeStep(batch, update_seed, on_loss);
    if (absl::Status status = Check(batch); !status.ok()) return status;
    return Caught(parts_.where, [&]() -> absl::StatusOr<StepResult> {
      SetThreads();
      draw_seed_ = update_seed;
      UseBuffers();
      StepResult result;
      std::vector<at::Tensor> moved;
      {
        const BuffersAsBefore buffers(*network_);  // those that are not shared count nothing
        const auto end_of_step = absl::MakeCleanup([this] { ForgetGradients(); });
        const std::optional<at::Tensor> loss = Forward(batch, on_loss, &result);
        if (!loss.has_value()) return result;
        const double backward = Seconds(CLOCK_MONOTONIC);
        loss->backward();
        if (clip_norm_ > 0) ClipNorm(Trained(), clip_norm_);
        local_->step();
        StageNext();
        for (const NamedTensor& named : network_->Buffers()) {
          if (IsShared(named.value)) moved.push_back(named.value.clone());
        }
        result.backward_seconds = Seconds(CLOCK_MONOTONIC) - backward;
      }
      const at::NoGradGuard no_grad;
      for (std::size_t i = 0; i < moved.size(); ++i) values_[parameters_ + i].copy_(moved[i]);
      return result;
    });
  }

  void StageFrom(const NextBatch& next) override { next_batch_ = next; }

  absl::StatusOr<bool> TakeData(data::Dataset* dataset, HoldChoice hold) override {
    if (staged_values_ == nullptr) return false;  // on the CPU
    return Caught("LibTorch", [&]() -> absl::StatusOr<bool> {
      data::Deferred deferred = dataset->Defer();
      std::string why = deferred.inputs.empty() ? "it does not say what its samples are"
                                                : WhyNotHeld(deferred, dataset->size(), FreeMemory(device_), hold);
      if (!deferred.inputs.empty()) device_data_ = std::make_unique<DeviceData>(device_, std::move(deferred));
      if (why.empty()) {
        const absl::Status held = device_data_->Hold(*dataset);
        if (held.ok()) return true;
        if (!absl::IsFailedPrecondition(held)) return held;
        device_data_->Release();
        why = std::string(held.message());
      }
      if (hold != HoldChoice::kAlways) return false;
      return absl::FailedPreconditionError(
          absl::StrCat("spec.dataset.onDevice: Always, but the device cannot hold the data set: ", why));
    });
  }

  void SetLearningRate(double learning_rate) override {
    if (local_ == nullptr) return;
    for (torch::optim::OptimizerParamGroup& group : local_->param_groups()) group.options().set_lr(learning_rate);
  }

  void ForgetSteps() override {
    if (local_ != nullptr) local_->state().clear();
  }

  absl::StatusOr<EvaluationResult> Evaluate(const data::Batch& batch) override {
    if (absl::Status status = Check(batch); !status.ok()) return status;
    return Caught(parts_.where, [&]() -> absl::StatusOr<EvaluationResult> {
      SetThreads();
      // Not InferenceMode: what a network of the user's own keeps for later must be good for training too.
      const at::NoGradGuard no_grad;
      UseBuffers();
      const BuffersAsBefore buffers(*network_);  // one that was traced may change them here too
      network_->Train(false);
      const auto end = absl::MakeCleanup([this] { network_->Train(true); });
      const at::Tensor output = Output(batch);
      const at::Tensor target = this->target();
      EvaluationResult result;
      result.loss = SumOfLosses(output, target);
      for (const Metric& metric : parts_.objective.metrics) {
        result.metrics.push_back(metric.own.empty() ? Measure(metric.type, output, target)
                                                    : MeasureOwn(parts_.own->metrics, metric.own, output, target));
      }
      return result;
    });
  }

  std::string description() const override {
    return absl::StrFormat("%s, %s, %d thread%s%s", device_.is_cpu() ? "cpu" : "cuda", Name(layout_), threads_,
                           threads_ == 1 ? "" : "s",
                           bf16_                        ? ", bf16 autocast"
                           : tf32_ && !device_.is_cpu() ? ", TF32"
                                                        : "");
  }
  std::string without_gpu() const override { return without_gpu_; }
  std::vector<int> gpus() const override {
    return device_.is_cpu() ? std::vector<int>() : std::vector<int>{device_.index()};
  }
  DeviceTraffic traffic() const override { return copy_meter_.traffic(); }

 private:
  // What the device is given from now on finds the newest values: of the buffers, the first that is asked for, and
  // where nobody tells when a layer's parameters are, of these too.
  void UseBuffers() {
    if (staged_values_ == nullptr) return;
    if (!uses_told_) return staged_values_->UseAll();
    for (std::size_t tensor = parameters_; tensor < values_.size(); ++tensor) staged_values_->Use(tensor);
  }

  void UseLayer(const std::string& layer) {
    for (std::size_t tensor = 0; tensor < parameters_; ++tensor) {
      const std::string& name = tensors_[tensor].name;
      if (name.starts_with(layer) && name[layer.size()] == '.') staged_values_->Use(tensor);
    }
  }

  // The next minibatch is on its way while the device computes. One that is wrong is so when its turn comes.
  void StageNext() {
    if (staged_batches_ == nullptr || next_batch_ == nullptr) return;
    std::shared_ptr<const data::Batch> next = next_batch_();
    if (next == nullptr || staged_batches_->IsStaged(*next) || !Check(*next).ok()) return;
    const std::vector<at::Tensor> arrays = ArraysOf(*next);
    staged_batches_->Stage(std::move(next), arrays);
  }

  // What LibTorch keeps for all that computes.
  void SetThreads() const {
    // LibTorch keeps this a thread of the program, so it is set where the work is done.
    if (at::get_num_threads() != threads_) at::set_num_threads(threads_);
    if (!device_.is_cpu()) AllowTf32(tf32_);
  }

  // The parameters: handles of the same tensors.
  std::vector<at::Tensor> Trained() const {
    return {values_.begin(), values_.begin() + static_cast<std::ptrdiff_t>(parameters_)};
  }

  void ForgetGradients() {
    for (std::size_t index = 0; index < parameters_; ++index) values_[index].mutable_grad().reset();
  }

  // Others count the batches that a worker saw (num_batches_tracked) or are constants.
  static bool IsShared(const at::Tensor& buffer) { return buffer.scalar_type() == at::kFloat; }

  // What a step changed in the buffers since they were `before`.
  std::vector<std::pair<std::size_t, at::Tensor>> BufferChanges(const std::vector<at::Tensor>& before) const {
    const at::NoGradGuard no_grad;
    std::vector<std::pair<std::size_t, at::Tensor>> changes;
    const std::vector<NamedTensor> after = network_->Buffers();
    for (std::size_t i = 0; i < before.size(); ++i) {
      if (!IsShared(before[i])) continue;
      TORCH_CHECK(after[i].value.sizes() == before[i].sizes(), "buffer ", after[i].name, " was ", before[i].sizes(),
                  " and became ", after[i].value.sizes());
      changes.emplace_back(parameters_ + changes.size(), before[i] - after[i].value);
    }
    return changes;
  }

  // Zeros for what had no part in the batch.
  void ReportAbsent(const OnGradient& on_gradient) const {
    if (!on_gradient) return;
    for (std::size_t index = 0; index < parameters_; ++index) {
      if (delivered_[index]) continue;
      on_gradient(index, std::vector<float>(static_cast<std::size_t>(tensors_[index].elements())));
    }
  }

  // All of the step is handed to the device before the host waits for the first of its results, the loss: backward is
  // under way before it is known, and what comes of it is dropped if nobody wants to go on.
  void ComputeOnDevice(const data::Batch& batch, const std::vector<at::Tensor>& before, const OnLoss& on_loss,
                       const OnGradient& on_gradient, StepResult* result) {
    const auto drop = absl::MakeCleanup([this] {
      try {
        copies_->Drop(kDeviceLimit);
      } catch (...) {
        // Whatever is wrong with the device has been thrown before, or is thrown by the next step.
      }
    });
    const double start = Seconds(CLOCK_MONOTONIC);
    const at::Tensor loss = Loss(batch);
    copies_->Start(tensors_.size(), loss);
    on_gradient_ = &on_gradient;
    loss.backward();
    for (const auto& [index, change] : BufferChanges(before)) copies_->Start(index, change);
    StageNext();
    result->loss = double{copies_->Next(kDeviceLimit)->values.front()};
    const double forward = Seconds(CLOCK_MONOTONIC);
    result->forward_seconds = forward - start;
    if (on_loss && !on_loss(result->loss)) return;
    bool parameters = true;
    while (const std::optional<DeviceCopies::Copy> copy = copies_->Next(kDeviceLimit)) {
      if (parameters && copy->number >= parameters_) ReportAbsent(on_gradient);
      parameters = parameters && copy->number < parameters_;
      if (on_gradient) on_gradient(copy->number, copy->values);
    }
    if (parameters) ReportAbsent(on_gradient);
    result->backward_seconds = Seconds(CLOCK_MONOTONIC) - forward;
  }

  // Runs backward, on a device as far as handing it over goes, and leaves every gradient where it is.
  void GiveGradients(const at::Tensor& loss, const std::vector<at::Tensor>& before,
                     const OnDeviceGradient& on_gradient) {
    on_device_gradient_ = &on_gradient;
    loss.backward();
    for (std::size_t index = 0; index < parameters_; ++index) {
      if (!delivered_[index]) held_.Give(index, at::zeros_like(values_[index]), on_gradient);
    }
    for (const auto& [index, change] : BufferChanges(before)) held_.Give(index, change, on_gradient);
  }

  // See ComputeOnDevice; nothing is waited for but the loss.
  void GiveOnDevice(const data::Batch& batch, const std::vector<at::Tensor>& before, const OnLoss& on_loss,
                    const OnDeviceGradient& on_gradient, StepResult* result) {
    const auto drop = absl::MakeCleanup([this] {
      try {
        copies_->Drop(kDeviceLimit);
      } catch (...) {
        // It was thrown before.
      }
    });
    const double start = Seconds(CLOCK_MONOTONIC);
    const at::Tensor loss = Loss(batch);
    copies_->Start(tensors_.size(), loss);
    GiveGradients(loss, before, on_gradient);
    StageNext();
    result->loss = double{copies_->Next(kDeviceLimit)->values.front()};
    result->forward_seconds = Seconds(CLOCK_MONOTONIC) - start;
    if (on_loss) on_loss(result->loss);
  }

  static void CheckSize(const Tensor& tensor, std::size_t size) {
    if (static_cast<std::int64_t>(size) == tensor.elements()) return;
    std::fprintf(stderr, "%s: %zu values for a tensor of %lld\n", tensor.name.c_str(), size,
                 static_cast<long long>(tensor.elements()));
    std::abort();
  }

  absl::Status Check(const data::Batch& batch) const {
    if (!DeviceData::IsDeferred(batch)) return CheckBatch(parts_.input, parts_.target, batch);
    if (device_data_ != nullptr) return device_data_->Check(batch);
    return absl::InvalidArgumentError("a batch of a data set that the model has not taken");
  }

  at::MemoryFormat format() const {
    return layout_ == LayoutChoice::kChannelsLast ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  }

  void SetLayout(LayoutChoice layout) {
    layout_ = layout;
    for (at::Tensor& value : values_) {
      if (value.dim() == 4) value.set_data(value.detach().contiguous(format()));
    }
  }

  // Of the host.
  std::vector<at::Tensor> ArraysOf(const data::Batch& batch) const {
    std::vector<at::Tensor> arrays;
    if (!batch.inputs.empty()) arrays = {View(batch.inputs.front()), View(batch.targets.front())};
    if (!DeviceData::IsDeferred(batch)) return arrays;
    for (at::Tensor& array : device_data_->Travelling(batch)) arrays.push_back(std::move(array));
    return arrays;
  }

  // The arrays of a batch on the device, in the types of the fields; until the next call.
  void Begin(const data::Batch& batch) const {
    here_.clear();
    if (staged_batches_ == nullptr || !staged_batches_->IsStaged(batch)) here_ = ArraysOf(batch);
    if (staged_batches_ != nullptr) here_ = staged_batches_->Begin(batch, here_);
    for (at::Tensor& array : here_) array = array.to(device_);
    if (DeviceData::IsDeferred(batch)) here_ = device_data_->Make(here_);
  }

  Flow Samples(const data::Batch& batch) const {
    at::Tensor samples = here_.front();
    Flow flow;
    if (!batch.inputs.empty() && !batch.inputs.front().lengths.empty()) {
      flow.lengths = at::tensor(batch.inputs.front().lengths, at::kLong);
      flow.value = samples;
      return flow;
    }
    const std::vector<std::int64_t>& used = network_->used_shape();
    for (std::size_t i = 0; i < used.size(); ++i)
      samples = samples.narrow(static_cast<std::int64_t>(i) + 1, 0, used[i]);
    const bool pixels = parts_.input.type == data::ElementType::kU8;
    const at::ScalarType type = pixels ? at::kFloat : samples.scalar_type();
    if (layout_ == LayoutChoice::kChannelsLast && used.size() == 3) {
      // Strides set by hand: with one channel, LibTorch takes a row-major tensor for channels_last and leaves it, and
      // the first convolution then computes row-major.
      const std::int64_t channels = used[0], height = used[1], width = used[2];
      flow.value = at::empty_strided({batch.size(), channels, height, width},
                                     {channels * height * width, 1, channels * width, channels},
                                     samples.options().dtype(type).device(device_))
                       .copy_(samples);
    } else {
      flow.value = samples.contiguous().to(type);
    }
    if (pixels) flow.value.div_(255);
    return flow;
  }

  // Of the batch that Output was last given.
  const at::Tensor& target() const { return here_.back(); }

  at::Tensor Output(const data::Batch& batch) const {
    Begin(batch);
    const Flow samples = Samples(batch);
    const Autocast autocast(device_.type(), bf16_);
    at::Tensor output = network_->Forward(samples, layout_ == LayoutChoice::kFused).to(at::kFloat);
    if (staged_values_ != nullptr) staged_values_->UseAll();  // of layers that had no part as well
    return output;
  }

  // None: nobody wants to go on with this loss.
  std::optional<at::Tensor> Forward(const data::Batch& batch, const OnLoss& on_loss, StepResult* result) const {
    const double start = Seconds(CLOCK_MONOTONIC);
    at::Tensor loss = Loss(batch);
    result->loss = loss.item<double>();
    result->forward_seconds = Seconds(CLOCK_MONOTONIC) - start;
    if (on_loss && !on_loss(result->loss)) return std::nullopt;
    return loss;
  }

  at::Tensor Loss(const data::Batch& batch) const {
    const SeededDraws draws(device_, draw_seed_, network_->draws());
    const at::Tensor output = Output(batch);
    const std::string& own = parts_.objective.own_loss;
    if (own.empty()) return LossOf(parts_.objective, output, target(), at::Reduction::Mean);
    const Sum measured = model::MeasureOwn(*FindNamed(parts_.own->losses, own), output, target());
    return measured.sum / measured.count;
  }

  static Measured MeasureOwn(const std::vector<plugin::Named<plugin::Measure>>& measures, const std::string& name,
                             const at::Tensor& output, const at::Tensor& target) {
    const Sum measured = model::MeasureOwn(*FindNamed(measures, name), output, target);
    return {name, measured.sum.item<double>(), measured.count};
  }

  Measured SumOfLosses(const at::Tensor& output, const at::Tensor& target) const {
    const Objective& objective = parts_.objective;
    if (!objective.own_loss.empty()) return MeasureOwn(parts_.own->losses, objective.own_loss, output, target);
    const at::Tensor sum = LossOf(objective, output, target, at::Reduction::Sum);
    const bool of_samples = objective.loss == LossType::kCrossEntropy;
    return {Name(objective.loss), sum.item<double>(), of_samples ? output.size(0) : output.numel()};
  }

  // Called by LibTorch: on the CPU by the thread that runs backward when a gradient is complete; for a device by a
  // thread of LibTorch's when it has been told to compute it.
  void Deliver(std::size_t index, const at::Tensor& gradient) {
    if (on_device_gradient_ != nullptr) {
      delivered_[index] = true;
      held_.Give(index, gradient, *on_device_gradient_);
      return;
    }
    if (on_gradient_ == nullptr) return;
    delivered_[index] = true;
    if (copies_ != nullptr) {
      copies_->Start(index, gradient);
    } else {
      Report(index, gradient);
    }
  }

  void Report(std::size_t index, const at::Tensor& gradient) const {
    if (!*on_gradient_) return;
    const at::Tensor values = gradient.detach().to(at::kCPU, at::kFloat).contiguous();
    (*on_gradient_)(index, {values.const_data_ptr<float>(), static_cast<std::size_t>(values.numel())});
  }

  // The fastest of a few steps of each layout, counted in this thread's processor time where it works alone: other
  // processes on the machine must not decide.
  void ChooseLayout(std::int64_t batch_size) {
    constexpr std::int64_t kMaxSamples = 64;
    constexpr int kTimedSteps = 2;
    constexpr double kBudgetSeconds = 0.5;
    const std::int64_t size = std::min(batch_size, kMaxSamples);
    const data::Batch batch{{data::MakeArray(parts_.input, size)}, {data::MakeArray(parts_.target, size)}};
    std::vector<LayoutChoice> candidates = {LayoutChoice::kChannelsLast, LayoutChoice::kContiguous};
    if (!bf16_ && network_->can_fuse()) candidates.insert(candidates.begin(), LayoutChoice::kFused);

    const BuffersAsBefore buffers(*network_);
    const clockid_t clock = threads_ == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    const double deadline = Seconds(CLOCK_MONOTONIC) + kBudgetSeconds;
    LayoutChoice best = candidates.front();
    double best_seconds = std::numeric_limits<double>::infinity();
    for (const LayoutChoice candidate : candidates) {
      if (Seconds(CLOCK_MONOTONIC) > deadline) break;
      SetLayout(candidate);
      for (int step = -1; step < kTimedSteps; ++step) {  // the first warms up
        const double start = Seconds(clock);
        Loss(batch).backward();
        const double seconds = Seconds(clock) - start;
        if (step >= 0 && seconds < best_seconds) {
          best_seconds = seconds;
          best = candidate;
        }
      }
      ForgetGradients();
    }
    SetLayout(best);
  }

  const Parts parts_;
  const std::string without_gpu_;
  const int threads_;
  const bool bf16_;
  const bool tf32_;
  const at::Device device_;
  Network* const network_;  // of parts_
  std::vector<Tensor> tensors_;
  std::vector<at::Tensor> values_;  // of tensors_
  std::size_t parameters_ = 0;      // of them; buffers follow
  std::vector<std::pair<Tensor, at::Tensor>> frozen_;
  std::unique_ptr<torch::optim::Optimizer> local_;  // null: none is wanted
  double clip_norm_ = 0;
  LayoutChoice layout_ = LayoutChoice::kContiguous;
  const OnGradient* on_gradient_ = nullptr;               // during backward
  const OnDeviceGradient* on_device_gradient_ = nullptr;  // likewise
  HeldGradients held_;
  std::uint64_t draw_seed_ = 0;  // of the step under way
  std::vector<bool> delivered_;
  CopyMeter copy_meter_{device_};
  std::unique_ptr<DeviceCopies> copies_;           // of a device that is not the CPU
  std::unique_ptr<StagedValues> staged_values_;    // likewise
  bool uses_told_ = false;                         // UseLayer is called
  std::unique_ptr<StagedBatches> staged_batches_;  // null: each is copied when it is computed with
  NextBatch next_batch_;
  std::unique_ptr<DeviceData> device_data_;  // of a data set that was taken
  mutable std::vector<at::Tensor> here_;     // see Begin
};

// Of CUDA's devices that with `number`.
absl::StatusOr<at::Device> ChooseDevice(DeviceChoice choice, int number, std::string* without_gpu) {
  if (choice == DeviceChoice::kCpu) return at::Device(at::kCPU);
  const absl::Status cuda = LoadCuda();
  if (cuda.ok()) {
    const at::Device device(at::kCUDA, static_cast<at::DeviceIndex>(number));
    // What is said to no device in particular, as page-locked memory is, goes to this one too.
    c10::impl::VirtualGuardImpl(device.type()).setDevice(device);
    return device;
  }
  if (choice == DeviceChoice::kAuto) {
    *without_gpu = std::string(cuda.message());
    return at::Device(at::kCPU);
  }
  return absl::Status(cuda.code(), absl::StrCat("device CUDA: ", cuda.message()));
}

// A plug-in's network or a TorchScript module, on the device, and what it is trained for. Returns what it makes.
absl::StatusOr<Value> MakeOwnNetwork(const ModelOptions& options, const OwnMeasures& measures, at::Device device,
                                     Parts* parts) {
  const ModelSpec& spec = options.model;
  const bool script = !spec.torch_script.empty();
  absl::StatusOr<std::shared_ptr<Network>> network =
      script ? LoadTorchScript(spec.torch_script, parts->input)
             : MakePluginNetwork(*parts->own, spec, parts->input, parts->target, options.seed);
  if (!network.ok()) return network.status();
  parts->network = *std::move(network);
  parts->where = script ? absl::StrCat("spec.model.torchScript.path: ", spec.torch_script)
                        : absl::StrCat("spec.model.plugin.name: ", spec.plugin_name);
  if (absl::Status tensors = CheckTensors(*parts->network, parts->where); !tensors.ok()) return tensors;
  parts->network->To(device);
  absl::StatusOr<Value> output = TryOut(*parts->network, parts->input, device, parts->where);
  if (!output.ok()) return output;
  const absl::StatusOr<Objective> objective = PlanObjective(spec.objective, *output, parts->target, measures);
  if (!objective.ok()) {
    return absl::Status(objective.status().code(), absl::StrCat(objective.status().message(), "; the network is given ",
                                                                data::ToString(parts->input)));
  }
  parts->objective = *objective;
  return output;
}

absl::StatusOr<Parts> MakeParts(const ModelOptions& options, at::Device device) {
  Parts parts;
  OwnMeasures measures;
  if (!options.model.plugin_path.empty()) {
    const absl::StatusOr<const plugin::Registry*> own = LoadPlugin(options.model.plugin_path);
    if (!own.ok()) return own.status();
    parts.own = *own;
    measures = MeasuresOf(*parts.own);
  }
  absl::StatusOr<ModelPlan> plan = PlanModel(options.model, options.fields, measures);
  if (!plan.ok()) return plan.status();
  parts.input = plan->input;
  parts.target = plan->target;
  Value output = plan->layers.output;
  if (!options.model.plugin_name.empty() || !options.model.torch_script.empty()) {
    absl::StatusOr<Value> made = MakeOwnNetwork(options, measures, device, &parts);
    if (!made.ok()) return made.status();
    output = *std::move(made);
  } else {
    parts.objective = plan->objective;
    parts.network = MakeLayerNetwork(plan->layers, plan->input, options.seed);
    parts.network->To(device);
  }
  if (parts.own != nullptr) {
    const absl::Status tried = TryOut(*parts.own, parts.objective, output, parts.target, device);
    if (!tried.ok()) return tried;
  }
  return parts;
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> CreateCopiedModel(const ModelOptions& options, const MakeQueue& make_queue) {
  return Caught("LibTorch", [&]() -> absl::StatusOr<std::unique_ptr<Model>> {
    // Operations run one after another, each on its own threads. May be set once a process, before the first work.
    static std::once_flag once;
    std::call_once(once, [] {
      if (at::get_num_interop_threads() != 1) at::set_num_interop_threads(1);
    });
    std::string without_gpu;
    const absl::StatusOr<at::Device> device = ChooseDevice(options.device, options.device_number, &without_gpu);
    if (!device.ok()) return device.status();
    if (options.layout == LayoutChoice::kFused && (!device->is_cpu() || options.precision == PrecisionChoice::kBf16)) {
      return absl::FailedPreconditionError("the fused layout is for fp32 on the CPU");
    }
    absl::StatusOr<Parts> parts = MakeParts(options, *device);
    if (!parts.ok()) return parts.status();
    const Network& network = *parts->network;
    if (absl::Status frozen = Freeze(options.model.frozen, network); !frozen.ok()) return frozen;
    if (options.layout == LayoutChoice::kFused && !network.can_fuse() && network.has_convolutions()) {
      return absl::FailedPreconditionError(
          "the fused layout is for convolution, ReLU and average pooling of 2 in a row");
    }
    return std::make_unique<TorchModel>(options, *std::move(parts), *device, std::move(without_gpu), make_queue);
  });
}

absl::StatusOr<std::unique_ptr<Model>> CreateModel(const ModelOptions& options) {
  return CreateCopiedModel(options, nullptr);
}

}  // namespace downpour::model
