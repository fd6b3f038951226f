#ifndef DOWNPOUR_OPERATOR_PLANNER_TESTING_PROMISE_BOOKS_H_
#define DOWNPOUR_OPERATOR_PLANNER_TESTING_PROMISE_BOOKS_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "operator/planner/plan.h"
#include "operator/planner/testing/simulated_world.h"

namespace downpour::planner {

// Holds each action of the planner against what it promises, by books of its own. A broken promise fails the test that
// runs.
class PromiseBooks {
 public:
  // `world` outlives the books.
  explicit PromiseBooks(const SimulatedWorld& world) : world_(world) {}

  // Before the action is carried out; `position`: its place in the plan.
  void Check(const Action& action, const Plan& plan, int position);
  // The plan's status is about to be stored: that something is to be stopped holds from then on, though the stop itself
  // may come later or never.
  void NoteStops(const Plan& plan);
  // Which workers run now.
  void NoteRunning();

  int times_given_up() const { return times_given_up_; }
  // Suspensions and drains that a checkpoint was made for.
  int times_saved() const { return times_saved_; }
  // Parameter servers that were ended as they were not wanted any more.
  int needless_ended() const { return needless_ended_; }
  // Plans by which a ps on a node that is drained may go.
  int times_freed() const { return times_freed_; }

 private:
  void CheckStart(const Action& action);
  void CheckStatus(const api::TrainingJobStatus& before, const api::TrainingJobStatus& after);
  void CheckNodes(const api::TrainingJobStatus& before, const api::TrainingJobStatus& after);
  void CheckElastic(const api::TrainingJobStatus& before, const api::TrainingJobStatus& after);
  void CheckEvents(const Plan& plan);
  void CheckRequests(const Plan& plan);
  void CheckPsStop(const Action& action, const Plan& plan);
  void CheckFree(const Plan& plan);

  const SimulatedWorld& world_;
  std::set<std::string> stopped_;                      // by the planner, or about to be
  std::set<std::string> given_up_;                     // pending for too long
  std::set<std::string> old_run_;                      // seen while the job was suspended or restarting
  std::set<std::string> recorded_;                     // uids of recorded failures
  std::set<std::string> emitted_;                      // events that come once
  std::vector<api::FailureRecord> counted_;            // failures that count towards the limits
  std::map<std::string, int> started_;                 // newest incarnation really started
  std::map<std::string, std::vector<double>> faults_;  // by node
  std::map<std::string, double> avoided_;              // until when
  std::map<int, double> ran_;                          // when a worker was last seen to run
  std::map<int, double> retried_;                      // when one that was given up was tried again
  int times_given_up_ = 0;
  int times_saved_ = 0;
  int needless_ended_ = 0;
  int times_freed_ = 0;
};

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_TESTING_PROMISE_BOOKS_H_
