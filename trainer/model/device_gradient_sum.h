#ifndef DOWNPOUR_TRAINER_MODEL_DEVICE_GRADIENT_SUM_H_
#define DOWNPOUR_TRAINER_MODEL_DEVICE_GRADIENT_SUM_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "trainer/collective/local.h"
#include "trainer/collective/nccl_api.h"
#include "trainer/cuda/device_kernels.h"
#include "trainer/model/gradient_sum.h"
#include "trainer/model/model.h"

namespace downpour::model {

struct DeviceSumOptions {
  std::size_t bucket_bytes = 25u << 20;     // as PyTorch's DistributedDataParallel has it
  absl::Duration limit = absl::Minutes(2);  // for what takes milliseconds
};

// In the memory of the devices. Gradients are weighed and laid side by side there, in the order in which backward
// computes them, and added up over the devices bucket by bucket, while the devices still run backward. The sums of the
// first device go to the host. A step in which a replica has no part is added up by HostGradientSum instead.
//
// The first failure aborts what the others wait for; it is the error of the replica where it was, the others have none.
// The next step begins with a new group.
class DeviceGradientSum final : public GradientSum {
 public:
  // `tensors` of the model. kernels[r] is of the device of replica r, whose values members' rank r moves; there are as
  // many of both, which is checked. `nccl`: what the members refer to. Errors are those of allocations, and of forming
  // the first group.
  static absl::StatusOr<std::unique_ptr<GradientSum>> Create(
      const std::vector<Tensor>& tensors, std::vector<std::unique_ptr<cuda::DeviceKernels>> kernels,
      collective::LocalMembers members, const DeviceSumOptions& options = {},
      std::vector<std::unique_ptr<collective::NcclApi>> nccl = {});
  ~DeviceGradientSum() override;

  absl::Status Begin(absl::Span<const float> weights) override;
  absl::StatusOr<StepResult> Compute(std::size_t replica, Model& model, const data::Batch& part, std::uint64_t seed,
                                     const Model::OnLoss& on_loss) override;
  void End() override;
  std::optional<Sum> Next() override;
  std::string description() const override { return ", added up there"; }

 private:
  struct Place {
    std::size_t bucket = 0;
    std::size_t offset = 0;  // of its first value
    std::size_t elements = 0;
  };
  struct Bucket {
    std::size_t offset = 0;
    std::size_t elements = 0;
    std::vector<std::size_t> tensors;
  };
  struct Device {
    std::unique_ptr<cuda::DeviceKernels> kernels;
    float* values = nullptr;           // of all tensors, in its memory
    std::vector<void*> complete;       // events, by bucket
    void* idle = nullptr;              // event
    std::vector<std::size_t> missing;  // by bucket: tensors that are not there
  };

  DeviceGradientSum(const std::vector<Tensor>& tensors, std::vector<std::unique_ptr<cuda::DeviceKernels>> kernels,
                    collective::LocalMembers members, const DeviceSumOptions& options);
  absl::Status Allocate();
  absl::Status FormGroup();
  // One gradient of a replica.
  absl::Status Take(std::size_t replica, const Model& model, std::size_t tensor, const float* values);
  // Each bucket, as soon as it is complete on the device.
  absl::Status AddUp(std::size_t replica);
  // Waits until the device reads the model's gradients no more.
  absl::Status Settle(Device& device) const;

  const DeviceSumOptions options_;
  std::vector<Place> places_;  // by tensor
  std::vector<Bucket> buckets_;
  std::size_t elements_ = 0;
  std::vector<Device> devices_;   // by replica
  float* host_values_ = nullptr;  // page-locked, of the first device
  std::vector<std::unique_ptr<collective::NcclApi>> nccl_;
  collective::LocalMembers members_;
  std::vector<std::unique_ptr<collective::Collective>> ends_;  // by rank; empty: a group is to be formed
  std::vector<float> weights_;
  HostGradientSum host_;
  bool by_host_ = false;  // this step

  absl::Mutex mutex_;
  std::deque<std::size_t> complete_ ABSL_GUARDED_BY(mutex_);  // tensors that nobody has taken
  bool failed_ ABSL_GUARDED_BY(mutex_) = false;
  bool ended_ ABSL_GUARDED_BY(mutex_) = true;
};

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_DEVICE_GRADIENT_SUM_H_
