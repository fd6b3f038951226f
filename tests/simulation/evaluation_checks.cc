#include "tests/simulation/evaluation_checks.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "tests/simulation/checks.h"
#include "tests/simulation/random.h"
#include "trainer/core/applied_table.h"
#include "trainer/core/layout.h"
#include "trainer/core/schedule.h"
#include "trainer/core/training_monitor.h"

namespace downpour::simulation {

double EvaluationChecks::Loss(std::uint32_t epoch) const {
  Random random(seed_ * 31 + epoch);
  return 1 + random.Uniform();
}

void EvaluationChecks::OnView(const HistoryKey& key, const v1::View& view) {
  const auto violation = [&](const std::string& what) {
    world_->Violation(absl::StrCat("generation ", key.second, ", epoch ", view.stamp().epoch(), ": ", what, ": ",
                                   view.ShortDebugString()));
  };
  const std::vector<v1::Evaluation> counted(view.evaluations().begin(), view.evaluations().end());
  for (std::size_t i = 0; i < counted.size(); ++i) {
    if (counted[i].loss() != Loss(counted[i].dataset_epoch())) violation("counts an evaluation that nobody made");
    if (i > 0 && counted[i].dataset_epoch() <= counted[i - 1].dataset_epoch()) violation("counts in another order");
  }
  core::StopDecision stop;
  if (config_.has_early_stopping()) stop = DecideToStop(counted, core::EarlyStoppingOf(config_.early_stopping()));
  if (view.has_end() && !stop.stop) violation("ends early without a reason");
  core::ScaleDecision scale;
  if (config_.has_reduce_on_plateau()) {
    scale = DecideScale(counted, core::ReduceOnPlateauOf(config_.reduce_on_plateau(), 1));
  }
  if (core::RateScale(view) != scale.scale) violation(absl::StrCat("expected the scale ", scale.scale));
  v1::View& newest = newest_[key];
  if (newest.has_stamp() && core::CompareStamps(newest.stamp(), view.stamp()) >= 0) return;
  bool kept = newest.evaluations_size() <= view.evaluations_size();
  for (int i = 0; kept && i < newest.evaluations_size(); ++i) {
    kept = newest.evaluations(i).dataset_epoch() == view.evaluations(i).dataset_epoch();
  }
  if (!kept) violation(absl::StrCat("forgets evaluations of ", newest.ShortDebugString()));
  newest = view;
}

void EvaluationChecks::CheckEnd(const std::string& where, const core::DataPlan& plan, const v1::ShardId& end,
                                const v1::SliceLedger& table) {
  const absl::StatusOr<core::AppliedTable> applied = core::AppliedTable::FromLedger(plan, table);
  if (!applied.ok()) return world_->Violation(absl::StrCat(where, ": ", applied.status().ToString()));
  const std::pair<std::uint32_t, std::uint32_t> before(end.dataset_epoch(), end.shard());
  ForEachUpdate(plan, [&](const core::UpdateId& update) {
    const bool expected = std::pair(update.dataset_epoch, update.data_shard) < before;
    if (applied->Contains(update) == expected) return;
    world_->Violation(absl::StrCat(where, ": ", NameOf(update), expected ? " is not there" : " is there",
                                   ", the training ended before ", before.first, "/", before.second));
  });
}

}  // namespace downpour::simulation
