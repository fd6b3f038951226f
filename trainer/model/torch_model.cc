// The LibTorch backend of Model: the one adapter where LibTorch's exceptions become Status.
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <torch/nn/functional/loss.h>
#include <torch/types.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <exception>
#include <limits>
#include <mutex>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "trainer/model/cuda_runtime.h"
#include "trainer/model/model.h"
#include "trainer/model/networks.h"

namespace downpour::model {
namespace {

double Seconds(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

// The status of `body`, or kInternal with what was thrown.
template <typename Body>
auto Caught(const Body& body) -> decltype(body()) {
  try {
    return body();
  } catch (const c10::Error& error) {
    return absl::InternalError(absl::StrCat("LibTorch: ", error.what_without_backtrace()));
  } catch (const std::exception& error) {
    return absl::InternalError(absl::StrCat("LibTorch: ", error.what()));
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

class TorchModel final : public Model {
 public:
  TorchModel(const ModelOptions& options, std::shared_ptr<Network> network, at::Device device)
      : sample_shape_(options.sample_shape),
        classes_(options.classes),
        threads_(std::max(1, options.threads)),
        bf16_(options.precision == PrecisionChoice::kBf16),
        device_(device),
        network_(std::move(network)) {
    network_->to(device_);
    for (const auto& named : network_->named_parameters()) {
      tensors_.push_back({named.key(), named.value().sizes().vec()});
      parameters_.push_back(named.value());
    }
    for (std::size_t index = 0; index < parameters_.size(); ++index) {
      parameters_[index].register_hook([this, index](const at::Tensor& gradient) { Deliver(index, gradient); });
    }
    SetThreads();
    if (!network_->has_convolutions()) return;  // nothing to choose
    if (options.layout != LayoutChoice::kAuto) {
      SetLayout(options.layout);
    } else if (device_.is_cpu() && options.batch_size > 0) {
      ChooseLayout(options.batch_size);
    }
  }
  // The hooks hold `this`.
  TorchModel(const TorchModel&) = delete;
  TorchModel& operator=(const TorchModel&) = delete;

  const std::vector<Tensor>& tensors() const override { return tensors_; }

  void SetParameter(std::size_t tensor, absl::Span<const float> values) override {
    CheckSize(tensor, values.size());
    const at::NoGradGuard no_grad;
    parameters_[tensor].copy_(at::from_blob(const_cast<float*>(values.data()), tensors_[tensor].shape, at::kFloat));
  }

  void GetParameter(std::size_t tensor, absl::Span<float> values) const override {
    CheckSize(tensor, values.size());
    const at::NoGradGuard no_grad;
    at::from_blob(values.data(), tensors_[tensor].shape, at::kFloat).copy_(parameters_[tensor]);
  }

  // No model here draws random numbers, so the seed of the update has no part.
  absl::StatusOr<StepResult> ComputeGradients(const Batch& batch, std::uint64_t /*update_seed*/, const OnLoss& on_loss,
                                              const OnGradient& on_gradient) override {
    if (absl::Status status = Check(batch); !status.ok()) return status;
    return Caught([&]() -> absl::StatusOr<StepResult> {
      SetThreads();
      StepResult result;
      const double start = Seconds(CLOCK_MONOTONIC);
      const at::Tensor loss = Loss(batch);
      result.loss = loss.item<double>();
      const double middle = Seconds(CLOCK_MONOTONIC);
      result.forward_seconds = middle - start;
      if (on_loss && !on_loss(result.loss)) return result;
      on_gradient_ = &on_gradient;
      const auto end_of_backward = absl::MakeCleanup([this] {
        on_gradient_ = nullptr;
        waiting_.clear();
        for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
      });
      const double backward = Seconds(CLOCK_MONOTONIC);
      loss.backward();
      for (const auto& [index, gradient] : waiting_) Report(index, gradient);
      result.backward_seconds = Seconds(CLOCK_MONOTONIC) - backward;
      return result;
    });
  }

  absl::StatusOr<EvaluationResult> Evaluate(const Batch& batch) override {
    if (absl::Status status = Check(batch); !status.ok()) return status;
    return Caught([&]() -> absl::StatusOr<EvaluationResult> {
      SetThreads();
      const c10::InferenceMode inference;
      const at::Tensor logits = Logits(batch);
      const at::Tensor labels = Labels(batch);
      EvaluationResult result;
      result.loss_sum = at::cross_entropy_loss(logits, labels, {}, at::Reduction::Sum).item<double>();
      result.correct = logits.argmax(1).eq(labels).sum().item<std::int64_t>();
      return result;
    });
  }

  std::string description() const override {
    return absl::StrFormat("%s, %s, %d thread%s%s", device_.is_cpu() ? "cpu" : "cuda", Name(layout_), threads_,
                           threads_ == 1 ? "" : "s", bf16_ ? ", bf16 autocast" : "");
  }

 private:
  void SetThreads() const {
    // LibTorch keeps this a thread of the program, so it is set where the work is done.
    if (at::get_num_threads() != threads_) at::set_num_threads(threads_);
  }

  void CheckSize(std::size_t tensor, std::size_t size) const {
    if (static_cast<std::int64_t>(size) == tensors_[tensor].elements()) return;
    std::fprintf(stderr, "%s: %zu values for a tensor of %lld\n", tensors_[tensor].name.c_str(), size,
                 static_cast<long long>(tensors_[tensor].elements()));
    std::abort();
  }

  absl::Status Check(const Batch& batch) const {
    std::int64_t sample = 1;
    for (std::int64_t extent : sample_shape_) sample *= extent;
    if (batch.size() == 0 || static_cast<std::int64_t>(batch.samples.size()) != batch.size() * sample) {
      return absl::InvalidArgumentError(
          absl::StrFormat("a batch of %d labels and %d values, expected at least one label and [%s] values each",
                          batch.size(), batch.samples.size(), absl::StrJoin(sample_shape_, ", ")));
    }
    for (std::int64_t label : batch.labels) {
      if (label < 0 || label >= classes_) {
        return absl::InvalidArgumentError(absl::StrFormat("label %d, expected 0 to %d", label, classes_ - 1));
      }
    }
    return absl::OkStatus();
  }

  at::MemoryFormat format() const {
    return layout_ == LayoutChoice::kChannelsLast ? at::MemoryFormat::ChannelsLast : at::MemoryFormat::Contiguous;
  }

  void SetLayout(LayoutChoice layout) {
    layout_ = layout;
    for (at::Tensor& parameter : parameters_) {
      if (parameter.dim() == 4) parameter.set_data(parameter.detach().contiguous(format()));
    }
  }

  at::Tensor Samples(const Batch& batch) const {
    std::vector<std::int64_t> shape = sample_shape_;
    shape.insert(shape.begin(), batch.size());
    at::Tensor samples = at::from_blob(const_cast<float*>(batch.samples.data()), shape, at::kFloat);
    const std::vector<std::int64_t>& used = network_->used_shape();
    for (std::size_t i = 0; i < used.size(); ++i)
      samples = samples.narrow(static_cast<std::int64_t>(i) + 1, 0, used[i]);
    if (layout_ == LayoutChoice::kChannelsLast && used.size() == 3) {
      // Strides set by hand: with one channel, LibTorch takes a row-major tensor for channels_last and leaves it, and
      // the first convolution then computes row-major.
      const std::int64_t channels = used[0], height = used[1], width = used[2];
      return at::empty_strided({batch.size(), channels, height, width},
                               {channels * height * width, 1, channels * width, channels},
                               samples.options().device(device_))
          .copy_(samples);
    }
    return samples.contiguous().to(device_);
  }

  at::Tensor Labels(const Batch& batch) const {
    return at::from_blob(const_cast<std::int64_t*>(batch.labels.data()), {batch.size()}, at::kLong).to(device_);
  }

  at::Tensor Logits(const Batch& batch) const {
    const at::Tensor samples = Samples(batch);
    const Autocast autocast(device_.type(), bf16_);
    return network_->Forward(samples, layout_ == LayoutChoice::kFused).to(at::kFloat);
  }

  at::Tensor Loss(const Batch& batch) const { return at::cross_entropy_loss(Logits(batch), Labels(batch)); }

  // Called by LibTorch when a gradient is complete: on the CPU by the thread that runs backward; on CUDA by a thread of
  // LibTorch's, so there they wait for the end of backward.
  void Deliver(std::size_t index, const at::Tensor& gradient) {
    if (on_gradient_ == nullptr) return;
    if (device_.is_cpu()) {
      Report(index, gradient);
    } else {
      waiting_.emplace_back(index, gradient);
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
    std::int64_t sample = 1;
    for (std::int64_t extent : sample_shape_) sample *= extent;
    const std::vector<float> values(static_cast<std::size_t>(size * sample), 0.5F);
    const std::vector<std::int64_t> labels(static_cast<std::size_t>(size), 0);
    const Batch batch{values, labels};
    std::vector<LayoutChoice> candidates = {LayoutChoice::kChannelsLast, LayoutChoice::kContiguous};
    if (!bf16_) candidates.insert(candidates.begin(), LayoutChoice::kFused);

    const clockid_t clock = threads_ == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC;
    const double deadline = Seconds(CLOCK_MONOTONIC) + kBudgetSeconds;
    LayoutChoice best = LayoutChoice::kContiguous;
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
      for (at::Tensor& parameter : parameters_) parameter.mutable_grad().reset();
    }
    SetLayout(best);
  }

  const std::vector<std::int64_t> sample_shape_;
  const int classes_;
  const int threads_;
  const bool bf16_;
  const at::Device device_;
  const std::shared_ptr<Network> network_;
  std::vector<Tensor> tensors_;
  std::vector<at::Tensor> parameters_;
  LayoutChoice layout_ = LayoutChoice::kContiguous;
  const OnGradient* on_gradient_ = nullptr;  // during backward
  std::vector<std::pair<std::size_t, at::Tensor>> waiting_;
};

absl::StatusOr<at::Device> ChooseDevice(DeviceChoice choice) {
  if (choice == DeviceChoice::kCpu) return at::Device(at::kCPU);
  const absl::Status cuda = LoadCuda();
  if (cuda.ok()) return at::Device(at::kCUDA, 0);
  if (choice == DeviceChoice::kAuto) return at::Device(at::kCPU);
  return absl::Status(cuda.code(), absl::StrCat("device CUDA: ", cuda.message()));
}

}  // namespace

absl::StatusOr<std::unique_ptr<Model>> CreateModel(const ModelOptions& options) {
  return Caught([&]() -> absl::StatusOr<std::unique_ptr<Model>> {
    // Operations run one after another, each on its own threads. May be set once a process, before the first work.
    static std::once_flag once;
    std::call_once(once, [] {
      if (at::get_num_interop_threads() != 1) at::set_num_interop_threads(1);
    });
    const absl::StatusOr<at::Device> device = ChooseDevice(options.device);
    if (!device.ok()) return device.status();
    if (options.layout == LayoutChoice::kFused && (!device->is_cpu() || options.precision != PrecisionChoice::kFp32)) {
      return absl::FailedPreconditionError("the fused layout is for fp32 on the CPU");
    }
    absl::StatusOr<std::shared_ptr<Network>> network =
        MakeNetwork(options.name, options.sample_shape, options.classes, options.seed);
    if (!network.ok()) return network.status();
    return std::make_unique<TorchModel>(options, *std::move(network), *device);
  });
}

}  // namespace downpour::model
