#include "trainer/worker/gpu_metrics.h"

#include <optional>
#include <string>

#include "absl/strings/str_cat.h"

namespace downpour::worker {

void PublishReadings(const std::vector<cuda::GpuReading>& readings, std::size_t gpus, service::Metrics* metrics) {
  const cuda::GpuReading nothing;
  for (std::size_t gpu = 0; gpu < gpus; ++gpu) {
    const service::Labels labels = {{"gpu", absl::StrCat(gpu)}};
    const cuda::GpuReading& reading = gpu < readings.size() ? readings[gpu] : nothing;
    const auto set = [&](const char* name, const char* help, const auto& value) {
      if (value.has_value()) {
        metrics->SetGauge(name, help, labels, static_cast<double>(*value));
      } else {
        metrics->RemoveGauge(name, labels);
      }
    };
    set("downpour_worker_gpu_busy_ratio",
        "Of the newest period that the driver looks at, the share in which a kernel of anybody ran on the GPU.",
        reading.busy);
    set("downpour_worker_gpu_memory_used_bytes", "Memory of the GPU that is used, by whomever.", reading.memory_used);
    set("downpour_worker_gpu_memory_bytes", "Memory of the GPU.", reading.memory_total);
    set("downpour_worker_gpu_temperature_celsius", "Temperature of the GPU.", reading.celsius);
    set("downpour_worker_gpu_power_watts", "What the GPU takes.", reading.watts);
  }
}

void PublishTraffic(const model::DeviceTraffic& traffic, service::Metrics* metrics) {
  const auto set = [metrics](const char* direction, const model::DeviceTraffic::Copies& copies) {
    metrics->SetCounter("downpour_worker_gpu_copy_seconds_total",
                        "How long parameters were copied to GPUs and gradients from them.", {{"direction", direction}},
                        copies.seconds);
    metrics->SetCounter("downpour_worker_gpu_copy_bytes_total",
                        "Bytes of parameters that were copied to GPUs, and of gradients from them.",
                        {{"direction", direction}}, static_cast<double>(copies.bytes));
  };
  set("to_gpu", traffic.to_device);
  set("from_gpu", traffic.from_device);
}

void GpuMetrics::Publish() {
  if (sampler_ == nullptr) return;
  PublishReadings(sampler_->Newest(), model_.gpus().size(), metrics_);
  PublishTraffic(model_.traffic(), metrics_);
  sampler_->Ask();
}

}  // namespace downpour::worker
