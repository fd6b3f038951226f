#include <unistd.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/launch.h"
#include "cli/manifest_input.h"
#include "operator/api/field_names.h"
#include "operator/api/manifest.h"
#include "proto/host_port.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/lsan_interface.h>
#endif

namespace downpour::cli {
namespace {

constexpr char kWhichOne[] =
    "a job on a cluster if -n, -A, --context or --kubeconfig is given; otherwise a run of this machine: its folder, or "
    "its name in ./downpour-runs";

struct Arguments {
  std::string file;
  Target target;
  std::string role;
  int index = 0;
  int tail = 0;
  bool follow = false;
  std::string run_directory;
  bool no_shared_memory = false;
  double audit_seconds = 30;
  std::vector<std::string> overrides;
  std::string job_uid;
  std::vector<std::string> addresses;
  std::vector<std::string> checkpoints;  // URIs
  std::string path;
  std::string output = "text";
  CompareOptions compare;
  DrillCommandOptions drill;
  std::uint64_t seed = 0;
  bool once = false;
  int ps = 0;
  int workers = 0;
};

void AddOutput(CLI::App& command, Arguments& arguments) {
  command.add_option("--output,-o", arguments.output, "text or json")->check(CLI::IsMember({"text", "json"}));
}

void AddManifest(CLI::App& command, Arguments& arguments) {
  command.add_option("FILE", arguments.file, "the TrainingJob, YAML or JSON")->required();
  command.add_option("--set", arguments.overrides, "path=value: overrides a field of the manifest; may be repeated")
      ->allow_extra_args(false);
  AddOutput(command, arguments);
}

// "": fine. An empty name, of a variable that is not set perhaps, must not turn a job into a run.
std::string RefuseEmpty(const std::string& text) { return text.empty() ? "must not be empty" : ""; }

// What the command is about.
CLI::App* AddTarget(CLI::App& app, const char* verb, const char* what, const char* without_name, Arguments& arguments) {
  CLI::App* const command = app.add_subcommand(verb, what);
  command->add_option("NAME", arguments.target.name, std::string(kWhichOne) + ". Without it: " + without_name);
  ClusterOptions& cluster = arguments.target.cluster;
  command->add_option("--namespace,-n", cluster.namespace_name, "on a cluster: the namespace; else that of the context")
      ->check(RefuseEmpty)
      ->group("Cluster");
  command->add_option("--context", cluster.context, "on a cluster: the context of the kubeconfig; else the current one")
      ->check(RefuseEmpty)
      ->group("Cluster");
  command->add_option("--kubeconfig", cluster.kubeconfig, "on a cluster: the file; else $KUBECONFIG or ~/.kube/config")
      ->check(RefuseEmpty)
      ->group("Cluster");
  command
      ->add_flag(
          "--exec-plugins", cluster.exec_plugins,
          "on a cluster: run the program that the kubeconfig names for credentials (aws, gke-gcloud-auth-plugin, "
          "kubelogin, ...)")
      ->envname("DOWNPOUR_EXEC_PLUGINS")
      ->group("Cluster");
  return command;
}

CLI::App* AddDrill(CLI::App& app, Arguments& arguments) {
  CLI::App* const drill =
      AddTarget(app, "drill", "breaks a run, or a job on a cluster, on purpose, and reports how it recovers",
                "the newest run that is running", arguments);
  DrillCommandOptions& options = arguments.drill;
  drill->add_option("--kill", options.kill, "worker, ps, coordinator, on a cluster node; of several, one each time")
      ->required();
  drill->add_option("--index", arguments.index, "only members of this index; else any")->check(CLI::NonNegativeNumber);
  drill->add_option("--every", options.every, "from one kill to the next, at least")->capture_default_str();
  drill->add_option("--for", options.duration, "how long there are kills")->capture_default_str();
  drill->add_option("--patience", options.patience, "how long the job may take to recover from each")
      ->capture_default_str();
  drill->add_option("--signal", options.signal, "of a run of this machine: KILL, or STOP")
      ->check(CLI::IsMember({"KILL", "STOP"}))
      ->capture_default_str();
  drill->add_option("--stop-for", options.stop_for, "with --signal STOP: until it goes on")->capture_default_str();
  drill->add_option("--seed", arguments.seed, "picks the same again, of the same members; else any");
  drill->add_flag("--yes", options.yes, "on a cluster: without asking")->group("Cluster");
  drill
      ->add_option("--ps,--worker", options.addresses,
                   "on a cluster: host:port of each parameter server, or worker without them; else those of its pods")
      ->check(CheckPeerAddress)
      ->allow_extra_args(false)
      ->group("Cluster");
  return drill;
}

DrillCommandOptions ReadDrill(const CLI::App& drill, const Arguments& arguments) {
  DrillCommandOptions options = arguments.drill;
  options.target = arguments.target;
  if (drill.count("--index") > 0) options.index = arguments.index;
  if (drill.count("--seed") > 0) options.seed = arguments.seed;
  return options;
}

LogChoice ReadLogChoice(const CLI::App& logs, const Arguments& arguments) {
  LogChoice choice;
  choice.follow = arguments.follow;
  for (const api::Role role : {api::Role::kCoordinator, api::Role::kParameterServer, api::Role::kWorker}) {
    if (arguments.role == api::ToString(role)) choice.role = role;
  }
  if (logs.count("--index") > 0) choice.index = arguments.index;
  if (logs.count("--tail") > 0) choice.tail = arguments.tail;
  return choice;
}

// A program of its own, for the libraries that it reads data with: others would have to load them, and their threads.
int RunDataProgram(const std::vector<std::string>& arguments) {
  const std::string program = BinaryDirectory() + "/downpour-data";
  std::vector<const char*> words = {"downpour data"};
  for (const std::string& argument : arguments) words.push_back(argument.c_str());
  words.push_back(nullptr);
  std::cout << std::flush;
  execv(program.c_str(), const_cast<char* const*>(words.data()));
  return Complain(absl::ErrnoToStatus(errno, program + " cannot be run"));
}

int Main(int argument_count, char** argument_values) {
  CLI::App app("Downpour trains deep networks with parameter servers or by all-reduce.", "downpour");
  app.require_subcommand(1);
  app.footer("Exit codes: 0 done, 1 failed, 2 bad input, 3 done but not audited, 130 stopped by the user.");
  Arguments arguments;
  CLI::App* const run = app.add_subcommand("run", "runs a TrainingJob with processes of this machine");
  AddManifest(*run, arguments);
  run->add_option("--run-dir", arguments.run_directory, "an empty or new folder for the run");
  run->add_flag("--no-shared-memory", arguments.no_shared_memory,
                "data between workers and parameter servers go over the network of this machine");
  run->add_option("--audit-seconds", arguments.audit_seconds,
                  "how long parameter servers, or workers without them, are asked in the end what they applied")
      ->check(CLI::Range(0, 3600))
      ->capture_default_str();
  CLI::App* const validate = app.add_subcommand("validate", "says what is wrong with a TrainingJob");
  AddManifest(*validate, arguments);
  CLI::App* const get = AddTarget(app, "get", "lists runs, or jobs on a cluster",
                                  "all jobs of the namespace, or all runs in ./downpour-runs", arguments);
  get->add_flag("--all-namespaces,-A", arguments.target.cluster.all_namespaces, "on a cluster: jobs of all namespaces")
      ->group("Cluster");
  AddOutput(*get, arguments);
  CLI::App* const top =
      AddTarget(app, "top", "watches a run, or a job on a cluster", "the newest run that is running", arguments);
  top->add_flag("--once", arguments.once, "prints one picture and exits");
  CLI::App* const why =
      AddTarget(app, "why", "says on one screen why a run, or a job on a cluster, waits, restarted or failed",
                "the newest run that is running, or the newest", arguments);
  CLI::App* const scale =
      AddTarget(app, "scale", "changes how many members a job has while it trains", "nothing is changed", arguments);
  scale->add_option("--ps", arguments.ps, "so many parameter servers")
      ->check(CLI::Range(1, api::schema::kMaxParameterServers));
  scale->add_option("--workers", arguments.workers, "so many workers")->check(CLI::Range(0, api::schema::kMaxWorkers));
  CLI::App* const logs = AddTarget(app, "logs", "prints what the processes of a run, or of a job on a cluster, wrote",
                                   "the newest run that is running, or the newest", arguments);
  logs->add_option("--role", arguments.role, "only of this role")
      ->check(CLI::IsMember({"coordinator", "ps", "worker"}));
  logs->add_option("--index", arguments.index, "with --role: only of this member")->check(CLI::NonNegativeNumber);
  logs->add_option("--tail", arguments.tail, "the newest lines of each; else all of one member, 10 of each of several")
      ->check(CLI::NonNegativeNumber);
  logs->add_flag("--follow,-f", arguments.follow, "goes on with what is written, until the end or Ctrl-C");
  CLI::App* const drill = AddDrill(app, arguments);
  CompareOptions& comparison = arguments.compare;
  CLI::App* const compare = app.add_subcommand("compare", "makes one page of several runs, which shows them together");
  compare->add_option("RUN", comparison.runs, "a run of this machine: its folder, or its name in ./downpour-runs")
      ->check(RefuseEmpty)
      ->required();
  compare
      ->add_option("--target", comparison.targets,
                   "METRIC=VALUE: tells how long each run took to this; may be repeated")
      ->allow_extra_args(false);
  compare->add_option("--output,-o", comparison.output, "the page; else compare.html, and with --json none")
      ->check(RefuseEmpty);
  CLI::Option* const as_json = compare->add_flag("--json", comparison.json, "prints the table as JSON");
  compare->add_flag("--curves", comparison.curves, "with --json: the points of the page's plots as well")
      ->needs(as_json);
  CLI::App* const ledger = app.add_subcommand(
      "ledger", "audits what the parameter servers of a job, or its workers without them, say was applied");
  AddManifest(*ledger, arguments);
  ledger->add_option("--job-uid", arguments.job_uid, "metadata.uid of the job")->required();
  ledger
      ->add_option("--ps,--worker", arguments.addresses,
                   "host:port of each parameter server, of a job without them of each worker; may be repeated")
      ->check(CheckPeerAddress)
      ->required()
      ->allow_extra_args(false);
  CLI::App* const data = app.add_subcommand("data", "looks at data sets, and generates some");
  data->prefix_command();  // all that follows is for the other program
  data->set_help_flag();
  CLI::App* const checkpoints = app.add_subcommand("checkpoints", "lists, verifies, removes and exports checkpoints");
  checkpoints->require_subcommand(1);
  constexpr char kWhichCheckpoints[] =
      "a folder of checkpoints as spec.checkpoint.uri has it, or URI/NAME: one of them";
  CLI::App* const list = checkpoints->add_subcommand("ls", "lists checkpoints, the newest first");
  list->add_option("URI", arguments.file, kWhichCheckpoints)->required();
  AddOutput(*list, arguments);
  CLI::App* const verify = checkpoints->add_subcommand("verify", "reads checkpoints and says what is wrong with them");
  verify->add_option("URI", arguments.checkpoints, kWhichCheckpoints)->required();
  CLI::App* const remove = checkpoints->add_subcommand("rm", "removes checkpoints");
  remove->add_option("URI/NAME", arguments.checkpoints, "exactly one checkpoint each")->required();
  CLI::App* const model = checkpoints->add_subcommand("export", "makes a model file of a checkpoint");
  model->add_option("URI", arguments.file, std::string(kWhichCheckpoints) + ". Of a folder: the newest")->required();
  model->add_option("FILE", arguments.path, "the model, safetensors")->required();

  try {
    app.parse(argument_count, argument_values);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitDone : kExitBadInput;
  }

  const absl::StatusOr<Overrides> parsed = ParseOverrides(arguments.overrides);
  if (!parsed.ok()) return Complain(parsed.status());
  const Overrides& overrides = *parsed;
  const bool json = arguments.output == "json";
  if (run->parsed())
    return RunCommand({arguments.file, overrides, json, arguments.run_directory, arguments.audit_seconds,
                       !arguments.no_shared_memory});
  if (validate->parsed()) return ValidateCommand(arguments.file, overrides, json);
  if (ledger->parsed()) {
    return LedgerCommand({arguments.file, overrides, arguments.job_uid, arguments.addresses, json});
  }
  if (data->parsed()) return RunDataProgram(data->remaining());
  if (list->parsed()) return ListCheckpointsCommand(arguments.file, json);
  if (verify->parsed()) return VerifyCheckpointsCommand(arguments.checkpoints);
  if (remove->parsed()) return RemoveCheckpointsCommand(arguments.checkpoints);
  if (model->parsed()) return ExportCheckpointCommand(arguments.file, arguments.path);
  if (compare->parsed()) return CompareCommand(comparison);
  if (get->parsed()) return GetCommand(arguments.target, json);
  if (top->parsed()) return TopCommand(arguments.target, arguments.once);
  if (why->parsed()) return WhyCommand(arguments.target);
  if (drill->parsed()) return DrillCommand(ReadDrill(*drill, arguments));
  if (scale->parsed()) {
    const auto given = [scale](const char* flag, int count) {
      return scale->count(flag) > 0 ? std::optional<int>(count) : std::nullopt;
    };
    return ScaleCommand(arguments.target, given("--ps", arguments.ps), given("--workers", arguments.workers));
  }
  return LogsCommand(arguments.target, ReadLogChoice(*logs, arguments));
}

}  // namespace
}  // namespace downpour::cli

int main(int argument_count, char** argument_values) {
  int exit_code = downpour::cli::kExitFailed;
  try {
    exit_code = downpour::cli::Main(argument_count, argument_values);
  } catch (const std::exception& error) {
    // Nothing of ours throws; the processes of a run end with this one in any case.
    std::cerr << "downpour: " << error.what() << std::endl;
  }
  std::cout << std::flush;
  std::fflush(nullptr);
#if defined(__SANITIZE_ADDRESS__)
  __lsan_do_leak_check();
#endif
  // What libraries keep for the whole process waits for its threads when it is destroyed, and these may wait for
  // somebody else.
  std::_Exit(exit_code);
}
