#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "cli/clock.h"
#include "cli/commands.h"
#include "cli/job_view.h"
#include "cli/run_folder.h"
#include "cli/run_overview.h"

namespace downpour::cli {
namespace {

void Print(const std::vector<RunOverview>& overviews, bool json, bool namespaces, const std::string& if_none) {
  if (json) {
    std::cout << OverviewsToJson(overviews);
  } else if (overviews.empty() && !if_none.empty()) {
    std::cout << if_none << '\n';
  } else {
    std::cout << OverviewsToText(overviews, namespaces);
  }
  std::cout << std::flush;
}

int GetRuns(const std::string& name, bool json) {
  std::vector<std::string> roots;
  if (name.empty() || (std::filesystem::is_directory(name) && !IsRunFolder(name))) {
    roots = ListRuns(name.empty() ? kRunsDirectory : name);
  } else {
    absl::StatusOr<std::string> root = FindRun(name);
    if (!root.ok()) return Complain(root.status());
    roots.push_back(*std::move(root));
  }
  const SystemClock clock;
  std::vector<RunOverview> runs;
  int exit_code = kExitDone;
  for (const std::string& root : roots) {
    absl::StatusOr<RunOverview> run = ReadRunOverview(root, clock.Now());
    if (run.ok()) {
      runs.push_back(*std::move(run));
    } else {
      Complain(run.status());
      exit_code = kExitFailed;
    }
  }
  const std::string none = "no runs in " + (name.empty() ? kRunsDirectory : name);
  Print(runs, json, /*namespaces=*/false, exit_code == kExitDone ? none : "");
  return exit_code;
}

absl::StatusOr<std::vector<controller::JobRecord>> FindJobs(Cluster& cluster, const std::string& name) {
  if (name.empty()) return cluster.ListJobs();
  if (cluster.namespace_name().empty()) return absl::InvalidArgumentError("-A: lists all jobs; for one, give -n");
  absl::StatusOr<controller::JobRecord> job = cluster.GetJob(name);
  if (!job.ok()) return job.status();
  return std::vector<controller::JobRecord>{*std::move(job)};
}

int GetJobs(const Target& target, bool json) {
  const absl::StatusOr<std::unique_ptr<Cluster>> cluster = Cluster::Open(target.cluster);
  if (!cluster.ok()) return Complain(cluster.status());
  const absl::StatusOr<std::vector<controller::JobRecord>> jobs = FindJobs(**cluster, target.name);
  if (!jobs.ok()) return Complain(jobs.status());
  const SystemClock clock;
  std::vector<RunOverview> overviews;
  for (const controller::JobRecord& job : *jobs) overviews.push_back(MakeJobOverview(job, clock.Now()));
  const std::string& where = (*cluster)->namespace_name();
  Print(overviews, json, where.empty(), where.empty() ? "no jobs in any namespace" : "no jobs in namespace " + where);
  return kExitDone;
}

}  // namespace

int GetCommand(const Target& target, bool json) {
  return target.cluster.given() ? GetJobs(target, json) : GetRuns(target.name, json);
}

}  // namespace downpour::cli
