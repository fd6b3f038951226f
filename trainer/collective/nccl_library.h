#ifndef DOWNPOUR_TRAINER_COLLECTIVE_NCCL_LIBRARY_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_NCCL_LIBRARY_H_

#include <cstddef>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/collective/nccl_api.h"
#include "trainer/cuda/plugin_table.h"

namespace downpour::collective {

struct NcclLibraryOptions {
  std::string nccl = "libnccl.so.2";
  std::string cuda = "libcudart.so.13";
  int device = 0;
  // Kernels between float32 and bfloat16, as NcclApi::Round and Widen; they return a cudaError_t, and `stream` is a
  // cudaStream_t. nullptr: there are none.
  int (*round)(const float* from, void* to, std::size_t count, void* stream) = nullptr;
  int (*widen)(const void* from, float* to, std::size_t count, void* stream) = nullptr;
};

// Of one device, with the kernels of the library of kernels for GPUs (trainer/cuda/plugin.h).
inline NcclLibraryOptions NcclLibraryOptionsOf(const cuda::PluginTable& table, int device) {
  NcclLibraryOptions options;
  options.device = device;
  options.round = table.round_bf16;
  options.widen = table.widen_bf16;
  return options;
}

// NCCL and the CUDA runtime, loaded when this is called and never unloaded: this program is built without either.
// kFailedPrecondition: why they cannot be used. That there is a device is first needed by UseDevice. Thread-safe.
absl::StatusOr<std::unique_ptr<NcclApi>> LoadNccl(const NcclLibraryOptions& options);

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_NCCL_LIBRARY_H_
