#ifndef DOWNPOUR_TESTS_SIMULATION_DISK_H_
#define DOWNPOUR_TESTS_SIMULATION_DISK_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "tests/simulation/world.h"
#include "trainer/checkpoint/directory_store.h"
#include "trainer/checkpoint/testing/fake_file_system.h"

namespace downpour::simulation {

// The disk that all processes of a job share, and what befalls it.
class Disk {
 public:
  // `lies`: it does not always keep what it was asked to.
  Disk(World* world, std::uint64_t seed, bool lies);

  bool lies() const { return lies_; }
  std::unique_ptr<checkpoint::Store> Open(const std::string& uri) {
    return checkpoint::MakeDirectoryStore(files_, uri);
  }
  // How long one thing takes.
  absl::Duration Delay();
  bool away() const { return world_->now() < away_until_; }
  bool works() const { return world_->now() >= std::max({away_until_, slow_until_, full_until_}); }

  enum class Outcome {
    kOver,
    kProcessDied,     // in the middle of it
    kMachineStopped,  // likewise, and of the disk is left what was synced
  };
  // One process uses it: what is armed strikes in the middle.
  Outcome Use(const std::function<void()>& use);
  // The same without syncing anything.
  Outcome UseUnsynced(const std::function<void()>& use);

  // ---- what goes wrong
  enum class Strike { kError, kProcessDies, kMachineStops };
  void Arm(Strike strike) { armed_ = strike; }
  void StopMachine() { files_.Crash(); }
  void FillUp(Time until);
  void GoAway(Time until) { away_until_ = until; }
  void SlowDown(Time until) { slow_until_ = until; }

 private:
  World* world_;
  const bool lies_;
  checkpoint::testing::FakeFileSystem files_;
  std::optional<Strike> armed_;
  Time away_until_ = absl::ZeroDuration(), slow_until_ = absl::ZeroDuration(), full_until_ = absl::ZeroDuration();
};

}  // namespace downpour::simulation

#endif  // DOWNPOUR_TESTS_SIMULATION_DISK_H_
