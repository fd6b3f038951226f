#ifndef DOWNPOUR_CLI_COMMANDS_H_
#define DOWNPOUR_CLI_COMMANDS_H_

#include <string>
#include <utility>
#include <vector>

// The commands of `downpour`. Each returns the exit code of the program: 0 done, 1 failed, 2 bad input, 130 stopped by
// the user. With `json` standard output carries one JSON document and nothing else.
namespace downpour::cli {

inline constexpr int kExitDone = 0;
inline constexpr int kExitFailed = 1;
inline constexpr int kExitBadInput = 2;
inline constexpr int kExitStopped = 130;

using Overrides = std::vector<std::pair<std::string, std::string>>;  // path, value

struct RunOptions {
  std::string file;
  Overrides overrides;
  bool json = false;
  std::string run_directory;  // empty: the next one under ./downpour-runs
};

// Call it on the main thread, before any other thread is started.
int RunCommand(const RunOptions& options);

int ValidateCommand(const std::string& file, const Overrides& overrides, bool json);

struct LedgerOptions {
  std::string file;
  Overrides overrides;
  std::string job_uid;
  std::vector<std::string> addresses;  // "host:port" of every ps
  bool json = false;
};

// Reads the tables of update ids out of the parameter servers of a job, wherever it runs, and audits them. 1: some
// update is missing (so far, if the job still trains) or was applied twice.
int LedgerCommand(const LedgerOptions& options);

// `directory`: a folder of runs or one run; empty: ./downpour-runs.
int GetCommand(const std::string& directory, bool json);

// `directory`: a run; empty: the newest that is running under ./downpour-runs.
int TopCommand(const std::string& directory, bool once);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_COMMANDS_H_
