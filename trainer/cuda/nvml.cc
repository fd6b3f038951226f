#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/cuda/driver_library.h"
#include "trainer/cuda/gpu_monitor.h"

namespace downpour::cuda {
namespace {

// From the public header nvml.h: what of its ABI is used. Functions return an nvmlReturn_t, 0 if all is well.
using Device = void*;
struct Utilisation {
  unsigned int gpu, memory;  // percent
};
struct Memory {
  unsigned long long total, free, used;  // bytes
};
constexpr unsigned int kTemperatureGpu = 0;

struct Functions {
  int (*initialise)() = nullptr;
  const char* (*error_string)(int) = nullptr;
  int (*handle_by_uuid)(const char* uuid, Device* device) = nullptr;
  // Null where the library has none.
  int (*utilisation)(Device, Utilisation*) = nullptr;
  int (*memory)(Device, Memory*) = nullptr;
  int (*temperature)(Device, unsigned int sensor, unsigned int* celsius) = nullptr;
  int (*power)(Device, unsigned int* milliwatts) = nullptr;
};

class Nvml final : public GpuMonitor {
 public:
  Nvml(const Functions& functions, std::vector<std::string> uuids)
      : call_(functions), uuids_(std::move(uuids)), devices_(uuids_.size(), nullptr) {}

  GpuReading Read(std::size_t gpu) override {
    GpuReading reading;
    if (const int error = Find(gpu); error != 0) {
      reading.missing.push_back({"all", absl::StrCat("no GPU ", uuids_[gpu], ": ", call_.error_string(error))});
      return reading;
    }
    Device const device = devices_[gpu];
    Utilisation utilisation{};
    // Of a part of a GPU (MIG) it is not known.
    if (Ask("utilisation", call_.utilisation, &reading, device, &utilisation)) reading.busy = utilisation.gpu / 100.0;
    Memory memory{};
    if (Ask("memory", call_.memory, &reading, device, &memory)) {
      reading.memory_used = memory.used;
      reading.memory_total = memory.total;
    }
    unsigned int celsius = 0;
    if (Ask("temperature", call_.temperature, &reading, device, kTemperatureGpu, &celsius)) reading.celsius = celsius;
    unsigned int milliwatts = 0;
    if (Ask("power", call_.power, &reading, device, &milliwatts)) reading.watts = milliwatts / 1000.0;
    return reading;
  }

 private:
  // The handle of a GPU, once there is one.
  int Find(std::size_t gpu) {
    if (devices_[gpu] != nullptr) return 0;
    int error = call_.handle_by_uuid(absl::StrCat("GPU-", uuids_[gpu]).c_str(), &devices_[gpu]);
    if (error != 0) error = call_.handle_by_uuid(absl::StrCat("MIG-", uuids_[gpu]).c_str(), &devices_[gpu]);
    if (error != 0) devices_[gpu] = nullptr;
    return error;
  }

  template <typename Function, typename... Arguments>
  bool Ask(const char* what, Function function, GpuReading* reading, Arguments... arguments) {
    if (function == nullptr) {
      reading->missing.push_back({what, "this driver cannot say"});
      return false;
    }
    const int error = function(arguments...);
    if (error != 0) reading->missing.push_back({what, call_.error_string(error)});
    return error == 0;
  }

  const Functions call_;
  const std::vector<std::string> uuids_;
  std::vector<Device> devices_;  // null: not found yet
};

}  // namespace

absl::StatusOr<std::unique_ptr<GpuMonitor>> LoadNvml(const std::vector<std::string>& uuids,
                                                     const std::string& library) {
  const absl::StatusOr<DriverLibrary> nvml = DriverLibrary::Open(library);
  if (!nvml.ok()) return nvml.status();
  Functions functions;
  absl::Status found = nvml->Find("nvmlInit_v2", &functions.initialise);
  if (found.ok()) found = nvml->Find("nvmlErrorString", &functions.error_string);
  if (found.ok()) found = nvml->Find("nvmlDeviceGetHandleByUUID", &functions.handle_by_uuid);
  if (!found.ok()) return found;
  // Without one of these the others are read all the same.
  nvml->Find("nvmlDeviceGetUtilizationRates", &functions.utilisation).IgnoreError();
  nvml->Find("nvmlDeviceGetMemoryInfo", &functions.memory).IgnoreError();
  nvml->Find("nvmlDeviceGetTemperature", &functions.temperature).IgnoreError();
  nvml->Find("nvmlDeviceGetPowerUsage", &functions.power).IgnoreError();
  // Never shut down: that is the end of the process.
  if (const int error = functions.initialise(); error != 0) {
    return absl::FailedPreconditionError(absl::StrCat(library, ": ", functions.error_string(error)));
  }
  return std::make_unique<Nvml>(functions, uuids);
}

}  // namespace downpour::cuda
