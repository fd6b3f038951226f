#ifndef DOWNPOUR_TESTS_SIMULATION_WORLD_H_
#define DOWNPOUR_TESTS_SIMULATION_WORLD_H_

#include <cstdint>
#include <functional>
#include <queue>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/simulation/random.h"
#include "trainer/core/time.h"

namespace downpour::simulation {

using core::Time;

// A generation of a job.
using HistoryKey = std::pair<std::string, std::uint64_t>;  // uid, number

// One clock, what is going to happen, the only source of chance, and what went wrong.
class World {
 public:
  World(std::uint64_t seed, bool trace) : random_(seed), trace_(trace) {}

  Time now() const { return now_; }
  Random& random() { return random_; }
  void At(Time time, std::function<void()> action) { events_.push({time, next_event_++, std::move(action)}); }
  // Runs what is next. False: nothing is left to happen.
  bool Step();
  std::uint64_t steps() const { return steps_; }

  void Trace(const std::string& text) const;
  void Violation(std::string text);
  const std::vector<std::string>& violations() const { return violations_; }

 private:
  struct Event {
    Time at;
    std::uint64_t order;
    std::function<void()> action;
    bool operator<(const Event& other) const { return std::tie(other.at, other.order) < std::tie(at, order); }
  };

  Random random_;
  bool trace_;
  Time now_ = absl::ZeroDuration();
  std::priority_queue<Event> events_;
  std::uint64_t next_event_ = 0;
  std::uint64_t steps_ = 0;
  std::vector<std::string> violations_;
};

}  // namespace downpour::simulation

#endif  // DOWNPOUR_TESTS_SIMULATION_WORLD_H_
