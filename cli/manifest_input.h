#ifndef DOWNPOUR_CLI_MANIFEST_INPUT_H_
#define DOWNPOUR_CLI_MANIFEST_INPUT_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "operator/api/manifest.h"

namespace downpour::cli {

// "path=value" of --set, at the first '='. kInvalidArgument: there is none, or nothing before it.
absl::StatusOr<std::pair<std::string, std::string>> ParseOverride(const std::string& text);
absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParseOverrides(const std::vector<std::string>& texts);

// Reads the manifest, "-" is standard input; a file that cannot be read is an error of the document. Says on standard
// error what of the text was left out.
api::ParsedManifest LoadManifest(const std::string& file,
                                 const std::vector<std::pair<std::string, std::string>>& overrides);

// What is probably a mistake, though the job can run: "spec.training.batchSize: ...".
std::vector<api::FieldError> FindWarnings(const api::TrainingJobSpec& spec, std::uint64_t training_samples);
// The same with the data set of the job, if this machine has it; else none.
std::vector<api::FieldError> FindWarnings(const api::TrainingJobSpec& spec);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_MANIFEST_INPUT_H_
