#ifndef DOWNPOUR_TRAINER_CORE_PS_H_
#define DOWNPOUR_TRAINER_CORE_PS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/frame.h"
#include "trainer/core/held_replies.h"
#include "trainer/core/open_cut.h"
#include "trainer/core/planted_bug.h"
#include "trainer/core/ps_replicas.h"
#include "trainer/core/replication.h"
#include "trainer/core/schedule.h"
#include "trainer/core/slice_snapshot.h"
#include "trainer/core/staleness_bound.h"
#include "trainer/core/step_id.h"
#include "trainer/core/time.h"
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

// Whether a checkpoint that could not be read may be all right: the store is away, say, or lets nobody in. Whoever
// reads it tries on; only what is damaged, gone or does not fit is passed over for an older one.
bool RestoreMayComeYet(const absl::Status& read);

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
  std::vector<ReplicationCall> TakeReplicationCalls(Time now);
  Time replication_timer() const { return replication_.next_timer(); }
  // The answer to one of them: appends the replies to workers that became due.
  void OnReplicationReply(std::uint64_t call, const absl::StatusOr<std::vector<Frame>>& reply, Time now,
                          std::vector<DataReply>* replies);

  // ---- the open cut, for whoever writes it
  struct CutToWrite {
    std::uint32_t cut = 0;
    std::string checkpoint;
    std::vector<v1::TensorSpec> tensors;
    v1::DataPlan data;
    std::vector<std::uint32_t> slices;
  };
  // Whether TakeCutToWrite or TakeRestore has something.
  bool HasStoreWork() const;
  // A cut that is complete and has not been given out before.
  std::optional<CutToWrite> TakeCutToWrite();
  // A slice of it, each once. What the one before shared must have been let go. kAborted: the cut is not wanted any
  // more.
  absl::StatusOr<SliceSnapshot> TakeSnapshot(std::uint32_t cut, std::uint32_t slice);
  void OnCutWritten(std::uint32_t cut, const absl::StatusOr<v1::PsFiles>& files);

  // ---- the checkpoint that the generation begins with, for whoever reads it
  struct Restore {
    std::uint64_t generation = 0;
    v1::RestoreSource source;
    std::vector<std::uint32_t> slices;
  };
  // One that has not been given out before.
  std::optional<Restore> TakeRestore();
  // kAborted: of another generation; kInvalidArgument: it does not fit.
  absl::Status OnSliceRestored(std::uint64_t generation, const SliceSnapshot& snapshot);
  // `read`: whether all of them came; see RestoreMayComeYet.
  void OnRestored(std::uint64_t generation, const absl::Status& read);
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
  std::size_t pending_bytes() const { return pending_bytes_; }
  const PsReplicas& replicas() const { return replicas_; }

 private:
  struct PendingCall {
    CallId call = 0;
    std::vector<Frame> frames;
  };
  // What a worker says of all its pushes of one update.
  struct Decision {
    Verdict verdict = Verdict::kPending;
    float factor = 1;
    double loss = 0;
  };
  // Of one worker session: the update whose pushes wait, and the newest verdict heard.
  struct SessionState {
    std::optional<UpdateId> pending_update;
    std::vector<PendingCall> pending;
    std::size_t pending_bytes = 0;
    std::optional<UpdateId> decided_update;
    Decision decision;
    std::vector<PendingCall> pulls;  // that wait; each slice is in one of them at most
  };

  using Entry = PsReplicas::Entry;
  using Needs = HeldReplies::Needs;

  PsCore(PsOptions options, JobUid uid);

  absl::Status Install(const v1::View& view);
  absl::Status BeginHistory(const v1::View& view);
  // Another view of the history at hand.
  absl::Status ChangeView(const v1::View& view);
  // Who follows the slices that this ps is the primary of, as the view has it.
  void SetFollowers();
  // The view counts: nobody waits for replicas any more that it does not have.
  void Commit();
  void SetStepWidth();
  // It answers nobody until a later view.
  bool IsFrozen(const Entry& entry) const { return entry.frozen && !thawed_; }
  // As the view says it of this plan.
  void SetLearningRate();
  // What follows from the mode begins anew; nobody pushes before the coordinator says again who may.
  void BeginMode();
  void SetSessions(const v1::DirectRequest& request, std::vector<DataReply>* replies);
  // kNone: the frame may be carried out.
  ReplyStatus Check(const Frame& frame) const;
  // `needs`: what the standbys have to hold before the answer is heard.
  Frame CarryOut(const Frame& frame, const Decision& decision, Needs* needs);
  ReplyStatus Apply(Entry& entry, const Frame& frame, const Decision& decision);
  // Does it, and tells whoever follows.
  absl::StatusOr<Replica::Done> Record(Entry& entry, RecordKind kind, Frame record);
  // For optimizers that look at the value that a gradient was computed with (NeedsPulledValues): keeps what is sent to
  // a session.
  void KeepPulled(const FrameHeader& header);
  // 0: every session.
  void ForgetPulled(std::uint64_t session);
  // Of sessions that ended while the slices were elsewhere, or frozen.
  void ForgetPulledOfOthers();
  // Whoever is being copied to has all that there is: then what the tables say is safe with it too.
  bool JoiningAreSettled() const;
  // Now, or when the standbys are as far.
  void Answer(DataReply reply, Needs needs, std::vector<DataReply>* replies);
  // Up to which record nobody has to wait.
  std::uint64_t released(std::uint32_t slice) const;
  DataReply TakeReplicaFrames(CallId call, const std::vector<Frame>& frames);
  void DescribeReplicas(v1::DirectReply* reply) const;
  void SetCut(const v1::DirectRequest& request);
  // Of mode SANDBLASTER; slices that cannot yet are left out of the reply.
  absl::Status CarryOut(const v1::VectorCommand& command, v1::VectorReply* reply);
  Frame MakeReply(const Frame& frame, ReplyStatus status) const;
  void Decide(SessionState& session, const UpdateId& update, const Decision& decision, std::vector<DataReply>* replies);
  // Answers a call that waited.
  void Refuse(const PendingCall& call, ReplyStatus status, std::vector<DataReply>* replies) const;
  void CarryOut(const PendingCall& call, const Decision& decision, std::vector<DataReply>* replies);
  void Release(SessionState& session, ReplyStatus status, std::vector<DataReply>* replies);
  // Whether its session may begin an update with the value that it asks for, or with those.
  bool MayBegin(const Frame& frame) const;
  bool MayBegin(const std::vector<Frame>& pulls) const;
  // What waits of a session that is over is refused.
  void End(SessionState& session, std::vector<DataReply>* replies);
  // The call becomes one that waits, in the place of earlier ones of the same slices.
  void Hold(SessionState& session, PendingCall call, std::vector<DataReply>* replies);
  // Answers the pulls that wait no more.
  void ReleasePulls(std::vector<DataReply>* replies);
  void ClearPending(SessionState& session);

  PsOptions options_;
  JobUid uid_;
  v1::View view_;
  std::optional<LearningRate> learning_rate_;  // with a view
  PsReplicas replicas_;
  Replication replication_;
  HeldReplies held_;
  // Followers that the view has not, until it counts: by slice.
  std::vector<std::pair<std::uint32_t, std::uint64_t>> followers_to_drop_;
  std::optional<StalenessBound> bound_;  // of mode BOUNDED_STALENESS
  std::uint32_t step_width_ = 0;         // of mode SYNCHRONOUS; 0: of another
  bool steps_moved_ = false;             // of some slices, since pulls that wait were looked at
  std::size_t waiting_pulls_ = 0;        // calls
  bool thawed_ = false;                  // by a planted bug
  Time view_since_ = absl::ZeroDuration();
  std::optional<OpenCut> open_cut_;
  std::uint32_t highest_cut_ = 0;      // of those ordered and of pushes
  std::uint32_t applied_cut_ = 0;      // of pushes
  std::uint32_t cut_incarnation_ = 0;  // of the newest directive
  std::uint64_t cut_sequence_ = 0;     // likewise
  bool restore_given_out_ = false;
  std::string restore_error_, restore_waits_;
  std::map<std::uint64_t, SessionState> sessions_;
  std::vector<DataReply> owed_;  // replies that a directive made due; handed out with the next call's
  std::size_t pending_bytes_ = 0;
  std::uint32_t highest_incarnation_ = 0;
  std::uint32_t members_incarnation_ = 0;
  std::uint64_t members_version_ = 0;
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
