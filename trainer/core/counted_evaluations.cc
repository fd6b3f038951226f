#include "trainer/core/counted_evaluations.h"

#include <algorithm>
#include <cstdint>
#include <vector>

#include "trainer/core/schedule.h"
#include "trainer/core/step_id.h"
#include "trainer/core/training_monitor.h"

namespace downpour::core {
namespace {

std::vector<v1::Evaluation> Counted(const v1::View& view) {
  return {view.evaluations().begin(), view.evaluations().end()};
}

StopDecision StopOf(const v1::TrainingConfig& config, const v1::View& view) {
  if (!config.has_early_stopping()) return {};
  return DecideToStop(Counted(view), EarlyStoppingOf(config.early_stopping()));
}

ScaleDecision ScaleOf(const v1::TrainingConfig& config, const v1::View& view) {
  if (!config.has_reduce_on_plateau()) return {};
  return DecideScale(Counted(view), ReduceOnPlateauOf(config.reduce_on_plateau(),
                                                      HasLocalSteps(config) ? config.local_steps().learning_rate()
                                                                            : config.optimizer().learning_rate()));
}

void Decide(const v1::TrainingConfig& config, const DataPlan& plan, const ShardKey& begun_end, v1::View* view) {
  if (const ScaleDecision decision = ScaleOf(config, *view); !decision.reason.empty()) {
    if (HasLocalSteps(config)) {
      view->set_local_learning_rate_scale(decision.scale);
    } else {
      view->set_learning_rate_scale(decision.scale);
    }
  }
  if (view->has_end() || !StopOf(config, *view).stop) return;
  view->mutable_end()->set_dataset_epoch(begun_end.first);
  view->mutable_end()->set_shard(begun_end.second);
  FitEnd(plan, view);
}

}  // namespace

bool HeedsEvaluations(const v1::TrainingConfig& config) {
  return config.has_early_stopping() || config.has_reduce_on_plateau();
}

std::uint32_t NewestCounted(const v1::View& view) {
  return view.evaluations().empty() ? 0 : view.evaluations().rbegin()->dataset_epoch();
}

bool CountEvaluations(const v1::TrainingConfig& config, const DataPlan& plan, const ShardKey& begun_end,
                      absl::Span<const v1::Evaluation> settled, v1::View* view) {
  const int before = view->evaluations_size();
  for (const v1::Evaluation& evaluation : settled) {
    if (evaluation.dataset_epoch() > NewestCounted(*view)) *view->add_evaluations() = evaluation;
  }
  if (view->evaluations_size() == before) return false;
  Decide(config, plan, begun_end, view);
  return true;
}

void FitEnd(const DataPlan& plan, v1::View* view) {
  if (!view->has_end()) return;
  v1::ShardId* const end = view->mutable_end();
  const std::uint64_t width = std::max<std::uint32_t>(1, StepWidth(*view));
  const std::uint64_t shard = (end->shard() + width - 1) / width * width;
  end->set_shard(static_cast<std::uint32_t>(shard));
  if (shard >= plan.shards_in_epoch(end->dataset_epoch())) {
    end->set_dataset_epoch(end->dataset_epoch() + 1);
    end->set_shard(0);
  }
  if (end->dataset_epoch() >= plan.epochs()) view->clear_end();  // all is begun
}

void ReportDecisions(const v1::TrainingConfig& config, const v1::View& view, v1::ProgressReply* progress) {
  if (view.has_end()) progress->set_stop_reason(StopOf(config, view).reason);
  progress->set_rate_reason(ScaleOf(config, view).reason);
}

}  // namespace downpour::core
