#ifndef DOWNPOUR_OPERATOR_CONTROLLER_PACE_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_PACE_H_

#include <optional>
#include <string>
#include <string_view>

#include "absl/time/time.h"
#include "operator/controller/job_record.h"
#include "operator/planner/plan.h"

// How often statuses are stored for people and coordinators asked. What later decisions rest on is stored before
// anything is done, always; what only people read is held to a rate, which all jobs share. Pure functions.
namespace downpour::controller {

struct PaceOptions {
  // A status in which nothing but the picture changed (phase, counts, messages) is written at most this often; where
  // nothing but progress did, at most that often.
  absl::Duration picture_interval = absl::Seconds(5);
  absl::Duration progress_interval = absl::Seconds(10);
  // How often a coordinator is asked: while its job starts, recovers or ends; while it trains; and while one of its
  // pods has ended, at least that often: the planner takes silence for a failure after ten seconds.
  absl::Duration ask_interval = absl::Seconds(1);
  absl::Duration ask_interval_at_rest = absl::Seconds(10);
  absl::Duration ask_interval_after_end = absl::Seconds(3);
  // Where many jobs run, each has to wait longer for its turn: these times the number of those that share it.
  absl::Duration write_spacing = absl::Milliseconds(250);
  absl::Duration ask_spacing = absl::Milliseconds(50);
};

// The jobs that share the turns.
struct Load {
  int jobs = 0;    // that are not over
  int moving = 0;  // of those, that start, recover or end
};

// `interval`, or longer where it does not leave each of so many jobs a turn.
absl::Duration Stretched(absl::Duration interval, absl::Duration spacing, int jobs);

// What a status to be stored says that the stored one does not.
enum class News {
  kNone,
  kProgress,
  kPicture,    // phase, counts, messages: for people
  kEssential,  // what later decisions rest on, or people wait for
};

// "none", "progress", "picture", "essential".
std::string_view ToString(News news);

News CompareStatus(const api::TrainingJobStatus& before, const planner::Plan& plan);

// When a status with these news is to be stored: now, later, or not at all. `written`: when this process stored one of
// this job last, 0: never.
std::optional<double> StatusDue(const PaceOptions& options, const Load& load, const JobRecord& stored, News news,
                                double written, double now);

// When progress will be stored next if some is stored now, and there is any.
double NextProgress(const PaceOptions& options, const Load& load, const std::string& job_uid, double now);

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_PACE_H_
