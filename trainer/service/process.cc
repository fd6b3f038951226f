#include "trainer/service/process.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <fstream>
#include <new>
#include <random>
#include <sstream>
#include <system_error>

#include "CLI/CLI.hpp"
#include "absl/strings/str_cat.h"
#include "google/protobuf/util/json_util.h"
#include "grpc/support/log.h"
#include "proto/host_port.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace downpour::service {
namespace {

constexpr char kFromEnvironment[] = "env:";

}  // namespace

void AddFlags(CLI::App& app, const FlagSet& set, ProcessFlags* flags) {
  app.add_option("--config", flags->config_path, "the job's TrainingConfig, as protobuf JSON: a file, or env:NAME")
      ->required();
  app.add_option("--incarnation", flags->incarnation, "number of this start, never given out twice")->required();
  if (set.index) app.add_option("--index", flags->index, "which one of its role")->required();
  if (set.node) app.add_option("--node", flags->node, "the machine that it runs on, by name; empty: not known");
  if (set.coordinator) {
    app.add_option("--coordinator", flags->coordinator, "the coordinator: host:port, or @FILE that holds it")
        ->check([](const std::string& text) { return text.rfind('@', 0) == 0 ? "" : CheckPeerAddress(text); })
        ->required();
  }
  if (set.listen) {
    app.add_option("--listen", flags->listen, "address to serve; port 0: any free one; host [::]: all, of IPv4 too")
        ->check(CheckListenAddress)
        ->capture_default_str();
    CLI::Option* const advertise = app.add_option("--advertise", flags->advertise,
                                                  "host:port where others reach it; by default the address served")
                                       ->check(CheckPeerAddress);
    app.add_option("--advertise-host", flags->advertise_host, "the same without a port: that of the address served")
        ->check(CheckHost)
        ->excludes(advertise);
    app.add_option("--address-file", flags->address_file, "write the address served into this file");
  }
  if (set.ring) {
    app.add_option("--ring-listen", flags->ring_listen,
                   "address for the other workers, in a job without parameter servers")
        ->check(CheckListenAddress)
        ->capture_default_str();
  }
  if (set.local_data) {
    app.add_option("--local-data", flags->local_data,
                   "a directory of this machine: data between a worker and a ps that both have it go through shared "
                   "memory; empty: over the network");
  }
  app.add_option("--metrics-listen", flags->metrics_listen, "address for Prometheus; empty: none")
      ->check([](const std::string& text) { return text.empty() ? "" : CheckListenAddress(text); })
      ->capture_default_str();
  app.add_option("--metrics-address-file", flags->metrics_address_file, "write the metrics address into this file");
  app.add_option("--parent", flags->parent, "end when this process ends");
}

absl::StatusOr<v1::TrainingConfig> ReadConfig(const std::string& source) {
  std::stringstream text;
  if (source.rfind(kFromEnvironment, 0) == 0) {
    const char* value = std::getenv(source.c_str() + std::strlen(kFromEnvironment));
    if (value == nullptr) return absl::NotFoundError(absl::StrCat(source, ": there is no such environment variable"));
    text << value;
  } else {
    std::ifstream file(source);
    if (!file) return absl::NotFoundError(absl::StrCat(source, ": ", std::strerror(errno)));
    text << file.rdbuf();
  }
  v1::TrainingConfig config;
  const auto parsed = google::protobuf::util::JsonStringToMessage(text.str(), &config);
  if (!parsed.ok()) return absl::InvalidArgumentError(absl::StrCat(source, ": ", std::string(parsed.message())));
  const auto missing = [&source](const char* field) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": ", field, ": must be set"));
  };
  if (config.job_uid().empty()) return missing("jobUid");
  if (config.has_all_reduce()) {
    if (config.ps_replicas() != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ": psReplicas: a job with allReduce has none, found ", config.ps_replicas()));
    }
    if (config.mode() != v1::SYNCHRONOUS) {
      return absl::InvalidArgumentError(
          absl::StrCat(source, ": mode: must be SYNCHRONOUS with allReduce, found ", v1::Mode_Name(config.mode())));
    }
  } else if (config.ps_replicas() == 0) {
    return missing("psReplicas");
  }
  if ((config.epochs() == 0) == (config.steps() == 0)) {
    return absl::InvalidArgumentError(absl::StrCat(source, ": exactly one of epochs and steps must be set"));
  }
  if (config.batch_size() == 0) return missing("batchSize");
  return config;
}

absl::Status DieWithParent(int parent) {
  if (parent == 0) return absl::OkStatus();
  if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) {
    return absl::InternalError(absl::StrCat("prctl(PR_SET_PDEATHSIG): ", std::strerror(errno)));
  }
  if (getppid() != parent) return absl::FailedPreconditionError("the parent process has ended already");
  return absl::OkStatus();
}

absl::StatusOr<std::string> ResolveAddress(const std::string& text) {
  if (text.empty() || text.front() != '@') return text;
  std::ifstream file(text.substr(1));
  std::string address;
  if (!file || !std::getline(file, address) || address.empty()) {
    return absl::UnavailableError(absl::StrCat(text.substr(1), ": no address yet"));
  }
  return address;
}

absl::Status WriteAddressFile(const std::string& path, const std::string& text) {
  if (path.empty()) return absl::OkStatus();
  const std::string temporary = absl::StrCat(path, ".", getpid());
  std::ofstream file(temporary, std::ios::trunc);
  file << text << "\n";
  file.close();
  if (!file || std::rename(temporary.c_str(), path.c_str()) != 0) {
    const std::string reason = std::strerror(errno);
    std::remove(temporary.c_str());
    return absl::UnavailableError(absl::StrCat(path, ": cannot be written: ", reason));
  }
  return absl::OkStatus();
}

std::uint64_t RandomSession() {
  std::random_device device;
  std::uint64_t session = 0;
  while (session == 0) session = (std::uint64_t{device()} << 32) | device();
  return session;
}

core::Time MonotonicNow() { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

namespace {

// SIGUSR1 ends the thread itself.
sigset_t HandledSignals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGUSR1);
  for (int signal : {SIGTERM, SIGINT}) {
    struct sigaction now {};
    if (sigaction(signal, nullptr, &now) == 0 && now.sa_handler != SIG_IGN) sigaddset(&signals, signal);
  }
  return signals;
}

}  // namespace

void BlockSignals() {
  const sigset_t signals = HandledSignals();
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
}

SignalThread::SignalThread(std::function<void()> on_signal) : on_signal_(std::move(on_signal)) {
  thread_ = std::thread([this] {
    const sigset_t signals = HandledSignals();
    for (;;) {
      int signal = 0;
      if (sigwait(&signals, &signal) != 0 || signal == SIGUSR1) return;
      on_signal_();
    }
  });
}

SignalThread::~SignalThread() {
  pthread_kill(thread_.native_handle(), SIGUSR1);
  thread_.join();
}

namespace {

std::atomic<bool> go_on_without_new_threads = false;

// As the last line of the log, where whoever started the process looks for the reason.
[[noreturn]] void EndForLack(const char* what) {
  std::fprintf(stderr, "%s\n", what);
  std::fflush(stderr);
  std::_Exit(kExitFailure);
}

constexpr char kNoThread[] = "a thread cannot be started: ";

// A defect aborts as ever, which leaves a core.
[[noreturn]] void OnTerminate() {
  try {
    if (std::exception_ptr error = std::current_exception(); error != nullptr) std::rethrow_exception(error);
  } catch (const std::system_error& error) {
    if (error.code() == std::errc::resource_unavailable_try_again) {
      EndForLack(absl::StrCat(kNoThread, error.what()).c_str());
    }
    std::fprintf(stderr, "%s\n", error.what());
  } catch (const std::bad_alloc&) {
    EndForLack("out of memory");
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
  } catch (...) {
    std::fputs("an unknown exception\n", stderr);
  }
  std::abort();
}

// gRPC reports what its caller is told as well; where it does not, this is for who looks for a defect of gRPC's.
void LogOfGrpc(gpr_log_func_args* arguments) {
  constexpr char kRefused[] = "pthread_create failed: ";
  if (const char* found = std::strstr(arguments->message, kRefused); found != nullptr && !go_on_without_new_threads) {
    EndForLack(absl::StrCat(kNoThread, found + std::strlen(kRefused)).c_str());
  }
  spdlog::debug("gRPC: {}:{}: {}", arguments->file, arguments->line, arguments->message);
}

}  // namespace

void StartLogging(const std::string& name) {
  auto logger = std::make_shared<spdlog::logger>(name, std::make_shared<spdlog::sinks::stderr_sink_mt>());
  logger->set_pattern("%Y-%m-%dT%H:%M:%S.%e %l [%n] %v");
  logger->flush_on(spdlog::level::info);
  spdlog::set_default_logger(std::move(logger));
  gpr_set_log_function(LogOfGrpc);
  std::set_terminate(OnTerminate);
}

void GoOnWithoutNewThreads() { go_on_without_new_threads = true; }

int ExitCodeFor(const absl::Status& status) {
  if (status.ok()) return kExitDone;
  // Plain: whoever started the process shows its last line to a person.
  std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
  switch (status.code()) {
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kUnimplemented:
      return kExitBadInput;
    default:
      return kExitFailure;
  }
}

}  // namespace downpour::service
