#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "trainer/cuda/driver_library.h"
#include "trainer/cuda/gpu_monitor.h"

namespace downpour::cuda {

absl::StatusOr<std::string> DeviceUuid(int device, const std::string& driver) {
  const absl::StatusOr<DriverLibrary> library = DriverLibrary::Open(driver);
  if (!library.ok()) return library.status();
  // From the public header cuda.h: a CUdevice is an int. Version 2 tells the parts of a GPU from each other.
  int (*initialise)(unsigned int flags) = nullptr;
  int (*device_get)(int* handle, int ordinal) = nullptr;
  int (*get_uuid)(char uuid[16], int handle) = nullptr;
  absl::Status found = library->Find("cuInit", &initialise);
  if (found.ok()) found = library->Find("cuDeviceGet", &device_get);
  if (found.ok()) found = library->Find("cuDeviceGetUuid_v2", &get_uuid);
  if (!found.ok()) return found;
  char uuid[16] = {};
  int handle = 0;
  int error = initialise(0);
  if (error == 0) error = device_get(&handle, device);
  if (error == 0) error = get_uuid(uuid, handle);
  if (error != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("the driver does not say which GPU is CUDA device ", device, " (CUDA error ", error, ")"));
  }
  const std::string digits = absl::BytesToHexString({uuid, sizeof(uuid)});
  return absl::StrCat(digits.substr(0, 8), "-", digits.substr(8, 4), "-", digits.substr(12, 4), "-",
                      digits.substr(16, 4), "-", digits.substr(20));
}

}  // namespace downpour::cuda
