#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <memory>
#include <random>
#include <stop_token>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/time.h"
#include "cli/clock.h"
#include "cli/commands.h"
#include "cli/drill/drill_loop.h"
#include "cli/drilled_job.h"
#include "cli/drilled_run.h"
#include "cli/grpc_life.h"
#include "cli/render/format.h"
#include "cli/run_overview.h"
#include "cli/wake.h"
#include "operator/kube/wait.h"

namespace downpour::cli {
namespace {

constexpr double kRunLookInterval = 0.1;  // seconds
constexpr double kJobLookInterval = 1;
constexpr double kFirstLookLimit = 3;

absl::Status ReadDuration(const char* option, const std::string& text, double* seconds) {
  absl::Duration duration;
  if (!absl::ParseDuration(text, &duration) || duration <= absl::ZeroDuration() || duration > absl::Hours(24 * 30)) {
    return absl::InvalidArgumentError(
        absl::StrCat(option, ": found \"", text, "\", expected a duration above 0, such as 5s or 1m30s"));
  }
  *seconds = absl::ToDoubleSeconds(duration);
  return absl::OkStatus();
}

absl::StatusOr<DrillOptions> ReadOptions(const DrillCommandOptions& options) {
  absl::StatusOr<std::vector<DrillKind>> kinds = ParseDrillKinds(options.kill);
  if (!kinds.ok()) return kinds.status();
  DrillOptions drill;
  drill.kinds = *std::move(kinds);
  drill.index = options.index;
  drill.pause = options.signal == "STOP";
  for (const auto& [option, text, seconds] :
       {std::tuple("--every", &options.every, &drill.every), std::tuple("--for", &options.duration, &drill.duration),
        std::tuple("--patience", &options.patience, &drill.patience),
        std::tuple("--stop-for", &options.stop_for, &drill.stop_for)}) {
    if (absl::Status status = ReadDuration(option, *text, seconds); !status.ok()) return status;
  }
  const bool node = std::find(drill.kinds.begin(), drill.kinds.end(), DrillKind::kNode) != drill.kinds.end();
  if (node && drill.index.has_value()) return absl::InvalidArgumentError("--index: a node has none");
  if (options.target.cluster.given()) {
    if (drill.pause) return absl::InvalidArgumentError("--signal STOP: only processes of this machine can be stopped");
    return drill;
  }
  if (node) {
    return absl::InvalidArgumentError(
        "--kill node: a run of this machine has no nodes; a job on a cluster is meant if -n, --context or --kubeconfig "
        "is given");
  }
  if (!options.addresses.empty()) return absl::InvalidArgumentError("--ps: a run of this machine says it itself");
  return drill;
}

// Whoever is asked types the name.
absl::Status Confirm(const std::string& name, bool yes) {
  if (yes) return absl::OkStatus();
  if (isatty(STDIN_FILENO) == 0) {
    return absl::InvalidArgumentError(
        "--yes: pods of a job on a cluster are deleted: give it, or answer on a terminal");
  }
  std::cout << "This deletes pods of " << CleanText(name)
            << ", again and again. Type its name to go on: " << std::flush;
  std::string answer;
  std::getline(std::cin, answer);
  absl::StripAsciiWhitespace(&answer);
  return answer == name ? absl::OkStatus() : absl::InvalidArgumentError("another name: nothing is done");
}

// Who is busy, or was replaced just now, may be silent for a moment.
absl::StatusOr<DrillLook> FirstLook(DrillTarget& target, const std::stop_token& stop, const Clock& clock) {
  const double limit = clock.Now() + kFirstLookLimit;
  while (true) {
    absl::StatusOr<DrillLook> look = target.Look();
    if (!look.ok() || look->training || !look->outcome.empty() || clock.Now() >= limit) return look;
    if (!kube::SleepFor(stop, absl::Seconds(kRunLookInterval))) return absl::CancelledError();
  }
}

// kInvalidArgument: the job has no such members.
absl::Status CheckKinds(const std::string& name, const api::TrainingJobSpec& spec, const DrillOptions& drill) {
  const bool ps = std::find(drill.kinds.begin(), drill.kinds.end(), DrillKind::kPs) != drill.kinds.end();
  if (!ps || spec.strategy != api::Strategy::kAllReduce) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("--kill ps: ", name, " has no parameter servers (spec.strategy is AllReduce)"));
}

// Whether there is something to break, by the first look.
absl::Status CheckLook(const std::string& name, const DrillLook& look, const std::string& phase,
                       const DrillOptions& drill) {
  if (!look.outcome.empty()) return absl::FailedPreconditionError(absl::StrCat(name, " is over: ", look.outcome));
  if (!look.training) {
    return absl::FailedPreconditionError(
        absl::StrCat(name, " does not train (", phase.empty() ? "Pending" : phase, "): see downpour why"));
  }
  if (!drill.index.has_value()) return absl::OkStatus();
  const bool any = std::any_of(look.members.begin(), look.members.end(), [&](const DrillMember& member) {
    return member.index == *drill.index &&
           std::any_of(drill.kinds.begin(), drill.kinds.end(), [&](DrillKind kind) { return IsOfKind(member, kind); });
  });
  return any ? absl::OkStatus()
             : absl::NotFoundError(absl::StrCat("--index ", *drill.index, ": ", name, " has no such member"));
}

int ExitCode(DrillVerdict verdict) {
  switch (verdict) {
    case DrillVerdict::kDone:
      return kExitDone;
    case DrillVerdict::kUnaudited:
      return kExitUnaudited;
    case DrillVerdict::kStopped:
      return kExitStopped;
    case DrillVerdict::kFailed:
      break;
  }
  return kExitFailed;
}

int Run(const std::string& name, const DrillCommandOptions& options, const DrillOptions& drill, double look_interval,
        const std::stop_token& stop, const Clock& clock, DrillTarget& target) {
  const std::uint64_t seed = options.seed.has_value() ? *options.seed : std::random_device()();
  const std::string kinds = absl::StrJoin(
      drill.kinds, ",", [](std::string* out, DrillKind kind) { absl::StrAppend(out, DrillKindName(kind)); });
  std::cout << "drill: " << CleanText(name) << ", " << (drill.pause ? "stops " : "kills ") << kinds << " every "
            << FormatDuration(drill.every) << " for " << FormatDuration(drill.duration) << ", seed " << seed
            << std::endl;
  const DrillParts parts{target, clock,
                         [&stop](double seconds) { return kube::SleepFor(stop, absl::Seconds(seconds)); }, std::cout,
                         look_interval};
  return ExitCode(RunDrill(drill, seed, parts));
}

int DrillRun(const DrillCommandOptions& options, const DrillOptions& drill, const std::stop_token& stop) {
  const absl::StatusOr<std::string> root = ChooseRun(options.target.name, /*running=*/true);
  if (!root.ok()) return Complain(root.status());
  const absl::StatusOr<api::TrainingJob> job = ReadRunJob(*root);
  if (!job.ok()) return Complain(job.status());
  if (const absl::Status status = CheckKinds(job->metadata.name, job->spec, drill); !status.ok()) {
    return Complain(status);
  }
  if (const absl::Status status = StartGrpc(); !status.ok()) return Complain(status);
  const SystemClock clock;
  DrilledRun target(*root, drill.pause, clock);
  const absl::StatusOr<DrillLook> look = FirstLook(target, stop, clock);
  if (stop.stop_requested()) return kExitStopped;
  if (!look.ok()) return Complain(look.status());
  const absl::StatusOr<RunOverview> overview = ReadRunOverview(*root, clock.Now());
  if (!overview.ok()) return Complain(overview.status());
  if (const absl::Status status = CheckLook(overview->name, *look, overview->phase, drill); !status.ok()) {
    return Complain(status);
  }
  return Run(overview->name, options, drill, kRunLookInterval, stop, clock, target);
}

int DrillJob(const DrillCommandOptions& options, const DrillOptions& drill, const std::stop_token& stop) {
  const std::string& name = options.target.name;
  const absl::StatusOr<std::unique_ptr<Cluster>> cluster = OpenForJob(options.target);
  if (!cluster.ok()) return Complain(cluster.status());
  const std::stop_callback cancel(stop, [&cluster] { (*cluster)->Stop(); });
  const absl::StatusOr<controller::JobRecord> record = (*cluster)->GetJob(name);
  if (stop.stop_requested()) return kExitStopped;
  if (!record.ok()) return Complain(record.status());
  if (!record->managed_here) {
    const std::string manager = record->errors.empty() ? record->job.spec.managed_by : "another controller";
    return Complain(absl::FailedPreconditionError(
        absl::StrCat(name, " is managed by ", manager, " (spec.managedBy), which may not replace what is killed")));
  }
  if (const absl::Status status = CheckKinds(name, record->job.spec, drill); !status.ok()) return Complain(status);
  if (const absl::Status status = StartGrpc(); !status.ok()) return Complain(status);
  const SystemClock clock;
  DrilledJob target(**cluster, name, options.addresses, clock);
  const absl::StatusOr<DrillLook> look = FirstLook(target, stop, clock);
  if (stop.stop_requested()) return kExitStopped;
  if (!look.ok()) return Complain(look.status());
  if (const absl::Status status = CheckLook(name, *look, record->job.status.phase, drill); !status.ok()) {
    return Complain(status);
  }
  return Run(name, options, drill, kJobLookInterval, stop, clock, target);
}

}  // namespace

int DrillCommand(const DrillCommandOptions& options) {
  const absl::StatusOr<DrillOptions> drill = ReadOptions(options);
  if (!drill.ok()) return Complain(drill.status());
  const bool cluster = options.target.cluster.given();
  if (cluster && options.target.name.empty()) return Complain(OpenForJob(options.target).status());
  if (cluster) {
    // Before signals are taken over: here they end the program as any.
    if (const absl::Status status = Confirm(options.target.name, options.yes); !status.ok()) return Complain(status);
  }
  const absl::StatusOr<std::unique_ptr<SignalStop>> signals = SignalStop::Create();
  if (!signals.ok()) return Complain(signals.status());
  return cluster ? DrillJob(options, *drill, (*signals)->token()) : DrillRun(options, *drill, (*signals)->token());
}

}  // namespace downpour::cli
