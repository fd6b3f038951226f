// downpour-worker: pulls, computes gradients with LibTorch, pushes.
#include <memory>

#include "CLI/CLI.hpp"
#include "spdlog/spdlog.h"
#include "trainer/service/process.h"
#include "trainer/wire/receive_memory.h"
#include "trainer/worker/worker.h"

namespace downpour {
namespace {

absl::Status Run(const service::ProcessFlags& flags) {
  absl::Status alive = service::DieWithParent(flags.parent);
  if (!alive.ok()) return alive;
  const absl::StatusOr<v1::TrainingConfig> config = service::ReadConfig(flags.config_path);
  if (!config.ok()) return config.status();
  worker::WorkerProcessOptions options;
  options.config = *config;
  options.index = flags.index;
  options.process_incarnation = flags.incarnation;
  options.coordinator = flags.coordinator;
  options.metrics_listen = flags.metrics_listen;
  std::unique_ptr<worker::WorkerProcess> worker;
  // A signal that comes while the model is built ends the process at once: there is nothing to give back yet.
  absl::StatusOr<std::unique_ptr<worker::WorkerProcess>> created = worker::WorkerProcess::Create(std::move(options));
  if (!created.ok()) return created.status();
  worker = *std::move(created);
  absl::Status written = service::WriteAddressFile(flags.metrics_address_file, worker->metrics_address());
  if (!written.ok()) return written;
  service::SignalThread signals([&worker] { worker->Leave(); });
  return worker->Run();
}

int Main(int argc, char** argv) {
  CLI::App app{"Downpour's worker."};
  service::ProcessFlags flags;
  service::AddFlags(app, {true, true, false}, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? service::kExitDone : service::kExitBadInput;
  }
  wire::KeepReceiveMemory();
  service::StartLogging("worker-" + std::to_string(flags.index));
  return service::ExitCodeFor(Run(flags));
}

}  // namespace
}  // namespace downpour

// What CLI11 may throw while the options are declared would be a defect of ours: ending is right.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) { return downpour::Main(argc, argv); }
