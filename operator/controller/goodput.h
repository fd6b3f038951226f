#ifndef DOWNPOUR_OPERATOR_CONTROLLER_GOODPUT_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_GOODPUT_H_

#include <cstdint>
#include <optional>

#include "operator/api/training_job.h"

namespace downpour::controller {

// The share of a job's time that went into updates which still count: not the time of starting, waiting and recovering,
// and not what was trained and lost again. Counted from the first look on, so it begins anew with the operator. The
// time of a job that is suspended or over does not count. Not thread-safe.
class Goodput {
 public:
  // One look at the job; the time since the look before goes to what the job does now.
  void Look(const api::TrainingJobStatus& status, double now);
  // 0 to 1; nothing while no time has passed.
  std::optional<double> ratio() const;

 private:
  std::optional<double> looked_;  // when
  std::uint64_t step_ = 0;
  double useful_ = 0;  // seconds
  double total_ = 0;
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_GOODPUT_H_
