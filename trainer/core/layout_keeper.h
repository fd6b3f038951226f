#ifndef DOWNPOUR_TRAINER_CORE_LAYOUT_KEEPER_H_
#define DOWNPOUR_TRAINER_CORE_LAYOUT_KEEPER_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "downpour/v1/control.pb.h"
#include "trainer/core/direct_calls.h"
#include "trainer/core/layout.h"
#include "trainer/core/layout_plan.h"
#include "trainer/core/planted_bug.h"
#include "trainer/core/ps_load.h"
#include "trainer/core/ps_registry.h"
#include "trainer/core/time.h"

namespace downpour::core {

// Which ps live and which are to stay, and what follows for the layout in force. Not thread-safe.
class LayoutKeeper {
 public:
  struct Options {
    std::uint32_t incarnation = 1;
    // A ps that has not answered for so long is given up, where others have what it holds.
    absl::Duration patience = absl::Seconds(3);
    absl::Duration load_window = absl::Seconds(10);  // see PsLoads
    PlantedBug bug = PlantedBug::kNone;
  };
  explicit LayoutKeeper(Options options) : options_(options), loads_(options.load_window) {}

  // ---- what is known
  void OnWish(const v1::ProgressRequest& request);
  // How many ps there are to be; nullopt: as at the start.
  std::optional<std::uint32_t> wanted() const { return wanted_; }
  // The coordinator was paused: nobody is given up for that.
  void OnPause(Time now) { heard_from_ = now; }
  // Another view is in force.
  void OnView(const v1::View& view);
  // A reply of a ps that has it, of the process `session`.
  void OnReply(std::uint32_t ps, std::uint64_t session, const v1::DirectReply& reply, Time now);
  // Something may have changed that no call here has told.
  void Reconsider() { reconsider_ = true; }

  // ---- what follows
  PsConditions Conditions(const PsRegistry& registry, const DirectCalls& calls, Time now) const;
  // When Decide was called last.
  const PsConditions& conditions() const { return conditions_; }
  struct Decision {
    enum class Kind { kNothing, kChange, kLost } kind = Kind::kNothing;
    NextLayout next;    // kChange
    bool loss = false;  // kChange: a ps was given up
    std::string why;    // for people, also of kNothing
  };
  enum class Moves { kNone, kUnderWay, kAll };
  // `quorum`: sessions of the ps that decide on the next view, or, before it is `committed`, on this one. `may_move`:
  // changes that no loss asks for may begin.
  Decision Decide(const v1::View& view, const std::set<std::uint64_t>& quorum, bool committed,
                  const PsRegistry& registry, const DirectCalls& calls, Moves moves, Time now);

  // The ps is the primary of slices whose state decides what comes next.
  bool Awaits(std::uint32_t ps) const { return moving_.count(ps) != 0; }
  bool HasFrozen() const { return has_frozen_; }
  // Decide has to look: something has been told, or has not been for a while.
  bool Due(Time now) const { return reconsider_ || now >= next_look_; }
  // What is wished of the ps.
  bool heard() const { return heard_; }
  void Report(const v1::View& view, v1::ProgressReply* progress) const;
  // What was decided has become a view.
  void OnChange(const NextLayout& next);

 private:
  Options options_;
  std::optional<std::uint32_t> wanted_;
  std::uint64_t wanted_revision_ = 0;
  std::set<std::uint32_t> leaving_;
  Time heard_from_ = absl::ZeroDuration();
  std::vector<Slice> slices_;
  MovesKnown known_;
  std::set<std::uint32_t> moving_;
  PsLoads loads_;
  bool has_frozen_ = false;
  bool reconsider_ = true;
  bool heard_ = false;
  Time next_look_ = absl::ZeroDuration();
  PsConditions conditions_;          // see conditions()
  Moves moves_then_ = Moves::kNone;  // likewise
  std::string message_;
  std::uint32_t failovers_ = 0, moves_ = 0;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_LAYOUT_KEEPER_H_
