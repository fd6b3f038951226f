#include "trainer/worker/task_work.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "trainer/model/objective.h"

namespace downpour::worker {
namespace {

constexpr std::int64_t kEvaluationBatch = 500;

void Add(const model::Measured& part, model::Measured* whole) {
  whole->sum += part.sum;
  whole->count += part.count;
}

double Mean(const model::Measured& measured) {
  return measured.sum / static_cast<double>(std::max<std::int64_t>(1, measured.count));
}

bool IsAccuracy(const std::string& metric) {
  return metric == model::Name(model::MetricType::kAccuracy) ||
         metric == model::Name(model::MetricType::kBinaryAccuracy);
}

}  // namespace

v1::TaskResult TaskWork::Do(const core::Work& work) {
  v1::TaskResult result;
  const absl::Status done = work.kind == v1::TASK_EXPORT      ? output_.Export(&result)
                            : work.kind == v1::TASK_KEEP_BEST ? output_.KeepBest(&result)
                                                              : EvaluateTestSet(work, &result);
  if (work.kind == v1::TASK_EXPORT && !result.path().empty()) written_model_ = result.path();
  const std::string name = absl::StrCat("worker-", index_, ": ");
  if (!done.ok()) {
    spdlog::error("{}", std::string(done.message()));
    result.set_error(name + std::string(done.message()));
  }
  if (!result.warning().empty()) {
    spdlog::warn("{}", result.warning());
    result.set_warning(name + result.warning());
  }
  return result;
}

absl::Status TaskWork::EvaluateTestSet(const core::Work& work, v1::TaskResult* result) {
  model::Measured loss;
  std::vector<model::Measured> metrics;
  std::int64_t samples = 0;
  for (std::int64_t first = 0; first < test_->size(); first += kEvaluationBatch) {
    std::vector<std::int64_t> indices(static_cast<std::size_t>(std::min(kEvaluationBatch, test_->size() - first)));
    std::iota(indices.begin(), indices.end(), first);
    const absl::StatusOr<data::Batch> batch = test_->Read(indices, std::nullopt);
    if (!batch.ok()) return batch.status();
    if (batch->size() == 0) continue;  // all are broken, and skipped
    samples += batch->size();
    const absl::StatusOr<model::EvaluationResult> part = model_->Evaluate(*batch);
    if (!part.ok()) return part.status();
    Add(part->loss, &loss);
    for (std::size_t i = 0; i < part->metrics.size(); ++i) {
      if (i == metrics.size()) metrics.push_back({part->metrics[i].name});
      Add(part->metrics[i], &metrics[i]);
    }
  }
  result->set_samples(static_cast<std::uint64_t>(samples));
  result->set_loss(Mean(loss));
  for (const model::Measured& measured : metrics) {
    v1::Metric* metric = result->add_metrics();
    metric->set_name(measured.name);
    metric->set_value(Mean(measured));
    if (!result->has_accuracy() && IsAccuracy(measured.name)) result->set_accuracy(metric->value());
  }
  if (!std::isfinite(loss.sum)) result->set_warning("the loss on the test set is not finite");
  output_.WriteIfBest(work, result);
  return absl::OkStatus();
}

}  // namespace downpour::worker
