#ifndef DOWNPOUR_TRAINER_WORKER_STAGED_COLLECTIVE_H_
#define DOWNPOUR_TRAINER_WORKER_STAGED_COLLECTIVE_H_

#include <memory>

#include "trainer/collective/collective.h"
#include "trainer/cuda/device_kernels.h"

namespace downpour::worker {

enum class StagedIn { kHost, kDevice };

// The side of `group` for values in memory that it does not move: they are copied there and back, which is waited for.
// `staged_in`: where `group` has its values, page-locked memory of the host or that of the device. Memory for that is
// kept until the end, so that steps that are alike take it once. A device that fails breaks the group (kInternal).
//
// `group` and `kernels` outlive its last call; it ends after `group` has, which may write here until then. Thread-safe
// are Abort, and all else by one thread at a time.
std::unique_ptr<collective::Collective> StageValues(collective::Collective* group, cuda::DeviceKernels* kernels,
                                                    StagedIn staged_in);

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_STAGED_COLLECTIVE_H_
