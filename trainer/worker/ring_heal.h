#ifndef DOWNPOUR_TRAINER_WORKER_RING_HEAL_H_
#define DOWNPOUR_TRAINER_WORKER_RING_HEAL_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/collective/collective.h"
#include "trainer/core/ring/ring_plan.h"
#include "trainer/core/ring/ring_replica.h"

// What the members of a group tell each other of their states. Called by all of them, in the same order. Errors are
// those of the group.
namespace downpour::worker {

// Everybody's position, by rank.
absl::StatusOr<std::vector<core::RingPosition>> TellPositions(collective::Collective& group,
                                                              const core::RingPosition& position, absl::Duration limit);

// The state of `source`, by slice, at all others; none at the source itself. `limit`: of each slice. kInternal as well:
// what came does not fit.
absl::StatusOr<std::vector<core::SliceSnapshot>> ShareState(collective::Collective& group, int source,
                                                            absl::Duration limit, const core::RingReplica& replica);

// Where the optimizer's state is divided: the slices of `source`, whose memory is shared there, and all fragments, each
// of the rank that has it; what this rank is to have of them comes to be in `assembly`.
absl::Status ShareDivided(collective::Collective& group, int source, absl::Span<const core::StateFragment> fragments,
                          absl::Duration limit, const core::RingReplica& replica,
                          core::RingReplica::Assembly* assembly);

// For the checkpoint with this number: the whole state at rank 0, by slice, and nothing at the others, whose shares are
// those of the view. Needs memory for all of the optimizer's state there. kInternal: another rank gathers for another
// one.
absl::StatusOr<std::vector<core::SliceSnapshot>> GatherState(collective::Collective& group, std::uint32_t cut,
                                                             absl::Duration limit, const core::RingReplica& replica);

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_RING_HEAL_H_
