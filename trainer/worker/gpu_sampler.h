#ifndef DOWNPOUR_TRAINER_WORKER_GPU_SAMPLER_H_
#define DOWNPOUR_TRAINER_WORKER_GPU_SAMPLER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/cuda/gpu_monitor.h"

namespace downpour::worker {

// Reads what GPUs do, on a thread of its own: a driver may take its time, and nobody waits for it. What cannot be read
// is told once, and left out. Thread-safe.
class GpuSampler {
 public:
  using MakeMonitor = std::function<absl::StatusOr<std::unique_ptr<cuda::GpuMonitor>>()>;
  using Tell = std::function<void(const std::string& news)>;

  // Of so many GPUs. Both functions are called on that thread.
  GpuSampler(std::size_t gpus, MakeMonitor make, Tell tell);
  // Waits half a second for a reading that is under way, and then leaves its thread to the driver; nothing is told
  // after.
  ~GpuSampler();
  GpuSampler(const GpuSampler&) = delete;
  GpuSampler& operator=(const GpuSampler&) = delete;

  // Asks for a reading of every GPU, unless one is under way.
  void Ask();
  // The newest of each GPU; nothing is known of any before the first, and once the driver has not answered while
  // kMostMissed others were asked for.
  std::vector<cuda::GpuReading> Newest() const;
  // Waits until the reading that was asked for is made, or until it is known that there are none. False: it took
  // longer.
  bool WaitForReading(absl::Duration limit) const;

  static constexpr int kMostMissed = 10;

 private:
  struct State;
  const std::shared_ptr<State> state_;  // the thread has it too
};

// Of the CUDA devices with these numbers, by NVIDIA's driver; tells the log. Null: there are none.
std::unique_ptr<GpuSampler> SampleGpus(const std::vector<int>& devices);

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_GPU_SAMPLER_H_
