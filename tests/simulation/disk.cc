#include "tests/simulation/disk.h"

#include <cerrno>

namespace downpour::simulation {
namespace {

constexpr double kLies = 0.3;
constexpr std::uint64_t kOperations = 40;  // of one use, about

}  // namespace

Disk::Disk(World* world, std::uint64_t seed, bool lies) : world_(world), lies_(lies), files_(seed) {
  files_.LieAboutSync(lies_ ? kLies : 0);
}

absl::Duration Disk::Delay() {
  Random& random = world_->random();
  if (world_->now() < slow_until_) return random.Delay(absl::Milliseconds(200), absl::Seconds(4));
  return random.Delay(absl::Milliseconds(1), absl::Milliseconds(150));
}

Disk::Outcome Disk::Use(const std::function<void()>& use) {
  if (!armed_.has_value()) {
    use();
    return Outcome::kOver;
  }
  const std::uint64_t operation = files_.operations() + world_->random().Below(kOperations);
  if (armed_ == Strike::kError) {
    files_.FailAt(operation, EIO);
  } else {
    files_.DieAt(operation);
  }
  use();
  const bool struck = files_.operations() > operation;
  const Strike strike = *armed_;
  if (struck) armed_.reset();  // otherwise it waits for the next use
  if (struck && strike == Strike::kMachineStops) {
    files_.Crash();
    return Outcome::kMachineStopped;
  }
  files_.Restart();
  return struck && strike == Strike::kProcessDies ? Outcome::kProcessDied : Outcome::kOver;
}

Disk::Outcome Disk::UseUnsynced(const std::function<void()>& use) {
  files_.LieAboutSync(1);
  const Outcome outcome = Use(use);
  files_.LieAboutSync(lies_ ? kLies : 0);
  return outcome;
}

void Disk::FillUp(Time until) {
  files_.LimitBytes(files_.bytes_used() + world_->random().Below(3000));
  full_until_ = std::max(full_until_, until);
  world_->At(until, [this] {
    if (world_->now() >= full_until_) files_.LimitBytes(std::nullopt);
  });
}

}  // namespace downpour::simulation
