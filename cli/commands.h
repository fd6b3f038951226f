#ifndef DOWNPOUR_CLI_COMMANDS_H_
#define DOWNPOUR_CLI_COMMANDS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "cli/cluster.h"
#include "operator/api/training_job.h"

// The commands of `downpour`. Each returns the exit code of the program: 0 done, 1 failed, 2 bad input, 3 done but
// not audited, 130 stopped by the user. With `json` standard output carries one JSON document and nothing else.
namespace downpour::cli {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitBadInput = 2;
inline constexpr int kExitUnaudited = 3;
inline constexpr int kExitStopped = 130;

using Overrides = std::vector<std::pair<std::string, std::string>>;  // path, value

struct RunOptions {
  std::string file;
  Overrides overrides;
  bool json = false;
  std::string run_directory;  // empty: the next one under ./downpour-runs
  double audit_seconds = 30;  // for parameter servers that do not say what they applied
  bool shared_memory = true;  // between workers and parameter servers
};

// What a command is about: if the options of a cluster were given, a job on it by its name; otherwise a run of this
// machine, by its folder or its name in ./downpour-runs.
struct Target {
  std::string name;  // empty: see the command
  ClusterOptions cluster;
};

struct LogChoice {
  std::optional<api::Role> role;  // absent: all
  std::optional<int> index;       // with a role; absent: all
  std::optional<int> tail;        // the newest lines of each; absent: all of one member, the newest 10 of several
  bool follow = false;

  bool one_member() const { return role.has_value() && index.has_value(); }
  std::optional<int> TailOfEach() const { return tail.has_value() || one_member() ? tail : 10; }
};

// Call all of them on the main thread, before any other thread is started.
int RunCommand(const RunOptions& options);

int ValidateCommand(const std::string& file, const Overrides& overrides, bool json);

struct LedgerOptions {
  std::string file;
  Overrides overrides;
  std::string job_uid;
  std::vector<std::string> addresses;  // "host:port" of every ps, or worker of a job without
  bool json = false;
};

// Reads the tables of update ids out of the parameter servers of a job, wherever it runs, and audits them. 1: some
// update is missing (so far, if the job still trains) or was applied twice. 3: they could not be read.
int LedgerCommand(const LedgerOptions& options);

struct CompareOptions {
  std::vector<std::string> runs;     // folders, or names in ./downpour-runs
  std::vector<std::string> targets;  // "accuracy=0.85"
  std::string output;                // the page; empty: compare.html, and with `json` none
  bool json = false;
  bool curves = false;  // with `json`: the points of the page's plots as well
};

// Makes a page of runs, finished or not, and prints their figures. Reads files alone.
int CompareCommand(const CompareOptions& options);

// Without a name: all jobs of the namespace, or the runs in ./downpour-runs. A name may be a folder of runs.
int GetCommand(const Target& target, bool json);

// Without a name: the newest run that is running.
int TopCommand(const Target& target, bool once);

// Changes how many parameter servers and workers a job on a cluster is to have; absent: that stays.
int ScaleCommand(const Target& target, std::optional<int> ps, std::optional<int> workers);

// Without a name: the newest run that is running, or the newest.
int WhyCommand(const Target& target);
int LogsCommand(const Target& target, const LogChoice& choice);

struct DrillCommandOptions {
  Target target;
  std::string kill;  // "worker,coordinator"
  std::optional<int> index;
  std::string every = "5s";
  std::string duration = "60s";
  std::string patience = "60s";
  std::string signal = "KILL";  // or STOP
  std::string stop_for = "10s";
  std::optional<std::uint64_t> seed;
  bool yes = false;                    // a job on a cluster may be broken
  std::vector<std::string> addresses;  // "host:port" of every ps of a job on a cluster; none: those of its pods
};

// Breaks a job that trains, again and again, and reports how it recovered. Without a name: the newest run that is
// running. 1: it did not recover in time, failed, or an update was applied twice. 3: the ledger could not be read.
int DrillCommand(const DrillCommandOptions& options);

// Checkpoints by URI, as a manifest has it: a folder of them, or one of them in it.
int ListCheckpointsCommand(const std::string& uri, bool json);
// Reads all of them. 1: one is not whole, or there is none.
int VerifyCheckpointsCommand(const std::vector<std::string>& uris);
// Each names one checkpoint. Nothing is removed unless all of them are there.
int RemoveCheckpointsCommand(const std::vector<std::string>& uris);
// Of a folder: the newest.
int ExportCheckpointCommand(const std::string& uri, const std::string& path);

// For the commands: prints one line on standard error. Answers the exit code that the error means: bad input for what
// the user named, else failed.
int Complain(const absl::Status& status);

// For the commands: the run that the target means, which is none on a cluster. Without a name the newest that is
// running or, unless `running`, the newest of all.
absl::StatusOr<std::string> ChooseRun(const std::string& name, bool running);

// For the commands: the cluster, if a job is named.
absl::StatusOr<std::unique_ptr<Cluster>> OpenForJob(const Target& target);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_COMMANDS_H_
