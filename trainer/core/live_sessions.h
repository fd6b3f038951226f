#ifndef DOWNPOUR_TRAINER_CORE_LIVE_SESSIONS_H_
#define DOWNPOUR_TRAINER_CORE_LIVE_SESSIONS_H_

#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "downpour/v1/control.pb.h"
#include "trainer/core/planted_bug.h"

namespace downpour::core {

// The worker sessions that are live, as a ps hears it from the coordinator: the whole list first, then differences to
// what it has confirmed. Sessions never come back. Not thread-safe.
class LiveSessions {
 public:
  explicit LiveSessions(PlantedBug bug = PlantedBug::kNone) : bug_(bug) {}

  // What a directive says; the sessions that were live and are over with it. nullopt: it was overtaken by another one,
  // or is a difference to a list that is not here; then nothing has changed.
  std::optional<std::vector<std::uint64_t>> Take(const v1::DirectRequest& request);
  // Nobody is, before the coordinator says the whole list again.
  void Clear();

  bool Contains(std::uint64_t session) const { return sessions_.count(session) != 0; }
  const std::set<std::uint64_t>& sessions() const { return sessions_; }
  // Of the list, as the coordinator of this incarnation counts; nullopt: it is an older one's.
  std::optional<std::uint64_t> version(std::uint32_t incarnation) const;

 private:
  PlantedBug bug_;
  std::uint32_t incarnation_ = 0;
  std::uint64_t version_ = 0;
  std::set<std::uint64_t> sessions_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_LIVE_SESSIONS_H_
