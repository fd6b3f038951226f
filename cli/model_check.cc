#include "cli/model_check.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/launch.h"
#include "cli/process_backend.h"
#include "operator/job/training_config.h"
#include "trainer/checkpoint/initial_weights.h"
#include "trainer/data/files/files.h"
#include "trainer/data/formats/shards.h"
#include "trainer/data/open_dataset.h"
#include "trainer/model/model_plan.h"
#include "trainer/worker/dataset_spec.h"
#include "trainer/worker/model_spec.h"

namespace downpour::cli {
namespace {

// Loading LibTorch and a data set takes seconds; a plug-in may do anything.
constexpr double kTrialSeconds = 120;
constexpr double kIndexedBytesPerSecond = 20e6;  // at the least

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

std::uint64_t BytesToIndex(const api::DatasetSpec& dataset) {
  const bool tokenized = std::any_of(dataset.transforms.begin(), dataset.transforms.end(),
                                     [](const api::TransformSpec& transform) { return transform.type == "Tokenize"; });
  const std::string& format = dataset.format;
  if (format != "CSV" && format != "TFRecord" && format != "WebDataset" && format != "Text" && !tokenized) return 0;
  std::uint64_t bytes = 0;
  for (const std::string& path : {dataset.path, dataset.test_path}) {
    const absl::StatusOr<std::vector<std::string>> shards = data::ExpandRange(path);
    if (path.empty() || !shards.ok()) continue;
    for (const std::string& shard : *shards) {
      const absl::StatusOr<std::vector<data::FileInfo>> files = data::LocalFiles().List(shard);
      if (!files.ok()) continue;  // not here: nothing of it is read
      for (const data::FileInfo& file : *files) bytes += file.bytes;
    }
  }
  return bytes;
}

std::vector<api::FieldError> PlanErrors(const api::TrainingJob& job, bool read_data) {
  if (const auto& weights = job.spec.model.initial_weights; weights.has_value()) {
    const absl::Status readable = checkpoint::CheckInitialWeights(weights->path);
    if (absl::IsInvalidArgument(readable)) {
      return {{"spec.model.initialWeights.path", std::string(readable.message())}};
    }
  }
  if (!read_data) return {};
  const v1::TrainingConfig config = job::ToTrainingConfig(job, "", "");
  const absl::StatusOr<data::SampleFields> fields = data::ReadFields(worker::MakeDatasetSpec(config.dataset()));
  if (!fields.ok()) {
    // Files that are not here, or are read by the worker alone: whoever needs them says so.
    const bool bad = absl::IsInvalidArgument(fields.status()) || absl::IsDataLoss(fields.status());
    if (config.dataset().format() == "IDX" || !bad) return {};
    return {SplitPath("spec.dataset", std::string(fields.status().message()))};
  }
  if (job.spec.model.plugin.has_value() || job.spec.model.torch_script.has_value()) return {};
  const absl::StatusOr<model::ModelPlan> plan = model::PlanModel(worker::MakeModelSpec(config.model()), *fields);
  if (plan.ok()) return {};
  return {SplitPath("spec.model", std::string(plan.status().message()))};
}

absl::Status TryModel(const std::string& binary_directory, const std::string& config_path, const std::string& log_path,
                      std::uint64_t bytes_to_index, const Clock& clock, Waiter& waiter) {
  ProcessSpec spec;
  spec.command = {absl::StrCat(binary_directory, "/", kWorkerProgram), "check", "--config", config_path};
  spec.log_path = log_path;
  LocalProcesses processes(clock);
  if (absl::Status status = processes.Start(spec); !status.ok()) return status;
  const double limit = kTrialSeconds + static_cast<double>(bytes_to_index) / kIndexedBytesPerSecond;
  const double deadline = clock.Now() + limit;
  bool stopped = false;
  while (processes.AnyRunning() && !stopped && clock.Now() < deadline) {
    stopped = waiter.Wait(deadline - clock.Now(), -1) > 0;
    processes.Poll();
  }
  const Process process = processes.List().front();
  if (stopped) return absl::CancelledError("stopped while the model was tried");
  if (process.running()) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.model: a worker that only makes it does not end within ", std::ceil(limit), " s"));
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
