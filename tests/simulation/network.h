#ifndef DOWNPOUR_TESTS_SIMULATION_NETWORK_H_
#define DOWNPOUR_TESTS_SIMULATION_NETWORK_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "tests/simulation/process.h"
#include "tests/simulation/world.h"

namespace downpour::simulation {

// Messages between processes: lost, repeated, late, overtaking each other, or going one way only.
class Network {
 public:
  // Chooses how bad it is. Perfect from `faults_end` on.
  Network(World* world, Time faults_end);

  // Runs `action` at `time` on a process if it still lives; a paused one runs it when it wakes.
  void AtProcess(Time time, const ProcessPointer& process, std::function<void()> action);
  bool faulty() const { return world_->now() < faults_end_; }
  // Whether each message arrives at once, now.
  bool perfect() const;
  // Until then what the one sends does not reach the other; the way back is open.
  void CutOff(const Process& from, const Process& to, Time until) { cut_off_[{from.number, to.number}] = until; }
  bool Corrupted() { return faulty() && world_->random().Chance(drop_ / 4); }

  // One call: the request travels, `serve` runs at the target and yields a reply, the reply travels, `done` runs at
  // the caller exactly once with a reply or, at the deadline, an error.
  template <typename Reply>
  void Call(const ProcessPointer& from, std::function<ProcessPointer()> find_target, absl::Duration deadline,
            std::function<void(Process&, std::function<void(Reply)>)> serve,
            std::function<void(absl::StatusOr<Reply>)> done, bool may_repeat = true) {
    auto answered = std::make_shared<bool>(false);
    auto finish = [answered, done = std::move(done)](absl::StatusOr<Reply> reply) {
      if (std::exchange(*answered, true)) return;
      done(std::move(reply));
    };
    AtProcess(world_->now() + deadline, from, [finish] { finish(absl::DeadlineExceededError("deadline")); });
    const int copies = Lost() ? 0 : may_repeat && Repeated() ? 2 : 1;
    for (int copy = 0; copy < copies; ++copy) {
      world_->At(world_->now() + Delay(), [this, from, find_target, serve, finish] {
        ProcessPointer target = find_target();
        if (target != nullptr && IsCutOff(from->number, target->number)) return;
        if (target == nullptr || !target->alive) {
          AtProcess(world_->now() + absl::Milliseconds(1), from,
                    [finish] { finish(absl::UnavailableError("nobody there")); });
          return;
        }
        AtProcess(world_->now(), target, [this, from, target, serve, finish] {
          // The target may keep this for as long as it lives: it must not keep the target.
          serve(*target, [this, from, target = target->number, finish](Reply reply) {
            if (Lost() || IsCutOff(target, from->number)) return;
            AtProcess(world_->now() + Delay(), from, [finish, reply = std::move(reply)] { finish(reply); });
          });
        });
      });
    }
  }

 private:
  absl::Duration Delay();
  bool Lost() { return faulty() && world_->random().Chance(drop_); }
  bool Repeated() { return faulty() && world_->random().Chance(repeat_); }
  bool IsCutOff(std::uint64_t from, std::uint64_t to) const;

  World* world_;
  Time faults_end_;
  double drop_ = 0, repeat_ = 0, slow_ = 0;
  std::map<std::pair<std::uint64_t, std::uint64_t>, Time> cut_off_;
};

}  // namespace downpour::simulation

#endif  // DOWNPOUR_TESTS_SIMULATION_NETWORK_H_
