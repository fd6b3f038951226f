#ifndef DOWNPOUR_TRAINER_CORE_RING_RING_COORDINATOR_H_
#define DOWNPOUR_TRAINER_CORE_RING_RING_COORDINATOR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/coordinator.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/job_checkpoints.h"
#include "trainer/core/job_coordinator.h"
#include "trainer/core/job_model.h"
#include "trainer/core/keys.h"
#include "trainer/core/membership.h"
#include "trainer/core/phase.h"
#include "trainer/core/ring/ring_plan.h"
#include "trainer/core/ring/ring_states.h"
#include "trainer/core/tasks.h"
#include "trainer/core/time.h"

namespace downpour::core {

// The coordinator of a job without parameter servers, without I/O, threads or a clock: who is in the ring, when an
// epoch may begin, who evaluates and who writes checkpoints. It takes no part in steps: the ring goes on without it.
// All of its state is soft; a new incarnation is told the view by the workers. Not thread-safe.
class RingCoordinatorCore final : public JobCoordinator {
 public:
  RingCoordinatorCore(CoordinatorOptions options, Time now);

  // Refused: there are no ps here.
  v1::RegisterPsReply OnRegisterPs(const v1::RegisterPsRequest& request, Time now) override;
  v1::WorkerSyncReply OnSyncWorker(const v1::WorkerSyncRequest& request, Time now) override;
  v1::ProgressReply GetProgress(Time now) const override;
  // A worker that has ended is out of the ring at once. Of the mode that is wanted, how many workers are.
  void ReportFailures(const v1::ProgressRequest& request) override;
  v1::FinishReply OnFinish(const v1::FinishRequest& request) override;

  std::vector<StoreCall> TakeStoreCalls() override { return checkpoints_.TakeStoreCalls(); }
  void OnStoreReply(std::uint64_t call, StoreReply reply, Time now) override;

  // None: there is nobody to call.
  std::vector<DirectCall> TakeDirectives(Time now) override {
    Step(now);
    return {};
  }
  void OnDirectReply(std::uint64_t, const absl::StatusOr<v1::DirectReply>&, Time) override {}
  Time next_timer() const override { return next_timer_; }

  const std::optional<absl::Status>& fenced() const override { return fenced_; }
  bool finished() const override { return finished_; }
  bool deserted() const override { return finished_ && members_.size() == 0; }
  std::uint64_t updates_before(std::uint32_t dataset_epoch) const override {
    return plan_.has_value() ? plan_->updates_before(dataset_epoch) : 0;
  }

  // ---- inspection, for tests
  Phase phase() const { return phase_; }
  const v1::View& view() const { return view_; }

 private:
  bool over() const { return phase_ == Phase::kDone || phase_ == Phase::kFailed; }
  void Fail(std::string message, v1::FailureKind kind = v1::FAILURE_OTHER);
  void Step(Time now);
  void StepRing(Time now);
  void StepEpochs(Time now);
  void StepFinishing();
  void StepCheckpoints(Time now);
  // Why members that must be alike are not; empty: they are.
  std::string Difference() const;
  std::uint64_t expected() const;
  void FormRing(const RingDecision& decision, Time now);
  // With a checkpoint or initial values, once that is known.
  void StartHistory(Time now);
  void TakeView(v1::View view);
  // With the sessions by rank; those who leave come behind the others where the state is divided.
  void SetRing(std::vector<std::uint64_t> ring, v1::View* view);
  // The newest that workers know, of the coordinator before.
  void Adopt(const v1::View& view, Time now);
  void EndSession(std::uint64_t session);
  const Member* Admit(const v1::WorkerSyncRequest& request, Time now, v1::WorkerSyncReply* refusal);
  bool heeds() const;

  CoordinatorOptions options_;
  Time started_, last_activity_, next_timer_;
  Phase phase_ = Phase::kAwaitingModel;
  std::string message_;       // why it failed
  std::uint32_t wanted_ = 0;  // workers
  std::uint64_t wanted_revision_ = 0;
  std::string ring_says_;     // why the ring is as it is
  bool ring_waits_ = false;   // there is none now, or will be none
  bool ring_awaits_ = false;  // it does not train: others may come back with what it has not
  v1::FailureKind failure_ = v1::FAILURE_OTHER;
  std::optional<absl::Status> fenced_;
  bool finished_ = false;

  JobModel model_;
  v1::View view_;
  std::optional<DataPlan> plan_;  // from the first view on
  RingStates states_;
  std::vector<std::uint64_t> next_ring_;  // of a history that is about to begin
  bool begun_ = false;                    // somebody has, or had, a state of this generation, or may have
  bool parameters_lost_ = false;
  bool lost_before_ = false;         // as parameters_lost_ was before a history was sought
  std::optional<Time> adopt_until_;  // workers of the coordinator before may come till then
  std::uint32_t epochs_open_ = 0;
  Time newest_came_ = absl::ZeroDuration();
  std::optional<Time> broken_since_;
  std::uint64_t updates_seen_ = 0;
  std::uint32_t watermark_seen_ = 0;
  std::optional<std::uint64_t> updates_at_loss_;
  std::uint64_t rings_ = 0;  // that this coordinator has formed

  Membership members_;
  Tasks tasks_;
  JobCheckpoints checkpoints_;
  LeaseNumbers lease_numbers_;
  std::uint64_t first_update_milliseconds_ = 0;
  std::uint64_t lease_expirations_ = 0;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_RING_RING_COORDINATOR_H_
