#ifndef DOWNPOUR_TRAINER_CORE_RING_RING_WORKER_H_
#define DOWNPOUR_TRAINER_CORE_RING_RING_WORKER_H_

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/planted_bug.h"
#include "trainer/core/ring/ring_plan.h"
#include "trainer/core/ring/ring_replica.h"
#include "trainer/core/slice_snapshot.h"
#include "trainer/core/time.h"
#include "trainer/core/work.h"
#include "trainer/core/worker_meter.h"
#include "trainer/core/worker_sync.h"
#include "trainer/core/wrong_job.h"

namespace downpour::core {

struct RingWorkerOptions : WorkerIdentity {
  std::string address;  // of this worker's rendezvous store, host:port
  absl::Duration sync_period = absl::Milliseconds(500);
  absl::Duration sync_deadline = absl::Seconds(1);
  int skips_until_failure = 100;  // updates in a row that are not finite
  PlantedBug bug = PlantedBug::kNone;
  MakeReplicaVectors make_vectors = nullptr;  // see RingReplica::Create
};

// What the shell does next, one at a time; answered once, by the call named beside it.
struct RingWork {
  enum class Kind {
    kForm,    // OnFormed: the group of `view`, in which this worker has `rank`
    kAlign,   // OnAligned: tell all others position(), and hear theirs
    kBegin,   // OnBegun: the first state of the generation: replica() gets the values of view.restore, or initial ones
    kHeal,    // OnHealed: replica() becomes that of rank `source`, which gives it to all others, whole or not at all;
              // where the optimizer's state is divided, as `recovery` says
    kSettle,  // OnSettled: hear that all others are healed too
    kStep,    // OnStepTaken: the gradients of `own`, summed over all ranks; then replica() takes the step
    kGather,  // OnGathered: the state that is divided comes together at rank 0
    kTask,    // OnTaskDone, with the values of replica()
  };
  // Of a divided state.
  struct Recovery {
    std::vector<StateFragment> fragments;
    std::optional<StateShare> share;  // that replica() is to have then
    bool keeps = false;               // what it has counts, see RingReplica::Install
    // First it takes the step that it is prepared for.
    bool finish = false;
    TakenStep last;  // the newest, whether it takes it or not
  };
  std::uint64_t token = 0;
  Kind kind = Kind::kForm;
  v1::View view;                  // kForm, kBegin
  int rank = 0;                   // kForm
  int source = 0;                 // kHeal
  Recovery recovery;              // likewise
  std::uint32_t cut = 0;          // kStep: that all are to hear of with it; 0: none
  std::vector<UpdateId> updates;  // kStep: of the step
  std::vector<UpdateId> own;      // of these, those that this worker computes; may be none
  v1::TaskKind task = v1::TASK_EVALUATE;
  std::uint32_t dataset_epoch = 0;  // kTask: finished epochs
  std::uint64_t lease = 0;          // likewise
};

// A checkpoint that is to be written: the state as it is between two steps, sharing memory with the replica.
struct RingCut {
  std::uint32_t cut = 0;
  std::string checkpoint;
  std::vector<v1::TensorSpec> tensors;
  v1::DataPlan data;
  std::vector<SliceSnapshot> slices;  // by number
};

struct RingOutput {
  std::vector<SyncCall> syncs;
  std::optional<RingWork> work;
  std::optional<RingCut> cut;  // OnCutWritten
  bool abort = false;          // the group is over: whatever waits in it, or for it, is to return
};

// A member of a job without parameter servers, without I/O, threads, a clock or a model: registers, takes part in the
// ring of the newest view, and heals. Whoever took a step has all that it is made of; so a step that some have taken
// and others not is right, as long as one of the next ring has it, and otherwise is done again by all. Not thread-safe.
class RingWorkerCore {
 public:
  RingWorkerCore(RingWorkerOptions options, std::function<std::uint64_t()> new_session);

  void Start(Time now, RingOutput* output);
  void OnTimer(Time now, RingOutput* output);
  Time next_timer() const { return next_timer_; }
  void OnSyncReply(std::uint64_t call, const absl::StatusOr<v1::WorkerSyncReply>& reply, Time now, RingOutput* output);

  // ---- answers to work. An error of a group means that it is over.
  void OnFormed(std::uint64_t token, const absl::Status& status, Time now, RingOutput* output);
  void OnAligned(std::uint64_t token, const absl::StatusOr<std::vector<RingPosition>>& positions, Time now,
                 RingOutput* output);
  void OnBegun(std::uint64_t token, const absl::Status& status, Time now, RingOutput* output);
  void OnHealed(std::uint64_t token, const absl::Status& status, Time now, RingOutput* output);
  void OnSettled(std::uint64_t token, const absl::Status& status, Time now, RingOutput* output);
  // Of rank 0, by number; of others nothing.
  void OnGathered(std::uint64_t token, absl::StatusOr<std::vector<SliceSnapshot>> slices, Time now, RingOutput* output);
  // What this worker computed for it, with the mean loss of the whole step; `sum_took`: waiting for the others.
  struct StepResult {
    ComputeResult computed;
    absl::Duration sum_took;
    std::uint64_t sent_bytes = 0;
    std::uint64_t unencoded_bytes = 0;    // what they had been as float32
    std::optional<std::uint32_t> digest;  // of the replica, where an epoch is whole with this step
    std::uint32_t cut = 0;                // RingWork::cut of rank 0
  };
  void OnStepTaken(std::uint64_t token, const absl::StatusOr<StepResult>& result, Time now, RingOutput* output);
  void OnTaskDone(std::uint64_t token, v1::TaskResult result, Time now, RingOutput* output);

  // Goes on until the others have a ring without it, then finishes.
  void Leave(Time now, RingOutput* output);
  // It cannot go on: fails the job.
  void Fail(std::string why, Time now, RingOutput* output);

  void OnCutWritten(std::uint32_t cut, const absl::StatusOr<v1::PsFiles>& files, Time now, RingOutput* output);

  // ---- what it has
  // As of the newest work that was answered.
  RingPosition position() const;
  // Null until a view has been heard of. While work is out, the shell's: nothing here touches it then.
  RingReplica* replica() { return replica_.has_value() ? &*replica_ : nullptr; }
  const RingReplica* replica() const { return replica_.has_value() ? &*replica_ : nullptr; }
  const v1::View& view() const { return view_; }
  std::uint64_t session() const { return session_; }
  WorkerMeter& meter() { return meter_; }
  const std::optional<absl::Status>& finished() const { return finished_; }

 private:
  enum class Phase {
    kOut,  // in no group: waits for a view
    kForming,
    kAligning,
    kBeginning,
    kHealing,
    kSettling,
    kReady,  // the group is there, and all have the same state
  };
  struct HeldTask {
    v1::Lease lease;
    std::optional<v1::TaskResult> result;
  };

  void Pump(Time now, RingOutput* output);
  // What is told of the replica, which others may be about to change.
  void Look();
  // Whether a checkpoint is to be written now; of a divided state it is work first, which comes out.
  bool TakeCut(RingOutput* output);
  RingCut DescribeCut() const;
  // What the members go on from, and as what; an error if they cannot.
  absl::Status PlanHealing();
  std::uint32_t holders() const { return view_.state_holders(); }
  void Sync(Time now, RingOutput* output);
  void AdoptView(const v1::View& view, RingOutput* output);
  void Reconcile(const v1::WorkerSyncReply& reply);
  // Gives the work out.
  void Begin(RingWork work, RingOutput* output);
  // Whether the answer is to the work that is out; then none is any more.
  bool End(std::uint64_t token);
  void Break(const absl::Status& status);
  // Its rank in the view; nullopt: it has none.
  std::optional<int> RankIn(const v1::View& view) const;
  bool Waits() const;
  bool PickTask(RingOutput* output);
  void WakeAt(Time time) { next_timer_ = std::min(next_timer_, time); }

  RingWorkerOptions options_;
  std::function<std::uint64_t()> new_session_;
  std::uint64_t session_ = 0;
  bool accepted_ = false;
  bool tell_view_ = false;
  std::uint64_t sequence_ = 0;
  std::uint32_t incarnation_ = 0;
  WrongJob wrong_job_;

  bool sync_in_flight_ = false;
  std::uint64_t sync_call_ = 0, next_call_ = 1;
  bool sync_urgent_ = false;
  Time next_sync_ = absl::ZeroDuration();
  bool leaving_ = false;

  v1::View view_;         // the newest heard of
  v1::ViewStamp joined_;  // of the group that it is in, or was in last
  int group_rank_ = 0;    // in it
  Phase phase_ = Phase::kOut;
  std::string broken_;
  std::optional<RingReplica> replica_;
  std::optional<v1::ViewStamp> took_;        // see RingPosition; none: the replica has no values
  RingPosition looked_;                      // of the replica when no work was out last, but for `known` and `took`
  std::uint32_t watermark_ = 0;              // likewise
  std::optional<std::uint32_t> next_epoch_;  // likewise, of the next step; none: there is none
  std::uint32_t epochs_open_ = 0;
  std::optional<std::uint32_t> digest_;  // as of the newest step
  std::string restore_error_;

  std::uint64_t token_ = 0;  // of the newest work
  bool working_ = false;     // it is out
  RingWork work_;
  std::vector<RingPosition> positions_;  // of the ranks, as of the alignment
  int source_ = 0;                       // whose state they go on from
  RingWork::Recovery recovery_;
  std::optional<v1::ViewStamp> prepared_;  // of the step that the replica is prepared for
  std::string state_lost_;
  std::map<std::uint64_t, HeldTask> tasks_;

  v1::CutOrder order_;      // the newest
  v1::CutState cut_state_;  // of it
  bool cut_taken_ = false;
  std::uint32_t gathers_ = 0;   // the cut that all have heard of with the newest step
  std::uint32_t gathered_ = 0;  // the newest that came together

  std::string failure_;
  int consecutive_skips_ = 0;
  WorkerMeter meter_;
  std::optional<absl::Status> finished_;
  Time next_timer_ = absl::ZeroDuration();
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_RING_RING_WORKER_H_
