#ifndef DOWNPOUR_TRAINER_CORE_WORKER_METER_H_
#define DOWNPOUR_TRAINER_CORE_WORKER_METER_H_

#include <cstdint>
#include <string>

#include "absl/time/time.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/time.h"
#include "trainer/core/work.h"

namespace downpour::core {

// What a worker tells of itself: counts, means over about the newest 20 updates, and how fast it is. Not thread-safe.
class WorkerMeter {
 public:
  const v1::WorkerStats& stats() const { return stats_; }
  // What it is doing: "waiting", "computing" and so on.
  void SetState(const char* state) { stats_.set_state(state); }

  // `count`: on so many of them.
  void SetDevice(const std::string& device, std::uint32_t count) {
    stats_.set_device(device);
    stats_.set_devices(count);
  }

  void Start(Time now) { rate_since_ = now; }
  // Another history: what is counted goes on, the loss was of the one before.
  void BeginHistory() { stats_.clear_loss(); }
  void OnPulled(absl::Duration took);
  // A gradient leaves, of so many bytes in the place of `elements_bytes`.
  void OnPush(std::uint64_t bytes, std::uint64_t elements_bytes);
  // A gradient was of so many versions before that which it was applied to.
  void OnStaleness(double staleness);
  // An update is acknowledged. `trained`: it was applied as this worker pushed it, and was not a duplicate.
  void OnUpdate(const ComputeResult& computed, bool trained, absl::Duration push_took);
  // To be called now and then. `training`: an update is under way.
  void UpdateRate(Time now, bool training);

  // To read the data and compute, on the mean.
  absl::Duration update_time() const;

 private:
  v1::WorkerStats stats_;
  Time rate_since_ = absl::ZeroDuration();
  std::uint64_t rate_samples_ = 0;
  std::uint64_t rate_steps_ = 0;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_WORKER_METER_H_
