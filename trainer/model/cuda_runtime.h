#ifndef DOWNPOUR_TRAINER_MODEL_CUDA_RUNTIME_H_
#define DOWNPOUR_TRAINER_MODEL_CUDA_RUNTIME_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace downpour::model {

// Makes LibTorch's CUDA backend available: loads libtorch_cuda.so, which this program is not linked with, from
// $DOWNPOUR_LIBTORCH_CUDA or from beside libtorch_cpu.so, if this machine has an NVIDIA driver. OK: a device can be
// used. kFailedPrecondition: why not. Done once; later calls give the same answer.
absl::Status LoadCuda();

// How many devices this process sees. Errors are those of LoadCuda.
absl::StatusOr<int> CountCudaDevices();

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_CUDA_RUNTIME_H_
