#ifndef DOWNPOUR_TRAINER_CORE_PS_H_
#define DOWNPOUR_TRAINER_CORE_PS_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/frame.h"
#include "trainer/core/held_replies.h"
#include "trainer/core/live_sessions.h"
#include "trainer/core/planted_bug.h"
#include "trainer/core/primary_replication.h"
#include "trainer/core/ps_replicas.h"
#include "trainer/core/ps_store_work.h"
#include "trainer/core/replication.h"
#include "trainer/core/schedule.h"
#include "trainer/core/slice_snapshot.h"
#include "trainer/core/staleness_bound.h"
#include "trainer/core/step_id.h"
#include "trainer/core/time.h"
#include "trainer/core/waiting_calls.h"
#include "trainer/core/wrong_job.h"

namespace downpour::core {

struct PsOptions {
  std::string job_uid;  // 32 hexadecimal digits
  std::uint32_t index = 0;
  std::string address;        // where workers reach it
  std::uint64_t session = 0;  // fresh for each process
  std::uint32_t process_incarnation = 1;
  std::string node;  // where it runs; empty: not known
  // Pushes that wait for their verdict are held up to this many bytes; beyond, they are sent back as superseded.
  std::size_t pending_bytes_limit = 256u << 20;
  bool has_store = false;  // somebody writes what TakeSnapshot gives
  // Memory for the snapshots of a cut, and one slice besides; pushes come again where it is used up. 0: what it takes.
  std::uint64_t extra_bytes_limit = 0;
  // Updates that another replica does not hold yet are kept up to this many bytes; beyond, pushes come again.
  std::size_t log_bytes_limit = 256u << 20;
  PlantedBug bug = PlantedBug::kNone;
  // For tests: hears what became of each push, the moment it is carried out, and the record that its slice is at.
  std::function<void(const Frame& push, ReplyStatus status, std::uint64_t sequence)> on_push = nullptr;
};

// A parameter server without I/O, threads or a clock: the slices that it owns, their optimizers and their tables of
// applied updates, changed together or not at all; and replicas of slices that others own, which follow them. What it
// tells workers it tells once the standby of the slice holds it too. Not thread-safe: the shell serialises all calls.
class PsCore {
 public:
  // Names an exchange whose reply is owed; chosen by the shell, unique among those under way.
  using CallId = std::uint64_t;
  using DataReply = core::DataReply;

  // kInvalidArgument: a malformed job uid.
  static absl::StatusOr<std::unique_ptr<PsCore>> Create(PsOptions options);

  // ---- control
  v1::DirectReply OnDirect(const v1::DirectRequest& request, Time now);
  // With all that it holds if the coordinator has asked for that.
  v1::RegisterPsRequest MakeRegistration() const;
  // Registers at start, when the coordinator has been silent for a while, and now and then anyway: an older coordinator
  // that lives on may be the one that talks, and the name leads to the newest.
  bool ShouldRegister(Time now) const;
  // From then on, coordinators older than the one that answered are refused. kAborted: this process has been replaced.
  // What another job's coordinator says is not heard; kFailedPrecondition: see WrongJob, or refused.
  absl::Status OnRegisterReply(const v1::RegisterPsReply& reply, Time now);
  v1::LedgerReply ReadLedger() const;
  v1::PsStats stats() const;

  // ---- data
  // Appends the replies that became due: to this call or to earlier ones that waited. A call waits if all its frames
  // are pending pushes of one update, for its verdict, or all pulls that begin an update, until the mode lets it; and
  // its answer, until the standbys hold what it says.
  void OnData(CallId call, std::vector<Frame> frames, std::vector<DataReply>* replies);

  // ---- to other ps
  // What is due. To be called after every other call, and at replication_timer().
  std::vector<ReplicationCall> TakeReplicationCalls(Time now) {
    return replication_.Take(now, store_work_.applied_cut());
  }
  Time replication_timer() const { return replication_.next_timer(); }
  // The answer to one of them: appends the replies to workers that became due.
  void OnReplicationReply(std::uint64_t call, const absl::StatusOr<std::vector<Frame>>& reply, Time now,
                          std::vector<DataReply>* replies) {
    replication_.OnReply(call, reply, now, replies);
  }

  // ---- for whoever writes cuts and reads checkpoints; see PsStoreWork
  using CutToWrite = PsStoreWork::CutToWrite;
  using Restore = PsStoreWork::Restore;
  // Whether TakeCutToWrite or TakeRestore has something.
  bool HasStoreWork() const { return store_work_.HasWork(view_); }
  std::optional<CutToWrite> TakeCutToWrite() { return store_work_.TakeCutToWrite(view_); }
  absl::StatusOr<SliceSnapshot> TakeSnapshot(std::uint32_t cut, std::uint32_t slice) {
    return store_work_.TakeSnapshot(cut, slice);
  }
  void OnCutWritten(std::uint32_t cut, const absl::StatusOr<v1::PsFiles>& files) {
    store_work_.OnCutWritten(cut, files);
  }
  std::optional<Restore> TakeRestore() { return store_work_.TakeRestore(view_); }
  absl::Status OnSliceRestored(std::uint64_t generation, const SliceSnapshot& snapshot) {
    return store_work_.OnSliceRestored(view_, generation, snapshot);
  }
  void OnRestored(std::uint64_t generation, const absl::Status& read) {
    if (RestoreWanted(generation)) store_work_.OnRestored(read);
  }
  bool RestoreWanted(std::uint64_t generation) const {
    return view_.has_restore() && view_.stamp().generation() == generation;
  }

  // ---- inspection, for tests and metrics
  const v1::View& view() const { return view_; }
  bool initialised() const { return view_.has_stamp() && replicas_.initialised(); }
  // The slice's value; empty if another ps owns it. Shared with replies in flight: never written while shared.
  std::shared_ptr<const std::vector<float>> value(std::uint32_t slice) const;
  // How many tables of slices its directives have looked at.
  std::uint64_t tables_looked_at() const { return replicas_.tables_looked_at(); }
  std::size_t pending_bytes() const { return waiting_.pushed_bytes(); }
  const PsReplicas& replicas() const { return replicas_; }

 private:
  using Entry = PsReplicas::Entry;
  using Needs = HeldReplies::Needs;
  using Decision = WaitingCalls::Decision;

  PsCore(PsOptions options, JobUid uid);

  absl::Status Install(const v1::View& view);
  absl::Status BeginHistory(const v1::View& view);
  // Another view of the history at hand.
  absl::Status ChangeView(const v1::View& view);
  void SetStepWidth();
  // It answers nobody until a later view.
  bool IsFrozen(const Entry& entry) const { return entry.frozen && !thawed_; }
  // As the view says it of this plan.
  void SetLearningRate();
  // What follows from the mode begins anew; nobody pushes before the coordinator says again who may.
  void BeginMode();
  void SetSessions(const v1::DirectRequest& request);
  // See FrameAdmission.
  ReplyStatus Check(const Frame& frame) const;
  // `needs`: what the standbys have to hold before the answer is heard.
  Frame CarryOut(const Frame& frame, const Decision& decision, Needs* needs);
  ReplyStatus Apply(Entry& entry, const Frame& frame, const Decision& decision);
  DataReply TakeReplicaFrames(CallId call, const std::vector<Frame>& frames);
  // Of mode SANDBLASTER; slices that cannot yet are left out of the reply.
  absl::Status CarryOut(const v1::VectorCommand& command, v1::VectorReply* reply);
  Frame MakeReply(const Frame& frame, ReplyStatus status) const;
  // Answers calls that waited.
  void Refuse(const std::vector<WaitingCalls::Call>& calls, ReplyStatus status, std::vector<DataReply>* replies) const;
  void CarryOut(const std::vector<WaitingCalls::Call>& calls, const Decision& decision,
                std::vector<DataReply>* replies);
  // The pulls that wait no more.
  void ReleasePulls(std::vector<DataReply>* replies);
  // Whether its session may begin an update with the value that it asks for, or with those.
  bool MayBegin(const Frame& frame) const;
  bool MayBegin(const std::vector<Frame>& pulls) const;

  PsOptions options_;
  JobUid uid_;
  v1::View view_;
  std::optional<LearningRate> learning_rate_;  // with a view
  PsReplicas replicas_;
  PrimaryReplication replication_;
  PsStoreWork store_work_;
  std::optional<StalenessBound> bound_;  // of mode BOUNDED_STALENESS
  std::uint32_t step_width_ = 0;         // of mode SYNCHRONOUS; 0: of another
  bool steps_moved_ = false;             // of some slices, since pulls that wait were looked at
  bool thawed_ = false;                  // by a planted bug
  Time view_since_ = absl::ZeroDuration();
  LiveSessions sessions_;
  WaitingCalls waiting_;
  std::vector<DataReply> owed_;  // replies that a directive made due; handed out with the next call's
  std::uint32_t highest_incarnation_ = 0;
  std::optional<Time> last_directive_;
  std::optional<Time> last_registered_;
  bool tell_all_ = false;
  WrongJob wrong_job_;
  v1::PsStats stats_;
  double staleness_mean_ = 0;

 public:
  // Replies that became due outside OnData (ended sessions); the shell sends them after OnDirect.
  std::vector<DataReply> TakeOwedReplies() { return std::exchange(owed_, {}); }
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_PS_H_
