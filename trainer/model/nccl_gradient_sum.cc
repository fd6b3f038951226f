#include "trainer/model/nccl_gradient_sum.h"

#include <utility>

#include "trainer/collective/local.h"
#include "trainer/collective/nccl_library.h"
#include "trainer/cuda/device_kernels.h"
#include "trainer/cuda/plugin.h"
#include "trainer/model/device_gradient_sum.h"

namespace downpour::model {

absl::StatusOr<std::unique_ptr<GradientSum>> NewNcclGradientSum(const std::vector<Tensor>& tensors, int devices) {
  const absl::StatusOr<const cuda::PluginTable*> table = cuda::LoadPlugin(cuda::PluginPath());
  if (!table.ok()) return table.status();
  std::vector<std::unique_ptr<cuda::DeviceKernels>> kernels;
  std::vector<std::unique_ptr<collective::NcclApi>> nccl;
  std::vector<collective::NcclApi*> of_members;
  for (int device = 0; device < devices; ++device) {
    absl::StatusOr<std::unique_ptr<cuda::DeviceKernels>> own = cuda::MakePluginKernels(**table, device);
    if (!own.ok()) return own.status();
    kernels.push_back(*std::move(own));
    absl::StatusOr<std::unique_ptr<collective::NcclApi>> api =
        collective::LoadNccl(collective::NcclLibraryOptionsOf(**table, device));
    if (!api.ok()) return api.status();
    of_members.push_back(api->get());
    nccl.push_back(*std::move(api));
  }
  return DeviceGradientSum::Create(tensors, std::move(kernels), collective::LocalMembers::OfNccl(of_members), {},
                                   std::move(nccl));
}

}  // namespace downpour::model
