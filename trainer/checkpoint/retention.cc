#include "trainer/checkpoint/retention.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "trainer/core/job_uid.h"
#include "trainer/core/training_monitor.h"

namespace downpour::checkpoint {
namespace {

constexpr std::uint32_t kDefaultKeep = 3;

std::optional<double> ValueOf(const v1::Evaluation& evaluation, const std::string& metric) {
  std::optional<double> value;
  if (metric == "Loss") value = evaluation.loss();
  for (const v1::Metric& one : evaluation.metrics()) {
    if (one.name() == metric) value = one.value();
  }
  return value.has_value() && std::isfinite(*value) ? value : std::nullopt;
}

// What the metric was when the dataset epochs of the checkpoint were done. The evaluation often ends after its cut:
// then the newest checkpoint of its history knows.
std::optional<double> ValueOf(const std::vector<const ListedCheckpoint*>& own, const ListedCheckpoint& checkpoint,
                              const std::string& metric) {
  std::vector<const ListedCheckpoint*> sources = {&checkpoint};
  sources.insert(sources.end(), own.begin(), own.end());
  for (const ListedCheckpoint* const source : sources) {
    if (source->manifest.generation() != checkpoint.manifest.generation()) continue;
    for (const v1::Evaluation& evaluation : source->manifest.evaluations()) {
      if (evaluation.dataset_epoch() != checkpoint.manifest.watermark()) continue;
      if (const std::optional<double> value = ValueOf(evaluation, metric)) return value;
    }
  }
  return std::nullopt;
}

}  // namespace

std::vector<Removal> ToRemove(const std::vector<ListedCheckpoint>& checkpoints, const Retention& retention) {
  const auto uid = core::ParseJobUid(retention.job_uid);
  std::vector<const ListedCheckpoint*> own;
  for (const ListedCheckpoint& checkpoint : checkpoints) {
    if (uid.ok() && core::ParseJobUid(checkpoint.manifest.job_uid()) == uid) own.push_back(&checkpoint);
  }
  const ListedCheckpoint* best = nullptr;
  std::optional<double> best_value;
  for (const ListedCheckpoint* const checkpoint : own) {
    if (retention.keep_best.empty()) break;
    const std::optional<double> value = ValueOf(own, *checkpoint, retention.keep_best);
    if (!value.has_value()) continue;
    const bool better = !best_value.has_value() ||
                        (core::LessIsBetter(retention.keep_best) ? *value < *best_value : *value > *best_value);
    if (!better) continue;  // of equals the newest
    best = checkpoint;
    best_value = value;
  }
  const std::size_t keep = retention.keep == 0 ? kDefaultKeep : retention.keep;
  std::vector<Removal> removals;
  for (std::size_t i = keep; i < own.size(); ++i) {
    if (own[i] == best || own[i]->name == retention.in_use) continue;
    std::string reason = absl::StrCat("the newest ", keep, " are kept");
    if (best != nullptr) absl::StrAppend(&reason, ", and ", best->name, " for its ", retention.keep_best);
    removals.push_back({own[i]->name, std::move(reason)});
  }
  std::reverse(removals.begin(), removals.end());
  return removals;
}

}  // namespace downpour::checkpoint
