#ifndef DOWNPOUR_TRAINER_WORKER_PROGRAM_H_
#define DOWNPOUR_TRAINER_WORKER_PROGRAM_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "trainer/worker/worker.h"

namespace downpour::worker {

using CreateWorker = std::function<absl::StatusOr<std::unique_ptr<WorkerProcess>>(WorkerProcessOptions options)>;

// The main() of a worker, whatever it computes: flags, signals, log, exit code. SIGTERM and SIGINT make it leave.
int WorkerMain(int argc, char** argv, const CreateWorker& create);

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_PROGRAM_H_
