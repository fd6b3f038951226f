#include "operator/api/training_relations.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "operator/api/document.h"

namespace downpour::api {
namespace {

// What all three need: evaluations that have the metric, of a training that goes on from one to the next.
void CheckMonitor(const TrainingJobSpec& spec, const std::string& path, const std::string& metric,
                  FieldErrors& errors) {
  const std::vector<std::string>& metrics = spec.model.metrics;
  if (spec.update.mode == UpdateMode::kSandblaster) errors.Add(path, "is not for the mode Sandblaster");
  if (!spec.training.evaluate) {
    errors.Add(path, "needs spec.training.evaluate: true, as it looks at what is measured on the test set");
  }
  if (metric == "Loss" || std::find(metrics.begin(), metrics.end(), metric) != metrics.end()) return;
  errors.Add(JoinPath(path, "metric"),
             absl::StrCat("must be Loss or one of spec.model.metrics", metrics.empty() ? ", which is empty" : "",
                          "; got ", Quote(metric)));
}

void CheckReduceOnPlateau(const TrainingJobSpec& spec, const std::string& path, FieldErrors& errors) {
  const ReduceOnPlateauSpec& reduce = *spec.training.reduce_on_plateau;
  if (reduce.factor >= 1) errors.Add(JoinPath(path, "factor"), absl::StrCat("must be below 1, got ", reduce.factor));
  // That of the steps which a schedule would be for.
  const bool local = spec.update.local_optimizer.has_value();
  const double rate = local ? spec.update.local_optimizer->learning_rate : spec.update.optimizer.learning_rate;
  if (reduce.min_learning_rate < rate) return;
  errors.Add(JoinPath(path, "minLearningRate"),
             absl::StrCat("must be below spec.update.", local ? "localOptimizer" : "optimizer", ".learningRate, ", rate,
                          ", got ", reduce.min_learning_rate));
}

}  // namespace

void CheckMonitors(const TrainingJobSpec& spec, FieldErrors& errors) {
  const TrainingSpec& training = spec.training;
  if (training.early_stopping.has_value()) {
    CheckMonitor(spec, "spec.training.earlyStopping", training.early_stopping->metric, errors);
  }
  if (training.reduce_on_plateau.has_value()) {
    const std::string path = "spec.training.reduceOnPlateau";
    CheckMonitor(spec, path, training.reduce_on_plateau->metric, errors);
    // A search has no learning rate.
    if (spec.update.mode != UpdateMode::kSandblaster) CheckReduceOnPlateau(spec, path, errors);
  }
  if (training.keep_best.has_value()) {
    const std::string path = "spec.training.keepBest";
    CheckMonitor(spec, path, training.keep_best->metric, errors);
    // Another worker may name the best of the files than the one that wrote it.
    if (spec.output.directory.empty()) {
      errors.Add(path, "needs spec.output.directory, a folder that all workers have");
    }
  }
}

void CheckGpus(const TrainingJobSpec& spec, FieldErrors& errors) {
  const int gpus = spec.worker.gpus.value_or(1);
  if (gpus > spec.training.batch_size) {
    errors.Add("spec.worker.gpus",
               absl::StrCat("must be at most spec.training.batchSize, ", spec.training.batch_size, ", got ", gpus));
  }
  if (gpus > 1 && spec.update.local_steps > 1) {
    errors.Add(
        "spec.worker.gpus",
        absl::StrCat("must be 1 with spec.update.localSteps: several GPUs take no steps of their own; got ", gpus));
  }
}

}  // namespace downpour::api
