#ifndef DOWNPOUR_TRAINER_CORE_PS_LOAD_H_
#define DOWNPOUR_TRAINER_CORE_PS_LOAD_H_

#include <cstdint>
#include <map>

#include "trainer/core/time.h"

namespace downpour::core {

// How slow each ps is with what it holds, from how much of the time it was busy: one that shares its processors, or is
// on a weaker machine, is to hold less. Only where it matters: while one of them is busy a tenth of the time. What is
// in force stays until a measurement contradicts it clearly, as moving slices costs something too. Not thread-safe.
class PsLoads {
 public:
  // A measurement takes so long.
  explicit PsLoads(absl::Duration window) : window_(window) {}

  // What each ps holds from now on, in bytes of primaries and standbys, by index. If that is news a measurement that is
  // under way begins anew.
  void OnLayout(const std::map<std::uint32_t, std::uint64_t>& held);
  // The process `session` has been busy for so long since it began.
  void OnStats(std::uint32_t ps, std::uint64_t session, double busy_seconds, Time now);

  // How long it takes for a byte that it holds, by how long the quickest does; 1 where nothing else is known.
  double slowness(std::uint32_t ps) const;

 private:
  struct Window {
    std::uint64_t session = 0;
    Time begun = absl::ZeroDuration(), ended = absl::ZeroDuration();
    double busy_then = 0, busy_now = 0;
    double share() const { return (busy_now - busy_then) / absl::ToDoubleSeconds(ended - begun); }
  };
  // With a measurement of each.
  void Conclude();
  void Restart();

  absl::Duration window_;
  std::map<std::uint32_t, std::uint64_t> held_;
  std::map<std::uint32_t, Window> windows_;
  std::map<std::uint32_t, double> slowness_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_PS_LOAD_H_
