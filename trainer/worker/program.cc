#include "trainer/worker/program.h"

#include <atomic>
#include <cstdio>
#include <string>
#include <string_view>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "spdlog/spdlog.h"
#include "trainer/service/process.h"
#include "trainer/wire/receive_memory.h"
#include "trainer/worker/gpu_report.h"

namespace downpour::worker {
namespace {

// Stays, as the model goes with this process: until `time` is over or it is told to end.
void KeepModel(const std::string& model, absl::Duration time) {
  absl::Notification told;
  service::SignalThread signals([&told] {
    if (!told.HasBeenNotified()) told.Notify();
  });
  spdlog::info("the job is over; {} stays here for {} s, or until this process is told to end", model,
               absl::ToInt64Seconds(time));
  told.WaitForNotificationWithTimeout(time);
}

absl::Status Run(const service::ProcessFlags& flags, const CreateWorker& create) {
  absl::Status alive = service::DieWithParent(flags.parent);
  if (!alive.ok()) return alive;
  absl::StatusOr<v1::TrainingConfig> config = service::ReadConfig(flags.config_path);
  if (!config.ok()) return config.status();
  WorkerProcessOptions options;
  options.config = *std::move(config);
  options.index = flags.index;
  options.process_incarnation = flags.incarnation;
  options.coordinator = flags.coordinator;
  options.metrics_listen = flags.metrics_listen;
  options.listen = flags.listen;
  options.ring_listen = flags.ring_listen;
  options.advertise_host = flags.advertise_host;
  options.local_data = flags.local_data;
  const absl::Duration keep = absl::Seconds(options.config.keep_output_seconds());
  absl::StatusOr<std::unique_ptr<WorkerProcess>> worker = create(std::move(options));
  if (!worker.ok()) return worker.status();
  absl::Status written = service::WriteAddressFile(flags.metrics_address_file, (*worker)->metrics_address());
  if (written.ok()) written = service::WriteAddressFile(flags.address_file, (*worker)->address());
  if (!written.ok()) return written;
  spdlog::info("starts as incarnation {}, metrics on {}", flags.incarnation, (*worker)->metrics_address());
  std::atomic<bool> left = false;
  absl::Status ended;
  {
    service::SignalThread signals([&worker, &left] {
      left = true;
      (*worker)->Leave();
    });
    ended = (*worker)->Run();
  }
  const std::string model = (*worker)->written_model();
  worker->reset();  // nobody needs its memory any more
  if (ended.ok() && !model.empty() && keep > absl::ZeroDuration() && !left) KeepModel(model, keep);
  if (ended.ok()) spdlog::info("done");
  return ended;
}

// Whether a worker can begin with this configuration; nothing is served and nobody is called.
absl::Status Check(const std::string& config_path, const CreateWorker& create) {
  absl::StatusOr<v1::TrainingConfig> config = service::ReadConfig(config_path);
  if (!config.ok()) return config.status();
  WorkerProcessOptions options;
  options.config = *std::move(config);
  return create(std::move(options)).status();
}

int CheckMain(int argc, char** argv, const CreateWorker& create) {
  CLI::App app{"Says whether a worker can begin with a configuration: reads the data set and makes the model."};
  std::string config_path;
  app.add_option("--config", config_path, "the job's TrainingConfig, as protobuf JSON: a file, or env:NAME")
      ->required();
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? service::kExitDone : service::kExitBadInput;
  }
  service::StartLogging("check");
  return service::ExitCodeFor(Check(config_path, create));
}

int GpuMain(int argc, char** argv) {
  CLI::App app{
      "Says what a worker finds of GPUs on this machine, a line for each part; exit status 0 if it could use one."};
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? service::kExitDone : service::kExitBadInput;
  }
  std::string text;
  const bool usable = FindGpus(&text);
  std::fputs(text.c_str(), stdout);
  return usable ? service::kExitDone : service::kExitBadInput;
}

}  // namespace

int WorkerMain(int argc, char** argv, const CreateWorker& create) {
  if (argc > 1 && std::string_view(argv[1]) == "check") return CheckMain(argc - 1, argv + 1, create);
  if (argc > 1 && std::string_view(argv[1]) == "gpu") return GpuMain(argc - 1, argv + 1);
  CLI::App app{
      "Downpour's worker. `check --config FILE` says whether it could begin, `gpu` what GPUs it could begin with."};
  service::ProcessFlags flags;
  service::AddFlags(app, {.ring = true, .local_data = true}, &flags);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? service::kExitDone : service::kExitBadInput;
  }
  service::BlockSignals();
  wire::KeepReceiveMemory();
  service::StartLogging("worker-" + std::to_string(flags.index));
  return service::ExitCodeFor(Run(flags, create));
}

}  // namespace downpour::worker
