#ifndef DOWNPOUR_TRAINER_SERVICE_PROCESS_H_
#define DOWNPOUR_TRAINER_SERVICE_PROCESS_H_

#include <csignal>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "downpour/v1/config.pb.h"
#include "trainer/core/time.h"

namespace CLI {
class App;
}

// What every process of a job has in common: its command line, its life and its end.
namespace downpour::service {

// Exit codes of every process.
inline constexpr int kExitDone = 0;
inline constexpr int kExitFailure = 1;
inline constexpr int kExitBadInput = 2;

struct ProcessFlags {
  std::string config_path;
  std::uint32_t index = 0;
  std::uint32_t incarnation = 1;
  std::string node;         // where it runs; empty: not known
  std::string coordinator;  // host:port, or @FILE that holds it
  std::string listen = "127.0.0.1:0";
  std::string advertise;       // host:port where others reach what listens; empty: at the address it listens on
  std::string advertise_host;  // the same with the port that it listens on
  std::string ring_listen = "127.0.0.1:0";  // for the other workers of a job without parameter servers
  std::string
      local_data;  // directory where workers and ps of one machine find each other; empty: over the network only
  std::string address_file;
  std::string metrics_listen = "127.0.0.1:0";
  std::string metrics_address_file;
  int parent = 0;  // ends with this process; 0: outlives it
};

// Which of the flags a process has.
struct FlagSet {
  bool index = true;
  bool coordinator = true;
  bool listen = true;
  bool node = false;
  bool ring = false;
  bool local_data = false;
};
void AddFlags(CLI::App& app, const FlagSet& set, ProcessFlags* flags);

// Of a file or, as "env:NAME", of an environment variable. kInvalidArgument or kNotFound name it and the field.
absl::StatusOr<v1::TrainingConfig> ReadConfig(const std::string& source);

// Asks the kernel to kill this process when `parent` ends. kFailedPrecondition: it has ended already.
absl::Status DieWithParent(int parent);

// The host:port behind `text`: itself, or the first line of the file after '@'. kUnavailable: no such file yet.
absl::StatusOr<std::string> ResolveAddress(const std::string& text);

// Replaces `path` by `text` and a newline, whole or not at all. Nothing to do for an empty path.
absl::Status WriteAddressFile(const std::string& path, const std::string& text);

// Random, for sessions: never 0.
std::uint64_t RandomSession();

// Since an arbitrary origin; does not go back.
core::Time MonotonicNow();

// Blocks SIGTERM and SIGINT in this thread and all that it starts later: call it in main before any thread exists, or
// a signal may reach a thread that does not block it and end the process. They wait for a SignalThread. One that was
// ignored when the program began stays ignored.
void BlockSignals();

// Calls `on_signal` from a thread of its own at each SIGTERM and SIGINT. Needs BlockSignals.
class SignalThread {
 public:
  explicit SignalThread(std::function<void()> on_signal);
  ~SignalThread();
  SignalThread(const SignalThread&) = delete;
  SignalThread& operator=(const SignalThread&) = delete;

 private:
  std::function<void()> on_signal_;
  std::thread thread_;
};

// Logs to stderr: time, level, `name`, text. From then on a lack of threads or memory ends the process with one line
// that says so and kExitFailure, whoever meets it: no abort, and gRPC without its threads would only wait.
void StartLogging(const std::string& name);

// Threads that gRPC asks for later and does not get are no reason to end any more: for a process that holds what would
// be lost with it, once it serves.
void GoOnWithoutNewThreads();

// Says on the last line why the process ends, and which exit code that is: kInvalidArgument, kNotFound, kDataLoss and
// kFailedPrecondition are bad input.
int ExitCodeFor(const absl::Status& status);

}  // namespace downpour::service

#endif  // DOWNPOUR_TRAINER_SERVICE_PROCESS_H_
