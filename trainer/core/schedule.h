#ifndef DOWNPOUR_TRAINER_CORE_SCHEDULE_H_
#define DOWNPOUR_TRAINER_CORE_SCHEDULE_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/frame.h"

namespace downpour::core {

// Where a step stands in the job.
struct SchedulePosition {
  double update = 0;         // updates before it; not whole between two local steps of an update
  double updates = 1;        // of the job
  std::uint32_t epoch = 0;   // dataset epochs before its own
  double part_of_epoch = 0;  // of its own, how much is before it: from 0, below 1
};

// One rule by which a learning rate changes: a pure function of the position, never of a clock, in double precision and
// with the same bits on every machine. Thread-safe.
class Schedule {
 public:
  virtual ~Schedule() = default;
  virtual double RateAt(const SchedulePosition& position) const = 0;
  // It runs over the whole job, or over what is left of it behind a warm-up.
  virtual bool spans_job() const { return false; }
};

// kInvalidArgument: a number that the type uses is outside its range.
absl::Status CheckSchedule(const v1::ScheduleConfig& config);

// Of a configuration that CheckSchedule lets pass; `learning_rate` is its highest.
std::unique_ptr<Schedule> CreateSchedule(const v1::ScheduleConfig& config, double learning_rate);

// By what the view multiplies what a schedule says: for what evaluations said, and for the workers of a ring (Goyal et
// al. 2017, section 2.1).
inline double RateScale(const v1::View& view) {
  const double scale = view.has_learning_rate_scale() ? view.learning_rate_scale() : 1;
  return view.ring_rate_workers() == 0 ? scale : scale * view.ring_size() / view.ring_rate_workers();
}
// The same of local steps.
inline double LocalRateScale(const v1::View& view) {
  return view.has_local_learning_rate_scale() ? view.local_learning_rate_scale() : 1;
}
// Whether workers take steps of their own, which have a learning rate and a schedule of their own.
inline bool HasLocalSteps(const v1::TrainingConfig& config) { return config.local_steps().count() > 1; }

// The learning rate of each step of a job: the schedule at the step's place in the data plan, times a scale.
//
// That place is where the plan has the update, not how many updates came before it. The plan is a pure function of the
// update's id, and so is the rate: the same on every slice of the update, at a replica, in a snapshot that a late push
// goes to as well, for a second execution, and after a resumption, whatever arrived in which order and however often a
// process began anew. A count of what was applied is none of that where several workers push: slices count in different
// orders. Leases are given out in the order of the plan, so the two differ by no more than what workers hold.
//
// In mode SYNCHRONOUS it is the place of the step: all updates of the plan's earlier steps are before it. So the
// updates of a step have one rate, and with one worker each step that of a sequential loop.
//
// Where a job resumes with other epochs or another batch size, the plan has another number of updates, and the schedule
// goes on at the update's place in that. Thread-safe.
class LearningRate {
 public:
  // `schedule` as of CreateSchedule; `step_width` of mode SYNCHRONOUS, otherwise 0.
  LearningRate(const v1::ScheduleConfig& schedule, double learning_rate, const DataPlan& plan, std::uint32_t step_width,
               double scale);

  // `part` of the update is done before: that of a local step, from 0, below 1.
  double At(const UpdateId& update, double part = 0) const;

 private:
  std::shared_ptr<const Schedule> schedule_;
  DataPlan plan_;
  std::uint32_t step_width_;
  double scale_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_SCHEDULE_H_
