#include <filesystem>
#include <iostream>
#include <string>
#include <vector>

#include "cli/clock.h"
#include "cli/commands.h"
#include "cli/run_folder.h"
#include "cli/run_overview.h"

namespace downpour::cli {

int GetCommand(const std::string& directory, bool json) {
  std::vector<std::string> roots;
  if (!directory.empty() && !std::filesystem::is_directory(directory)) {
    std::cerr << "downpour: " << directory << ": there is no such directory" << std::endl;
    return kExitBadInput;
  }
  if (IsRunFolder(directory)) {
    roots.push_back(directory);
  } else {
    roots = ListRuns(directory.empty() ? kRunsDirectory : directory);
  }
  const SystemClock clock;
  std::vector<RunOverview> runs;
  int exit_code = kExitDone;
  for (const std::string& root : roots) {
    absl::StatusOr<RunOverview> run = ReadRunOverview(root, clock.Now());
    if (run.ok()) {
      runs.push_back(*std::move(run));
    } else {
      std::cerr << "downpour: " << std::string(run.status().message()) << std::endl;
      exit_code = kExitFailed;
    }
  }
  if (json) {
    std::cout << OverviewsToJson(runs) << std::flush;
  } else if (runs.empty() && exit_code == kExitDone) {
    std::cout << "no runs in " << (directory.empty() ? kRunsDirectory : directory.c_str()) << std::endl;
  } else {
    std::cout << OverviewsToText(runs) << std::flush;
  }
  return exit_code;
}

}  // namespace downpour::cli
