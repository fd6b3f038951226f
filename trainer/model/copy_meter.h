#ifndef DOWNPOUR_TRAINER_MODEL_COPY_METER_H_
#define DOWNPOUR_TRAINER_MODEL_COPY_METER_H_

#include <c10/core/Device.h>
#include <c10/core/Event.h>

#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <utility>
#include <vector>

#include "trainer/model/device_traffic.h"

namespace downpour::model {

// How long copies between host and device take, by events of the device around each: nobody waits for it. Used by one
// thread at a time, but for `traffic`. What LibTorch throws, its methods throw.
class CopyMeter {
 public:
  explicit CopyMeter(c10::Device device) : device_(device) {}

  enum class Way { kToDevice, kFromDevice };
  // Calls `copy`, which puts a copy of so many bytes into the device's current stream. One that is over is counted once
  // those of its way before it are, whatever stream they are in.
  template <typename Copy>
  void Measure(Way way, std::size_t bytes, const Copy& copy) {
    Collect(way);
    Span span = Begin(bytes);
    copy();
    End(way, std::move(span));
  }

  // Of the copies that were over when another one of the same way began. From any thread.
  DeviceTraffic traffic() const;

 private:
  struct Span {
    c10::Event begin, end;
    std::uint64_t bytes;
  };
  void Collect(Way way);
  Span Begin(std::size_t bytes);
  void End(Way way, Span span);
  std::deque<Span>& UnderWay(Way way) { return under_way_[way == Way::kToDevice ? 0 : 1]; }

  const c10::Device device_;
  std::deque<Span> under_way_[2];
  std::vector<Span> over_;  // their events are used again
  mutable std::mutex mutex_;
  DeviceTraffic traffic_;  // guarded by mutex_
};

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_COPY_METER_H_
