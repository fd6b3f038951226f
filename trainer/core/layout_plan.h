#ifndef DOWNPOUR_TRAINER_CORE_LAYOUT_PLAN_H_
#define DOWNPOUR_TRAINER_CORE_LAYOUT_PLAN_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/layout.h"
#include "trainer/core/planted_bug.h"

// Which ps holds which slice from now on: failover, standbys made anew, slices that move. Pure functions; the
// coordinator makes views of what they say, one after another, each built on the one before.
namespace downpour::core {

// A ps, as the coordinator knows it.
struct PsCondition {
  v1::PsMember member;   // the process that is there, or was last
  bool lives = true;     // it answers
  bool ended = false;    // it is known to have: it does not come back
  bool leaving = false;  // nothing is to be placed on it, and what it has is to go elsewhere
  double slowness = 1;   // how long it takes for a byte that it holds, see PsLoads
};
using PsConditions = std::map<std::uint32_t, PsCondition>;  // by index

// What primaries say of slices that are on the move.
struct MovesKnown {
  std::set<std::pair<std::uint32_t, std::uint64_t>> level;  // slice and replica, see ReplicaState
  std::set<std::uint32_t> frozen;                           // likewise
};

struct NextLayout {
  std::vector<v1::SlicePlacement> layout;
  std::vector<v1::PsMember> ps;  // in order
  std::string reason;            // for people
  std::uint32_t failovers = 0;   // slices whose standby becomes the primary
  std::uint32_t moved = 0;       // slices that have another primary or standby, but for these
};

// What of the view's layout can go on without the ps that do not live or are another process by now: primaries are
// taken over by their standbys, and what else was there is forgotten.
struct AfterLoss {
  enum class Kind {
    kNothing,  // all are there that the layout names
    kGoesOn,   // with `next`
    kWaits,    // a slice is nowhere else than on a ps that is silent: `reason`
    kLost,     // on one that is gone: `reason`
  };
  Kind kind = Kind::kNothing;
  NextLayout next;
  std::string reason;
};
AfterLoss PlanAfterLoss(const v1::View& view, const PsConditions& ps, PlantedBug bug = PlantedBug::kNone);

// The next step from a layout of which everything lives to the one that is wanted: each slice with a standby on another
// ps, and on another node where there is one, if `view.replication_factor` is 2; nothing on a ps that is leaving; the
// fullest ps with at most the mean and one slice of primaries, and of standbys where their nodes allow it, and one that
// is slow with so much less. `replica`:
// the number that replicas get which this makes. Unless it `may_begin`, only what is under way goes on. Nullopt:
// nothing can be done now; `why`, if not null, is set to what is waited for, or nothing.
std::optional<NextLayout> PlanNextLayout(const v1::View& view, absl::Span<const Slice> slices, const PsConditions& ps,
                                         const MovesKnown& known, std::uint64_t replica, bool may_begin = true,
                                         std::string* why = nullptr);

// Slices that have all that the view wants: with a standby, or without one where none is wanted.
std::uint32_t SlicesInSync(const v1::View& view);

// Numbers of replicas that no other view of the generation gives out.
inline std::uint64_t ReplicaNumber(std::uint32_t incarnation, std::uint32_t epoch) {
  return (std::uint64_t{incarnation} << 32) | epoch;
}

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_LAYOUT_PLAN_H_
