#include <filesystem>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/commands.h"
#include "cli/files.h"
#include "cli/recorded_run.h"
#include "cli/render/comparison.h"
#include "cli/render/format.h"
#include "cli/run_comparison.h"
#include "cli/run_folder.h"
#include "cli/run_overview.h"

namespace downpour::cli {
namespace {

constexpr char kDefaultPage[] = "compare.html";

absl::StatusOr<RecordedRun> ReadRun(const std::string& name) {
  const absl::StatusOr<std::string> found = FindRun(name);
  if (!found.ok()) {
    return absl::NotFoundError(
        absl::StrCat(name, ": not the folder of a run, which has a job.json, nor the name of one in ", kRunsDirectory));
  }
  std::error_code error;
  const std::filesystem::path root = std::filesystem::canonical(*found, error);
  if (error) return SystemError(error.value(), *found, "cannot be resolved");
  return ReadRecordedRun(root.string());
}

absl::StatusOr<Comparison> Compare(const CompareOptions& options) {
  std::vector<MetricTarget> targets;
  for (const std::string& text : options.targets) {
    absl::StatusOr<MetricTarget> target = ParseMetricTarget(text);
    if (!target.ok()) return target.status();
    targets.push_back(*std::move(target));
  }
  std::vector<RecordedRun> runs;
  for (const std::string& name : options.runs) {
    absl::StatusOr<RecordedRun> run = ReadRun(name);
    if (!run.ok()) return run.status();
    runs.push_back(*std::move(run));
  }
  return CompareRuns(runs, targets);
}

}  // namespace

int CompareCommand(const CompareOptions& options) {
  const absl::StatusOr<Comparison> comparison = Compare(options);
  if (!comparison.ok()) return Complain(comparison.status());
  const std::string page = options.output.empty() && !options.json ? kDefaultPage : options.output;
  if (!page.empty()) {
    const absl::Status written = WriteFileDurably(page, RenderComparison(*comparison));
    if (!written.ok()) return Complain(written);
  }
  if (options.json) {
    std::cout << ComparisonToJson(*comparison, options.curves) << std::flush;
  } else {
    std::cout << RenderComparisonText(*comparison) << "page: " << CleanLines(page) << std::endl;
  }
  return kExitDone;
}

}  // namespace downpour::cli
