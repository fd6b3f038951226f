#include "operator/controller/pace.h"

#include <algorithm>
#include <set>
#include <tuple>
#include <unordered_set>
#include <vector>

#include "operator/controller/turn.h"
#include "operator/planner/conditions.h"

namespace downpour::controller {
namespace {

using planner::Action;
using planner::ActionType;

// When a job that was written at `last` may be for people again.
double NextWrite(const PaceOptions& options, const Load& load, const std::string& job_uid, absl::Duration interval,
                 double last) {
  const absl::Duration stretched = Stretched(interval, options.write_spacing, load.jobs);
  const double period = absl::ToDoubleSeconds(stretched);
  return stretched == interval ? last + period : NextTurn(job_uid, period, last);
}

}  // namespace

absl::Duration Stretched(absl::Duration interval, absl::Duration spacing, int jobs) {
  return std::max(interval, spacing * jobs);
}

std::string_view ToString(News news) {
  switch (news) {
    case News::kNone:
      return "none";
    case News::kProgress:
      return "progress";
    case News::kPicture:
      return "picture";
    case News::kEssential:
      break;
  }
  return "essential";
}

News CompareStatus(const api::TrainingJobStatus& before, const planner::Plan& plan) {
  if (plan.actions.empty() || plan.actions.front().type != ActionType::kStoreStatus) return News::kNone;
  // That the job may finish is told again and again, on the strength of an outcome that is stored already.
  const bool acts = std::any_of(plan.actions.begin() + 1, plan.actions.end(),
                                [](const Action& action) { return action.type != ActionType::kFinish; });
  if (!plan.events.empty() || acts) return News::kEssential;
  const auto conditions = [](const api::TrainingJobStatus& status) {
    std::set<std::tuple<std::string, bool, std::string>> bare;
    for (const api::Condition& condition : status.conditions) {
      // Why a job is not ready yet changes with every member that comes.
      const bool counts = condition.type == planner::kReady && !condition.status;
      bare.emplace(condition.type, condition.status, counts ? "" : condition.reason);
    }
    return bare;
  };
  // Who is gone is struck off the list whenever it suits.
  const std::unordered_set<std::string_view> known(before.counted_uids.begin(), before.counted_uids.end());
  const std::vector<std::string>& counted = plan.status.counted_uids;
  const bool counts_more =
      std::any_of(counted.begin(), counted.end(), [&known](const std::string& uid) { return !known.contains(uid); });
  if (before.observed_generation != plan.status.observed_generation ||
      before.incarnations != plan.status.incarnations || counts_more || before.failures != plan.status.failures ||
      before.leaving_parameter_servers != plan.status.leaving_parameter_servers ||
      before.recovery != plan.status.recovery || conditions(before) != conditions(plan.status)) {
    return News::kEssential;
  }
  api::TrainingJobStatus after = plan.status;
  after.progress = before.progress;
  after.last_progress_time = before.last_progress_time;
  after.last_progress_step = before.last_progress_step;
  return after == before ? News::kProgress : News::kPicture;
}

std::optional<double> StatusDue(const PaceOptions& options, const Load& load, const JobRecord& stored, News news,
                                double written, double now) {
  if (news == News::kNone) return std::nullopt;
  if (news == News::kEssential) return now;
  const std::optional<api::ProgressStatus>& told = stored.job.status.progress;
  // A leader that is new goes by what it reads.
  const auto past = [now](double time) { return time <= now ? time : 0; };  // a clock may have been ahead
  const double last = std::max(past(written), past(told.has_value() ? told->last_update_time : 0));
  const double due = NextWrite(options, load, stored.meta.uid,
                               news == News::kPicture ? options.picture_interval : options.progress_interval, last);
  return news == News::kProgress && told.has_value() ? std::min(due, told->next_update_time.value_or(due)) : due;
}

double NextProgress(const PaceOptions& options, const Load& load, const std::string& job_uid, double now) {
  return NextWrite(options, load, job_uid, options.progress_interval, now) +
         absl::ToDoubleSeconds(Stretched(options.ask_interval_at_rest, options.ask_spacing, load.jobs));
}

}  // namespace downpour::controller
