#ifndef DOWNPOUR_TRAINER_TRACKING_TRACKER_H_
#define DOWNPOUR_TRAINER_TRACKING_TRACKER_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "absl/types/span.h"

// Where the figures of a run go besides its own folder.
//
// The coordinator runs the trackers. On a cluster nothing else could: there is no command line, the operator has many
// jobs and no business with their data, and a worker knows only its own part. The coordinator knows progress, loss and
// evaluations as it is, and `downpour run` starts the same one, so a run looks alike wherever it is made. What it
// needs to reach a tracker is in its own environment and volumes.
//
// A step is the number of updates that were applied. Times are seconds since 1970, for people.
namespace downpour::tracking {

// What is known of a run when it begins.
struct Run {
  std::string job_name;
  std::string job_uid;
  // As every process of the job is told it, as JSON: what the manifest says, with the defaults filled in, and without
  // its pod templates, whose environment may hold secrets.
  std::string configuration;
  std::vector<std::pair<std::string, std::string>> hyperparameters;  // that configuration, by path
  double time = 0;
};

struct Scalar {
  std::string name;  // as "train/loss"
  double value = 0;  // may be NaN or infinite
};

struct Histogram {
  std::string name;
  double min = 0;
  double max = 0;
  double sum = 0;
  double sum_squares = 0;
  // Each bucket: its upper limit, and how many values are below that and in none before.
  std::vector<std::pair<double, double>> buckets;
};
// Of finite values, at least one, in `buckets` of one width.
Histogram MakeHistogram(std::string name, absl::Span<const double> values, int buckets = 30);

struct Text {
  std::string name;  // as "phase"
  std::string text;
};

// What was measured at one step.
struct Point {
  std::int64_t step = 0;
  double time = 0;
  // A history begins here: what was recorded at this step or later before was given up, as after a roll-back.
  bool begins_history = false;
  std::vector<Scalar> scalars;
  std::vector<Histogram> histograms;
  std::vector<Text> texts;
};

enum class Outcome { kSucceeded, kFailed, kStopped };

// Belongs to one thread at a time (TrackerThread). Every call ends after `limit` at most, but for what a file system
// does not give back. Errors: kUnavailable and kResourceExhausted, what may be better in a moment: the same call comes
// again, so a call may have been carried out in part, or wholly, before. kNotFound: the run is there no more, and is to
// begin again. Anything else: the call is refused for good.
class Tracker {
 public:
  virtual ~Tracker() = default;
  // One word, for messages and as the label of metrics.
  virtual std::string name() const = 0;
  // Again after a restart of the coordinator: the same run goes on.
  virtual absl::Status Begin(const Run& run, absl::Duration limit) = 0;
  // Once it has begun. In the order in which they were measured; steps may go back.
  virtual absl::Status Write(absl::Span<const Point> points, absl::Duration limit) = 0;
  virtual absl::Status End(Outcome outcome, double time, absl::Duration limit) = 0;
  // Calls, also one that is under way, are to end within `left` and a second from now, as ones that failed for the
  // moment, where they wait for a server. From any thread.
  virtual void Hurry(absl::Duration left) { static_cast<void>(left); }
};

}  // namespace downpour::tracking

#endif  // DOWNPOUR_TRAINER_TRACKING_TRACKER_H_
