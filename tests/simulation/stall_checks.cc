#include "tests/simulation/stall_checks.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"

namespace downpour::simulation {
namespace {

// What the protocols may need after the last fault: a coordinator that begins anew waits a lease of 3 s for ps that do
// not come and another one for workers that hold data shards, and a ps finds it after 2 s. Meanwhile the lease of a
// dead worker is over as well, and the longest call, of 4 s, whose answer was lost.
constexpr absl::Duration kGrace = absl::Seconds(8);
// A push is denied while its slice moves, and comes again after 20 ms, later after up to half a second.
constexpr absl::Duration kPush = absl::Seconds(1);
// What is pulled may wait for others that compute, and for a data shard that is leased once more.
constexpr absl::Duration kPull = absl::Seconds(3);
constexpr absl::Duration kRegistration = absl::Seconds(3);
// The coordinator asks every ps about a data shard before it leases the next, and a single worker may evaluate.
constexpr absl::Duration kJob = absl::Seconds(3);

}  // namespace

StallChecks::StallChecks(World* world, bool faults, const Durations& durations)
    : world_(world), grace_(faults ? kGrace : absl::ZeroDuration()), durations_(durations) {}

bool StallChecks::calm() const { return world_->now() > broken_at_ + grace_; }

bool StallChecks::IsLong(Time since, absl::Duration bound) const {
  return world_->now() > std::max(since, broken_at_ + grace_) + bound;
}

void StallChecks::OnWorker(const Process& worker, const std::function<std::string()>& awaits) {
  const v1::WorkerStats& stats = worker.worker->stats();
  Standing& standing = workers_[worker.number];
  if (standing.state != stats.state() || standing.updates != stats.steps()) {
    standing = {stats.state(), stats.steps(), world_->now()};
    return;
  }
  absl::Duration bound = absl::InfiniteDuration();  // it computes, or there is nothing for it to do
  if (standing.state == "pushing") bound = kPush + durations_.update + durations_.cut;
  if (standing.state == "pulling") bound = kPull + durations_.update;
  if (standing.state == "registering") bound = kRegistration;
  if (!IsLong(standing.since, bound)) return;
  world_->Violation(absl::StrCat(worker.name(), " stands still though nothing is broken: ", standing.state, " since ",
                                 absl::FormatDuration(standing.since), ", with ", standing.updates, " updates done; ",
                                 awaits()));
}

void StallChecks::OnJob(const std::function<std::string()>& state) {
  if (!IsLong(progress_at_, kJob + durations_.update + durations_.pause)) return;
  world_->Violation(absl::StrCat("the job stands still though nothing is broken, since ",
                                 absl::FormatDuration(progress_at_), ": ", state()));
}

}  // namespace downpour::simulation
