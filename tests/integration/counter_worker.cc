// A worker with a model that counts instead of learning. With a learning rate of 1 that staleness does not change, the
// trained values say exactly how often each slice was updated and how often each sample was used.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "trainer/cuda/device_kernels.h"
#include "trainer/data/dataset.h"
#include "trainer/model/model.h"
#include "trainer/worker/program.h"
#include "trainer/worker/worker.h"

namespace downpour {
namespace {

constexpr char kSamplesVariable[] = "DOWNPOUR_COUNTER_SAMPLES";
// How long a step computes, so that a job lasts as long on every machine; none: no longer than it takes.
constexpr char kStepVariable[] = "DOWNPOUR_COUNTER_STEP_MILLISECONDS";
// A folder for a file of each worker with a line for each step: when it began, which is when the update before it was
// acknowledged by all, and when it was computed; nanoseconds of the monotonic clock. None: nothing is written.
constexpr char kTimesVariable[] = "DOWNPOUR_COUNTER_TIMES";
// Of the large tensor, each of 4000 bytes.
constexpr char kRowsVariable[] = "DOWNPOUR_COUNTER_ROWS";
constexpr std::int64_t kRows = 2500;
// "host": gradients go the way that those of a GPU go, with the kernels of the host. None: the usual one.
constexpr char kKernelsVariable[] = "DOWNPOUR_COUNTER_KERNELS";
constexpr std::size_t kSliceElements = std::size_t{1} << 20;

// Sample i is the number i.
class CounterDataset final : public data::Dataset {
 public:
  explicit CounterDataset(std::int64_t size)
      : size_(size),
        fields_{{{"number", data::ElementType::kI64, {}, size}}, {{"label", data::ElementType::kI64, {}, 1}}} {}
  std::int64_t size() const override { return size_; }
  const data::SampleFields& fields() const override { return fields_; }
  absl::StatusOr<data::Batch> Read(absl::Span<const std::int64_t> indices,
                                   std::optional<std::uint64_t> /*seed*/) const override {
    const std::int64_t samples = static_cast<std::int64_t>(indices.size());
    data::Batch batch{{data::MakeArray(fields_.inputs[0], samples)}, {data::MakeArray(fields_.targets[0], samples)}};
    std::copy(indices.begin(), indices.end(), batch.inputs[0].mutable_values<std::int64_t>().begin());
    return batch;
  }

 private:
  const std::int64_t size_;
  const data::SampleFields fields_;
};

// Every tensor but the first counts updates in the first element of each of its slices; the first counts samples.
class CounterModel final : public model::Model {
 public:
  CounterModel(std::int64_t samples, std::int64_t rows, absl::Duration step, const char* times)
      : step_(step),
        tensors_({{"samples", {samples}}, {"large", {rows, 1000}}, {"small", {7}}, {"scalar", {}}, {"odd", {3, 5}}}) {
    if (times != nullptr) times_.open(absl::StrCat(times, "/", getpid()));
    for (const model::Tensor& tensor : tensors_) {
      const auto elements = static_cast<std::size_t>(tensor.elements());
      values_.emplace_back(elements, 0.0f);
      std::vector<float>& gradient = gradients_.emplace_back(elements, 0.0f);
      if (&tensor == &tensors_.front()) continue;
      for (std::size_t slice = 0; slice < elements; slice += kSliceElements) gradient[slice] = -1;
    }
  }
  const std::vector<model::Tensor>& tensors() const override { return tensors_; }
  void SetParameter(std::size_t tensor, absl::Span<const float> values) override {
    values_[tensor].assign(values.begin(), values.end());
  }
  void GetParameter(std::size_t tensor, absl::Span<float> values) const override {
    std::copy(values_[tensor].begin(), values_[tensor].end(), values.begin());
  }
  absl::StatusOr<model::StepResult> ComputeGradients(const data::Batch& batch, std::uint64_t, const OnLoss& on_loss,
                                                     const OnGradient& on_gradient) override {
    return Compute(batch, on_loss, [&](std::size_t tensor) { on_gradient(tensor, gradients_[tensor]); });
  }
  absl::StatusOr<model::StepResult> ComputeDeviceGradients(const data::Batch& batch, std::uint64_t,
                                                           const OnLoss& on_loss,
                                                           const OnDeviceGradient& on_gradient) override {
    return Compute(batch, on_loss, [&](std::size_t tensor) { on_gradient(tensor, gradients_[tensor].data()); });
  }
  absl::Status SetDeviceParameters(absl::Span<const float* const> values) override {
    for (std::size_t tensor = 0; tensor < values_.size(); ++tensor) {
      std::copy_n(values[tensor], values_[tensor].size(), values_[tensor].begin());
    }
    return absl::OkStatus();
  }
  absl::StatusOr<model::EvaluationResult> Evaluate(const data::Batch&) override { return model::EvaluationResult{}; }
  std::string description() const override { return "counter"; }

 private:
  absl::StatusOr<model::StepResult> Compute(const data::Batch& batch, const OnLoss& on_loss,
                                            absl::FunctionRef<void(std::size_t)> on_gradient) {
    const auto begin = std::chrono::steady_clock::now();
    absl::SleepFor(step_);
    if (times_.is_open()) {
      times_ << begin.time_since_epoch() / std::chrono::nanoseconds(1) << ' '
             << std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1) << std::endl;
    }
    std::vector<float>& used = gradients_.front();
    std::fill(used.begin(), used.end(), 0.0f);
    for (const std::int64_t sample : batch.inputs[0].values<std::int64_t>())
      used[static_cast<std::size_t>(sample)] -= 1;
    model::StepResult result;
    result.loss = 1;
    if (!on_loss(result.loss)) return result;
    for (std::size_t tensor = tensors_.size(); tensor-- > 0;) on_gradient(tensor);
    return result;
  }

  const absl::Duration step_;
  std::ofstream times_;
  std::vector<model::Tensor> tensors_;
  std::vector<std::vector<float>> values_;
  std::vector<std::vector<float>> gradients_;
};

// False: it says something, and no number from `least` on.
bool ReadNumber(const char* variable, std::int64_t least, std::int64_t* number) {
  const char* text = std::getenv(variable);
  return text == nullptr || (absl::SimpleAtoi(text, number) && *number >= least);
}

absl::StatusOr<std::unique_ptr<worker::WorkerProcess>> CreateCounter(worker::WorkerProcessOptions options) {
  std::int64_t samples = 0, step = 0, rows = kRows;
  if (!ReadNumber(kSamplesVariable, 1, &samples) || samples == 0) {
    return absl::InvalidArgumentError(absl::StrCat(kSamplesVariable, ": must be a number greater than 0"));
  }
  for (const auto& [variable, least, number] :
       {std::tuple(kStepVariable, 0, &step), std::tuple(kRowsVariable, 1, &rows)}) {
    if (!ReadNumber(variable, least, number)) {
      return absl::InvalidArgumentError(absl::StrCat(variable, ": must be a number of at least ", least));
    }
  }
  if (const char* kernels = std::getenv(kKernelsVariable); kernels != nullptr) {
    if (std::string(kernels) != "host") {
      return absl::InvalidArgumentError(absl::StrCat(kKernelsVariable, ": got \"", kernels, "\", expected host"));
    }
    options.kernels = cuda::MakeHostKernels();
  }
  return worker::WorkerProcess::Create(
      std::move(options), std::make_unique<CounterDataset>(samples), nullptr,
      std::make_unique<CounterModel>(samples, rows, absl::Milliseconds(step), std::getenv(kTimesVariable)));
}

}  // namespace
}  // namespace downpour

int main(int argc, char** argv) { return downpour::worker::WorkerMain(argc, argv, downpour::CreateCounter); }
