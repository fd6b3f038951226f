#include "trainer/worker/device_gradients.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "trainer/cuda/plugin.h"
#include "trainer/service/process.h"

namespace downpour::worker {
namespace {

// For what takes milliseconds.
constexpr absl::Duration kDeviceLimit = absl::Minutes(2);

}  // namespace

absl::StatusOr<std::shared_ptr<cuda::DeviceKernels>> KernelsOf(const model::Model& model) {
  const std::optional<int> device = model.cuda_device();
  if (!device.has_value()) return nullptr;
  const absl::StatusOr<const cuda::PluginTable*> table = cuda::LoadPlugin(cuda::PluginPath());
  if (!table.ok()) return table.status();
  return cuda::MakePluginKernels(**table, *device);
}

DeviceGradients::DeviceGradients(model::Model* model, std::vector<core::Slice> slices, const core::CodecOptions& codec,
                                 std::shared_ptr<cuda::DeviceKernels> kernels)
    : model_(model),
      slices_(std::move(slices)),
      kernels_(std::move(kernels)),
      feedback_(codec, kernels_, kDeviceLimit) {
  for (std::uint32_t number = 0; number < slices_.size(); ++number) {
    while (first_.size() <= slices_[number].tensor) first_.push_back(number);
  }
  first_.push_back(static_cast<std::uint32_t>(slices_.size()));
}

DeviceGradients::~DeviceGradients() {
  for (void* const sum : sums_) kernels_->Free(sum);
  if (done_ != nullptr) kernels_->DestroyEvent(done_);
}

absl::Status DeviceGradients::Begin(std::uint32_t minibatches, bool flush) {
  minibatches_ = minibatches;
  minibatch_ = 0;
  flush_ = flush;
  if (done_ == nullptr) {
    const absl::StatusOr<void*> done = kernels_->CreateEvent();
    if (!done.ok()) return done.status();
    done_ = *done;
  }
  std::vector<cuda::DeviceErrorFeedback::Slice> slices;
  slices.reserve(slices_.size());
  for (const core::Slice& slice : slices_) slices.push_back({slice.elements, is_buffer(slice.tensor)});
  if (absl::Status begun = feedback_.Begin(slices); !begun.ok()) return begun;
  return minibatches > 1 && sums_.empty() ? AllocateSums() : absl::OkStatus();
}

absl::Status DeviceGradients::AllocateSums() {
  std::size_t bytes = 0;
  absl::Status failed;
  for (std::size_t tensor = 0; tensor < model_->tensors().size(); ++tensor) {
    sums_.push_back(nullptr);
    if (is_buffer(tensor)) continue;
    const std::size_t size = static_cast<std::size_t>(model_->tensors()[tensor].elements()) * sizeof(float);
    bytes += size;
    if (!failed.ok()) continue;
    const absl::StatusOr<void*> sum = kernels_->Allocate(size);
    if (sum.ok()) {
      sums_.back() = *sum;
    } else {
      failed = sum.status();
    }
  }
  if (!absl::IsResourceExhausted(failed)) return failed;
  return absl::ResourceExhaustedError(absl::StrCat("there is no memory to add up gradients on the device, for which ",
                                                   bytes, " bytes are wanted: could not have ", failed.message()));
}

absl::StatusOr<model::StepResult> DeviceGradients::Compute(const data::Batch& batch, std::uint64_t update_seed,
                                                           float weight, const model::Model::OnLoss& on_loss,
                                                           const std::function<void(const Arrived&)>& on_arrived) {
  taken_.clear();
  bool wanted = true;
  absl::StatusOr<model::StepResult> step = model_->ComputeDeviceGradients(
      batch, update_seed, [&](double loss) { return wanted = on_loss(loss); },
      [&](std::size_t tensor, const float* values) { Take(tensor, values, weight); });
  if (!step.ok()) return step;
  if (!taking_.ok()) return taking_;
  const core::Time begun = service::MonotonicNow();
  if (absl::Status arrived = wanted ? AwaitAll(on_arrived) : absl::OkStatus(); !arrived.ok()) return arrived;
  if (absl::Status finished = Finish(); !finished.ok()) return finished;
  model_->ReleaseGradients();
  step->backward_seconds += absl::ToDoubleSeconds(service::MonotonicNow() - begun);
  ++minibatch_;
  return step;
}

void DeviceGradients::Take(std::size_t tensor, const float* values, float weight) {
  if (taking_.ok()) taking_ = Begin(tensor, values, weight);
}

absl::Status DeviceGradients::Begin(std::size_t tensor, const float* values, float weight) {
  absl::Status begun = kernels_->WaitFor(model_->compute_stream());
  const bool sums = minibatches_ > 1 && !is_buffer(tensor);
  if (begun.ok() && sums) {
    auto* const sum = static_cast<float*>(sums_[tensor]);
    const auto elements = static_cast<std::uint64_t>(model_->tensors()[tensor].elements());
    begun = kernels_->Sum({sum, values, elements, weight, minibatch_ == 0 ? 1 : 0});
    values = sum;
  }
  if (last() || is_buffer(tensor)) {
    for (std::uint32_t number = first_[tensor]; begun.ok() && number < first_[tensor + 1]; ++number) {
      begun = feedback_.Start(number, values + slices_[number].offset, flush_);
    }
    taken_.push_back(tensor);
  }
  return begun.ok() ? kernels_->Record(done_) : begun;
}

absl::StatusOr<DeviceGradients::Arrived> DeviceGradients::Await(std::size_t tensor) {
  Arrived all;
  all.tensor = tensor;
  buffer_.clear();
  for (std::uint32_t number = first_[tensor]; number < first_[tensor + 1]; ++number) {
    const auto arrived = feedback_.Await(number);
    if (!arrived.ok()) return arrived.status();
    all.finite = all.finite && arrived->checks.not_finite == 0;
    all.sum_of_squares += arrived->checks.sum_of_squares;
    if (!is_buffer(tensor)) continue;
    arrived->payload.ForEachFloats(
        [this](std::size_t, absl::Span<const float> run) { buffer_.insert(buffer_.end(), run.begin(), run.end()); });
  }
  all.buffer = buffer_;
  return all;
}

absl::Status DeviceGradients::AwaitAll(const std::function<void(const Arrived&)>& on_arrived) {
  for (const std::size_t tensor : taken_) {
    const absl::StatusOr<Arrived> arrived = Await(tensor);
    if (!arrived.ok()) return arrived.status();
    on_arrived(*arrived);
  }
  return absl::OkStatus();
}

absl::Status DeviceGradients::Finish() { return cuda::Await(*kernels_, done_, kDeviceLimit); }

}  // namespace downpour::worker
