#ifndef DOWNPOUR_TRAINER_CORE_COORDINATOR_H_
#define DOWNPOUR_TRAINER_CORE_COORDINATOR_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/bitmap.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/planted_bug.h"
#include "trainer/core/time.h"

namespace downpour::core {

struct CoordinatorOptions {
  v1::TrainingConfig config;
  std::uint32_t incarnation = 1;  // stored by whoever starts it, before the start; never given out twice
  absl::Duration lease = absl::Seconds(3);
  absl::Duration directive_period = absl::Milliseconds(500);  // to an idle ps
  absl::Duration directive_pace = absl::Milliseconds(5);      // between two to one ps while something is going on
  absl::Duration directive_deadline = absl::Seconds(1);
  PlantedBug bug = PlantedBug::kNone;
};

struct DirectCall {
  std::uint64_t call = 0;
  std::uint32_t ps = 0;
  std::string address;
  v1::DirectRequest request;
  absl::Duration deadline;
};

// Who is a member, which ps holds which slice, who trains on which data shard: without I/O, threads or a clock. All of
// its state is soft: a new incarnation rebuilds it from the ps and the workers. Not thread-safe.
class CoordinatorCore {
 public:
  explicit CoordinatorCore(CoordinatorOptions options, Time now);

  v1::RegisterPsReply OnRegisterPs(const v1::RegisterPsRequest& request, Time now);
  v1::WorkerSyncReply OnSyncWorker(const v1::WorkerSyncRequest& request, Time now);
  v1::ProgressReply GetProgress(Time now) const;
  // How workers ended. A failure that is not the platform's counts against each data shard that the worker held; the
  // third one against the same shard fails the job. Told in any order, before or after the lease has expired, and any
  // number of times.
  void ReportFailures(const v1::ProgressRequest& request);
  // The outcome is stored by whoever asks: workers are sent home, the process may end. Refused before the end.
  v1::FinishReply OnFinish(const v1::FinishRequest& request);

  void OnDirectReply(std::uint64_t call, const absl::StatusOr<v1::DirectReply>& reply, Time now);

  // Directives that are due. To be called after every other call and at next_timer().
  std::vector<DirectCall> TakeDirectives(Time now);
  Time next_timer() const { return next_timer_; }

  // Set when it must not go on: a newer incarnation exists.
  const std::optional<absl::Status>& fenced() const { return fenced_; }
  bool finished() const { return finished_; }
  // Every worker has been told that the job is over, or has gone.
  bool deserted() const { return finished_ && sessions_.empty(); }

 private:
  enum class Phase { kGathering, kAwaitingModel, kInstalling, kInitialising, kTraining, kFinishing, kDone, kFailed };
  enum class ShardState { kFree, kLeased, kFencing, kInspecting, kRetired };

  struct Ps {
    std::optional<v1::RegisterPsRequest> registration;
    Time last_heard = absl::ZeroDuration();
    v1::ViewStamp confirmed_stamp;
    std::uint64_t confirmed_members = 0;
    bool initialised = false;
    std::uint32_t confirmed_watermark = 0;
    v1::PsStats stats;
    std::optional<std::uint64_t> in_flight;
    Time next_directive = absl::ZeroDuration();
  };
  struct Session {
    std::uint32_t index = 0;
    bool known = false;       // it has synchronised with this incarnation
    bool takes_work = false;  // it is not about to leave
    Time expires = absl::ZeroDuration();
    Time last_heard = absl::ZeroDuration();
    std::uint64_t sequence = 0;
    std::uint64_t members_version = 0;  // from which on every ps must know it
    std::uint32_t process_incarnation = 0;
    v1::WorkerStats stats;
  };
  struct Shard {
    ShardState state = ShardState::kFree;
    std::uint64_t session = 0;
    std::uint64_t lease = 0;
    std::uint64_t members_version = 0;           // kFencing: every ps must have confirmed this one
    std::vector<bool> complete;                  // by ps
    std::vector<std::optional<Bitmap>> applied;  // by ps; kInspecting
    Bitmap done;
  };
  struct TaskKey {
    std::uint32_t dataset_epoch = 0;
    v1::TaskKind kind = v1::TASK_EVALUATE;
    // Of what can be done with the same weights the export comes first: nothing that goes wrong with the others may
    // cost the model.
    friend bool operator<(const TaskKey& a, const TaskKey& b) {
      return std::tuple(a.dataset_epoch, a.kind != v1::TASK_EXPORT) <
             std::tuple(b.dataset_epoch, b.kind != v1::TASK_EXPORT);
    }
  };
  // How a task went at one worker that could not do it.
  struct TaskFailures {
    int count = 0;
    std::string error;  // the newest
  };
  struct Task {
    std::uint64_t session = 0;  // 0: nobody has it
    std::uint64_t lease = 0;
    bool done = false;
    std::map<std::uint32_t, TaskFailures> failures = {};  // by the index of the worker
    Time retry_at = absl::ZeroDuration();                 // by a worker where it failed before
  };

  using ShardKey = std::pair<std::uint32_t, std::uint32_t>;    // dataset epoch, shard
  using ProcessKey = std::pair<std::uint32_t, std::uint32_t>;  // index and incarnation of a worker

  // Extends the leases if it was itself paused, expires those that ran out, and takes the phases as far as they go.
  void Step(Time now);
  void ConsiderGathered(Time now);
  void AdoptSessions(const v1::View& newest, Time now);
  void Resume(const v1::View& newest, Time now);
  void ForgetHistory();
  void StartHistory();
  void StepTraining(Time now);
  void StepFinishing();
  bool AllFinalTasksDone() const;
  void CheckModel(const v1::WorkerSyncRequest& request, std::string* refusal);
  // `left`: the worker said goodbye and gave everything back.
  void EndSession(std::uint64_t session, bool left = false);
  void JudgeFailure(const ProcessKey& process);
  std::string DescribeShard(const ShardKey& key) const;
  bool EverywhereKnown(const Session& session) const;
  std::vector<Shard>& ShardsOf(std::uint32_t dataset_epoch);
  Shard* FindShard(const v1::ShardId& id);
  void Adopt(const v1::WorkerSyncRequest& request);
  void Grant(const v1::WorkerSyncRequest& request, Time now, v1::WorkerSyncReply* reply);
  // Whether the worker of `session` is the one to try a task that nobody has.
  bool MayTry(const Task& task, std::uint64_t session, Time now) const;
  void AcceptResult(const v1::TaskResult& result, std::uint64_t session, Time now);
  void CountTaskFailure(const TaskKey& key, const v1::TaskResult& result, std::uint32_t worker, Time now);
  void Warn(std::string warning);
  void ApplyAnswer(std::uint32_t ps, const v1::ShardBitmap& answer);
  void SettleShard(const ShardKey& key);
  void Fail(std::string message);
  v1::DirectRequest MakeDirective(std::uint32_t index) const;
  template <typename Predicate>
  bool EveryPs(Predicate holds) const;

  CoordinatorOptions options_;
  Time started_;
  Time last_activity_;
  Time next_timer_;
  Phase phase_ = Phase::kGathering;
  std::string message_;
  std::optional<absl::Status> fenced_;
  bool finished_ = false;

  std::vector<Ps> ps_;
  v1::View view_;
  bool parameters_lost_ = false;
  std::optional<DataPlan> plan_;
  std::vector<v1::TensorSpec> tensors_;
  std::uint64_t sample_count_ = 0;

  std::map<std::uint64_t, Session> sessions_;
  std::set<std::uint64_t> ended_sessions_;  // of this incarnation, so that they are told so
  std::uint64_t members_version_ = 1;
  // After a restart: until then, leases are adopted from the workers that hold them and none is granted.
  std::optional<Time> adopt_until_;

  std::map<std::uint32_t, std::vector<Shard>> epochs_;  // from the watermark on
  std::set<ShardKey> asked_;                            // data shards that the ps are asked about
  std::set<ShardKey> fencing_;
  std::uint32_t watermark_ = 0;
  std::uint64_t retired_updates_ = 0;  // of the epochs from the watermark on
  std::uint64_t next_lease_ = 1;
  std::uint64_t next_call_ = 1;
  std::uint64_t initialiser_ = 0;
  std::map<TaskKey, Task> tasks_;
  std::vector<std::string> warnings_;  // each once
  std::vector<v1::Evaluation> evaluations_;
  std::string model_path_;
  std::optional<ProcessKey> model_writer_;
  // Failures: what a worker held when its newest session ended, and how it ended, until both are known.
  std::map<ProcessKey, std::vector<ShardKey>> held_at_end_;
  std::map<ProcessKey, v1::MemberFailure> reported_;
  std::set<ProcessKey> judged_;
  std::map<ShardKey, int> shard_failures_;
  v1::FailureKind failure_ = v1::FAILURE_OTHER;
  std::uint64_t first_update_milliseconds_ = 0;
  std::uint64_t lease_expirations_ = 0;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_COORDINATOR_H_
