#ifndef DOWNPOUR_OPERATOR_API_MANIFEST_H_
#define DOWNPOUR_OPERATOR_API_MANIFEST_H_

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "operator/api/training_job.h"

// Reads a TrainingJob from YAML or JSON: parse, apply overrides, refuse unknown fields, fill defaults, validate.
namespace downpour::api {

// One thing wrong with a manifest: where, and what was found and expected.
struct FieldError {
  std::string path;     // "spec.worker.replicas"; empty: the document itself
  std::string message;  // "must be at least 1, got 0"
  std::string ToString() const { return path.empty() ? message : path + ": " + message; }
};

struct ParsedManifest {
  TrainingJob job;                 // meaningful only if errors is empty
  std::vector<FieldError> errors;  // every error found, in document order where possible
  std::vector<std::string> notes;  // what was left out of the text, as "document 2, ConfigMap "a", is not read"
  bool has_relative_path = false;  // one was taken from the folder of the manifest
};

// Never throws. The text is read as kubectl reads it (docs/manifest.md, "How it is read"); it is at most 1 MiB, at most
// 64 levels deep, and one TrainingJob is in it. `overrides` are {path, YAML value} pairs of --set, applied before
// validation; a path may leave out "spec.". spec.dataset.path and spec.output.directory of the text, not of an
// override, are taken from `directory` where they are relative; with none they stay as they are.
ParsedManifest ParseManifest(std::string_view text,
                             const std::vector<std::pair<std::string, std::string>>& overrides = {},
                             const std::string& directory = {});

// A job that an API server holds: as ParseManifest, but CheckPodTemplates (pod_template.h) is left to whoever begins
// it. What runs already goes on, whatever is refused by then.
ParsedManifest ParseStored(std::string_view text);

// Reads the file, or standard input for "-", and parses it; relative paths are taken from the folder of the file, for
// standard input from the working directory. kNotFound or kPermissionDenied name the file and say what the system said.
absl::StatusOr<ParsedManifest> ReadManifest(const std::string& path,
                                            const std::vector<std::pair<std::string, std::string>>& overrides = {});

// The name that a job of the manifest gets: its own, or generateName and five random characters behind it, as the API
// server makes it.
std::string MakeName(const Metadata& metadata);

// The manifest with every default filled in, as JSON; ParseManifest reads it back to the same job.
std::string ToJson(const TrainingJob& job);

// How times are written. kSeconds: numbers, exact. kRfc3339: "2026-01-02T03:04:05.123456Z", as the API server wants
// them; rounded to the microsecond, and read back to the double nearest to it. Reading takes any offset.
enum class TimeFormat { kSeconds, kRfc3339 };

// Without the lists and maps in which nothing is.
std::string StatusToJson(const TrainingJobStatus& status, TimeFormat times = TimeFormat::kSeconds);
absl::StatusOr<TrainingJobStatus> StatusFromJson(std::string_view text, TimeFormat times = TimeFormat::kSeconds);

std::string_view ToString(Role role);  // "coordinator", "ps", "worker"

}  // namespace downpour::api

#endif  // DOWNPOUR_OPERATOR_API_MANIFEST_H_
