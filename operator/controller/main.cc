// downpour-operator: carries TrainingJobs out on a Kubernetes cluster.
#include <malloc.h>
#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>

#include "CLI/CLI.hpp"
#include "absl/strings/str_format.h"
#include "absl/strings/strip.h"
#include "absl/synchronization/mutex.h"
#include "operator/controller/health_server.h"
#include "operator/controller/operator.h"
#include "operator/kube/credentials.h"
#include "operator/kube/http_transport.h"
#include "proto/host_port.h"
#include "spdlog/spdlog.h"
#include "trainer/service/process.h"

namespace downpour {
namespace {

// A request is handed on from thread to thread, which costs more than it does. Nothing that runs there waits.
constexpr int kHttpThreads = 1;
constexpr std::int64_t kHighestUser = 2147483647;  // that Kubernetes takes

struct Flags {
  std::string kubeconfig, context;
  std::string metrics_listen = "[::]:8080";
  std::string health_listen = "[::]:8081";
  std::string log_level = "info";
  controller::OperatorOptions options;
};

std::string MakeIdentity() {
  char host[256] = {};
  if (gethostname(host, sizeof(host) - 1) != 0) host[0] = '\0';
  std::random_device random;
  return absl::StrFormat("%s_%08x", host, random());
}

void AddFlags(CLI::App& app, Flags* flags) {
  controller::OperatorOptions& options = flags->options;
  app.add_option("--kubeconfig", flags->kubeconfig,
                 "file; by default the cluster this runs in, else as kubectl finds it");
  app.add_option("--context", flags->context, "of the kubeconfig");
  app.add_option("--namespace", options.namespace_name, "look after jobs of this namespace only");
  app.add_option("--server-image", options.reconciler.pods.server, "of coordinators and parameter servers")->required();
  app.add_option("--trainer-image", options.reconciler.pods.trainer, "of workers")->required();
  app.add_option("--image-pull-policy", options.reconciler.pods.pull_policy)
      ->check(CLI::IsMember({"Always", "IfNotPresent", "Never"}))
      ->capture_default_str();
  app.add_option("--run-as-user", options.reconciler.pods.run_as_user,
                 "user and group of the pods of jobs; 0: the platform chooses one that is not root")
      ->check(CLI::Range(std::int64_t{0}, kHighestUser))
      ->capture_default_str();
  app.add_option("--workers", options.queue.at_once, "jobs worked on at a time, but for those that are held up")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
  app.add_flag("--leader-elect", options.elect_leader, "work only while this process holds the Lease");
  app.add_option("--lease-namespace", options.election.namespace_name, "of the Lease");
  app.add_option("--lease-name", options.election.name)->capture_default_str();
  app.add_option("--requests-per-second", options.client.requests_per_second, "to the API server, sustained")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--burst", options.client.burst, "requests at once")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  app.add_option("--metrics-listen", flags->metrics_listen, "address for Prometheus; host [::]: all, of IPv4 too")
      ->check(CheckListenAddress)
      ->capture_default_str();
  app.add_option("--health-listen", flags->health_listen, "address of /healthz and /readyz")
      ->check(CheckListenAddress)
      ->capture_default_str();
  app.add_option("--log-level", flags->log_level)
      ->check(CLI::IsMember({"debug", "info", "warn", "error"}))
      ->capture_default_str();
}

absl::Status Run(Flags& flags) {
  absl::StatusOr<std::unique_ptr<kube::CredentialSource>> found =
      kube::FindCredentials(flags.kubeconfig, flags.context);
  if (!found.ok()) return found.status();
  const std::shared_ptr<kube::CredentialSource> credentials = *std::move(found);
  controller::OperatorOptions& options = flags.options;
  options.election.identity = MakeIdentity();
  options.api_server = std::string(absl::StripPrefix(credentials->server(), "https://"));
  if (options.elect_leader && options.election.namespace_name.empty()) {
    options.election.namespace_name = credentials->default_namespace();
  }
  service::Metrics metrics;
  const absl::StatusOr<std::string> served = metrics.Serve(flags.metrics_listen);
  if (!served.ok()) return served.status();
  controller::Operator job_operator(
      options, [&credentials] { return std::shared_ptr<kube::Transport>(kube::MakeHttpTransport(credentials)); },
      &metrics);
  const auto health = controller::StartHealthServer(
      flags.health_listen, [&job_operator] { return job_operator.Stuck(); },
      [&job_operator] { return job_operator.Unready(); });
  if (!health.ok()) return health.status();
  spdlog::info("operator {} for {}, metrics on {}", options.election.identity, credentials->server(), *served);
  job_operator.Start();
  service::SignalThread signals([&job_operator] { job_operator.Stop(); });
  const absl::Status ended = job_operator.Wait();
  if (absl::IsAborted(ended)) {
    // Another process may lead now: no thread of this one may write any more, not even to end in order.
    spdlog::error("{}", std::string(ended.message()));
    std::fflush(nullptr);
    std::_Exit(service::kExitFailure);
  }
  return absl::OkStatus();
}

int Main(int argc, char** argv) {
  CLI::App app{"Downpour's operator."};
  Flags flags;
  AddFlags(app, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? service::kExitDone : service::kExitBadInput;
  }
  // The library's check for deadlocks is for tests, and is on in Debian's build of it.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  // Freed memory that each of many threads keeps for itself would be most of this process.
  mallopt(M_ARENA_MAX, 2);
  service::BlockSignals();
  service::StartLogging("operator");
  if (const absl::Status status = kube::InitialiseHttp(kHttpThreads); !status.ok()) return service::ExitCodeFor(status);
  spdlog::set_level(spdlog::level::from_str(flags.log_level));
  return service::ExitCodeFor(Run(flags));
}

}  // namespace
}  // namespace downpour

// What CLI11 may throw while the options are declared would be a defect of ours: ending is right.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) { return downpour::Main(argc, argv); }
