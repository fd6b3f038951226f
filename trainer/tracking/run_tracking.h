#ifndef DOWNPOUR_TRAINER_TRACKING_RUN_TRACKING_H_
#define DOWNPOUR_TRAINER_TRACKING_RUN_TRACKING_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/tracking/progress_points.h"
#include "trainer/tracking/tracker_thread.h"

namespace downpour::tracking {

// The trackers of one job, as its configuration wants them, each on a thread of its own. Threads: one tells it of
// progress and of the end, any may ask.
class RunTracking {
 public:
  // Null: the job has none. kInvalidArgument: one cannot be, as the environment lacks what it needs. Whether a tracker
  // can be reached is no condition. `say` is called from their threads.
  static absl::StatusOr<std::unique_ptr<RunTracking>> Start(const v1::TrainingConfig& config, std::uint32_t incarnation,
                                                            double time,
                                                            const std::function<void(const std::string&)>& say);

  // As ProgressPoints::Add.
  void Add(absl::Duration now, double time, const v1::ProgressReply& progress,
           absl::Span<const std::uint64_t> evaluated_at);
  // What is still to be told is, for four seconds at most, or two where a tracker does not answer. Absent: the run is
  // left open, as another coordinator has it.
  void End(std::optional<Outcome> outcome, double time);

  // What the user of the job should know, each once; it only grows.
  std::vector<std::string> Warnings() const;
  const std::vector<std::unique_ptr<TrackerThread>>& threads() const { return threads_; }

 private:
  explicit RunTracking(const v1::TrainingConfig& config) : points_(config) {}

  ProgressPoints points_;
  std::vector<std::unique_ptr<TrackerThread>> threads_;
};

}  // namespace downpour::tracking

#endif  // DOWNPOUR_TRAINER_TRACKING_RUN_TRACKING_H_
