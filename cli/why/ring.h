#ifndef DOWNPOUR_CLI_WHY_RING_H_
#define DOWNPOUR_CLI_WHY_RING_H_

#include <string>

#include "operator/api/training_job.h"

// What `downpour why` says of the workers of a job without parameter servers. All pure; of another job there is
// nothing.
namespace downpour::cli {

// Why the ring is as it is, within a sentence; empty: nothing is known, or it is as it should be.
std::string RingMessage(const api::TrainingJob& job);

// Training waits for its ring. One of all workers that nothing is said of is there again in a moment.
bool RingIsFormedAnew(const api::TrainingJob& job);

// Workers that run are not in the ring.
bool RingLacksWorkers(const api::TrainingJob& job);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_WHY_RING_H_
