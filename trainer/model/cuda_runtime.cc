#include "trainer/model/cuda_runtime.h"

#include <dlfcn.h>
#include <link.h>
#include <torch/cuda.h>

#include <climits>
#include <cstdlib>
#include <exception>
#include <string>

#include "absl/strings/str_cat.h"

namespace downpour::model {
namespace {

absl::Status Load() {
  // Asked first: without a driver nothing of 1 GB and more is loaded.
  if (dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return absl::FailedPreconditionError("no NVIDIA driver on this machine (libcuda.so.1 cannot be loaded)");
  }
  std::string path = "libtorch_cuda.so";
  if (const char* chosen = std::getenv("DOWNPOUR_LIBTORCH_CUDA"); chosen != nullptr) {
    path = chosen;
  } else if (void* cpu = dlopen("libtorch_cpu.so", RTLD_NOW | RTLD_NOLOAD); cpu != nullptr) {
    char directory[PATH_MAX];
    if (dlinfo(cpu, RTLD_DI_ORIGIN, directory) == 0) path = absl::StrCat(directory, "/libtorch_cuda.so");
    dlclose(cpu);
  }
  // Its start-up code registers the CUDA kernels with LibTorch.
  if (dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL) == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("LibTorch's CUDA part cannot be loaded: ", dlerror()));
  }
  try {
    if (!torch::cuda::is_available()) return absl::FailedPreconditionError("LibTorch finds no CUDA device");
  } catch (const std::exception& error) {
    return absl::FailedPreconditionError(absl::StrCat("CUDA cannot be used: ", error.what()));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status LoadCuda() {
  static const absl::Status status = Load();
  return status;
}

absl::StatusOr<int> CountCudaDevices() {
  if (absl::Status cuda = LoadCuda(); !cuda.ok()) return cuda;
  return static_cast<int>(torch::cuda::device_count());
}

}  // namespace downpour::model
