#include "operator/kube/exec_plugin.h"

#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "operator/kube/json_text.h"
#include "operator/kube/wait.h"

namespace downpour::kube {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;
constexpr absl::Duration kLook = absl::Milliseconds(5);  // at whether a process that closed its output has ended

template <typename... Parts>
absl::Status Failed(const ExecPlugin& plugin, const Parts&... parts) {
  return absl::UnauthenticatedError(absl::StrCat(plugin.where, ": ", plugin.command, " ", parts...));
}

class Descriptor {
 public:
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  ~Descriptor() { Close(); }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return descriptor_; }
  void Close() {
    if (descriptor_ >= 0) close(descriptor_);
    descriptor_ = -1;
  }

 private:
  int descriptor_;
};

// A child process; one that is left is killed.
class Child {
 public:
  ~Child() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    while (waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  Child() = default;
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  // The number of the error, or 0. In this process's group: who interrupts one interrupts the other.
  int Start(const std::string& command, std::vector<std::string> arguments, std::vector<std::string> environment,
            bool terminal, int output) {
    posix_spawnattr_t attributes;
    posix_spawnattr_init(&attributes);
    // This process may block or ignore signals; a child starts with neither, but for those that this one was told to
    // ignore when it began.
    sigset_t none;
    sigemptyset(&none);
    posix_spawnattr_setsigmask(&attributes, &none);
    sigset_t defaults;
    sigemptyset(&defaults);
    for (const int signal : {SIGPIPE, SIGXFSZ, SIGCHLD}) sigaddset(&defaults, signal);
    posix_spawnattr_setsigdefault(&attributes, &defaults);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    if (!terminal) posix_spawn_file_actions_addopen(&actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&actions, output, STDOUT_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&actions, STDERR_FILENO + 1);  // connections of the HTTP library's
    arguments.insert(arguments.begin(), command);
    const int error = posix_spawnp(&pid_, command.c_str(), &actions, &attributes, Pointers(arguments).data(),
                                   Pointers(environment).data());
    posix_spawn_file_actions_destroy(&actions);
    posix_spawnattr_destroy(&attributes);
    if (error != 0) pid_ = 0;
    return error;
  }

  // How it ended, as waitpid says; nothing: not before `deadline`, of the monotonic clock.
  std::optional<int> Wait(absl::Duration deadline) {
    for (;;) {
      int status = 0;
      const pid_t ended = waitpid(pid_, &status, WNOHANG);
      if (ended == pid_) {
        pid_ = 0;
        return status;
      }
      if ((ended < 0 && errno != EINTR) || MonotonicNow() >= deadline) return std::nullopt;
      SleepFor({}, kLook);
    }
  }

 private:
  static std::vector<char*> Pointers(std::vector<std::string>& texts) {
    std::vector<char*> pointers;
    pointers.reserve(texts.size() + 1);
    for (std::string& text : texts) pointers.push_back(text.data());
    pointers.push_back(nullptr);
    return pointers;
  }

  pid_t pid_ = 0;
};

std::vector<std::string> Environment(const ExecPlugin& plugin, const std::string& info) {
  std::map<std::string, std::string> variables = plugin.environment;
  variables["KUBERNETES_EXEC_INFO"] = info;
  std::vector<std::string> all;
  all.reserve(variables.size());
  for (const auto& [name, value] : variables) all.push_back(absl::StrCat(name, "=", value));
  return all;
}

// Everything until the other side closes it.
absl::StatusOr<std::string> ReadAll(const ExecPlugin& plugin, int descriptor, absl::Duration deadline) {
  std::string text;
  for (;;) {
    const absl::Duration left = deadline - MonotonicNow();
    if (left <= absl::ZeroDuration()) return Failed(plugin, "took too long");
    pollfd poll_entry{descriptor, POLLIN, 0};
    const int ready = poll(&poll_entry, 1, static_cast<int>(absl::ToInt64Milliseconds(left)) + 1);
    if (ready < 0 && errno != EINTR) return Failed(plugin, "cannot be heard: ", std::strerror(errno));
    if (ready <= 0) continue;
    char bytes[4096];
    const ssize_t count = read(descriptor, bytes, sizeof(bytes));
    if (count == 0) return text;
    if (count < 0 && errno != EINTR) return Failed(plugin, "cannot be heard: ", std::strerror(errno));
    if (count > 0) text.append(bytes, static_cast<std::size_t>(count));
    if (text.size() > kMostBytes) return Failed(plugin, "printed more than ", kMostBytes, " bytes");
  }
}

}  // namespace

absl::StatusOr<ExecCredential> ParseExecCredential(const ExecPlugin& plugin, std::string_view text) {
  const absl::StatusOr<Json> json = ParseJson(text);
  if (!json.ok() || !json->is_object()) return Failed(plugin, "did not print a JSON object");
  if (FindText(*json, {"kind"}) != "ExecCredential") return Failed(plugin, "did not print an ExecCredential");
  if (FindText(*json, {"apiVersion"}) != plugin.api_version) {
    return Failed(plugin, "printed another apiVersion than ", plugin.api_version);
  }
  ExecCredential credential;
  credential.token = FindText(*json, {"status", "token"});
  credential.client_certificate = FindText(*json, {"status", "clientCertificateData"});
  credential.client_key = FindText(*json, {"status", "clientKeyData"});
  if (credential.client_certificate.empty() != credential.client_key.empty()) {
    return Failed(plugin, "printed only one of clientCertificateData and clientKeyData");
  }
  if (credential.token.empty() && credential.client_certificate.empty()) {
    return Failed(plugin, "printed neither a token nor a certificate");
  }
  if (const std::string expires = FindText(*json, {"status", "expirationTimestamp"}); !expires.empty()) {
    credential.expires = ParseTime(expires);
    if (!credential.expires.has_value()) return Failed(plugin, "printed an expirationTimestamp that is no time");
  }
  return credential;
}

absl::StatusOr<ExecCredential> RunExecPlugin(const ExecPlugin& plugin, const Json& cluster, absl::Duration limit) {
  const absl::Duration deadline = MonotonicNow() + limit;
  const bool terminal = plugin.interactive != ExecPlugin::Interactive::kNever && isatty(STDIN_FILENO) == 1;
  if (plugin.interactive == ExecPlugin::Interactive::kAlways && !terminal) {
    return Failed(plugin, "has to ask somebody (interactiveMode: Always), and there is no terminal");
  }
  Json info = {{"apiVersion", plugin.api_version}, {"kind", "ExecCredential"}, {"spec", {{"interactive", terminal}}}};
  if (plugin.provide_cluster_info) info["spec"]["cluster"] = cluster;

  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Failed(plugin, "cannot be started: ", std::strerror(errno));
  const Descriptor reading(ends[0]);
  Descriptor writing(ends[1]);
  Child child;
  const int error =
      child.Start(plugin.command, plugin.arguments, Environment(plugin, DumpJson(info)), terminal, writing.get());
  if (error != 0) {
    const bool missing = error == ENOENT && !plugin.install_hint.empty();
    return Failed(plugin, "cannot be started: ", std::strerror(error), missing ? "\n" : "",
                  missing ? plugin.install_hint : std::string());
  }
  writing.Close();
  const absl::StatusOr<std::string> text = ReadAll(plugin, reading.get(), deadline);
  if (!text.ok()) return text.status();
  const std::optional<int> status = child.Wait(deadline);
  if (!status.has_value()) return Failed(plugin, "took too long");
  if (WIFSIGNALED(*status)) return Failed(plugin, "was ended by signal ", WTERMSIG(*status));
  if (WEXITSTATUS(*status) != 0) return Failed(plugin, "failed with exit code ", WEXITSTATUS(*status));
  return ParseExecCredential(plugin, *text);
}

}  // namespace downpour::kube
