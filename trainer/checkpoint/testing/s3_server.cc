#include "trainer/checkpoint/testing/s3_server.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <vector>

#include "absl/strings/str_cat.h"

namespace downpour::checkpoint {
namespace {

// One that nobody listened on a moment ago.
int FreePort() {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    std::perror("FreePort");
    std::abort();
  }
  close(listener);
  return ntohs(address.sin_port);
}

}  // namespace

std::string S3Server::Program() {
  if (const char* const folder = std::getenv("DOWNPOUR_E2E_CACHE")) return absl::StrCat(folder, "/versitygw");
  const char* const home = std::getenv("HOME");
  return absl::StrCat(home == nullptr ? "" : home, "/.cache/downpour-e2e/bin/versitygw");
}

S3Server::S3Server() : port_(FreePort()) {
  std::string pattern = absl::StrCat(testing::TempDir(), "s3_server_test.XXXXXX");
  if (mkdtemp(pattern.data()) == nullptr) {
    std::perror("mkdtemp");
    std::abort();
  }
  folder_ = pattern;
  std::filesystem::create_directories(folder_ / "data" / "bucket");
  std::filesystem::create_directories(folder_ / "metadata");
  std::filesystem::create_directories(folder_ / "users");
}

S3Server::~S3Server() {
  Kill();
  std::filesystem::remove_all(folder_);
}

void S3Server::UseTls(const std::string& certificate_pem, const std::string& key_pem) {
  tls_ = true;
  std::ofstream(folder_ / "certificate.pem") << certificate_pem;
  std::ofstream(folder_ / "key.pem") << key_pem;
}

void S3Server::Start() {
  const std::string program = Program();
  const std::string address = absl::StrCat("127.0.0.1:", port_);
  const std::string metadata = (folder_ / "metadata").string();
  const std::string data = (folder_ / "data").string();
  const std::string users = (folder_ / "users").string();
  const std::string log = (folder_ / "log").string();
  const std::string certificate = CertificateFile();
  const std::string key = (folder_ / "key.pem").string();
  std::vector<const char*> arguments = {program.c_str(), "--port",    address.c_str(),
                                        "--keep-alive",  "--iam-dir", users.c_str()};
  if (tls_) arguments.insert(arguments.end(), {"--cert", certificate.c_str(), "--key", key.c_str()});
  arguments.insert(arguments.end(), {"posix", "--sidecar", metadata.c_str(), data.c_str(), nullptr});
  const std::string key_id = absl::StrCat("ROOT_ACCESS_KEY=", kKeyId);
  const std::string secret = absl::StrCat("ROOT_SECRET_KEY=", kSecret);
  const char* const environment[] = {key_id.c_str(), secret.c_str(), nullptr};
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    const int output = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(output, STDOUT_FILENO);
    dup2(output, STDERR_FILENO);
    if (getppid() == parent) {
      execve(arguments[0], const_cast<char* const*>(arguments.data()), const_cast<char* const*>(environment));
    }
    _exit(127);
  }
}

void S3Server::Kill() {
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = 0;
}

void S3Server::Stop() {
  if (pid_ <= 0) return;
  kill(pid_, SIGSTOP);
  waitpid(pid_, nullptr, WUNTRACED);
}

void S3Server::Continue() {
  if (pid_ > 0) kill(pid_, SIGCONT);
}

std::string S3Server::Endpoint() const { return absl::StrCat(tls_ ? "https" : "http", "://127.0.0.1:", port_); }

std::string S3Server::Log() const {
  std::ifstream file(folder_ / "log");
  return {std::istreambuf_iterator<char>(file), {}};
}

}  // namespace downpour::checkpoint
