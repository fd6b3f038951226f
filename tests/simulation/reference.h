#ifndef DOWNPOUR_TESTS_SIMULATION_REFERENCE_H_
#define DOWNPOUR_TESTS_SIMULATION_REFERENCE_H_

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "trainer/core/data_plan.h"
#include "trainer/core/step_id.h"

namespace downpour::simulation {

// What a slice has to be, by the definition of the modes: out of the updates that were pushed to it in their order, and
// of the moments at which the mode changed. Each update brings a one-hot of each of its samples.
class Reference {
 public:
  // From now on steps have so many updates; 0: each is one. What is in the middle is a step.
  void BeginMode(std::uint32_t step_width, const core::DataPlan& plan);
  // As after BeginMode, but where the width is the same: then everything goes on as it was.
  void GoOn(std::uint32_t step_width, const core::DataPlan& plan);
  void Apply(const core::UpdateId& update, bool skipped, const core::DataPlan& plan);

  bool Contains(const core::UpdateId& update) const { return applied_.count(update) != 0; }
  std::uint64_t updates() const { return applied_.size(); }
  // Of them, how many steps were taken so far.
  std::uint64_t steps() const { return steps_; }
  // How much of each sample is in the value. Of those behind the last there is nothing.
  const std::vector<double>& samples() const { return samples_; }

  // ---- with a step width
  // It has all updates of the steps before.
  bool HasAllBefore(const core::StepId& step) const { return step_ >= step; }
  // How many steps were taken when it had all of the steps before and, but for what was there when the mode began,
  // nothing else.
  std::uint64_t StepsBefore(const core::StepId& step) const;

 private:
  void TakeStep(const core::DataPlan& plan);
  void FindStep(const core::DataPlan& plan);

  std::uint32_t width_ = 0;
  std::set<core::UpdateId> applied_;
  std::vector<core::UpdateId> sum_;
  std::uint64_t steps_ = 0;
  std::vector<double> samples_;
  core::StepId step_;                     // the first that is not whole
  std::uint64_t steps_at_beginning_ = 0;  // of the mode
  std::map<core::StepId, std::uint64_t> steps_after_;
};

}  // namespace downpour::simulation

#endif  // DOWNPOUR_TESTS_SIMULATION_REFERENCE_H_
