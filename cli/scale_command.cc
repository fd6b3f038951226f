#include <unistd.h>

#include <iostream>
#include <memory>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "cli/clock.h"
#include "cli/commands.h"
#include "cli/render/format.h"
#include "cli/run_overview.h"
#include "cli/run_scale.h"
#include "operator/planner/context.h"

namespace downpour::cli {
namespace {

constexpr double kTakingLimit = 10;  // seconds; a run looks several times a second
constexpr absl::Duration kTakingInterval = absl::Milliseconds(20);

// "ps 2 -> 4"; empty: that stays.
std::string Change(const char* role, int before, std::optional<int> after) {
  if (!after.has_value()) return "";
  return absl::StrCat(", ", role, " ", before, " -> ", *after);
}

void Tell(const std::string& name, const api::TrainingJobSpec& before, const ScaleWish& wish) {
  const int ps_before = planner::DesiredReplicas(before, api::Role::kParameterServer);
  const std::string changes =
      absl::StrCat(Change("ps", ps_before, wish.ps), Change("workers", before.worker.replicas, wish.workers));
  std::cout << CleanText(name) << ": " << changes.substr(2) << std::endl;
}

int ScaleRun(const std::string& name, const ScaleWish& wish) {
  const absl::StatusOr<std::string> root = ChooseRun(name, /*running=*/true);
  if (!root.ok()) return Complain(root.status());
  if (!RunIsHeld(*root)) return Complain(absl::FailedPreconditionError(absl::StrCat(*root, ": the run is over")));
  const absl::StatusOr<api::TrainingJob> job = ReadRunJob(*root);
  if (!job.ok()) return Complain(job.status());
  if (const absl::StatusOr<api::TrainingJob> scaled = ScaledJob(*job, wish); !scaled.ok()) {
    return Complain(scaled.status());
  }
  const RunPaths paths{*root};
  if (const absl::Status status = PutScaleWish(paths, wish); !status.ok()) return Complain(status);
  const SystemClock clock;
  const double limit = clock.Now() + kTakingLimit;
  while (access(paths.Scale().c_str(), F_OK) == 0) {
    if (!RunIsHeld(*root)) return Complain(absl::FailedPreconditionError(absl::StrCat(*root, ": the run is over")));
    if (clock.Now() > limit) {
      return Complain(absl::DeadlineExceededError(absl::StrCat(paths.Scale(), ": the run has not taken it up within ",
                                                               kTakingLimit, " s; it may still do so")));
    }
    absl::SleepFor(kTakingInterval);
  }
  Tell(job->metadata.name, job->spec, wish);
  return kExitDone;
}

}  // namespace

int ScaleCommand(const Target& target, std::optional<int> ps, std::optional<int> workers) {
  if (!ps.has_value() && !workers.has_value()) {
    return Complain(absl::InvalidArgumentError("--ps or --workers: how many are there to be?"));
  }
  if (!target.cluster.given()) return ScaleRun(target.name, {ps, workers});
  const absl::StatusOr<std::unique_ptr<Cluster>> cluster = OpenForJob(target);
  if (!cluster.ok()) return Complain(cluster.status());
  const absl::StatusOr<controller::JobRecord> job = (*cluster)->GetJob(target.name);
  if (!job.ok()) return Complain(job.status());
  if (const absl::Status status = CheckScale(job->job, {ps, workers}); !status.ok()) return Complain(status);
  const absl::Status scaled = (*cluster)->Scale(*job, ps, workers);
  if (!scaled.ok()) return Complain(scaled);
  Tell(target.name, job->job.spec, {ps, workers});
  return kExitDone;
}

}  // namespace downpour::cli
