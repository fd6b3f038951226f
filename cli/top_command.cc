#include <unistd.h>

#include <iostream>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <utility>
#include <vector>

#include "cli/clock.h"
#include "cli/commands.h"
#include "cli/grpc_life.h"
#include "cli/history_recorder.h"
#include "cli/job_view.h"
#include "cli/render/format.h"
#include "cli/render/live_view.h"
#include "cli/run_folder.h"
#include "cli/run_overview.h"
#include "cli/run_view.h"
#include "cli/wake.h"
#include "operator/kube/wait.h"

namespace downpour::cli {
namespace {

constexpr absl::Duration kRefreshTime = absl::Milliseconds(500);
constexpr absl::Duration kClusterRefreshTime = absl::Seconds(2);  // the operator writes progress each 10 s
constexpr double kGiveUpSeconds = 60;                             // without an answer of the API server
constexpr std::size_t kMostPoints = 2000;

// What is watched: looked at again and again until it does not run any more.
class Watched {
 public:
  virtual ~Watched() = default;
  virtual absl::StatusOr<Snapshot> Look() = 0;
  // As of the last look; false also where looking again cannot help.
  virtual bool running() const = 0;
  virtual const std::vector<CurvePoint>& curve() const = 0;
  // Once it is over: "Succeeded".
  virtual absl::StatusOr<std::string> LastWord() = 0;
};

// A run of this machine: its folder, and its coordinator.
class WatchedRun final : public Watched {
 public:
  WatchedRun(std::string root, const Clock& clock) : root_(std::move(root)), clock_(clock) {}

  absl::StatusOr<Snapshot> Look() override {
    running_ = RunIsHeld(root_);
    curve_ = ReadMetrics(RunPaths{root_}.Metrics()).curve;
    const absl::StatusOr<RunState> state = ReadRunState(root_);
    if (!state.ok()) return state.status();
    absl::StatusOr<v1::ProgressReply> reply = AskRun(root_, state->job_uid);
    if (reply.ok()) {
      reply_ = *std::move(reply);
      reply_time_ = clock_.Now();
    }
    return MakeSnapshot(state->start_time, clock_.Now(), state->status, state->processes, reply_, reply_time_);
  }
  bool running() const override { return running_; }
  const std::vector<CurvePoint>& curve() const override { return curve_; }
  absl::StatusOr<std::string> LastWord() override {
    const absl::StatusOr<RunOverview> overview = ReadRunOverview(root_, clock_.Now());
    if (!overview.ok()) return overview.status();
    return overview->name + ": " + overview->phase;
  }

 private:
  const std::string root_;
  const Clock& clock_;
  bool running_ = true;
  std::vector<CurvePoint> curve_;
  std::optional<v1::ProgressReply> reply_;
  double reply_time_ = 0;
};

// A job on a cluster: its status and its pods.
class WatchedJob final : public Watched {
 public:
  WatchedJob(Cluster& cluster, std::string name, const Clock& clock)
      : cluster_(cluster), name_(std::move(name)), clock_(clock) {}

  absl::StatusOr<Snapshot> Look() override {
    absl::StatusOr<Snapshot> snapshot = Ask();
    // The API server may be away for a moment.
    const bool passes = absl::IsUnavailable(snapshot.status()) || absl::IsDeadlineExceeded(snapshot.status());
    if (!snapshot.ok() && !passes) running_ = false;
    return snapshot;
  }
  bool running() const override { return running_; }
  const std::vector<CurvePoint>& curve() const override { return curve_; }
  absl::StatusOr<std::string> LastWord() override { return name_ + ": " + phase_; }

 private:
  absl::StatusOr<Snapshot> Ask() {
    const absl::StatusOr<controller::JobRecord> record = cluster_.GetJob(name_);
    if (!record.ok()) return record.status();
    const absl::StatusOr<std::vector<controller::Pod>> pods = cluster_.ListPods(*record);
    if (!pods.ok()) return pods.status();
    running_ = MakeJobOverview(*record, clock_.Now()).running;
    phase_ = record->job.status.phase;
    Snapshot snapshot = MakeJobSnapshot(*record, *pods, clock_.Now());
    AddPoint(snapshot);
    return snapshot;
  }

  void AddPoint(const Snapshot& snapshot) {
    if (!snapshot.progress.has_value() || snapshot.progress->updates_applied() == 0) return;
    if (!curve_.empty() && curve_.back().updates == snapshot.progress->updates_applied()) return;
    CurvePoint point;
    point.seconds = snapshot.seconds;
    point.updates = snapshot.progress->updates_applied();
    point.epochs = EpochsDone(*snapshot.progress);
    if (snapshot.progress->has_loss()) point.loss = snapshot.progress->loss();
    if (snapshot.progress->has_samples_per_second()) {
      point.samples_per_second = snapshot.progress->samples_per_second();
    }
    point.workers = snapshot.status.worker.ready;
    if (curve_.size() >= kMostPoints) curve_.erase(curve_.begin());
    curve_.push_back(point);
  }

  Cluster& cluster_;
  const std::string name_;
  const Clock& clock_;
  bool running_ = false;
  std::string phase_;
  std::vector<CurvePoint> curve_;
};

int ShowOnce(Watched& watched, const api::TrainingJob& job) {
  const absl::StatusOr<Snapshot> snapshot = watched.Look();
  if (!snapshot.ok()) return Complain(snapshot.status());
  LiveViewContext context;
  context.curve = watched.curve();
  context.colour = WantsColour(STDOUT_FILENO);
  const TerminalSize size = ReadTerminalSize(STDOUT_FILENO).value_or(TerminalSize{120, 100});
  std::cout << RenderLiveView(job, *snapshot, size, context) << std::flush;
  return kExitDone;
}

int Watch(Watched& watched, const api::TrainingJob& job, absl::Duration refresh, const std::stop_token& stop,
          const Clock& clock) {
  {
    const std::unique_ptr<RunView> view = MakeRunView(std::cout, STDOUT_FILENO, job);
    RunHistory history;
    for (double answered = clock.Now();;) {
      const absl::StatusOr<Snapshot> snapshot = watched.Look();
      if (stop.stop_requested()) return kExitDone;
      history.curve = watched.curve();
      if (snapshot.ok()) {
        answered = clock.Now();
        view->Show(*snapshot, history);
      } else if (!watched.running() || clock.Now() - answered > kGiveUpSeconds) {
        return Complain(snapshot.status());
      }
      if (!watched.running()) break;
      if (!kube::SleepFor(stop, refresh)) return kExitDone;
    }
  }
  const absl::StatusOr<std::string> word = watched.LastWord();
  if (!word.ok()) return Complain(word.status());
  std::cout << CleanText(*word) << std::endl;
  return kExitDone;
}

int TopRun(const std::string& name, bool once, const std::stop_token& stop) {
  const absl::StatusOr<std::string> root = ChooseRun(name, /*running=*/true);
  if (!root.ok()) return Complain(root.status());
  const absl::StatusOr<api::TrainingJob> job = ReadRunJob(*root);
  if (!job.ok()) return Complain(job.status());
  if (const absl::Status status = StartGrpc(); !status.ok()) return Complain(status);
  const SystemClock clock;
  WatchedRun watched(*root, clock);
  return once ? ShowOnce(watched, *job) : Watch(watched, *job, kRefreshTime, stop, clock);
}

int TopJob(const Target& target, bool once, const std::stop_token& stop) {
  const absl::StatusOr<std::unique_ptr<Cluster>> cluster = OpenForJob(target);
  if (!cluster.ok()) return Complain(cluster.status());
  const std::stop_callback cancel(stop, [&cluster] { (*cluster)->Stop(); });
  const absl::StatusOr<controller::JobRecord> record = (*cluster)->GetJob(target.name);
  if (stop.stop_requested()) return kExitDone;
  if (!record.ok()) return Complain(record.status());
  const SystemClock clock;
  WatchedJob watched(**cluster, target.name, clock);
  return once ? ShowOnce(watched, record->job) : Watch(watched, record->job, kClusterRefreshTime, stop, clock);
}

}  // namespace

int TopCommand(const Target& target, bool once) {
  std::unique_ptr<SignalStop> signals;  // to watch; else a signal ends this process as it ends any
  if (!once) {
    absl::StatusOr<std::unique_ptr<SignalStop>> created = SignalStop::Create();
    if (!created.ok()) return Complain(created.status());
    signals = *std::move(created);
  }
  const std::stop_token stop = once ? std::stop_token() : signals->token();
  return target.cluster.given() ? TopJob(target, once, stop) : TopRun(target.name, once, stop);
}

}  // namespace downpour::cli
