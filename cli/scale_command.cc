#include <iostream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "operator/planner/context.h"

namespace downpour::cli {
namespace {

// "ps 2 -> 4"; empty: that stays.
std::string Change(const char* role, int before, std::optional<int> after) {
  if (!after.has_value()) return "";
  return absl::StrCat(", ", role, " ", before, " -> ", *after);
}

}  // namespace

int ScaleCommand(const Target& target, std::optional<int> ps, std::optional<int> workers) {
  if (!ps.has_value() && !workers.has_value()) {
    return Complain(absl::InvalidArgumentError("--ps or --workers: how many are there to be?"));
  }
  if (!target.cluster.given()) {
    return Complain(absl::InvalidArgumentError(
        "a run of this machine keeps the number of processes that its manifest says, as it is read once; scale is for "
        "jobs on a cluster: give -n, --context or --kubeconfig"));
  }
  const absl::StatusOr<std::unique_ptr<Cluster>> cluster = OpenForJob(target);
  if (!cluster.ok()) return Complain(cluster.status());
  const absl::StatusOr<controller::JobRecord> job = (*cluster)->GetJob(target.name);
  if (!job.ok()) return Complain(job.status());
  const absl::Status scaled = (*cluster)->Scale(*job, ps, workers);
  if (!scaled.ok()) return Complain(scaled);
  const api::TrainingJobSpec& before = job->job.spec;
  const int ps_before = planner::DesiredReplicas(before, api::Role::kParameterServer);
  const std::string changes =
      absl::StrCat(Change("ps", ps_before, ps), Change("workers", before.worker.replicas, workers));
  std::cout << target.name << ": " << changes.substr(2) << std::endl;
  return kExitDone;
}

}  // namespace downpour::cli
