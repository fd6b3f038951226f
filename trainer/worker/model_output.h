#ifndef DOWNPOUR_TRAINER_WORKER_MODEL_OUTPUT_H_
#define DOWNPOUR_TRAINER_WORKER_MODEL_OUTPUT_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/checkpoint/best_models.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/core/worker.h"
#include "trainer/model/model.h"

namespace downpour::worker {

// The files that a worker writes for people: the model at the end, and that of the best evaluation. What went wrong
// without harm to them is a warning of the result. Everything given is to outlive it. Not thread-safe.
class ModelOutput {
 public:
  ModelOutput(const v1::TrainingConfig& config, const model::Model& model);

  // Whether the output directory, if there is one, can be written to; as checkpoint::CheckWritable.
  static absl::Status CheckWritable(const v1::TrainingConfig& config);

  // The values that the model has. kFailedPrecondition, and the failure in the result: they are not finite.
  absl::Status Export(v1::TaskResult* result) const;
  // Of `result`, which the evaluation `work` came to: keeps the values that the model has, with which it was made, if
  // they are the best so far. Where they cannot be, the result stands, and has a warning.
  void WriteIfBest(const core::Work& work, v1::TaskResult* result) const;
  // What was kept as the best is given its name; a warning: nothing was.
  absl::Status KeepBest(v1::TaskResult* result) const;

 private:
  using Tensors = std::vector<checkpoint::NamedTensor>;
  // The values of the model, and tensors that refer to them: moved, never copied.
  struct Values {
    Values() = default;
    Values(Values&&) = default;
    Values& operator=(Values&&) = default;
    std::vector<std::vector<float>> trained;
    std::vector<model::Model::Frozen> frozen;
    Tensors tensors;
  };
  Values TakeValues() const;
  // What went wrong without harm to the file, for people; empty: nothing, or it is not the best.
  absl::StatusOr<std::string> WriteIfBest(const checkpoint::MeasuredModel& model) const;
  absl::StatusOr<checkpoint::WrittenFile> Write(const std::string& path, const Tensors& tensors,
                                                std::map<std::string, std::string> metadata = {}) const;
  // No result, but a trace of what went wrong, under a name that nobody takes for the model. What became of it, as the
  // end of a message.
  std::string KeepNotFinite(const Tensors& tensors) const;

  const v1::TrainingConfig& config_;
  const model::Model& model_;
  std::optional<checkpoint::BestModels> best_models_;  // absent: none is kept
};

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_MODEL_OUTPUT_H_
