#include "cli/commands.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "cli/render/format.h"
#include "cli/run_folder.h"
#include "cli/run_overview.h"

namespace downpour::cli {

int Complain(const absl::Status& status) {
  std::cerr << "downpour: " << CleanLines(std::string(status.message())) << std::endl;
  return absl::IsInvalidArgument(status) || absl::IsNotFound(status) ? kExitBadInput : kExitFailed;
}

absl::StatusOr<std::string> ChooseRun(const std::string& name, bool running) {
  if (!name.empty()) return FindRun(name);
  const std::vector<std::string> runs = ListRuns(kRunsDirectory);
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    if (RunIsHeld(*run)) return *run;
  }
  if (running) return absl::FailedPreconditionError(absl::StrCat("no run is running in ", kRunsDirectory));
  if (runs.empty()) return absl::FailedPreconditionError(absl::StrCat("no runs in ", kRunsDirectory));
  return runs.back();
}

absl::StatusOr<std::unique_ptr<Cluster>> OpenForJob(const Target& target) {
  if (target.name.empty()) return absl::InvalidArgumentError("NAME: which job on the cluster?");
  if (target.cluster.all_namespaces) return absl::InvalidArgumentError("-A: only get lists all namespaces; give -n");
  return Cluster::Open(target.cluster);
}

}  // namespace downpour::cli
