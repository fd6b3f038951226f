#include "trainer/worker/gpu_report.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/collective/nccl_library.h"
#include "trainer/cuda/gpu_monitor.h"
#include "trainer/cuda/plugin.h"
#include "trainer/model/cuda_runtime.h"

namespace downpour::worker {
namespace {

std::string Or(const std::string& found, const absl::Status& status) {
  return absl::StrCat(status.ok() ? found : status.message(), "\n");
}

std::string Kernels() {
  const std::string path = cuda::PluginPath();
  const absl::StatusOr<const cuda::PluginTable*> table = cuda::LoadPlugin(path);
  if (!table.ok()) return Or("", table.status());
  const absl::Status devices = cuda::CheckDevices(**table);
  return absl::StrCat(path, ", version ", (*table)->version, "; ", Or("a device can be used", devices));
}

absl::Status Figures() {
  const absl::StatusOr<std::string> uuid = cuda::DeviceUuid(0);
  return uuid.ok() ? cuda::LoadNvml({*uuid}).status() : uuid.status();
}

}  // namespace

bool FindGpus(std::string* text) {
  const absl::Status device = model::LoadCuda();
  *text = absl::StrCat("device:  ", Or("LibTorch can use CUDA device 0", device));
  absl::StrAppend(text, "kernels: ", Kernels());
  absl::StrAppend(text, "NCCL:    ", Or("can be used", collective::LoadNccl({}).status()));
  absl::StrAppend(text, "figures: ", Or("NVIDIA's management library can be used", Figures()));
  return device.ok();
}

}  // namespace downpour::worker
