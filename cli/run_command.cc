#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/audit.h"
#include "cli/commands.h"
#include "cli/coordinator_link.h"
#include "cli/files.h"
#include "cli/grpc_life.h"
#include "cli/history_recorder.h"
#include "cli/launch.h"
#include "cli/manifest_input.h"
#include "cli/model_check.h"
#include "cli/process_backend.h"
#include "cli/render/format.h"
#include "cli/render/report.h"
#include "cli/render/summary_text.h"
#include "cli/run_folder.h"
#include "cli/run_loop.h"
#include "cli/run_scale.h"
#include "cli/run_view.h"
#include "cli/wake.h"
#include "operator/job/coordinator_client.h"

namespace downpour::cli {
namespace {

namespace fs = std::filesystem;

constexpr absl::Duration kFinishTimeLimit = absl::Seconds(2);

// What a user can put right in the command line or the manifest is bad input.
int ExitCode(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kPermissionDenied:
      return kExitBadInput;
    default:
      return kExitFailed;
  }
}

int Complain(const std::string& message, int exit_code) {
  std::cerr << "downpour: " << CleanLines(message) << std::endl;
  return exit_code;
}

// A run that passed every check and holds its folder; nothing is started yet.
struct PreparedRun {
  api::TrainingJob job;
  std::string job_uid;
  RunFolder folder;
  std::string binary_directory;
  LineFile metrics;
  FileDescriptor output_lock;  // of the folder for the model, unless it is that of the run
};

constexpr char kModelFile[] = "model.safetensors";
constexpr char kTrialLog[] = "check";

absl::Status CheckJob(const api::TrainingJob& job) {
  if (job.spec.suspend) {
    return absl::InvalidArgumentError("spec.suspend: a run on this machine cannot begin suspended");
  }
  if (absl::Status status = CheckDataset(job); !status.ok()) return status;
  const std::string& output = job.spec.output.directory;
  if (output.empty()) return absl::OkStatus();
  absl::Status status = CheckUtf8Path(fs::absolute(output).string());
  if (status.ok()) status = MakeDirectories(output);
  if (status.ok()) status = CheckWritable(output);
  if (!status.ok()) return absl::InvalidArgumentError(absl::StrCat("spec.output.directory: ", status.message()));
  return absl::OkStatus();
}

// One run at a time may write its model into a folder: kAlreadyExists if another one holds it. Where the file system
// has no locks, none is held.
absl::StatusOr<FileDescriptor> LockOutput(const std::string& output, const RunPaths& paths) {
  std::error_code error;
  if (output.empty() || fs::equivalent(output, paths.root, error)) return FileDescriptor();
  FileDescriptor lock(open(output.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!lock.valid()) return SystemError(errno, output, "cannot be opened");
  if (flock(lock.get(), LOCK_EX | LOCK_NB) == 0) return lock;
  if (errno != EWOULDBLOCK) return FileDescriptor();
  return absl::AlreadyExistsError(
      absl::StrCat("spec.output.directory: ", output, ": another run that is under way writes its model there"));
}

// Writes what the processes and the other commands read.
absl::Status WriteJob(const RunPaths& paths, const api::TrainingJob& job, const std::string& job_uid) {
  const std::string& output = job.spec.output.directory;
  const absl::StatusOr<std::string> config = MakeConfig(job, job_uid, output.empty() ? paths.root : output);
  if (!config.ok()) return config.status();
  if (absl::Status status = WriteFileDurably(paths.Config(), *config); !status.ok()) return status;
  return WriteFileDurably(paths.Job(), api::ToJson(job));
}

// Returns the file for the metrics.
absl::StatusOr<LineFile> FillFolder(const RunPaths& paths, const api::TrainingJob& job, const std::string& job_uid) {
  if (absl::Status status = CheckFreeSpace(paths.root, kRunFolderBytes); !status.ok()) return status;
  if (absl::Status status = WriteJob(paths, job, job_uid); !status.ok()) return status;
  return LineFile::Create(paths.Metrics());
}

absl::StatusOr<PreparedRun> Prepare(api::TrainingJob job, const RunOptions& options) {
  const std::string job_uid = MakeJobUid();
  job.metadata.uid = job_uid;
  absl::StatusOr<RunFolder> folder = RunFolder::Create(options.run_directory, kRunsDirectory, job.metadata.name);
  if (!folder.ok()) return folder.status();
  absl::StatusOr<FileDescriptor> lock = LockOutput(job.spec.output.directory, folder->paths());
  absl::StatusOr<LineFile> metrics =
      lock.ok() ? FillFolder(folder->paths(), job, job_uid) : absl::StatusOr<LineFile>(lock.status());
  if (!metrics.ok()) {
    folder->Discard();
    return metrics.status();
  }
  return PreparedRun{std::move(job),      job_uid,         *std::move(folder), BinaryDirectory(),
                     *std::move(metrics), *std::move(lock)};
}

// The job as `downpour scale` wants it, which those started from now on and the other commands read.
absl::StatusOr<std::optional<api::TrainingJob>> TakeChange(PreparedRun& run, const api::TrainingJob& job) {
  const absl::StatusOr<std::optional<ScaleWish>> wish = TakeScaleWish(run.folder.paths());
  if (!wish.ok()) return wish.status();
  if (!wish->has_value()) return std::optional<api::TrainingJob>();
  absl::StatusOr<api::TrainingJob> scaled = ScaledJob(job, **wish);
  if (!scaled.ok()) return scaled.status();
  if (absl::Status status = WriteJob(run.folder.paths(), *scaled, run.job_uid); !status.ok()) return status;
  run.job = *scaled;
  return std::optional<api::TrainingJob>(*std::move(scaled));
}

// Whoever does not hear it is told again by the next pass.
void FinishProcesses(const PreparedRun& run, const std::vector<Process>& running) {
  for (const Process& process : running) {
    if (process.role == api::Role::kWorker) continue;  // the coordinator tells them
    const absl::StatusOr<std::string> address = ReadAddress(run.folder.paths().Address(process.name));
    if (!address.ok()) continue;
    const bool coordinator = process.role == api::Role::kCoordinator;
    const absl::Status status = coordinator ? job::FinishCoordinator(*address, run.job_uid, kFinishTimeLimit)
                                            : job::FinishParameterServer(*address, run.job_uid, kFinishTimeLimit);
    static_cast<void>(status);
  }
}

// report.html, and summary.json last: where it is, the run is over.
absl::Status WriteResults(const RunPaths& paths, const RunHistory& history) {
  if (absl::Status status = WriteFileDurably(paths.Report(), RenderReport(history)); !status.ok()) return status;
  return WriteFileDurably(paths.Summary(), SummaryToJson(history.summary));
}

int Run(PreparedRun& run, const RunOptions& options, const Clock& clock, double start_time, SignalWaiter& waiter) {
  const RunPaths& paths = run.folder.paths();
  absl::StatusOr<std::unique_ptr<CoordinatorLink>> coordinator =
      MakeCoordinatorLink(paths.Address(ProcessName(api::Role::kCoordinator, 0)));
  if (!coordinator.ok()) {
    run.folder.Discard();
    return Complain(std::string(coordinator.status().message()), kExitFailed);
  }
  std::ostream& people = options.json ? std::cerr : std::cout;
  const int descriptor = options.json ? STDERR_FILENO : STDOUT_FILENO;
  people << "downpour: " << run.job.metadata.name << " runs in " << CleanLines(paths.root) << std::endl;

  HistoryRecorder recorder(run.job, run.job_uid, paths.root, start_time);
  RunOutcome outcome;
  api::TrainingJobStatus last_status;
  {
    LocalProcesses processes(clock);
    const LastAct kill_all([groups = processes.groups()] { groups->KillAll(); });
    const std::unique_ptr<RunView> view = MakeRunView(people, descriptor, run.job);
    const RunParts parts{
        clock,
        processes,
        **coordinator,
        waiter,
        *view,
        recorder,
        [&](api::Role role, int index, int incarnation) {
          return MakeProcessSpec(paths, run.binary_directory, getpid(), run.job.spec.strategy, options.shared_memory,
                                 role, index, incarnation);
        },
        [&](const RunState& state) {
          last_status = state.status;
          return WriteFileDurably(paths.Status(), RunStateToJson(state));
        },
        [&](const std::string& line) { return run.metrics.Append(line); },
        [&] { return AuditRun(paths, run.job.spec, run.job_uid, last_status, processes.List(), AuditMoment::kOver); },
        [&](const api::TrainingJob& job) { return TakeChange(run, job); },
        [&](const std::vector<Process>& running) { FinishProcesses(run, running); },
        options.audit_seconds};
    outcome = RunJob(run.job, run.job_uid, start_time, parts);
  }
  if (outcome.phase == kSucceeded && outcome.ledger.has_value() && !LedgerExact(*outcome.ledger)) {
    outcome.phase = kFailed;
    outcome.message = absl::StrCat("the ledger is not exact: ", LedgerVerdict(*outcome.ledger));
  }
  recorder.Finish(clock.Now(), outcome.phase, outcome.message, last_status.restarts_total, outcome.ledger);

  const RunSummary& summary = recorder.history().summary;
  const absl::Status written = WriteResults(paths, recorder.history());
  // The first error is the cause; where the disk is full, the second only repeats it.
  if (!written.ok() && outcome.phase != kFailed) return Complain(std::string(written.message()), kExitFailed);
  if (options.json) {
    std::cout << SummaryToJson(summary) << std::flush;
  } else {
    std::cout << RenderSummaryText(summary, WantsColour(STDOUT_FILENO)) << std::flush;
  }
  if (outcome.phase == kFailed) return Complain(outcome.message, outcome.bad_input ? kExitBadInput : kExitFailed);
  if (!std::cout) return Complain("standard output: cannot be written", kExitFailed);
  if (outcome.phase == kStopped) return kExitStopped;
  return outcome.ledger.has_value() ? kExitDone : kExitUnaudited;
}

}  // namespace

int RunCommand(const RunOptions& options) {
  const SystemClock clock;
  const double start_time = clock.Now();
  absl::StatusOr<SignalWaiter> waiter = SignalWaiter::Create();
  if (!waiter.ok()) return Complain(std::string(waiter.status().message()), kExitFailed);
  if (const absl::Status status = StartGrpc(); !status.ok()) {
    return Complain(std::string(status.message()), kExitFailed);
  }

  api::ParsedManifest manifest = LoadManifest(options.file, options.overrides);
  for (const api::FieldError& error : manifest.errors) std::cerr << options.file << ": " << error.ToString() << '\n';
  if (!manifest.errors.empty()) return kExitBadInput;
  manifest.job.metadata.name = api::MakeName(manifest.job.metadata);
  if (const absl::Status status = CheckJob(manifest.job); !status.ok()) {
    std::cerr << options.file << ": " << std::string(status.message())
              << (manifest.has_relative_path ? " (a relative path is taken from the folder of the manifest)" : "")
              << std::endl;
    return ExitCode(status);
  }
  const std::vector<api::FieldError> unfit = PlanErrors(manifest.job);
  for (const api::FieldError& error : unfit) std::cerr << options.file << ": " << error.ToString() << '\n';
  if (!unfit.empty()) return kExitBadInput;
  for (const api::FieldError& warning : FindWarnings(manifest.job.spec)) {
    std::cerr << options.file << ": warning: " << warning.ToString() << std::endl;
  }
  const std::string model = absl::StrCat(manifest.job.spec.output.directory, "/", kModelFile);
  if (!manifest.job.spec.output.directory.empty() && access(model.c_str(), F_OK) == 0) {
    std::cerr << options.file << ": warning: spec.output.directory: " << CleanLines(model)
              << " is of an earlier run; this one replaces it when it has trained its own" << std::endl;
  }
  if (const absl::Status status = CheckBinaries(BinaryDirectory()); !status.ok()) {
    return Complain(std::string(status.message()), kExitFailed);
  }
  absl::StatusOr<PreparedRun> run = Prepare(std::move(manifest.job), options);
  if (!run.ok()) return Complain(std::string(run.status().message()), ExitCode(run.status()));
  if (NeedsTrial(run->job.spec.model)) {
    const RunPaths& paths = run->folder.paths();
    const absl::Status tried = TryModel(run->binary_directory, paths.Config(), paths.Log(kTrialLog),
                                        BytesToIndex(run->job.spec.dataset), clock, *waiter);
    if (!tried.ok()) {
      run->folder.Discard();
      if (absl::IsCancelled(tried)) return kExitStopped;
      std::cerr << options.file << ": " << CleanLines(std::string(tried.message())) << std::endl;
      return ExitCode(tried);
    }
  }
  return Run(*run, options, clock, start_time, *waiter);
}

}  // namespace downpour::cli
