#include <unistd.h>

#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/clock.h"
#include "cli/commands.h"
#include "cli/render/live_view.h"
#include "cli/run_folder.h"
#include "cli/run_overview.h"
#include "cli/run_view.h"
#include "cli/wake.h"
#include "operator/api/manifest.h"
#include "operator/job/coordinator_client.h"

namespace downpour::cli {
namespace {

constexpr double kRefreshSeconds = 0.5;
constexpr absl::Duration kAskTimeLimit = absl::Milliseconds(500);

int Complain(const absl::Status& status, int exit_code) {
  std::cerr << "downpour: " << std::string(status.message()) << std::endl;
  return exit_code;
}

absl::StatusOr<std::string> NewestRunning() {
  const std::vector<std::string> runs = ListRuns(kRunsDirectory);
  for (auto run = runs.rbegin(); run != runs.rend(); ++run) {
    if (RunIsHeld(*run)) return *run;
  }
  return absl::NotFoundError(absl::StrCat("no run is running in ", kRunsDirectory));
}

// Looks at a run from outside: its folder, and its coordinator.
class Onlooker {
 public:
  Onlooker(const std::string& root, const Clock& clock) : paths_{root}, clock_(clock) {}

  absl::StatusOr<Snapshot> Look() {
    const absl::StatusOr<std::string> text = ReadFile(paths_.Status());
    if (!text.ok()) return text.status();
    const absl::StatusOr<RunState> state = RunStateFromJson(*text);
    if (!state.ok()) return state.status();
    const absl::StatusOr<std::string> address = ReadAddress(paths_.Address(ProcessName(api::Role::kCoordinator, 0)));
    if (address.ok()) {
      absl::StatusOr<v1::ProgressReply> reply = job::AskProgress(*address, state->job_uid, kAskTimeLimit);
      if (reply.ok()) {
        reply_ = *std::move(reply);
        reply_time_ = clock_.Now();
      }
    }
    return MakeSnapshot(state->start_time, clock_.Now(), state->status, state->processes, reply_, reply_time_);
  }

 private:
  const RunPaths paths_;
  const Clock& clock_;
  std::optional<v1::ProgressReply> reply_;
  double reply_time_ = 0;
};

}  // namespace

int TopCommand(const std::string& directory, bool once) {
  absl::StatusOr<SignalWaiter> waiter = SignalWaiter::Create();
  if (!waiter.ok()) return Complain(waiter.status(), kExitFailed);
  absl::StatusOr<std::string> root = directory.empty() ? NewestRunning() : directory;
  if (!root.ok()) return Complain(root.status(), kExitFailed);
  const RunPaths paths{*root};
  const absl::StatusOr<api::ParsedManifest> manifest = api::ReadManifest(paths.Job());
  if (!manifest.ok()) return Complain(manifest.status(), kExitBadInput);
  if (!manifest->errors.empty()) {
    std::cerr << paths.Job() << ": " << manifest->errors.front().ToString() << std::endl;
    return kExitBadInput;
  }

  const SystemClock clock;
  Onlooker onlooker(*root, clock);
  RunHistory history;
  history.curve = ReadMetrics(paths.Metrics()).curve;
  if (once) {
    const absl::StatusOr<Snapshot> snapshot = onlooker.Look();
    if (!snapshot.ok()) return Complain(snapshot.status(), kExitFailed);
    LiveViewContext context;
    context.curve = history.curve;
    context.colour = WantsColour(STDOUT_FILENO);
    const TerminalSize size = ReadTerminalSize(STDOUT_FILENO).value_or(TerminalSize{120, 100});
    std::cout << RenderLiveView(manifest->job, *snapshot, size, context) << std::flush;
    return kExitDone;
  }

  {
    const std::unique_ptr<RunView> view = MakeRunView(std::cout, STDOUT_FILENO, manifest->job);
    while (true) {
      const bool running = RunIsHeld(*root);
      const absl::StatusOr<Snapshot> snapshot = onlooker.Look();
      if (snapshot.ok()) view->Show(*snapshot, history);
      if (!running) break;
      if (waiter->Wait(kRefreshSeconds, -1) > 0) return kExitDone;
      history.curve = ReadMetrics(paths.Metrics()).curve;
    }
  }
  const absl::StatusOr<RunOverview> overview = ReadRunOverview(*root, clock.Now());
  if (!overview.ok()) return Complain(overview.status(), kExitFailed);
  std::cout << overview->name << ": " << overview->phase << std::endl;
  return kExitDone;
}

}  // namespace downpour::cli
