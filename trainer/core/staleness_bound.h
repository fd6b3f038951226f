#ifndef DOWNPOUR_TRAINER_CORE_STALENESS_BOUND_H_
#define DOWNPOUR_TRAINER_CORE_STALENESS_BOUND_H_

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "trainer/core/planted_bug.h"

namespace downpour::core {

// Stale synchronous parallel (Ho et al. 2013, "More Effective Distributed ML via a Stale Synchronous Parallel Parameter
// Server", section 2) at one ps. The clock of a session is the number of updates that it has finished; a session may
// begin another one while it is at most `bound` ahead of the slowest session that trains, as far as each slice knows.
// Who does not train does not count; who begins to train starts at the slowest clock.
//
// Each ps decides alone, and nothing blocks for good: a session has one clock, its own, so that whoever waits, waits
// for one with a lower clock, and the session with the lowest one waits for nobody but those that are about to finish.
// (Updates counted by the slices would not do: what another session had applied before, and starts at different
// clocks, make A slower than B on one slice and B slower than A on another.) Not thread-safe.
class StalenessBound {
 public:
  // `slices`: the numbers of those that are here.
  StalenessBound(std::uint32_t bound, const std::vector<std::uint32_t>& slices, PlantedBug bug = PlantedBug::kNone);

  // A slice comes, or goes. What it knows of a session is the least that another one here does: who is further says so.
  void AddSlice(std::uint32_t slice);
  void RemoveSlice(std::uint32_t slice) { slices_.erase(slice); }
  bool HasSlice(std::uint32_t slice) const { return slices_.count(slice) != 0; }
  void SetTraining(std::uint64_t session, bool training);
  // It is over.
  void End(std::uint64_t session);
  // The session is at `clock`, or is with the update that is on the slice by now.
  void SetClock(std::uint32_t slice, std::uint64_t session, std::uint64_t clock);
  // The session has finished so many updates, on every slice.
  void SetClock(std::uint64_t session, std::uint64_t clock);
  // What the slice knows. A session that begins to train starts at the highest that a slice knows of it, and tells the
  // others before it begins its first update.
  std::uint64_t clock(std::uint32_t slice, std::uint64_t session) const;
  bool MayBegin(std::uint32_t slice, std::uint64_t session) const;

 private:
  struct Clocks {
    std::map<std::uint64_t, std::uint64_t> of;      // by session
    std::map<std::uint64_t, std::uint32_t> spread;  // how many that train have this clock
    void Remove(std::uint64_t clock);
  };
  void StopTraining(std::uint64_t session);

  std::uint32_t bound_;
  PlantedBug bug_;
  std::set<std::uint64_t> training_;
  std::map<std::uint32_t, Clocks> slices_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_STALENESS_BOUND_H_
