#ifndef DOWNPOUR_TRAINER_WORKER_TASK_WORK_H_
#define DOWNPOUR_TRAINER_WORKER_TASK_WORK_H_

#include <cstdint>
#include <string>

#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/work.h"
#include "trainer/data/dataset.h"
#include "trainer/model/model.h"
#include "trainer/worker/model_output.h"

namespace downpour::worker {

// What a worker does besides training: evaluates the test set, writes the model. Everything given outlives it. On the
// thread that owns the model.
class TaskWork {
 public:
  // `index`: of the worker. `test` may be null in a job that does not evaluate.
  TaskWork(const v1::TrainingConfig& config, std::uint32_t index, model::Model* model, const data::Dataset* test)
      : index_(index), model_(model), test_(test), output_(config, *model) {}

  // With the values that the model has. What went wrong is the error of the result, and is logged.
  v1::TaskResult Do(const core::Work& work);

  // The model that was written, empty if none was.
  const std::string& written_model() const { return written_model_; }

 private:
  absl::Status EvaluateTestSet(const core::Work& work, v1::TaskResult* result);

  const std::uint32_t index_;
  model::Model* const model_;
  const data::Dataset* const test_;
  ModelOutput output_;
  std::string written_model_;
};

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_TASK_WORK_H_
