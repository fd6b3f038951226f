#ifndef DOWNPOUR_TRAINER_WORKER_RING_TRAINING_H_
#define DOWNPOUR_TRAINER_WORKER_RING_TRAINING_H_

#include <memory>

#include "absl/status/statusor.h"
#include "trainer/worker/training_loop.h"
#include "trainer/worker/worker.h"

namespace downpour::worker {

// A worker of a job without parameter servers: RingWorkerCore with a model, a data set, collectives and the network
// around it. The model computes on the thread that calls Run; gradients are summed over the ranks while backward goes
// on. kInvalidArgument: it listens for the others on all addresses, and nothing says by which one they reach it.
absl::StatusOr<std::unique_ptr<TrainingLoop>> MakeRingTraining(WorkerProcessOptions options,
                                                               std::unique_ptr<data::Dataset> train,
                                                               std::unique_ptr<data::Dataset> test,
                                                               std::unique_ptr<model::Model> model);

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_RING_TRAINING_H_
