#include "trainer/tracking/run_tracking.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/tracking/mlflow.h"
#include "trainer/tracking/tensorboard.h"

namespace downpour::tracking {

absl::StatusOr<std::unique_ptr<RunTracking>> RunTracking::Start(const v1::TrainingConfig& config,
                                                                std::uint32_t incarnation, double time,
                                                                const std::function<void(const std::string&)>& say) {
  const v1::TrackingConfig& tracking = config.tracking();
  std::vector<std::unique_ptr<Tracker>> trackers;
  if (tracking.has_tensorboard()) {
    trackers.push_back(MakeTensorBoardTracker(
        {tracking.tensorboard().directory(), absl::StrCat(config.job_uid().substr(0, 8), ".", incarnation)}));
  }
  if (tracking.has_mlflow()) {
    const v1::MlflowConfig& mlflow = tracking.mlflow();
    absl::StatusOr<MlflowOptions> options =
        MlflowOptionsFromEnvironment(mlflow.uri(), mlflow.experiment(), mlflow.run_name());
    if (!options.ok()) return options.status();
    absl::StatusOr<std::unique_ptr<Tracker>> tracker = MakeMlflowTracker(*std::move(options));
    if (!tracker.ok()) return tracker.status();
    trackers.push_back(*std::move(tracker));
  }
  if (trackers.empty()) return std::unique_ptr<RunTracking>();
  const absl::StatusOr<Run> run = MakeRun(config, time);
  if (!run.ok()) return run.status();
  std::unique_ptr<RunTracking> started(new RunTracking(config));
  for (std::unique_ptr<Tracker>& tracker : trackers) {
    TrackerThreadOptions thread_options;
    thread_options.say = say;
    started->threads_.push_back(std::make_unique<TrackerThread>(std::move(tracker), *run, std::move(thread_options)));
  }
  return started;
}

void RunTracking::Add(absl::Duration now, double time, const v1::ProgressReply& progress,
                      absl::Span<const std::uint64_t> evaluated_at) {
  for (const Point& point : points_.Add(now, time, progress, evaluated_at)) {
    for (const std::unique_ptr<TrackerThread>& thread : threads_) thread->Add(point);
  }
}

void RunTracking::End(std::optional<Outcome> outcome, double time) {
  // All at once: each has some seconds.
  for (const std::unique_ptr<TrackerThread>& thread : threads_) thread->End(outcome, time);
  for (const std::unique_ptr<TrackerThread>& thread : threads_) thread->Stop();
}

std::vector<std::string> RunTracking::Warnings() const {
  std::vector<std::string> warnings;
  for (const std::unique_ptr<TrackerThread>& thread : threads_) {
    if (const std::optional<std::string> complaint = thread->complaint()) warnings.push_back(*complaint);
  }
  return warnings;
}

}  // namespace downpour::tracking
