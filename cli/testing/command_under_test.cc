#include "cli/testing/command_under_test.h"

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <thread>

#include "gtest/gtest.h"

namespace downpour::cli::testing {
namespace {

namespace fs = std::filesystem;

std::string Require(const char* name) {
  const char* value = getenv(name);
  EXPECT_NE(value, nullptr) << name << " is not set: run this through ctest";
  return value == nullptr ? "" : value;
}

std::string NextFile(const std::string& directory, const std::string& what) {
  static int count = 0;
  return directory + "/" + what + "-" + std::to_string(++count);
}

}  // namespace

ScratchFolder::ScratchFolder() {
  std::string pattern = (fs::temp_directory_path() / "downpour-test-XXXXXX").string();
  EXPECT_NE(mkdtemp(pattern.data()), nullptr);
  path_ = fs::canonical(pattern).string();
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

bool Eventually(const std::function<bool()>& condition, std::chrono::seconds limit) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() >= end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  return true;
}

bool IsAlive(pid_t pid) {
  const std::string stat = ReadText("/proc/" + std::to_string(pid) + "/stat");
  const std::size_t name_end = stat.rfind(") ");
  return name_end != std::string::npos && stat[name_end + 2] != 'Z';
}

std::string ReadText(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

void WriteText(const std::string& path, const std::string& content) {
  std::ofstream file(path, std::ios::binary);
  file << content;
  EXPECT_TRUE(file.flush()) << path;
}

void MakeDataset(const std::string& directory, std::uint32_t samples) {
  fs::create_directories(directory);
  const auto number = [](std::uint32_t value) {
    return std::string{static_cast<char>(value >> 24), static_cast<char>(value >> 16), static_cast<char>(value >> 8),
                       static_cast<char>(value)};
  };
  for (const char* part : {"train", "t10k"}) {
    WriteText(directory + "/" + part + "-images-idx3-ubyte", number(2051) + number(samples) + number(28) + number(28));
    WriteText(directory + "/" + part + "-labels-idx1-ubyte",
              number(2049) + number(samples) + std::string(samples, '\0'));
  }
}

std::string Manifest(const std::string& dataset) {
  return "apiVersion: training.downpour.dev/v1alpha1\n"
         "kind: TrainingJob\n"
         "metadata: {name: demo}\n"
         "spec:\n"
         "  parameterServer: {replicas: 1}\n"
         "  worker: {replicas: 2}\n"
         "  model: {name: MLP}\n"
         "  dataset: {format: IDX, path: " +
         dataset +
         "}\n"
         "  training: {epochs: 2, batchSize: 10}\n";
}

std::string RingManifest(const std::string& dataset) {
  std::string manifest = Manifest(dataset);
  const std::string servers = "parameterServer: {replicas: 1}";
  return manifest.replace(manifest.find(servers), servers.size(), "strategy: AllReduce");
}

Command::Command(const CommandOptions& options)
    : output_file_(NextFile(options.directory, "output")), error_file_(NextFile(options.directory, "errors")) {
  const std::string program = Require("DOWNPOUR_COMMAND");
  const std::string fake_role = Require("DOWNPOUR_FAKE_ROLE");
  const std::string binaries = options.directory + "/bin";
  fs::create_directories(binaries);
  for (const char* name : {"downpour-server", "downpour-worker"}) {
    std::error_code exists_already;
    fs::create_symlink(fake_role, binaries + "/" + name, exists_already);
  }

  std::vector<std::string> arguments = {program};
  arguments.insert(arguments.end(), options.arguments.begin(), options.arguments.end());
  std::vector<char*> argument_values;
  for (std::string& argument : arguments) argument_values.push_back(argument.data());
  argument_values.push_back(nullptr);
  std::vector<std::string> environment = {"DOWNPOUR_BINARY_DIR=" + binaries};
  // Who looks for leaks wants a thread.
  if (options.process_limit.has_value()) environment.emplace_back("ASAN_OPTIONS=detect_leaks=0");
  for (const auto& [name, value] : options.environment) environment.push_back(name + "=" + value);
  for (char** entry = environ; *entry != nullptr; ++entry) environment.emplace_back(*entry);
  std::vector<char*> environment_values;
  for (std::string& entry : environment) environment_values.push_back(entry.data());
  environment_values.push_back(nullptr);

  if (options.unread_output_bytes.has_value()) {
    EXPECT_EQ(pipe2(output_pipe_, O_CLOEXEC), 0);
    const int size = fcntl(output_pipe_[0], F_SETPIPE_SZ, 4096);
    const std::string filling(static_cast<std::size_t>(size) - *options.unread_output_bytes, '.');
    EXPECT_EQ(write(output_pipe_[1], filling.data(), filling.size()), static_cast<ssize_t>(filling.size()));
  }
  const bool limited = options.file_size_limit.has_value();
  int error_pipe[2] = {-1, -1};
  if (limited) {
    EXPECT_EQ(pipe2(error_pipe, O_CLOEXEC | O_NONBLOCK), 0);
  }
  pid_ = fork();
  if (pid_ != 0) {
    if (limited) close(error_pipe[1]);
    error_pipe_ = error_pipe[0];
    return;
  }
  const int null = open("/dev/null", O_RDWR);
  const int output = limited ? null : open(output_file_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  const int errors = limited ? error_pipe[1] : open(error_file_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
  bool ready =
      dup2(null, 0) >= 0 && dup2(output, 1) >= 0 && dup2(errors, 2) >= 0 && chdir(options.directory.c_str()) == 0;
  if (ready && limited) {
    const rlimit limit{*options.file_size_limit, *options.file_size_limit};
    ready = setrlimit(RLIMIT_FSIZE, &limit) == 0;
  }
  if (ready && options.process_limit.has_value()) {
    const rlimit limit{*options.process_limit, *options.process_limit};
    const uid_t user = 61000 + static_cast<uid_t>(getppid() % 4000);
    ready =
        setrlimit(RLIMIT_NPROC, &limit) == 0 && setresgid(user, user, user) == 0 && setresuid(user, user, user) == 0;
  }
  if (ready && output_pipe_[1] >= 0) ready = dup2(output_pipe_[1], 1) >= 0;
  for (const int ignored : options.ignored_signals) signal(ignored, SIG_IGN);
  if (ready) execve(program.c_str(), argument_values.data(), environment_values.data());
  _exit(127);
}

Command::~Command() {
  for (const int pipe_end : {error_pipe_, output_pipe_[0], output_pipe_[1]}) {
    if (pipe_end >= 0) close(pipe_end);
  }
  if (exit_code_.has_value() || pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void Command::Signal(int signal) const { EXPECT_EQ(kill(pid_, signal), 0); }

int Command::Wait() {
  if (exit_code_.has_value()) return *exit_code_;
  int status = 0;
  if (!Eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
  exit_code_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return *exit_code_;
}

std::string Command::Output() const { return ReadText(output_file_); }
std::string Command::Errors() const {
  if (error_pipe_ < 0) return ReadText(error_file_);
  char buffer[4096];
  for (ssize_t count = 0; (count = read(error_pipe_, buffer, sizeof buffer)) > 0;) {
    piped_errors_.append(buffer, static_cast<std::size_t>(count));
  }
  return piped_errors_;
}

}  // namespace downpour::cli::testing
