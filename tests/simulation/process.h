#ifndef DOWNPOUR_TESTS_SIMULATION_PROCESS_H_
#define DOWNPOUR_TESTS_SIMULATION_PROCESS_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/objective.h"
#include "tests/simulation/world.h"
#include "trainer/checkpoint/job_store.h"
#include "trainer/core/coordinator.h"
#include "trainer/core/ps.h"
#include "trainer/core/worker.h"

namespace downpour::simulation {

// What every slice holds, in this order.
constexpr std::size_t kCounter = 0;  // of the steps that it has taken
constexpr std::size_t kHistory = 1;  // a number that whoever initialised the slice chose
constexpr std::size_t kSamples = 2;

// What a gradient remembers of what it was computed with.
struct Gradient {
  std::vector<float> values;
  float history = 0;
  std::uint64_t generation = 0;
  std::map<std::uint32_t, float> steps;  // that each slice's value had taken
  std::vector<float> point;              // in mode SANDBLASTER, of a parameter
};

// Given out once each.
struct Numbers {
  std::uint64_t session = 1;
  std::uint64_t address = 1;
  std::uint64_t process = 1;
  float history = 1;
};

// A worker's values and gradients.
class WorkerShell final : public core::WorkerHost {
 public:
  // `searched`: slices of parameters, in mode SANDBLASTER.
  WorkerShell(Numbers* numbers, std::set<std::uint32_t> searched) : numbers_(numbers), searched_(std::move(searched)) {}
  std::uint64_t NewSession() override { return numbers_->session++; }
  core::Payload InitialValue(std::uint32_t number, const core::Slice& slice) override;
  core::Payload Gradient(std::uint32_t number, const core::Slice& slice) override;
  void StoreValue(std::uint32_t number, const core::Slice& slice, const core::Payload& value) override;
  // An update is computed, with the values that came last. `gradient` is that of the slices that count. The loss.
  double Compute(const core::DataPlan& plan, const core::UpdateId& update, std::vector<float> gradient,
                 std::uint64_t generation);

 private:
  Numbers* numbers_;
  std::set<std::uint32_t> searched_;
  Objective::Values points_, computed_at_, gradients_;
  std::vector<float> update_;
  std::uint64_t generation_ = 0;
  struct Held {
    float history = 0, counter = 0;
  };
  std::map<std::uint32_t, Held> held_, computed_with_;
};

// Of each slice: one for the counter and one for each sample of the update, times `weight`. `uneven`: each sample has a
// number of its own for it, so that a codec leaves something out.
std::vector<float> GradientOf(const core::DataPlan& plan, const core::UpdateId& update, float weight, bool uneven);

enum class Kind { kCoordinator, kPs, kWorker };
const char* NameOf(Kind kind);

struct Process {
  Kind kind = Kind::kWorker;
  std::uint32_t index = 0;
  std::uint32_t incarnation = 1;
  std::uint64_t number = 0;  // that no other process has
  std::string job_uid;
  std::string address;
  bool alive = true;
  Time paused_until = absl::ZeroDuration();
  Time origin = absl::ZeroDuration();  // each process has a clock of its own
  Time tick_at = absl::InfiniteDuration();

  std::unique_ptr<core::CoordinatorCore> coordinator;
  std::unique_ptr<core::PsCore> ps;
  std::unique_ptr<WorkerShell> shell;
  std::unique_ptr<core::WorkerCore> worker;

  // ps: calls that wait for their reply, with their frames; sessions that it confirmed to be over.
  std::uint64_t next_call = 1;
  struct Open {
    std::vector<core::Frame> frames;
    std::function<void(std::vector<core::Frame>)> reply;
  };
  std::map<std::uint64_t, Open> open;
  std::set<std::uint64_t> sessions_confirmed;
  std::set<std::uint64_t> sessions_over;
  std::uint64_t generation = 0;
  std::uint64_t session = 0;
  bool registering = false;
  Time replicate_at = absl::InfiniteDuration();
  std::map<std::uint32_t, std::function<void()>> takes_up;  // slices, by a view that may not count yet

  // worker
  bool leaving = false;            // was asked to
  std::uint64_t updates_seen = 0;  // that it has finished

  // The thread that uses the store does one thing after another.
  bool store_busy = false;
  std::unique_ptr<checkpoint::JobStore> store;  // coordinator
  std::deque<core::StoreCall> store_calls;      // likewise
  std::string found;  // likewise: what a history should begin with, by what was there when it last looked or wrote
  core::Phase phase_seen = core::Phase::kGathering;
  core::Cuts::Phase cut_phase_seen = core::Cuts::Phase::kIdle;

  std::string name() const;
  Time clock(Time now) const { return now - origin; }
};
using ProcessPointer = std::shared_ptr<Process>;

}  // namespace downpour::simulation

#endif  // DOWNPOUR_TESTS_SIMULATION_PROCESS_H_
