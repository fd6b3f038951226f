#include "cli/run_scale.h"

#include <unistd.h>

#include <cerrno>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/files.h"
#include "operator/api/manifest.h"
#include "operator/planner/ring.h"

namespace downpour::cli {
namespace {

constexpr std::uint64_t kMostBytes = 4096;
constexpr char kPs[] = "ps", kWorkers[] = "workers";

// False: there is something, and it is no number of processes.
bool ReadCount(const nlohmann::json& document, const char* name, std::optional<int>* count) {
  const auto found = document.find(name);
  if (found == document.end()) return true;
  if (!found->is_number_integer()) return false;
  *count = found->get<int>();
  return true;
}

}  // namespace

absl::Status CheckScale(const api::TrainingJob& job, const ScaleWish& wish) {
  if (!wish.ps.has_value() || !planner::IsAllReduce(job.spec)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--ps: ", job.metadata.name,
                   " has no parameter servers (spec.strategy is AllReduce), only --workers can change"));
}

absl::StatusOr<api::TrainingJob> ScaledJob(const api::TrainingJob& job, const ScaleWish& wish) {
  if (absl::Status status = CheckScale(job, wish); !status.ok()) return status;
  std::vector<std::pair<std::string, std::string>> overrides;
  if (wish.ps.has_value()) overrides.emplace_back("parameterServer.replicas", absl::StrCat(*wish.ps));
  if (wish.workers.has_value()) overrides.emplace_back("worker.replicas", absl::StrCat(*wish.workers));
  api::ParsedManifest scaled = api::ParseManifest(api::ToJson(job), overrides);
  if (!scaled.errors.empty()) return absl::InvalidArgumentError(scaled.errors.front().ToString());
  scaled.job.metadata = job.metadata;
  ++scaled.job.metadata.generation;
  scaled.job.status = job.status;
  return std::move(scaled.job);
}

absl::Status PutScaleWish(const RunPaths& paths, const ScaleWish& wish) {
  nlohmann::json document = nlohmann::json::object();
  if (wish.ps.has_value()) document[kPs] = *wish.ps;
  if (wish.workers.has_value()) document[kWorkers] = *wish.workers;
  return WriteFileDurably(paths.Scale(), document.dump());
}

absl::StatusOr<std::optional<ScaleWish>> TakeScaleWish(const RunPaths& paths) {
  // It is moved before it is read: what is put there meanwhile is the next wish.
  const std::string taken = absl::StrCat(paths.Scale(), ".taken");
  if (rename(paths.Scale().c_str(), taken.c_str()) != 0) {
    if (errno == ENOENT) return std::optional<ScaleWish>();
    return SystemError(errno, paths.Scale(), "cannot be taken away");
  }
  const absl::StatusOr<std::string> text = ReadFile(taken, kMostBytes);
  unlink(taken.c_str());
  if (!text.ok()) return text.status();
  const nlohmann::json document = nlohmann::json::parse(*text, nullptr, false);
  ScaleWish wish;
  if (!document.is_object() || !ReadCount(document, kPs, &wish.ps) || !ReadCount(document, kWorkers, &wish.workers)) {
    return absl::InvalidArgumentError(
        absl::StrCat(paths.Scale(), R"(: expected numbers of processes such as {"ps": 2, "workers": 3})"));
  }
  return wish;
}

}  // namespace downpour::cli
