#include "cli/model_check.h"

#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/launch.h"
#include "cli/process_backend.h"
#include "operator/job/training_config.h"
#include "trainer/checkpoint/initial_weights.h"
#include "trainer/data/open_dataset.h"
#include "trainer/model/model_plan.h"
#include "trainer/worker/dataset_spec.h"
#include "trainer/worker/model_spec.h"

namespace downpour::cli {
namespace {

// Loading LibTorch and a data set takes seconds; a plug-in may do anything.
constexpr double kTrialSeconds = 120;

}  // namespace

api::FieldError SplitPath(const std::string& field, const std::string& message) {
  const std::size_t colon = message.find(": ");
  if (colon == std::string::npos || !absl::StartsWith(message, "spec.")) return {field, message};
  return {message.substr(0, colon), message.substr(colon + 2)};
}

bool NeedsTrial(const api::ModelSpec& model) {
  return model.plugin.has_value() || model.torch_script.has_value() || model.initial_weights.has_value();
}

std::vector<std::pair<std::string, std::string>> FilesOf(const api::ModelSpec& model) {
  std::vector<std::pair<std::string, std::string>> files;
  if (model.plugin.has_value()) files.emplace_back("spec.model.plugin.path", model.plugin->path);
  if (model.torch_script.has_value()) files.emplace_back("spec.model.torchScript.path", model.torch_script->path);
  if (model.initial_weights.has_value()) {
    files.emplace_back("spec.model.initialWeights.path", model.initial_weights->path);
  }
  return files;
}

std::vector<api::FieldError> PlanErrors(const api::TrainingJob& job) {
  if (const auto& weights = job.spec.model.initial_weights; weights.has_value()) {
    const absl::Status readable = checkpoint::CheckInitialWeights(weights->path);
    if (absl::IsInvalidArgument(readable)) {
      return {{"spec.model.initialWeights.path", std::string(readable.message())}};
    }
  }
  const v1::TrainingConfig config = job::ToTrainingConfig(job, "", "");
  const absl::StatusOr<data::SampleFields> fields = data::ReadFields(worker::MakeDatasetSpec(config.dataset()));
  if (!fields.ok()) {
    // Files that are not here, or are read by the worker alone: whoever needs them says so.
    if (config.dataset().format() == "IDX" || !absl::IsInvalidArgument(fields.status())) return {};
    return {SplitPath("spec.dataset", std::string(fields.status().message()))};
  }
  if (job.spec.model.plugin.has_value() || job.spec.model.torch_script.has_value()) return {};
  const absl::StatusOr<model::ModelPlan> plan = model::PlanModel(worker::MakeModelSpec(config.model()), *fields);
  if (plan.ok()) return {};
  return {SplitPath("spec.model", std::string(plan.status().message()))};
}

absl::Status TryModel(const std::string& binary_directory, const std::string& config_path, const std::string& log_path,
                      const Clock& clock, Waiter& waiter) {
  ProcessSpec spec;
  spec.command = {absl::StrCat(binary_directory, "/", kWorkerProgram), "check", "--config", config_path};
  spec.log_path = log_path;
  LocalProcesses processes(clock);
  if (absl::Status status = processes.Start(spec); !status.ok()) return status;
  const double deadline = clock.Now() + kTrialSeconds;
  bool stopped = false;
  while (processes.AnyRunning() && !stopped && clock.Now() < deadline) {
    stopped = waiter.Wait(deadline - clock.Now(), -1) > 0;
    processes.Poll();
  }
  const Process process = processes.List().front();
  if (stopped) return absl::CancelledError("stopped while the model was tried");
  if (process.running()) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.model: a worker that only makes it does not end within ", kTrialSeconds, " s"));
  }
  if (process.exit_code == 0) return absl::OkStatus();
  if (process.signal != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.model: a worker that only makes it is ", EndCause(process),
                     process.last_log_line.empty() ? "" : "; its last line: ", process.last_log_line));
  }
  if (process.exit_code == kBadInputExitCode) return absl::InvalidArgumentError(process.last_log_line);
  return absl::FailedPreconditionError(
      absl::StrCat("spec.model: it could not be tried: ", EndCause(process), ": ", process.last_log_line));
}

}  // namespace downpour::cli
