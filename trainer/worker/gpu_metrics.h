#ifndef DOWNPOUR_TRAINER_WORKER_GPU_METRICS_H_
#define DOWNPOUR_TRAINER_WORKER_GPU_METRICS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "trainer/cuda/gpu_monitor.h"
#include "trainer/model/device_traffic.h"
#include "trainer/model/model.h"
#include "trainer/service/metrics.h"
#include "trainer/worker/gpu_sampler.h"

// What a worker shows of its GPUs to Prometheus. Thread-safe, as the metrics are.
namespace downpour::worker {

// Of each GPU with a number below `gpus`; what is not known is not served, nor is what was known before.
void PublishReadings(const std::vector<cuda::GpuReading>& readings, std::size_t gpus, service::Metrics* metrics);
void PublishTraffic(const model::DeviceTraffic& traffic, service::Metrics* metrics);

// All of it, for a model that computes on GPUs; nothing for another one. Model and metrics outlive it.
class GpuMetrics {
 public:
  GpuMetrics(const model::Model& model, service::Metrics* metrics)
      : model_(model), metrics_(metrics), sampler_(SampleGpus(model.gpus())) {}

  // Serves what is known, and asks for what is to be served the next time.
  void Publish();

 private:
  const model::Model& model_;
  service::Metrics* const metrics_;
  const std::unique_ptr<GpuSampler> sampler_;  // null: no GPUs
};

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_GPU_METRICS_H_
