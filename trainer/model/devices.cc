#include "trainer/model/devices.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "trainer/model/cuda_runtime.h"
#include "trainer/model/gradient_sum.h"
#include "trainer/model/nccl_gradient_sum.h"
#include "trainer/model/replicated_model.h"

namespace downpour::model {
namespace {

// On the devices, or by the host where that cannot be.
absl::StatusOr<std::unique_ptr<GradientSum>> SumOnGpus(const std::vector<Tensor>& tensors, int devices) {
  absl::StatusOr<std::unique_ptr<GradientSum>> sum = NewNcclGradientSum(tensors, devices);
  if (sum.ok()) return sum;
  return std::make_unique<HostGradientSum>(static_cast<std::size_t>(devices), tensors.size(),
                                           absl::StrCat(", added up by the host: ", sum.status().message()));
}

}  // namespace

absl::StatusOr<DevicePlan> PlanDevices(DeviceChoice choice, int wanted, std::int64_t batch_size,
                                       const std::function<absl::StatusOr<int>()>& count) {
  if (wanted <= 1) return DevicePlan{choice, 1, ""};
  if (batch_size > 0 && batch_size < wanted) {
    return absl::InvalidArgumentError(
        absl::StrCat("spec.training.batchSize: must be at least spec.worker.gpus, ", wanted, ", got ", batch_size));
  }
  if (choice == DeviceChoice::kCpu) return DevicePlan{choice, wanted, absl::StrCat(", ", wanted, " replicas")};
  const absl::StatusOr<int> visible = count();
  if (!visible.ok()) return DevicePlan{choice, 1, ""};  // and the model says why
  if (*visible >= wanted) return DevicePlan{DeviceChoice::kCuda, wanted, absl::StrCat(", ", wanted, " GPUs")};
  if (choice == DeviceChoice::kCuda) {
    return absl::FailedPreconditionError(absl::StrCat("spec.worker.gpus: must be at most ", *visible,
                                                      ", the GPUs that this process sees; got ", wanted));
  }
  return DevicePlan{DeviceChoice::kCuda, *visible, absl::StrCat(", ", *visible, " of ", wanted, " GPUs")};
}

absl::StatusOr<std::unique_ptr<Model>> CreateModelOnDevices(const ModelOptions& options, int devices) {
  const absl::StatusOr<DevicePlan> plan =
      PlanDevices(options.device, devices, options.batch_size, [] { return CountCudaDevices(); });
  if (!plan.ok()) return plan.status();
  if (plan->suffix.empty()) return CreateModel(options);
  if (options.local_optimizer.has_value()) {
    return absl::UnimplementedError(
        absl::StrCat("spec.update.localSteps: not with spec.worker.gpus, ", devices, ": must be 1 with several GPUs"));
  }
  const int replicas = plan->replicas;
  ReplicaOptions replica_options{replicas, plan->suffix};
  if (plan->device == DeviceChoice::kCuda && replicas > 1) {
    replica_options.create_sum = [replicas](const std::vector<Tensor>& tensors) {
      return SumOnGpus(tensors, replicas);
    };
  }
  return CreateReplicatedModel(replica_options, [&](int replica) {
    ModelOptions one = options;
    one.device = plan->device;
    one.device_number = replica;
    one.batch_size = (options.batch_size + replicas - 1) / replicas;
    if (plan->device == DeviceChoice::kCpu) one.threads = std::max(1, options.threads / replicas);
    return CreateModel(one);
  });
}

}  // namespace downpour::model
