#include "trainer/worker/model_output.h"

#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/training_monitor.h"
#include "trainer/worker/model_spec.h"

namespace downpour::worker {
namespace {

constexpr char kModelFile[] = "model.safetensors";
constexpr char kNotFiniteFile[] = "model.not-finite.safetensors";

std::string OutputPath(const v1::TrainingConfig& config, const char* file) {
  return absl::StrCat(config.output_directory(), "/", file);
}

}  // namespace

ModelOutput::ModelOutput(const v1::TrainingConfig& config, const model::Model& model) : config_(config), model_(model) {
  if (config.keep_best().empty() || config.output_directory().empty()) return;
  best_models_.emplace(config.output_directory(), config.job_name(), config.job_uid(), config.keep_best());
}

absl::Status ModelOutput::CheckWritable(const v1::TrainingConfig& config) {
  return config.output_directory().empty() ? absl::OkStatus()
                                           : checkpoint::CheckWritable(OutputPath(config, kModelFile));
}

ModelOutput::Values ModelOutput::TakeValues() const {
  // What others push, or another history, may be in the store meanwhile; the model is as it was measured.
  Values values;
  const std::vector<model::Tensor>& trained = model_.tensors();
  values.trained.resize(trained.size());
  values.frozen = model_.frozen();
  values.tensors.reserve(trained.size() + values.frozen.size());
  for (std::size_t tensor = 0; tensor < trained.size(); ++tensor) {
    std::vector<float>& of_tensor = values.trained[tensor];
    of_tensor.resize(static_cast<std::size_t>(trained[tensor].elements()));
    model_.GetParameter(tensor, absl::MakeSpan(of_tensor));
    values.tensors.push_back({trained[tensor].name, trained[tensor].shape, of_tensor});
  }
  for (const model::Model::Frozen& one : values.frozen) {
    values.tensors.push_back({one.tensor.name, one.tensor.shape, one.values});
  }
  return values;
}

absl::Status ModelOutput::Export(v1::TaskResult* result) const {
  const Values values = TakeValues();
  if (const absl::Status finite = checkpoint::CheckFinite(values.tensors); !finite.ok()) {
    result->set_failure(v1::FAILURE_MODEL_NOT_FINITE);
    return absl::FailedPreconditionError(absl::StrCat("the model is not finite: ", finite.message(),
                                                      "; a smaller spec.update.optimizer.learningRate may help",
                                                      KeepNotFinite(values.tensors)));
  }
  if (config_.output_directory().empty()) return absl::OkStatus();
  const std::string path = OutputPath(config_, kModelFile);
  const absl::StatusOr<checkpoint::WrittenFile> written = Write(path, values.tensors);
  if (!written.ok()) return written.status();
  result->set_path(path);
  result->set_warning(written->warning);
  return absl::OkStatus();
}

absl::StatusOr<std::string> ModelOutput::WriteIfBest(const checkpoint::MeasuredModel& model) const {
  const absl::StatusOr<bool> best = best_models_->IsBest(model);
  if (!best.ok()) return best.status();
  if (!*best) return std::string();
  const Values values = TakeValues();
  if (!checkpoint::CheckFinite(values.tensors).ok()) return std::string();
  const absl::StatusOr<checkpoint::WrittenFile> written =
      Write(best_models_->PathOf(model), values.tensors, best_models_->MetadataOf(model));
  if (!written.ok()) return written.status();
  // What may be lost if the machine stops now takes nothing else away.
  return written->warning.empty() ? best_models_->RemoveWorse(model) : written->warning;
}

void ModelOutput::WriteIfBest(const core::Work& work, v1::TaskResult* result) const {
  if (!best_models_.has_value()) return;
  v1::Evaluation evaluation;
  evaluation.set_loss(result->loss());
  *evaluation.mutable_metrics() = result->metrics();
  const std::optional<double> value = core::MeasuredValue(evaluation, config_.keep_best());
  const absl::StatusOr<std::string> warning =
      WriteIfBest({value.value_or(std::numeric_limits<double>::quiet_NaN()), work.dataset_epoch, work.lease});
  if (!warning.ok()) {
    result->set_warning(absl::StrCat("the model after epoch ", work.dataset_epoch,
                                     " is not kept as the best: ", warning.status().message()));
  } else if (!warning->empty()) {
    result->set_warning(*warning);
  }
}

absl::Status ModelOutput::KeepBest(v1::TaskResult* result) const {
  if (!best_models_.has_value()) return absl::FailedPreconditionError("no output directory to keep the best model in");
  const absl::StatusOr<checkpoint::BestModels::Kept> kept = best_models_->Keep();
  if (absl::IsNotFound(kept.status())) {  // nor will there be one
    result->set_warning(std::string(kept.status().message()));
    return absl::OkStatus();
  }
  if (!kept.ok()) return kept.status();
  result->set_path(kept->path);
  result->set_best_epoch(kept->model.epoch);
  v1::Metric* const metric = result->add_metrics();
  metric->set_name(config_.keep_best());
  metric->set_value(kept->model.value);
  result->set_warning(kept->warning);
  return absl::OkStatus();
}

std::string ModelOutput::KeepNotFinite(const Tensors& tensors) const {
  if (config_.output_directory().empty()) return "";
  const std::string path = OutputPath(config_, kNotFiniteFile);
  const absl::StatusOr<checkpoint::WrittenFile> written = Write(path, tensors);
  return written.ok() ? absl::StrCat("; kept as ", path) : absl::StrCat("; ", written.status().message());
}

absl::StatusOr<checkpoint::WrittenFile> ModelOutput::Write(const std::string& path, const Tensors& tensors,
                                                           std::map<std::string, std::string> metadata) const {
  metadata.insert({{"format", "pt"}, {"model", ModelName(config_.model())}, {"job", config_.job_name()}});
  return checkpoint::WriteSafetensors(path, tensors, metadata);
}

}  // namespace downpour::worker
