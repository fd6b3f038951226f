#ifndef DOWNPOUR_TRAINER_CUDA_DEVICE_VECTORS_H_
#define DOWNPOUR_TRAINER_CUDA_DEVICE_VECTORS_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/layout.h"
#include "trainer/core/ring/replica_vectors.h"
#include "trainer/cuda/device_kernels.h"

namespace downpour::cuda {

// The vectors of a replica in memory of `kernels`, which outlives them and takes their steps, all slices of a step with
// the same coefficients in one call. Memory for values and optimizer of all slices is taken at once.
// kResourceExhausted: it is not there, and how much it were. kUnimplemented: there is no kernel for the view's
// optimizer (OptimizerStep).
absl::StatusOr<std::unique_ptr<core::ReplicaVectors>> MakeDeviceVectors(DeviceKernels* kernels, const v1::View& view,
                                                                        absl::Span<const core::Slice> slices);

}  // namespace downpour::cuda

#endif  // DOWNPOUR_TRAINER_CUDA_DEVICE_VECTORS_H_
