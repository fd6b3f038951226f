// A worker with a model that counts instead of learning. With a learning rate of 1 that staleness does not change, the
// trained values say exactly how often each slice was updated and how often each sample was used.
#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "trainer/data/dataset.h"
#include "trainer/model/model.h"
#include "trainer/worker/program.h"
#include "trainer/worker/worker.h"

namespace downpour {
namespace {

constexpr char kSamplesVariable[] = "DOWNPOUR_COUNTER_SAMPLES";
// How long a step computes, so that a job lasts as long on every machine; none: no longer than it takes.
constexpr char kStepVariable[] = "DOWNPOUR_COUNTER_STEP_MILLISECONDS";
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
  CounterModel(std::int64_t samples, absl::Duration step)
      : step_(step),
        tensors_({{"samples", {samples}}, {"large", {2500, 1000}}, {"small", {7}}, {"scalar", {}}, {"odd", {3, 5}}}) {
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
    absl::SleepFor(step_);
    std::vector<float>& used = gradients_.front();
    std::fill(used.begin(), used.end(), 0.0f);
    for (const std::int64_t sample : batch.inputs[0].values<std::int64_t>())
      used[static_cast<std::size_t>(sample)] -= 1;
    model::StepResult result;
    result.loss = 1;
    if (!on_loss(result.loss)) return result;
    for (std::size_t tensor = tensors_.size(); tensor-- > 0;) on_gradient(tensor, gradients_[tensor]);
    return result;
  }
  absl::StatusOr<model::EvaluationResult> Evaluate(const data::Batch&) override { return model::EvaluationResult{}; }
  std::string description() const override { return "counter"; }

 private:
  const absl::Duration step_;
  std::vector<model::Tensor> tensors_;
  std::vector<std::vector<float>> values_;
  std::vector<std::vector<float>> gradients_;
};

absl::StatusOr<std::unique_ptr<worker::WorkerProcess>> CreateCounter(worker::WorkerProcessOptions options) {
  const char* wanted = std::getenv(kSamplesVariable);
  std::int64_t samples = 0;
  if (wanted == nullptr || !absl::SimpleAtoi(wanted, &samples) || samples <= 0) {
    return absl::InvalidArgumentError(absl::StrCat(kSamplesVariable, ": must be a number greater than 0"));
  }
  std::int64_t step = 0;
  if (const char* text = std::getenv(kStepVariable); text != nullptr && (!absl::SimpleAtoi(text, &step) || step < 0)) {
    return absl::InvalidArgumentError(absl::StrCat(kStepVariable, ": must be a number"));
  }
  return worker::WorkerProcess::Create(std::move(options), std::make_unique<CounterDataset>(samples), nullptr,
                                       std::make_unique<CounterModel>(samples, absl::Milliseconds(step)));
}

}  // namespace
}  // namespace downpour

int main(int argc, char** argv) { return downpour::worker::WorkerMain(argc, argv, downpour::CreateCounter); }
