#include "trainer/worker/worker_metrics.h"

#include <utility>

namespace downpour::worker {
namespace {

void PublishLoader(const BatchLoader& loader, const data::Dataset& train, service::Metrics* metrics) {
  const char* seconds =
      "Seconds of the loader's threads by what they did, all together; waiting: how long steps waited for data.";
  const data::LoadTimes times = train.times();
  const data::WaitTimes waits = loader.times();
  for (const auto& [phase, spent] :
       {std::pair{"read", times.read}, std::pair{"decode", times.decode}, std::pair{"transform", times.transform},
        std::pair{"collate", times.collate}, std::pair{"waiting", waits.waited}}) {
    metrics->SetCounter("downpour_worker_loader_seconds_total", seconds, {{"phase", phase}}, spent);
  }
  metrics->SetCounter("downpour_worker_broken_samples_total", "Broken samples that this worker left out.", {},
                      static_cast<double>(train.skipped()));
  if (waits.waited <= 0 || times.sum() <= 0) return;  // or a data set without threads
  metrics->SetGauge("downpour_worker_loader_busy_ratio",
                    "Of the time in which a step waited for data, the share in which the loader's threads had work.",
                    {}, waits.busy / (waits.waited * train.threads()));
}

}  // namespace

void Publish(const v1::WorkerStats& stats, const BatchLoader& loader, const data::Dataset& train,
             service::Metrics* metrics) {
  metrics->SetCounter("downpour_worker_samples_total",
                      "Samples of updates that were applied as this worker pushed them.", {},
                      static_cast<double>(stats.samples()));
  metrics->SetCounter("downpour_worker_duplicates_total", "Updates that this worker finished after somebody else.", {},
                      static_cast<double>(stats.duplicates()));
  metrics->SetCounter("downpour_worker_steps_total", "Updates that this worker finished.", {},
                      static_cast<double>(stats.steps()));
  metrics->SetCounter(
      "downpour_worker_skipped_total",
      "Updates recorded as skipped: loss or gradient not finite, or no sample of a minibatch could be read.", {},
      static_cast<double>(stats.skipped()));
  metrics->SetCounter("downpour_worker_push_bytes_total", "Bytes of gradients, as they were sent.", {},
                      static_cast<double>(stats.push_bytes()));
  metrics->SetCounter("downpour_worker_push_bytes_saved_total",
                      "By the codec: so many more bytes the gradients would have been as float32.", {},
                      static_cast<double>(stats.push_bytes_saved()));
  if (stats.has_loss()) {
    metrics->SetGauge("downpour_worker_loss", "Training loss over the newest updates.", {}, stats.loss());
  }
  metrics->SetGauge("downpour_worker_devices", "GPUs, or threads in their place, that share each minibatch.", {},
                    stats.devices());
  metrics->SetGauge("downpour_worker_staleness", "Staleness of the newest pushes, in updates.", {}, stats.staleness());
  metrics->SetGauge("downpour_worker_samples_per_second", "Applied, over the newest second.", {},
                    stats.samples_per_second());
  const char* phases = "Mean seconds of the newest steps by phase.";
  metrics->SetGauge("downpour_worker_step_phase_seconds", phases, {{"phase", "data"}}, stats.data_seconds());
  metrics->SetGauge("downpour_worker_step_phase_seconds", phases, {{"phase", "pull"}}, stats.pull_seconds());
  metrics->SetGauge("downpour_worker_step_phase_seconds", phases, {{"phase", "forward"}}, stats.forward_seconds());
  metrics->SetGauge("downpour_worker_step_phase_seconds", phases, {{"phase", "backward"}}, stats.backward_seconds());
  metrics->SetGauge("downpour_worker_step_phase_seconds", phases, {{"phase", "push"}}, stats.push_seconds());
  PublishLoader(loader, train, metrics);
}

}  // namespace downpour::worker
