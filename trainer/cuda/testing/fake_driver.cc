// NVIDIA's driver, as much of it as gpu_monitor.h uses: a whole GPU, 00010203-..., a part of one, ff..., and variants.
#include <cstdlib>
#include <cstring>
#include <string>

#define EXPORTED extern "C" __attribute__((visibility("default")))

namespace {

constexpr int kNotFound = 6;
constexpr int kNotSupported = 3;
constexpr int kInvalidArgument = 2;
constexpr int kLost = 15;

struct Gpu {
  bool part;
};
Gpu whole{false};
Gpu part{true};

// "temperature": such calls fail.
bool Fails(const char* what) {
  const char* const failing = std::getenv("FAKE_DRIVER_FAILS");
  return failing != nullptr && std::strstr(failing, what) != nullptr;
}

}  // namespace

EXPORTED int cuInit(unsigned int) { return Fails("cuInit") ? 100 : 0; }
// CUDA sees the part first.
EXPORTED int cuDeviceGet(int* handle, int ordinal) {
  *handle = 40 + ordinal;
  return ordinal == 0 || ordinal == 1 ? 0 : 101;
}
EXPORTED int cuDeviceGetUuid_v2(char uuid[16], int handle) {
  for (int i = 0; i < 16; ++i) uuid[i] = static_cast<char>(handle == 40 ? 0xff : i);
  return 0;
}

#if !defined(FAKE_NO_INIT)
EXPORTED int nvmlInit_v2() { return Fails("init") ? kLost : 0; }
#endif
EXPORTED const char* nvmlErrorString(int error) {
  return error == kNotSupported ? "Not Supported"
         : error == kNotFound   ? "Not Found"
         : error == kLost       ? "GPU is lost"
                                : "Invalid Argument";
}
EXPORTED int nvmlDeviceGetHandleByUUID(const char* uuid, void** device) {
  const std::string asked = uuid;
  *device = asked == "GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"   ? &whole
            : asked == "MIG-ffffffff-ffff-ffff-ffff-ffffffffffff" ? &part
                                                                  : nullptr;
  return *device == nullptr ? kNotFound : 0;
}
EXPORTED int nvmlDeviceGetUtilizationRates(void* device, unsigned int percent[2]) {
  if (static_cast<Gpu*>(device)->part) return kNotSupported;
  percent[0] = 37;
  percent[1] = 12;
  return Fails("utilisation") ? kLost : 0;
}
EXPORTED int nvmlDeviceGetMemoryInfo(void* device, unsigned long long bytes[3]) {
  bytes[0] = static_cast<Gpu*>(device)->part ? 10'000'000'000 : 80'000'000'000;
  bytes[2] = 3'000'000'000;
  bytes[1] = bytes[0] - bytes[2];
  return Fails("memory") ? kLost : 0;
}
#if !defined(FAKE_NO_SENSORS)
EXPORTED int nvmlDeviceGetTemperature(void* device, unsigned int sensor, unsigned int* celsius) {
  *celsius = 51;
  if (static_cast<Gpu*>(device)->part || sensor != 0) return kInvalidArgument;
  return Fails("temperature") ? kLost : 0;
}
EXPORTED int nvmlDeviceGetPowerUsage(void* device, unsigned int* milliwatts) {
  *milliwatts = 123'500;
  if (static_cast<Gpu*>(device)->part) return kNotSupported;
  return Fails("power") ? kLost : 0;
}
#endif
