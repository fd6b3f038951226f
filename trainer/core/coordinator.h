#ifndef DOWNPOUR_TRAINER_CORE_COORDINATOR_H_
#define DOWNPOUR_TRAINER_CORE_COORDINATOR_H_

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/direct_calls.h"
#include "trainer/core/gathering.h"
#include "trainer/core/job_checkpoints.h"
#include "trainer/core/job_coordinator.h"
#include "trainer/core/job_model.h"
#include "trainer/core/job_work.h"
#include "trainer/core/layout_keeper.h"
#include "trainer/core/ledger.h"
#include "trainer/core/membership.h"
#include "trainer/core/phase.h"
#include "trainer/core/planted_bug.h"
#include "trainer/core/ps_registry.h"
#include "trainer/core/ps_states.h"
#include "trainer/core/shard_failures.h"
#include "trainer/core/time.h"
#include "trainer/core/update_mode.h"
#include "trainer/core/view_in_force.h"

namespace downpour::core {

struct CoordinatorOptions {
  v1::TrainingConfig config;
  std::uint32_t incarnation = 1;  // stored by whoever starts it, before the start; never given out twice
  absl::Duration lease = absl::Seconds(3);
  absl::Duration directive_period = absl::Milliseconds(500);  // to an idle ps
  absl::Duration directive_pace = absl::Milliseconds(5);      // between two to one ps while something is going on
  absl::Duration directive_deadline = absl::Seconds(1);
  absl::Duration load_window = absl::Seconds(10);  // see PsLoads
  PlantedBug bug = PlantedBug::kNone;
};

// Who is a member, which ps holds which slice, who trains on which data shard: without I/O, threads or a clock. All of
// its state is soft: a new incarnation rebuilds it from the ps and the workers. Each part decides about one thing; this
// is the protocol's face, and what has to be done in which order. Not thread-safe.
class CoordinatorCore final : public JobCoordinator {
 public:
  explicit CoordinatorCore(CoordinatorOptions options, Time now);

  v1::RegisterPsReply OnRegisterPs(const v1::RegisterPsRequest& request, Time now) override;
  v1::WorkerSyncReply OnSyncWorker(const v1::WorkerSyncRequest& request, Time now) override;
  v1::ProgressReply GetProgress(Time now) const override;
  // How workers ended. A failure that is not the platform's counts against each data shard that the worker held; the
  // third one against the same shard fails the job. Told in any order, before or after the lease has expired, and any
  // number of times. And what is wanted: a checkpoint, a mode.
  void ReportFailures(const v1::ProgressRequest& request) override;
  // The outcome is stored by whoever asks: workers are sent home, the process may end. Refused before the end.
  v1::FinishReply OnFinish(const v1::FinishRequest& request) override;

  void OnDirectReply(std::uint64_t call, const absl::StatusOr<v1::DirectReply>& reply, Time now) override;

  // What is to be done with the store. To be called like TakeDirectives; answered once each.
  std::vector<StoreCall> TakeStoreCalls() override { return checkpoints_.TakeStoreCalls(); }
  void OnStoreReply(std::uint64_t call, StoreReply reply, Time now) override;

  // Directives that are due. To be called after every other call and at next_timer().
  std::vector<DirectCall> TakeDirectives(Time now) override;
  Time next_timer() const override { return next_timer_; }

  // Set when it must not go on: a newer incarnation exists.
  const std::optional<absl::Status>& fenced() const override { return fenced_; }
  bool finished() const override { return finished_; }
  // Of all epochs before this one, as the data plan of the history counts them; 0: there is none yet.
  std::uint64_t updates_before(std::uint32_t dataset_epoch) const override {
    return work_.begun() ? work_.leases().plan().updates_before(dataset_epoch) : 0;
  }
  // Every worker has been told that the job is over, or has gone.
  bool deserted() const override { return finished_ && members_.size() == 0; }

  // ---- inspection, for tests
  Phase phase() const { return phase_; }
  const v1::View& view() const { return in_force_.view(); }
  const JobCheckpoints& checkpoints() const { return checkpoints_; }

 private:
  // Extends the leases if it was itself paused, expires those that ran out, and takes the phases as far as they go.
  void Step(Time now);
  void StepTraining(Time now);
  bool SearchAsks() const;
  void StepFinishing();
  bool over() const { return phase_ == Phase::kDone || phase_ == Phase::kFailed; }
  void Fail(std::string message, v1::FailureKind kind = v1::FAILURE_OTHER);

  // ---- histories
  // With every ps there: takes the newest history up again, or begins one.
  void ConsiderGathered(Time now);
  void AdoptSessions(const v1::View& newest, Time now);
  // `newest`: as it was before ps that have not come were given up.
  void Resume(const Gathered& gathered, const v1::View& newest, Time now);
  // A new one, with a checkpoint or with initial values, once that is known.
  void StartHistory(Time now);
  // Losses of ps, and slices that move.
  void StepLayout(Time now);
  // Ps that have no place and do not answer.
  void ForgetGone();
  // The history at hand goes on in another layout.
  void Relayout(const NextLayout& change, bool loss, Time now);
  // Another view than before is in force: who is asked, and about what.
  void OnView();
  // Forgets the history before, and has the ps install this one, of which so much is applied already.
  void BeginHistory(v1::View first, const Ledger& ledger);
  // The mode that the configuration wants of a history; that which it has where it cannot go over to it.
  UpdateMode Wanted(const v1::View& view);
  // The history at hand goes on under another view; `mode`: what is computed for it is something else.
  void GoOn(v1::View next, bool mode, Time now);
  // With another mode, or with evaluations that are counted.
  void Revise(v1::View next, Time now);
  // The history goes on with what follows from evaluations. False: there are none, or it has to wait.
  bool Heed(Time now);
  // The one at hand is lost: another one begins.
  void LoseHistory(Time now);
  void StepCheckpoints(Time now);

  // ---- sessions
  // The member, with its call taken in; otherwise what the worker is told.
  const Member* Admit(const v1::WorkerSyncRequest& request, Time now, v1::WorkerSyncReply* refusal);
  // `left`: the worker said goodbye and gave everything back.
  void EndSession(std::uint64_t session, bool left = false);
  void Convict(const ShardFailures::Verdict& verdict);

  // ---- ps
  const PsStates& states() const { return in_force_.states(); }
  bool IsSettled(std::uint32_t ps) const;
  v1::DirectRequest MakeDirective(std::uint32_t ps) const;

  CoordinatorOptions options_;
  Time started_;
  Time last_activity_;
  Time next_timer_;
  Phase phase_ = Phase::kGathering;
  std::string message_;
  v1::FailureKind failure_ = v1::FAILURE_OTHER;
  std::optional<absl::Status> fenced_;
  bool finished_ = false;
  std::uint64_t mode_revision_ = 0;  // of the newest wish
  std::string mode_refused_;         // why the mode that is wanted is not taken up; empty: it is

  // The ps: who they are and what they brought, what is under way to them.
  PsRegistry registry_;
  DirectCalls calls_;
  LayoutKeeper layout_;
  Time gathering_since_ = absl::ZeroDuration();
  // The history at hand.
  JobModel model_;
  ViewInForce in_force_;
  JobWork work_;
  bool parameters_lost_ = false;
  std::uint64_t initialiser_ = 0;
  JobCheckpoints checkpoints_;
  std::uint64_t updates_seen_ = 0;  // applied in this history, as far as a ps has told
  std::optional<std::uint64_t> updates_at_loss_;
  // The workers, over all histories.
  Membership members_;
  ShardFailures shard_failures_;
  std::uint64_t first_update_milliseconds_ = 0;
  std::uint64_t lease_expirations_ = 0;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_COORDINATOR_H_
