#ifndef DOWNPOUR_CLI_TESTING_COMMAND_UNDER_TEST_H_
#define DOWNPOUR_CLI_TESTING_COMMAND_UNDER_TEST_H_

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

// Runs the `downpour` command with fake roles, in a scratch folder of the test.
namespace downpour::cli::testing {

// A folder that goes at the end of the test.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Looks until the condition holds; false when it still does not after the time limit.
bool Eventually(const std::function<bool()>& condition, std::chrono::seconds limit = std::chrono::seconds(60));

// True while the process exists and has not ended (a zombie has).
bool IsAlive(pid_t pid);

std::string ReadText(const std::string& path);  // "" where there is no such file
void WriteText(const std::string& path, const std::string& content);

// A data set of `samples` training images without pixels, enough for what the command looks at.
void MakeDataset(const std::string& directory, std::uint32_t samples);

// A TrainingJob with two workers and one ps on that data set.
std::string Manifest(const std::string& dataset);
// The same without the ps.
std::string RingManifest(const std::string& dataset);

struct CommandOptions {
  std::vector<std::string> arguments;
  std::map<std::string, std::string> environment;  // beside that of the test
  std::string directory;                           // to run in
  // RLIMIT_FSIZE of it and of what it starts. Its errors go through a pipe then, its output nowhere.
  std::optional<std::uint64_t> file_size_limit;
  // It runs as a user of its own, who may have so many processes and threads; needs root.
  std::optional<std::uint64_t> process_limit = {};
  std::vector<int> ignored_signals = {};
  // Its output goes into a pipe that nobody reads and that has room for so many bytes.
  std::optional<std::size_t> unread_output_bytes = {};
};

// The command as a process; killed at the end of the scope if it still runs.
class Command {
 public:
  explicit Command(const CommandOptions& options);
  ~Command();
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  pid_t pid() const { return pid_; }
  void Signal(int signal) const;
  // The exit code, 128 + signal where a signal ended it, or -1 when it still runs after a minute.
  int Wait();
  std::string Output() const;  // so far
  std::string Errors() const;

 private:
  const std::string output_file_;
  const std::string error_file_;
  mutable int error_pipe_ = -1;
  int output_pipe_[2] = {-1, -1};
  mutable std::string piped_errors_;
  pid_t pid_ = -1;
  std::optional<int> exit_code_;
};

}  // namespace downpour::cli::testing

#endif  // DOWNPOUR_CLI_TESTING_COMMAND_UNDER_TEST_H_
