#include "cli/recorded_run.h"

#include <nlohmann/json.hpp>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/files.h"
#include "cli/run_folder.h"
#include "cli/test_metrics_json.h"

namespace downpour::cli {
namespace {

using json = nlohmann::ordered_json;

template <typename T>
std::optional<T> Number(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? std::optional(found->get<T>()) : std::nullopt;
}

absl::Status ReadSummary(const std::string& file, RecordedRun* run) {
  const absl::StatusOr<std::string> text = ReadFile(file);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  if (!text.ok()) return text.status();
  try {
    const json document = json::parse(*text);
    run->first_update_seconds = Number<double>(document, "firstUpdateSeconds");
    run->samples_per_second = Number<double>(document, "samplesPerSecond");
    run->lost_updates = Number<std::uint64_t>(document, "lostUpdates");
    run->bytes = BytesFromJson(document);
    return absl::OkStatus();
  } catch (const json::exception& error) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": not a run's summary: ", error.what()));
  }
}

}  // namespace

absl::StatusOr<RecordedRun> ReadRecordedRun(const std::string& root) {
  const RunPaths paths{root};
  const absl::StatusOr<RunOverview> overview = ReadRunOverview(root, /*now=*/0);
  if (!overview.ok()) return overview.status();
  absl::StatusOr<api::TrainingJob> job = ReadRunJob(root);
  if (!job.ok()) return job.status();
  RecordedRun run;
  run.name = overview->name;
  run.directory = root;
  run.phase = overview->phase;
  run.job = *std::move(job);
  // Of a run that has just begun there is none yet.
  const absl::StatusOr<std::string> metrics = ReadFile(paths.Metrics());
  if (!metrics.ok() && !absl::IsNotFound(metrics.status())) return metrics.status();
  if (metrics.ok()) run.metrics = ParseMetrics(*metrics);
  if (const absl::Status status = ReadSummary(paths.Summary(), &run); !status.ok()) return status;
  return run;
}

}  // namespace downpour::cli
