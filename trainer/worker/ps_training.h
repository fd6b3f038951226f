#ifndef DOWNPOUR_TRAINER_WORKER_PS_TRAINING_H_
#define DOWNPOUR_TRAINER_WORKER_PS_TRAINING_H_

#include <memory>

#include "absl/status/statusor.h"
#include "trainer/worker/training_loop.h"
#include "trainer/worker/worker.h"

namespace downpour::worker {

// A worker of a job with parameter servers: WorkerCore with a model, a data set and the network around it. The model
// computes on the thread that calls Run; replies arrive on threads of the data plane's; one lock guards the state
// machine.
absl::StatusOr<std::unique_ptr<TrainingLoop>> MakePsTraining(WorkerProcessOptions options,
                                                             std::unique_ptr<data::Dataset> train,
                                                             std::unique_ptr<data::Dataset> test,
                                                             std::unique_ptr<model::Model> model);

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_PS_TRAINING_H_
