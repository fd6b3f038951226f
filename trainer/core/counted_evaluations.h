#ifndef DOWNPOUR_TRAINER_CORE_COUNTED_EVALUATIONS_H_
#define DOWNPOUR_TRAINER_CORE_COUNTED_EVALUATIONS_H_

#include <cstdint>

#include "absl/types/span.h"
#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/keys.h"

// What evaluations mean for a history, as its view says: those that have been counted, the learning rate's scale and
// the end that follow from them (see training_monitor.h). The view is with every ps, so what was decided stays so
// whatever coordinator comes; nothing follows from an evaluation before it is in the view of all.
namespace downpour::core {

// Whether anything follows from evaluations in this job.
bool HeedsEvaluations(const v1::TrainingConfig& config);

// After how many epochs the newest one is that the view has counted; 0: none is.
std::uint32_t NewestCounted(const v1::View& view);

// Counts those of `settled`, in the order of their epochs, that are of later epochs than all that have been: nothing
// is awaited before any of them. `begun_end`: behind every data shard that anybody may have begun, where the training
// ends if it does. The scale and the end of the view follow; an end that is there stays. False: it is as it was.
bool CountEvaluations(const v1::TrainingConfig& config, const DataPlan& plan, const ShardKey& begun_end,
                      absl::Span<const v1::Evaluation> settled, v1::View* view);

// The mode of the view is another one: where it has steps, its end is behind whole ones.
void FitEnd(const DataPlan& plan, v1::View* view);

// What was decided and why.
void ReportDecisions(const v1::TrainingConfig& config, const v1::View& view, v1::ProgressReply* progress);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_COUNTED_EVALUATIONS_H_
