#ifndef DOWNPOUR_TRAINER_TRACKING_PROGRESS_POINTS_H_
#define DOWNPOUR_TRAINER_TRACKING_PROGRESS_POINTS_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/tracking/tracker.h"

namespace downpour::tracking {

// What trackers are told of a job when it begins, at `time`.
absl::StatusOr<Run> MakeRun(const v1::TrainingConfig& config, double time);

// Makes points out of what the coordinator reports. No I/O and no clock. Not thread-safe.
class ProgressPoints {
 public:
  explicit ProgressPoints(const v1::TrainingConfig& config);

  // What is new. `now` counts from any origin and does not go back. At first there is a point a second, later one in
  // half a percent of the time that has passed, and one in half a minute at least, so that a long run has thousands.
  // `evaluated_at`: of each evaluation, after how many updates it was, as the data plan says: an epoch of a job that
  // was resumed may have had another number of them.
  std::vector<Point> Add(absl::Duration now, double time, const v1::ProgressReply& progress,
                         absl::Span<const std::uint64_t> evaluated_at);

 private:
  bool IsDue(absl::Duration now, const v1::ProgressReply& progress);
  void AddFigures(const v1::ProgressReply& progress, Point* point) const;

  const bool histograms_;
  absl::Duration begin_ = absl::InfiniteDuration();  // of the first point with figures
  absl::Duration next_ = -absl::InfiniteDuration();
  v1::JobPhase phase_ = v1::PHASE_STARTING;
  bool has_phase_ = false;
  std::uint64_t generation_ = 0;                                                // that has begun
  std::uint64_t updates_ = 0;                                                   // of the newest point with figures
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::string> evaluations_;  // by generation and epochs, as told
};

}  // namespace downpour::tracking

#endif  // DOWNPOUR_TRAINER_TRACKING_PROGRESS_POINTS_H_
