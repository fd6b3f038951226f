#ifndef DOWNPOUR_TRAINER_WORKER_RING_DEVICE_H_
#define DOWNPOUR_TRAINER_WORKER_RING_DEVICE_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "downpour/v1/config.pb.h"
#include "trainer/core/ring/replica_vectors.h"
#include "trainer/cuda/device_kernels.h"
#include "trainer/model/model.h"

namespace downpour::worker {

// Where a member of a ring has its gradients, its values and what its optimizer remembers, for its whole life.
struct RingDevice {
  std::shared_ptr<cuda::DeviceKernels> kernels;  // where gradients are added up: never null
  bool on_device = false;                        // all of it is there, and the model leaves its gradients there
  std::string why_not;                           // of a model that computes on a GPU; otherwise empty

  // Null: the replica lives in the memory of the host.
  core::MakeReplicaVectors make_vectors() const;
};

// Whether what `config` wants can be done by kernels at all. kUnimplemented: why not; then it is done on the host, to
// which the model's gradients are copied.
absl::Status CheckOnDevice(const v1::TrainingConfig& config);

// On the GPU that the model computes on, in its stream, if all that can be: otherwise on the host. `given`: by these
// kernels instead, wherever the model computes; null: by none.
RingDevice FindRingDevice(const v1::TrainingConfig& config, const model::Model& model,
                          std::shared_ptr<cuda::DeviceKernels> given);

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_RING_DEVICE_H_
