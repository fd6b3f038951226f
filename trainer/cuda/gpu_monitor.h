#ifndef DOWNPOUR_TRAINER_CUDA_GPU_MONITOR_H_
#define DOWNPOUR_TRAINER_CUDA_GPU_MONITOR_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace downpour::cuda {

// What the driver says of a GPU, whoever uses it.
struct GpuReading {
  std::optional<double> busy;  // 0 to 1: of the driver's newest period (1/6 s to 1 s), how much a kernel ran in
  std::optional<std::uint64_t> memory_used, memory_total;  // bytes; used: with what the driver keeps for itself
  std::optional<double> celsius;
  std::optional<double> watts;

  // What could not be read.
  struct Missing {
    const char* what;  // "utilisation"
    std::string why;
  };
  std::vector<Missing> missing;
};

// Reads what GPUs do. Not thread-safe. May take as long as the driver does, so it is for a thread that nobody waits
// for.
class GpuMonitor {
 public:
  virtual ~GpuMonitor() = default;
  // Of the GPU with this number of those that it was made for.
  virtual GpuReading Read(std::size_t gpu) = 0;
};

// By NVIDIA's management library, which is loaded now and never unloaded, for the GPUs, or parts of GPUs (MIG), with
// these UUIDs (DeviceUuid). kFailedPrecondition: why it cannot be used at all.
absl::StatusOr<std::unique_ptr<GpuMonitor>> LoadNvml(const std::vector<std::string>& uuids,
                                                     const std::string& library = "libnvidia-ml.so.1");

// Who a CUDA device is, for the management library, which counts the GPUs in another way and sees those too that CUDA
// is not to use: "8-4-4-4-12" hexadecimal digits. `device`: as CUDA counts. kFailedPrecondition: the driver does not
// say.
absl::StatusOr<std::string> DeviceUuid(int device, const std::string& driver = "libcuda.so.1");

}  // namespace downpour::cuda

#endif  // DOWNPOUR_TRAINER_CUDA_GPU_MONITOR_H_
