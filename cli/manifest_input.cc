#include "cli/manifest_input.h"

#include <iostream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/ledger/sample_count.h"

namespace downpour::cli {

absl::StatusOr<std::pair<std::string, std::string>> ParseOverride(const std::string& text) {
  const std::size_t sign = text.find('=');
  if (sign == std::string::npos || sign == 0) {
    return absl::InvalidArgumentError(absl::StrCat("--set ", text, ": expected path=value"));
  }
  return std::make_pair(text.substr(0, sign), text.substr(sign + 1));
}

absl::StatusOr<std::vector<std::pair<std::string, std::string>>> ParseOverrides(const std::vector<std::string>& texts) {
  std::vector<std::pair<std::string, std::string>> overrides;
  for (const std::string& text : texts) {
    absl::StatusOr<std::pair<std::string, std::string>> parsed = ParseOverride(text);
    if (!parsed.ok()) return parsed.status();
    overrides.push_back(*std::move(parsed));
  }
  return overrides;
}

api::ParsedManifest LoadManifest(const std::string& file,
                                 const std::vector<std::pair<std::string, std::string>>& overrides) {
  absl::StatusOr<api::ParsedManifest> manifest = api::ReadManifest(file, overrides);
  if (manifest.ok()) {
    for (const std::string& note : manifest->notes) std::cerr << file << ": " << note << '\n';
    return *std::move(manifest);
  }
  api::ParsedManifest failed;
  // Whoever prints it puts the name of the file before it.
  std::string message(manifest.status().message());
  const std::string prefix = absl::StrCat("cannot read ", file, ": ");
  if (absl::StartsWith(message, prefix)) message = absl::StrCat("cannot be read: ", message.substr(prefix.size()));
  failed.errors.push_back({"", std::move(message)});
  return failed;
}

std::vector<api::FieldError> FindWarnings(const api::TrainingJobSpec& spec, std::uint64_t training_samples) {
  std::vector<api::FieldError> warnings;
  const auto batch_size = static_cast<std::uint64_t>(spec.training.batch_size);
  const std::uint64_t minibatches = spec.update.minibatches();
  const bool local = spec.update.local_steps > 1;
  if (batch_size * minibatches > training_samples) {
    const std::string what = minibatches == 1 ? absl::StrCat(batch_size, " is")
                                              : absl::StrCat(minibatches, " minibatches of ", batch_size, " are");
    warnings.push_back({minibatches == 1 ? "spec.training.batchSize"
                        : local          ? "spec.update.localSteps"
                                         : "spec.update.accumulate",
                        absl::StrCat(what, " more than the ", training_samples,
                                     " samples of the data set, so each epoch is a single update of one worker")});
  }
  const api::OptimizerSpec& optimizer = spec.update.optimizer;
  if (local && optimizer.type == api::OptimizerType::kSgd && optimizer.learning_rate < 0.1) {
    // The default is meant for gradients.
    warnings.push_back({"spec.update.optimizer.learningRate",
                        absl::StrCat(optimizer.learning_rate, " is how much of what ", minibatches,
                                     " local steps change is taken over, usually it is near 1")});
  }
  return warnings;
}

std::vector<api::FieldError> FindWarnings(const api::TrainingJobSpec& spec) {
  std::vector<api::FieldError> warnings;
  if (absl::StrContains(spec.dataset.path, "://") && !spec.dataset.shuffle_blocks) {
    warnings.push_back(
        {"spec.dataset.shuffle", "Full reads remote data in any order, Blocks reads what lies together"});
  }
  const absl::StatusOr<std::uint64_t> samples = CountTrainingSamples(spec.dataset);
  if (!samples.ok()) return warnings;  // whoever needs the data set says so
  for (api::FieldError& warning : FindWarnings(spec, *samples)) warnings.push_back(std::move(warning));
  return warnings;
}

}  // namespace downpour::cli
