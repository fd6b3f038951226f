#ifndef DOWNPOUR_TRAINER_CORE_RING_REPLICA_MIRROR_H_
#define DOWNPOUR_TRAINER_CORE_RING_REPLICA_MIRROR_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "trainer/core/ring/replica_vectors.h"
#include "trainer/core/slice_state.h"

namespace downpour::core {

// Of slices whose vectors live elsewhere: what their SliceStates have of these, and which of both is the newer one.
// Tables and versions are the SliceStates' alone. Not thread-safe.
class ReplicaMirror {
 public:
  ReplicaMirror(std::unique_ptr<ReplicaVectors> vectors, std::size_t slices);

  const ReplicaVectors& vectors() const { return *vectors_; }
  ReplicaVectors& vectors() { return *vectors_; }

  // That of `slice` in its SliceState has changed, and is the newest.
  void OnHost(std::uint32_t slice) { newest_[slice] = Newest::kHost; }
  bool on_host(std::uint32_t slice) const { return newest_[slice] != Newest::kElsewhere; }

  // Both are the same then. Nothing is copied where they are.
  absl::Status ToHost(SliceState* state);
  absl::Status FromHost(absl::Span<const SliceState> states);
  // Of slices that are there.
  absl::Status Step(absl::Span<const ReplicaVectors::SliceStep> steps);

 private:
  enum class Newest : std::uint8_t { kHost, kBoth, kElsewhere };
  std::unique_ptr<ReplicaVectors> vectors_;
  std::vector<Newest> newest_;  // by slice
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_RING_REPLICA_MIRROR_H_
