#ifndef DOWNPOUR_TRAINER_MODEL_DEVICE_TRAFFIC_H_
#define DOWNPOUR_TRAINER_MODEL_DEVICE_TRAFFIC_H_

#include <cstdint>

namespace downpour::model {

// Copies between host and device that are over: of parameters to it, of gradients and what else a step gives from it.
struct DeviceTraffic {
  struct Copies {
    double seconds = 0;  // by the device's clock
    std::uint64_t bytes = 0;
    Copies& operator+=(const Copies& other) {
      seconds += other.seconds;
      bytes += other.bytes;
      return *this;
    }
  };
  Copies to_device, from_device;
  DeviceTraffic& operator+=(const DeviceTraffic& other) {
    to_device += other.to_device;
    from_device += other.from_device;
    return *this;
  }
};

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_DEVICE_TRAFFIC_H_
