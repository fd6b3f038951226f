#ifndef DOWNPOUR_TRAINER_CORE_WORKER_H_
#define DOWNPOUR_TRAINER_CORE_WORKER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/codec/error_feedback.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/frame.h"
#include "trainer/core/held_leases.h"
#include "trainer/core/planted_bug.h"
#include "trainer/core/ps_exchanges.h"
#include "trainer/core/step_id.h"
#include "trainer/core/time.h"
#include "trainer/core/update_mode.h"
#include "trainer/core/work.h"
#include "trainer/core/worker_data_plane.h"
#include "trainer/core/worker_meter.h"
#include "trainer/core/worker_sync.h"
#include "trainer/core/wrong_job.h"

namespace downpour::core {

struct WorkerOptions : WorkerIdentity {
  std::uint32_t wanted_leases = 2;  // the one worked on and the next
  absl::Duration sync_period = absl::Milliseconds(500);
  absl::Duration sync_deadline = absl::Seconds(1);
  absl::Duration data_deadline = absl::Seconds(10);
  std::size_t early_push_bytes = 256u << 10;  // gradients that are ready leave during backward in such heaps
  std::size_t message_bytes = 4u << 20;       // payload of one exchange
  int exchanges_in_flight = 8;                // to one ps
  int skips_until_failure = 100;              // consecutive updates without a finite gradient
  std::uint32_t fetch_every = 1;              // updates from one that begins with new values to the next
  CodecOptions codec;                         // of the gradients of parameters
  GradientEncoder* encoder = nullptr;         // likewise, outlives the worker; null: one on the host, of that codec
  bool bf16_values = false;                   // of the values that it trains with
  PlantedBug bug = PlantedBug::kNone;
};

// What the shell has to do after a call. Every call is answered exactly once, with a reply or an error.
struct WorkerOutput {
  std::vector<SyncCall> syncs;
  std::vector<ExchangeCall> exchanges;
  std::optional<Work> work;
};

// A worker without I/O, threads, a clock or a model: registers, holds leases, and takes each update from pull to
// acknowledgement. Not thread-safe.
class WorkerCore {
 public:
  WorkerCore(WorkerOptions options, WorkerHost* host);

  void Start(Time now, WorkerOutput* output);
  void OnTimer(Time now, WorkerOutput* output);
  // When OnTimer is wanted next, at the latest.
  Time next_timer() const { return next_timer_; }

  void OnSyncReply(std::uint64_t call, const absl::StatusOr<v1::WorkerSyncReply>& reply, Time now,
                   WorkerOutput* output);
  void OnExchangeReply(std::uint64_t call, const absl::StatusOr<std::vector<Frame>>& reply, Time now,
                       WorkerOutput* output);

  // The gradient of one tensor of the work named by `token` is complete (not for a skipped one).
  void OnGradient(std::uint64_t token, std::uint32_t tensor, Time now, WorkerOutput* output);
  void OnComputed(std::uint64_t token, const ComputeResult& result, Time now, WorkerOutput* output);
  void OnTaskDone(std::uint64_t token, v1::TaskResult result, Time now, WorkerOutput* output);

  // Ends the current update, gives the leases back and finishes. Nothing that fails on the way is tried again. Where a
  // codec has left something out it does one more update of its leases, if there is one, to push that too.
  void Leave(Time now, WorkerOutput* output);

  // Set once there is nothing left to do: OK, or why it gave up.
  const std::optional<absl::Status>& finished() const { return finished_; }
  const v1::WorkerStats& stats() const { return meter_.stats(); }
  const std::optional<DataPlan>& plan() const { return leases_.plan(); }
  const v1::View& view() const { return view_; }
  std::uint64_t session() const { return session_; }
  // Updates that it has finished in this generation, and those that it need not catch up with; see StalenessBound.
  std::uint64_t clock() const { return data_.clock(); }
  std::uint64_t generation() const { return view_.stamp().generation(); }
  std::uint32_t epoch() const { return view_.stamp().epoch(); }
  std::size_t leases_held() const { return leases_.size(); }
  // The updates that will follow the current one, as far as they are known, `most` at most: for prefetching.
  std::vector<UpdateId> NextUpdates(std::size_t most) const;

 private:
  enum class Phase { kWaiting, kPulling, kComputing, kPushing, kTask };
  void Pump(Time now, WorkerOutput* output);
  void Sync(Time now, WorkerOutput* output);
  void AdoptView(const v1::View& view);
  void BeginSession();
  void DropEverything();
  // The update or task under way, and all that is on its way to the ps.
  void DropWork();
  bool Searches() const { return view_.mode() == v1::SANDBLASTER; }
  // In these modes updates are run a second time: others may have done the one that it is about to begin.
  bool OthersMayDoIt() const { return work_.kind == v1::TASK_TRAIN && HasBackupExecutions(view_.mode()); }
  // Every push with a lower number has been answered, or is refused from now on.
  std::uint32_t ReachedCut() const;
  void ReconcileLeases(const v1::WorkerSyncReply& reply);
  bool PickWork();
  // Of mode SYNCHRONOUS; 0: of another.
  std::uint32_t step_width() const { return StepWidth(view_); }
  // Of the update under way; none: of a task, or of another mode.
  std::optional<StepId> StepOfWork() const;
  WorkUnderWay UnderWay() const;
  HeldLeases::Update WorkUpdate() const { return {work_lease_, work_.update}; }
  // Which steps are not over, as far as the slices have said.
  HeldLeases::Steps OpenSteps() const {
    return step_width() == 0 ? HeldLeases::Steps() : HeldLeases::Steps{step_width(), data_.slices().first_step()};
  }
  // The update under way is not begun, as another is to come before it or nobody asks for it any more.
  void GiveUpPulls();
  bool Starves(Time now) const;
  // How long it waits for others before it says so.
  absl::Duration Patience() const;
  // The next update begins with new values.
  void FetchNext() { unfetched_ = 0; }
  void WakeAt(Time time) { next_timer_ = std::min(next_timer_, time); }

  WorkerOptions options_;
  WorkerHost* host_;
  std::uint64_t session_ = 0;
  bool accepted_ = false;
  std::uint64_t sequence_ = 0;
  std::uint32_t incarnation_ = 0;  // the newest coordinator heard of
  WrongJob wrong_job_;

  bool sync_in_flight_ = false;
  std::uint64_t sync_call_ = 0;
  bool sync_urgent_ = false;
  Time next_sync_ = absl::ZeroDuration();
  Time last_sync_ = absl::ZeroDuration();
  bool initialise_ = false;
  bool leaving_ = false;
  bool left_ = false;

  v1::View view_;
  WorkerMeter meter_;
  WorkerDataPlane data_;
  HeldLeases leases_;
  std::optional<std::uint32_t> values_epoch_;  // mode SANDBLASTER: what it holds are the values of this dataset epoch
  bool lapsed_ = false;  // it had no lease of a data shard at some time since its newest update began

  Phase phase_ = Phase::kWaiting;
  std::uint64_t token_ = 0;
  Work work_;
  std::uint64_t work_lease_ = 0;
  std::uint32_t reported_cut_ = 0;  // that the coordinator has been told to be reached
  Verdict verdict_ = Verdict::kPending;
  std::uint32_t unfetched_ = 0;  // updates to go before new values are taken
  Time phase_since_ = absl::ZeroDuration();
  ComputeResult computed_;
  int consecutive_skips_ = 0;
  std::string failure_;
  bool flushed_ = false;  // or tried to, when it was asked to leave

  std::optional<absl::Status> finished_;
  Time next_timer_ = absl::ZeroDuration();
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_WORKER_H_
