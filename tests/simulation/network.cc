#include "tests/simulation/network.h"

#include <algorithm>

namespace downpour::simulation {

Network::Network(World* world, Time faults_end) : world_(world), faults_end_(faults_end) {
  Random& random = world_->random();
  drop_ = random.Chance(0.7) ? 0.1 * random.Uniform() : 0;
  repeat_ = random.Chance(0.7) ? 0.1 * random.Uniform() : 0;
  slow_ = random.Chance(0.7) ? 0.1 * random.Uniform() : 0;
}

void Network::AtProcess(Time time, const ProcessPointer& process, std::function<void()> action) {
  world_->At(time, [this, process, action = std::move(action)]() mutable {
    if (!process->alive) return;
    if (process->paused_until > world_->now()) {
      AtProcess(process->paused_until + absl::Microseconds(world_->random().Between(0, 500)), process,
                std::move(action));
      return;
    }
    action();
  });
}

absl::Duration Network::Delay() {
  Random& random = world_->random();
  if (faulty() && random.Chance(slow_)) {
    // Now and then longer than it takes to lose a history and to begin another.
    if (random.Chance(0.05)) return random.Delay(absl::Seconds(4), absl::Seconds(40));
    return random.Delay(absl::Milliseconds(20), absl::Milliseconds(4000));
  }
  return random.Delay(absl::Microseconds(100), absl::Milliseconds(5));
}

bool Network::perfect() const {
  if (faulty() && (drop_ > 0 || slow_ > 0)) return false;
  return std::none_of(cut_off_.begin(), cut_off_.end(), [this](const auto& cut) { return world_->now() < cut.second; });
}

bool Network::IsCutOff(std::uint64_t from, std::uint64_t to) const {
  const auto found = cut_off_.find({from, to});
  return found != cut_off_.end() && world_->now() < found->second;
}

}  // namespace downpour::simulation
