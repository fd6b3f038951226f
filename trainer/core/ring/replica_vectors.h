#ifndef DOWNPOUR_TRAINER_CORE_RING_REPLICA_VECTORS_H_
#define DOWNPOUR_TRAINER_CORE_RING_REPLICA_VECTORS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/layout.h"
#include "trainer/core/slice_snapshot.h"

namespace downpour::core {

// Where the values of a replica's slices live, and what the optimizer remembers of each, if that is not the memory of
// the host (RingReplica); who takes the steps there. They have the bits of core/optimizers. Not thread-safe.
//
// Addresses of values and sums are of its memory, which the host need not be able to read. Errors: kInternal, what the
// device says, of this call or of one before it, and kDeadlineExceeded, it hangs; then nothing that is here is of use
// any more.
class ReplicaVectors {
 public:
  ReplicaVectors() = default;
  ReplicaVectors(const ReplicaVectors&) = delete;
  ReplicaVectors& operator=(const ReplicaVectors&) = delete;
  virtual ~ReplicaVectors() = default;

  // Becomes that, which is left alone until Finish. `state`: as Optimizer::Export has it, whole.
  virtual absl::Status Put(std::uint32_t slice, absl::Span<const float> value, const OptimizerState& state) = 0;
  // What it is now, in memory of the host; of what was Put before.
  virtual absl::Status Get(std::uint32_t slice, absl::Span<float> value, OptimizerState* state) = 0;

  struct SliceStep {
    std::uint32_t slice = 0;
    absl::Span<const float> sum;  // of gradients, or of a buffer's differences
    double learning_rate = 0;     // this and the factor: StepContext's; not of buffers
    double factor = 1;
    std::uint64_t samples = 0;  // of a buffer, what its sum is divided by
  };
  // Each slice once at most. The sums are left alone until Finish.
  virtual absl::Status Step(absl::Span<const SliceStep> steps) = 0;
  // Until all that was asked for is done.
  virtual absl::Status Finish() = 0;
  // From its memory to the host's.
  virtual absl::Status Read(absl::Span<const float> from, absl::Span<float> to) = 0;

  // Where a tensor's values are, side by side; good as long as this is.
  virtual const float* tensor(std::size_t tensor) const = 0;
};

// For the slices of a view. kResourceExhausted: there is no memory for them.
using MakeReplicaVectors = std::function<absl::StatusOr<std::unique_ptr<ReplicaVectors>>(
    const v1::View& view, absl::Span<const Slice> slices)>;

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_RING_REPLICA_VECTORS_H_
