#ifndef DOWNPOUR_OPERATOR_PLANNER_TESTING_SIMULATED_WORLD_H_
#define DOWNPOUR_OPERATOR_PLANNER_TESTING_SIMULATED_WORLD_H_

#include <cstdint>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "operator/planner/fake_world.h"

namespace downpour::planner {

class Dice {
 public:
  explicit Dice(std::uint64_t seed) : random_(seed) {}
  int Uniform(int low, int high) { return std::uniform_int_distribution<int>(low, high)(random_); }
  bool Chance(double probability) { return std::bernoulli_distribution(probability)(random_); }
  int Pick(const std::vector<int>& values) {
    return values[static_cast<std::size_t>(Uniform(0, static_cast<int>(values.size()) - 1))];
  }

 private:
  std::mt19937_64 random_;
};

// One job with a policy of its own, in a world that goes on by itself: instances start, train, end, fail and get stuck
// as the dice fall.
class SimulatedWorld : public FakeWorld {
 public:
  static constexpr int kMuchRoom = 1000;

  // `dice` outlives the world.
  explicit SimulatedWorld(Dice& dice, api::Strategy strategy = api::Strategy::kParameterServer);

  // As often as this one's faults come.
  bool IsTimeForFault() { return dice_.Chance(fault_rate_); }
  void InjectFault();
  // Instances start and end, the coordinator makes progress and answers. In a calm world only what is stuck in
  // terminating waits for the planner.
  void GoOn(bool calm);
  // A quota may refuse a worker that has no room before it is made.
  bool IsRefused(const Action& action) const;
  void CarryOut(const Action& action, const Plan& plan);
  void MakeRoom() { room_ = kMuchRoom; }

  bool AnyLive() const;
  // Every member that the job wants runs.
  bool AsDesired() const;
  bool has_faults() const { return fault_rate_ > 0; }
  bool trains_for_ever() const { return updates_expected_ == kForEver; }
  bool drains() const { return observed.cordoned_nodes.has_value(); }
  // How the coordinator answered the checkpoint that is wanted; kNone: not yet.
  RequestState answered() const;
  // Whether the coordinator can make one, as far as it has said: it runs, and so does every ps that holds something.
  bool CanMakeCheckpoint() const;
  // Whether this very instance of a ps holds something.
  bool HasPlace(const std::string& uid) const;
  // How often what a ps held went to another one, or its standby took over; of all-reduce, how often a ring went on
  // without those that were lost.
  int times_moved() const { return times_moved_; }
  // The job may be ended as a whole and begin again, without a failure.
  bool may_begin_anew() const { return suspends_ || restarts_whole_job_; }

 private:
  static constexpr std::uint64_t kForEver = std::numeric_limits<std::uint64_t>::max();

  std::vector<Instance*> Live();
  // Where the instance may run; empty: nowhere.
  std::string FindNode(const Instance& instance);
  void GoOnTraining();
  // The coordinator places slices; whether training can go on.
  bool PlaceSlices(const Instance& coordinator, const std::map<int, std::string>& running);
  void MoveSlices(const std::map<int, std::string>& running);
  // Of all-reduce: who of these workers trains from now on, and whether anybody does.
  bool PlaceRing(const std::map<int, std::string>& running);
  void BeginGeneration(const std::map<int, std::string>& holders);
  // Of the coordinator's newest answer.
  void TellPlaces();
  // Of the coordinator's newest answer.
  void TellCheckpoints();

  Dice& dice_;
  bool suspends_ = false;
  bool restarts_whole_job_ = false;
  double fault_rate_ = 0;
  int room_ = kMuchRoom;  // for workers
  bool refuses_ = false;  // to make workers that have no room

  std::set<std::string> stuck_;                             // never run, and never end when asked to
  std::map<std::string, std::set<std::string>> forbidden_;  // nodes, by uid

  // The training.
  std::uint64_t updates_expected_ = 0;
  std::uint64_t updates_ = 0;
  std::uint64_t generation_ = 0;
  std::map<int, std::string> placed_;  // uids of the ps that hold something, or the workers of the ring, by index
  bool in_sync_ = false;               // every slice has a standby
  int wanted_ps_ = 0;                  // as the coordinator has heard it
  ToldOfPs told_;                      // with the newest question
  int times_moved_ = 0;
  bool scales_ps_ = false;
  std::string placing_;  // uid of the coordinator that `wanted_ps_` is of
  std::string coordinator_;
  bool finishing_ = false;
  std::optional<api::OutputStatus> output_;

  // The store, which outlives all.
  std::optional<std::uint64_t> checkpoint_;  // updates that the newest one holds
  double checkpoint_time_ = 0;
  std::optional<std::uint64_t> restored_;  // updates that the generation began with
  std::string request_;                    // the newest that was heard
  RequestState request_state_ = RequestState::kNone;
  bool never_answers_ = false;  // that one
};

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_TESTING_SIMULATED_WORLD_H_
