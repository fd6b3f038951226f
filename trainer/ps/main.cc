// downpour-server: the coordinator and the parameter server. Links neither LibTorch nor CUDA.
#include <memory>

#include "CLI/CLI.hpp"
#include "grpcpp/health_check_service_interface.h"
#include "spdlog/spdlog.h"
#include "trainer/coordinator/server.h"
#include "trainer/ps/server.h"
#include "trainer/service/process.h"
#include "trainer/wire/receive_memory.h"

namespace downpour {
namespace {

absl::Status RunCoordinator(const service::ProcessFlags& flags, const v1::TrainingConfig& config) {
  core::CoordinatorOptions options;
  options.config = config;
  options.incarnation = flags.incarnation;
  if (config.lease_milliseconds() != 0) options.lease = absl::Milliseconds(config.lease_milliseconds());
  auto server = coordinator::CoordinatorServer::Start(std::move(options), flags.listen, flags.metrics_listen);
  if (!server.ok()) return server.status();
  service::SignalThread signals([&server] { (*server)->Stop(); });
  absl::Status written = service::WriteAddressFile(flags.metrics_address_file, (*server)->metrics_address());
  if (written.ok()) written = service::WriteAddressFile(flags.address_file, (*server)->address());
  if (!written.ok()) return written;
  spdlog::info("coordinator of {}, incarnation {}, serves on {}", config.job_name(), flags.incarnation,
               (*server)->address());
  return (*server)->Wait();
}

absl::Status RunPs(const service::ProcessFlags& flags, const v1::TrainingConfig& config) {
  ps::PsServerOptions options;
  options.job_uid = config.job_uid();
  options.index = flags.index;
  options.process_incarnation = flags.incarnation;
  options.node = flags.node;
  options.coordinator = flags.coordinator;
  options.listen = flags.listen;
  options.advertise = flags.advertise;
  options.advertise_host = flags.advertise_host;
  options.local_data = flags.local_data;
  options.metrics_listen = flags.metrics_listen;
  options.store = config.checkpoint().uri();
  options.extra_bytes_limit = config.checkpoint().extra_bytes_limit();
  auto server = ps::PsServer::Start(std::move(options));
  if (!server.ok()) return server.status();
  service::SignalThread signals([&server] { (*server)->Drain(); });
  absl::Status written = service::WriteAddressFile(flags.metrics_address_file, (*server)->metrics_address());
  if (written.ok()) written = service::WriteAddressFile(flags.address_file, (*server)->address());
  if (!written.ok()) return written;
  service::GoOnWithoutNewThreads();  // the parameters would go with it
  spdlog::info("ps-{} of {} serves on {}", flags.index, config.job_name(), (*server)->address());
  return (*server)->Wait();
}

int Main(int argc, char** argv) {
  CLI::App app{"Downpour's coordinator and parameter server."};
  app.require_subcommand(1);
  service::ProcessFlags flags;
  CLI::App* coordinator = app.add_subcommand("coordinator", "membership, views and data leases of one job");
  service::AddFlags(*coordinator, {.index = false, .coordinator = false}, &flags);
  CLI::App* ps = app.add_subcommand("ps", "slices of the parameters of one job");
  service::AddFlags(*ps, {.node = true, .local_data = true}, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? service::kExitDone : service::kExitBadInput;
  }
  service::BlockSignals();
  wire::KeepReceiveMemory();
  wire::ShareFreedMemory();
  grpc::EnableDefaultHealthCheckService(true);  // for the probes of Kubernetes
  const bool is_ps = ps->parsed();
  service::StartLogging(is_ps ? "ps-" + std::to_string(flags.index) : "coordinator");
  const absl::Status alive = service::DieWithParent(flags.parent);
  if (!alive.ok()) return service::ExitCodeFor(alive);
  const absl::StatusOr<v1::TrainingConfig> config = service::ReadConfig(flags.config_path);
  if (!config.ok()) return service::ExitCodeFor(config.status());
  return service::ExitCodeFor(is_ps ? RunPs(flags, *config) : RunCoordinator(flags, *config));
}

}  // namespace
}  // namespace downpour

// What CLI11 may throw while the options are declared would be a defect of ours: ending is right.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) { return downpour::Main(argc, argv); }
