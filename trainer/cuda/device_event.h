#ifndef DOWNPOUR_TRAINER_CUDA_DEVICE_EVENT_H_
#define DOWNPOUR_TRAINER_CUDA_DEVICE_EVENT_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/cuda/device_kernels.h"

namespace downpour::cuda {

// For what takes milliseconds: what takes longer is a device that hangs.
inline constexpr absl::Duration kDeviceLimit = absl::Minutes(2);

// An event of `kernels`, which outlives it.
class DeviceEvent {
 public:
  DeviceEvent() = default;
  static absl::StatusOr<DeviceEvent> Create(DeviceKernels* kernels) {
    const absl::StatusOr<void*> event = kernels->CreateEvent();
    if (!event.ok()) return event.status();
    return DeviceEvent(kernels, *event);
  }
  DeviceEvent(DeviceEvent&& other) noexcept { *this = std::move(other); }
  DeviceEvent& operator=(DeviceEvent&& other) noexcept {
    std::swap(kernels_, other.kernels_);
    std::swap(event_, other.event_);
    return *this;
  }
  ~DeviceEvent() {
    if (kernels_ != nullptr) kernels_->DestroyEvent(event_);
  }

  absl::Status Record() { return kernels_->Record(event_); }
  absl::StatusOr<bool> IsOver() { return kernels_->IsOver(event_); }
  absl::Status AwaitIt() { return Await(*kernels_, event_, kDeviceLimit); }
  // Waits for all that was asked for by now.
  absl::Status AwaitAll() {
    absl::Status recorded = Record();
    return recorded.ok() ? AwaitIt() : recorded;
  }

 private:
  DeviceEvent(DeviceKernels* kernels, void* event) : kernels_(kernels), event_(event) {}

  DeviceKernels* kernels_ = nullptr;
  void* event_ = nullptr;
};

}  // namespace downpour::cuda

#endif  // DOWNPOUR_TRAINER_CUDA_DEVICE_EVENT_H_
