#ifndef DOWNPOUR_TRAINER_WORKER_WORKER_METRICS_H_
#define DOWNPOUR_TRAINER_WORKER_WORKER_METRICS_H_

#include <cstdint>

#include "downpour/v1/control.pb.h"
#include "trainer/data/dataset.h"
#include "trainer/service/metrics.h"
#include "trainer/worker/batch_loader.h"

// What a worker shows to Prometheus. Thread-safe, as the metrics are.
namespace downpour::worker {

void Publish(const v1::WorkerStats& stats, const BatchLoader& loader, const data::Dataset& train,
             service::Metrics* metrics);

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_WORKER_METRICS_H_
