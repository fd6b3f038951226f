#ifndef DOWNPOUR_TRAINER_CORE_RING_RING_PLAN_H_
#define DOWNPOUR_TRAINER_CORE_RING_RING_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/frame.h"
#include "trainer/core/ring/gradient_layout.h"
#include "trainer/core/ring/state_shares.h"
#include "trainer/core/time.h"

// Who is in the ring from now on. Pure functions; the coordinator makes views of what they say.
namespace downpour::core {

// Where the state of a member stands. Of two the newer is right: steps that were taken under a later view were agreed
// upon by those that an earlier one has lost.
struct RingPosition {
  bool known = false;  // it has a state at all
  v1::ViewStamp took;  // the view under which its newest step was taken, or its first state made
  std::uint64_t updates = 0;

  // ---- where the optimizer's state is divided (RingReplica)
  bool whole = true;
  std::vector<StateShare> shares = {};
  // It has the sums of its share for a step under this view, with which it has so many updates.
  std::optional<v1::ViewStamp> prepared = std::nullopt;
  std::uint64_t prepared_updates = 0;
  TakenStep last = {};
};
// Negative, 0 or positive as `a` is older, the same or newer. What is not known is the oldest.
int ComparePositions(const RingPosition& a, const RingPosition& b);
// The first of the newest ones, by rank; empty positions: -1.
int NewestOf(const std::vector<RingPosition>& positions);

// Whether the member can take the step with which `newest` is where it is: it was prepared when the step counted.
bool CanFinish(const RingPosition& position, const RingPosition& newest);

// What the members of a ring go on from, where the optimizer's state is divided among them.
struct RingRecovery {
  int source = 0;  // the first that is there
  std::vector<StateFragment> fragments;
};
// The newest of which all is there. The newest step is done again where those who have taken it are too few to go on
// from; what has been before stays. kDataLoss: there is none.
absl::StatusOr<RingRecovery> PlanRecovery(const std::vector<RingPosition>& positions, const GradientLayout& layout,
                                          absl::Span<const Slice> slices, std::uint32_t copies);
// Whether all are where the first is, and each has its share among so many holders and nothing else.
bool AllSettled(const std::vector<RingPosition>& positions, std::uint32_t holders);

// A worker with a session that lives.
struct RingCandidate {
  std::uint32_t index = 0;
  std::uint64_t session = 0;
  std::string address;     // of its rendezvous store
  bool has_state = false;  // of the generation at hand
  bool broken = false;     // its group of the view at hand has failed
  bool leaving = false;
  bool busy = false;  // with a task, which is not interrupted
};

struct RingWish {
  std::uint32_t least = 1;     // members that training needs
  std::uint32_t expected = 1;  // that it is to begin with
};

struct RingDecision {
  enum class Kind {
    kKeep,   // the ring as it is
    kForm,   // another one, of `members`; they go on from the newest state among them
    kBegin,  // likewise, but none of them has a state: a new generation
    kWait,   // there is none now, and who leaves may go
    kAwait,  // it stays as it is, and does not train, until others are back or given up
  };
  Kind kind = Kind::kKeep;
  std::vector<std::uint64_t> members;  // sessions, by rank
  std::string reason;                  // for people
};

struct RingSituation {
  std::vector<std::uint64_t> ring;        // sessions of the view at hand, by rank; empty: there is none
  std::vector<RingCandidate> candidates;  // all that live, by index
  RingWish wish;
  Time since = absl::ZeroDuration();         // when the newest of them came
  Time broken_since = absl::ZeroDuration();  // when the first one said that its group has failed, if any does
  // The view is of the coordinator before: what its members were told last, nobody knows.
  bool of_another_coordinator = false;
  std::uint32_t holders = 0;  // of the view at hand, among whom the state is divided; 0: it is not
  // Of a state that is divided: what those who leave have of it the others have not, all together.
  bool hand_over = false;
  // Likewise: those who live may not have all of it, all together.
  bool incomplete = false;
  // Until then somebody of the ring who is not heard of may come back with what he has; in the past: nobody is.
  Time may_return_until = -absl::InfiniteDuration();
  // Of a divided state, the members of the ring have found that it is lost: why. Empty: it is not.
  std::string state_lost;
};

// A ring grows once nobody new has come for so long,
inline constexpr absl::Duration kRingSettles = absl::Milliseconds(300);
// and begins with fewer than expected after so long.
inline constexpr absl::Duration kRingPatience = absl::Seconds(10);
// Whoever is not heard of, and has what the others have not, is waited for so long; whoever came back last, from
// where others may be.
inline constexpr absl::Duration kRingReturns = absl::Seconds(5);
// Whoever has not noticed by then that its group has failed is in the next one all the same.
inline constexpr absl::Duration kRingNotices = absl::Seconds(1);

RingDecision PlanRing(const RingSituation& situation, Time now);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_RING_RING_PLAN_H_
