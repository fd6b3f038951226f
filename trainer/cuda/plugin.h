#ifndef DOWNPOUR_TRAINER_CUDA_PLUGIN_H_
#define DOWNPOUR_TRAINER_CUDA_PLUGIN_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/cuda/plugin_table.h"

// The library of kernels for GPUs, which no program is linked with. Thread-safe.
namespace downpour::cuda {

// Where it is looked for: $DOWNPOUR_CUDA_PLUGIN, else libdownpour_cuda.so in the folder of this program, else in the
// folder lib beside that one.
std::string PluginPath();

// The library's table, which stays valid: a library that was loaded is never unloaded. kNotFound: there is no such
// file. kFailedPrecondition: it cannot be loaded, is another library, or is of another version. Does not say whether
// there is a GPU.
absl::StatusOr<const PluginTable*> LoadPlugin(const std::string& path);

// kFailedPrecondition: no device can be used, and why.
absl::Status CheckDevices(const PluginTable& table);

// What a function of the table returned.
absl::Status StatusOf(const PluginTable& table, int error, const char* doing);

}  // namespace downpour::cuda

#endif  // DOWNPOUR_TRAINER_CUDA_PLUGIN_H_
