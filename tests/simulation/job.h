#ifndef DOWNPOUR_TESTS_SIMULATION_JOB_H_
#define DOWNPOUR_TESTS_SIMULATION_JOB_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/simulation/checks.h"
#include "tests/simulation/disk.h"
#include "tests/simulation/evaluation_checks.h"
#include "tests/simulation/network.h"
#include "tests/simulation/process.h"
#include "tests/simulation/residual_checks.h"
#include "tests/simulation/rollback_checks.h"
#include "tests/simulation/simulator.h"
#include "tests/simulation/staleness_checks.h"
#include "tests/simulation/stall_checks.h"
#include "tests/simulation/world.h"

namespace downpour::simulation {

// The processes of one job and what their shells do: carry out what the state machines want, over the network and the
// disk. In the operator's place it starts and replaces them, and asks how far the job is.
class Job {
 public:
  explicit Job(const SimulationOptions& options);
  SimulationResult Run();

 private:
  friend class Faults;

  // ---- processes (shells.cc)
  void StartAll();
  ProcessPointer Start(Kind kind, std::uint32_t index);
  ProcessPointer Current(Kind kind, std::uint32_t index) const;
  ProcessPointer Coordinator() const { return Current(Kind::kCoordinator, 0); }
  // Which listens there; null: none.
  ProcessPointer At(const std::string& address) const;
  void Kill(const ProcessPointer& process, const char* why, bool platform = true);
  // Starts another one in its place, unless there is one by then.
  void ReplaceSoon(const ProcessPointer& process);
  void TickCoordinator(const ProcessPointer& process);
  void TickPs(const ProcessPointer& process);
  void TickWorker(const ProcessPointer& process);
  void CarryOut(const ProcessPointer& process, core::WorkerOutput output);
  void CarryOut(const ProcessPointer& process, core::DirectCall call);
  void Sync(const ProcessPointer& process, const core::SyncCall& call);
  void Exchange(const ProcessPointer& process, const core::ExchangeCall& call);
  void Train(const ProcessPointer& process, const core::Work& work);
  void CarryOutTask(const ProcessPointer& process, const core::Work& work);
  // What the ps has before it hears a directive: its view, and the record that each replica is at.
  struct Standing {
    v1::ViewStamp stamp;
    std::uint32_t mode_epoch = 0;
    std::map<std::uint32_t, std::uint64_t> sequences;
  };
  static Standing StandingOf(const Process& ps);
  // It has heard a directive.
  void NoteView(Process& ps, const Standing& before);
  // What it has of the slice counts from now on: the view does, or workers know it.
  static void TakeUp(Process& ps, std::uint32_t slice);
  // Frames come to it.
  void Receive(Process& ps, const std::vector<core::Frame>& frames,
               std::function<void(std::vector<core::Frame>)> reply);
  // What it has for others.
  void Replicate(const ProcessPointer& ps);
  // It did something about a push.
  void OnPush(Process& ps, const core::Frame& push, core::ReplyStatus status, std::uint64_t sequence);
  void NoteTraining(const Process& ps, const v1::DirectRequest& request);
  void NoteSessions(Process& ps, const v1::DirectRequest& request, const v1::DirectReply& answer);
  void CheckReplies(Process& ps, const std::vector<core::PsCore::DataReply>& replies);
  void CheckAnswer(Process& ps, const core::Frame& push, core::ReplyStatus status);
  void CheckApplied(Process& ps, const core::Frame& push, std::uint64_t sequence);
  // Standbys have the bits of their primaries.
  void CheckStandbys();
  // What of the update it adds to a value; empty: nothing, or with each codec that loses nothing.
  std::vector<float> Adds(const core::Frame& push) const;
  HistoryKey HistoryOf(const Process& ps) const { return {ps.job_uid, ps.ps->view().stamp().generation()}; }
  StalenessChecks::Era EraOf(const Process& ps) const { return {HistoryOf(ps), ps.ps->view().mode_epoch()}; }
  // URI of the checkpoint that it began with; empty: none.
  static std::string BeginningOf(const Process& ps) {
    const v1::RestoreSource& source = ps.ps->view().restore();
    return source.checkpoint().empty() ? "" : source.store() + "/" + source.checkpoint();
  }
  bool IsDeadly(const core::UpdateId& update) const {
    return deadly_.has_value() && update.dataset_epoch == deadly_->dataset_epoch &&
           update.data_shard == deadly_->data_shard;
  }
  // With a codec, what makes a sum of the mean that a step takes.
  float Weight(const core::UpdateId& update) const;
  // `scale`: of the learning rate, by which the gradient of a parameter is divided.
  std::vector<float> MakeGradient(const core::DataPlan& plan, const core::UpdateId& update, double scale = 1) const {
    return GradientOf(plan, update, static_cast<float>(Weight(update) / scale), /*uneven=*/lossy());
  }
  // Whether gradients of parameters have a codec that leaves something out.
  bool lossy() const { return codec_.codec != core::FrameCodec::kFp32; }
  bool IsBuffer(std::uint32_t slice) const { return tensors_[slice].kind() == v1::BUFFER; }  // one slice a tensor
  bool Skipped(const core::UpdateId& update) const {
    return skip_every_ != 0 && plan_->UpdateSeed(update) % skip_every_ == 0;
  }

  // ---- the store (store_shells.cc)
  // A cut on its way to the disk.
  struct Writing;
  void StepStore(const ProcessPointer& process);
  void CarryOut(const ProcessPointer& process, const core::StoreCall& call);
  void Load(const ProcessPointer& process, const core::PsCore::Restore& restore);
  absl::Status TryLoad(Process& process, const core::PsCore::Restore& restore);
  void GatherSnapshots(const ProcessPointer& process, const std::shared_ptr<Writing>& writing);
  void WriteFiles(const ProcessPointer& process, const std::shared_ptr<Writing>& writing);
  void EndWriting(const ProcessPointer& process, std::uint32_t cut, absl::StatusOr<v1::PsFiles> files);
  // Ends what died in the middle of its use of the disk. True: it did.
  bool Died(const ProcessPointer& process, Disk::Outcome outcome);

  // ---- who stands still (stalls.cc)
  void CheckStalls();
  // Whether anything is broken that the job needs.
  bool Broken() const;
  // Whether the view has it.
  bool IsPlaced(const Process& ps) const;
  // Which of the worker's calls are where.
  std::string AwaitedBy(const Process& worker) const;

  // ---- the operator's part (simulator.cc)
  // What an update is: of how many minibatches, and how it travels.
  void ChooseUpdates();
  // What follows from evaluations.
  void ChooseDecisions();
  void Watch();
  // How the slices are held, and whether that changes.
  void ChooseReplicas();
  // The manifest has another mode, or other numbers of one.
  void ChangeMode();
  // The manifest has another number of ps; or one of them is to leave.
  void ScalePs(std::uint32_t count);
  void DrainPs(std::uint32_t index);
  // Ends ps that are not wanted and have no place.
  void EndPs(const v1::ProgressReply& progress);
  void CheckMode(const v1::ProgressReply& progress);
  void CheckEnd();
  // Of mode SANDBLASTER; of how many evaluations it is the end.
  std::uint32_t CheckSearch();
  std::string ProtocolState() const;
  // A fault of this kind strikes now, or, where it breaks nothing, a wish is told.
  void Count(const std::string& fault, bool breaks = true) {
    ++result_.coverage[fault][ProtocolState()];
    if (breaks) stall_checks_->OnFault();
  }
  void Trace(const std::string& text) const { world_.Trace(text); }
  void AtProcess(Time time, const ProcessPointer& process, std::function<void()> action) {
    network_->AtProcess(time, process, std::move(action));
  }
  Time now() const { return world_.now(); }

  const SimulationOptions options_;
  World world_;
  Random& random_ = world_.random();
  SimulationResult result_;
  Time faults_end_;
  std::optional<Network> network_;
  std::optional<Disk> disk_;
  std::optional<Checks> checks_;
  std::optional<StalenessChecks> staleness_checks_;
  std::optional<StallChecks> stall_checks_;
  RollbackChecks rollback_checks_{&world_};
  std::optional<ResidualChecks> residual_checks_;      // with a codec
  std::optional<EvaluationChecks> evaluation_checks_;  // of a job that heeds them
  std::unique_ptr<class Faults> faults_;

  v1::TrainingConfig config_;
  std::uint64_t sample_count_ = 0;
  std::optional<core::DataPlan> plan_;    // that the job began with
  std::optional<core::UpdateId> deadly_;  // any update of the shard
  v1::ProgressRequest told_;              // failures and wishes, as the operator knows them
  bool switches_ = false;                 // the mode changes now and then
  bool scales_ = false;                   // the number of ps does
  std::uint64_t ps_revision_ = 0;
  std::uint32_t ps_started_ = 0;  // indices below it have been started
  std::uint64_t mode_revision_ = 0;
  Time mode_changed_ = absl::ZeroDuration();
  std::vector<v1::TensorSpec> tensors_;
  std::set<std::uint32_t> searched_;  // slices of parameters, in mode SANDBLASTER
  std::uint64_t skip_every_ = 0;
  core::CodecOptions codec_;
  std::uint64_t extra_bytes_limit_ = 0;
  absl::Duration slowest_update_;
  std::uint32_t worker_count_ = 0;
  std::vector<std::weak_ptr<Process>> all_;
  std::map<std::pair<Kind, std::uint32_t>, ProcessPointer> current_;
  std::map<std::pair<Kind, std::uint32_t>, std::uint32_t> incarnations_;
  std::map<std::string, ProcessPointer> addresses_;  // who answers there
  Numbers numbers_;
  std::map<std::uint64_t, ProcessPointer> by_session_;  // ps
  std::map<std::uint32_t, std::uint64_t> final_ps_;
  std::set<StalenessChecks::Era> modes_;  // that followed another one
  std::set<std::uint64_t> accepted_;      // sessions whose worker heard so
  std::optional<Time> store_outcome_at_;
  bool done_ = false;
};

// What befalls the processes of a job, their clocks, network and disk (faults.cc).
class Faults {
 public:
  explicit Faults(Job* job);
  void Schedule();
  // Another number of ps is wanted, or one is to leave.
  void ChangePs();
  // The coordinator has come to another phase, or its cut has: moments that chance alone would seldom hit.
  void OnPhase();
  // One is complete: there is something to go on from. Behind the first one a ps is lost, in most jobs.
  void OnCheckpoint();

 private:
  void Strike();
  void StrikeProcess();
  void StrikeProcess(Kind kind);
  void StrikeDisk();
  void Pause(const ProcessPointer& process, absl::Duration length);
  void Leave(const ProcessPointer& process);
  void Everything();
  // Also the workers, and what is paused; then another start, in some cases of another shape or as another job.
  void WholeJob();
  void LeapClock(const ProcessPointer& process);
  void CutOff();
  // The coordinator loses a ps; then it dies, and the next one has that ps alone.
  void Divide();
  // A random one of those there are.
  ProcessPointer Any();
  Time Until(absl::Duration low, absl::Duration high);
  World& world() { return job_->world_; }

  Job* job_;
  Random& random_;
  double rate_ = 0;  // a second
  bool kill_ps_ = false;
  bool loss_to_come_ = false;
  int whole_jobs_ = 0;
};

}  // namespace downpour::simulation

#endif  // DOWNPOUR_TESTS_SIMULATION_JOB_H_
