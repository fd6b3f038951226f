#ifndef DOWNPOUR_TRAINER_CORE_STEP_ID_H_
#define DOWNPOUR_TRAINER_CORE_STEP_ID_H_

#include <algorithm>
#include <compare>
#include <cstdint>

#include "downpour/v1/control.pb.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/frame.h"

namespace downpour::core {

// A step of mode SYNCHRONOUS of `width` updates. The data shards of an epoch stand in bands of `width`; a band is gone
// through by its data shards side by side, so that step `group` has the update `group` of each: fewer where a data
// shard has no more, and in the last band of an epoch. Workers that hold a data shard each take part in each step.
struct StepId {
  std::uint32_t dataset_epoch = 0;
  std::uint32_t band = 0;
  std::uint32_t group = 0;
  auto operator<=>(const StepId&) const = default;  // NOLINT(modernize-use-nullptr): of the operator itself
};

// Updates of a step; 0: the mode is another one.
inline std::uint32_t StepWidth(const v1::View& view) {
  return view.mode() == v1::SYNCHRONOUS ? std::max<std::uint32_t>(1, view.updates_per_step()) : 0;
}

inline StepId StepOf(const UpdateId& update, std::uint32_t width) {
  return {update.dataset_epoch, update.data_shard / width, update.group};
}

// The update of it with the lowest number of a data shard, whether the plan has it or not.
inline UpdateId FirstUpdateOf(const StepId& step, std::uint32_t width) {
  return {step.dataset_epoch, step.band * width, step.group};
}

// Calls `visit(update)` for each of its updates. How many there are; 0: the plan has no such step.
template <typename Visit>
std::uint32_t ForEachUpdateOf(const StepId& step, std::uint32_t width, const DataPlan& plan, Visit visit) {
  if (step.dataset_epoch >= plan.epochs()) return 0;
  std::uint32_t updates = 0;
  const std::uint64_t first = std::uint64_t{step.band} * width;
  const std::uint64_t end = std::min<std::uint64_t>(first + width, plan.shards_in_epoch(step.dataset_epoch));
  for (std::uint64_t shard = first; shard < end; ++shard) {
    const UpdateId update{step.dataset_epoch, static_cast<std::uint32_t>(shard), step.group};
    if (!plan.Contains(update)) continue;
    ++updates;
    visit(update);
  }
  return updates;
}

// Updates that the plan has before the step: those of all earlier ones.
inline std::uint64_t UpdatesBefore(const StepId& step, std::uint32_t width, const DataPlan& plan) {
  const std::uint32_t shards = plan.shards_in_epoch(step.dataset_epoch);
  const std::uint64_t first = std::uint64_t{step.band} * width;
  if (first >= shards) return plan.updates_before(step.dataset_epoch + 1);
  const std::uint64_t end = std::min<std::uint64_t>(first + width, shards);
  // Of the data shards of a band, only the last one may have fewer updates than the others.
  const std::uint32_t last = plan.updates_in_shard(step.dataset_epoch, static_cast<std::uint32_t>(end - 1));
  return plan.updates_before(step.dataset_epoch, static_cast<std::uint32_t>(first)) + (end - first - 1) * step.group +
         std::min(step.group, last);
}

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_STEP_ID_H_
