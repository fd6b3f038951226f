#include <CLI/CLI.hpp>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/manifest_input.h"

namespace downpour::cli {
namespace {

struct Arguments {
  std::string file;
  std::string directory;
  std::string run_directory;
  std::vector<std::string> overrides;
  std::string job_uid;
  std::vector<std::string> addresses;
  std::string output = "text";
  bool once = false;
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

int Main(int argument_count, char** argument_values) {
  CLI::App app("Downpour trains deep networks with parameter servers.", "downpour");
  app.require_subcommand(1);
  Arguments arguments;
  CLI::App* const run = app.add_subcommand("run", "runs a TrainingJob with processes of this machine");
  AddManifest(*run, arguments);
  run->add_option("--run-dir", arguments.run_directory, "an empty or new folder for the run");
  CLI::App* const validate = app.add_subcommand("validate", "says what is wrong with a TrainingJob");
  AddManifest(*validate, arguments);
  CLI::App* const get = app.add_subcommand("get", "lists runs");
  get->add_option("DIR", arguments.directory, "a folder of runs, or one run; ./downpour-runs otherwise");
  AddOutput(*get, arguments);
  CLI::App* const top = app.add_subcommand("top", "watches a run");
  top->add_option("RUN_DIR", arguments.directory, "the newest run that is running otherwise");
  top->add_flag("--once", arguments.once, "prints one picture and exits");
  CLI::App* const ledger = app.add_subcommand("ledger", "audits what the parameter servers of a job say was applied");
  AddManifest(*ledger, arguments);
  ledger->add_option("--job-uid", arguments.job_uid, "metadata.uid of the job")->required();
  ledger->add_option("--ps", arguments.addresses, "host:port of each parameter server; may be repeated")
      ->required()
      ->allow_extra_args(false);

  try {
    app.parse(argument_count, argument_values);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitDone : kExitBadInput;
  }

  Overrides overrides;
  for (const std::string& text : arguments.overrides) {
    const absl::StatusOr<std::pair<std::string, std::string>> parsed = ParseOverride(text);
    if (!parsed.ok()) {
      std::cerr << "downpour: " << std::string(parsed.status().message()) << std::endl;
      return kExitBadInput;
    }
    overrides.push_back(*parsed);
  }
  const bool json = arguments.output == "json";
  if (run->parsed()) return RunCommand({arguments.file, overrides, json, arguments.run_directory});
  if (validate->parsed()) return ValidateCommand(arguments.file, overrides, json);
  if (ledger->parsed()) {
    return LedgerCommand({arguments.file, overrides, arguments.job_uid, arguments.addresses, json});
  }
  if (get->parsed()) return GetCommand(arguments.directory, json);
  return TopCommand(arguments.directory, arguments.once);
}

}  // namespace
}  // namespace downpour::cli

int main(int argument_count, char** argument_values) {
  try {
    return downpour::cli::Main(argument_count, argument_values);
  } catch (const std::exception& error) {
    // Nothing of ours throws; the processes of a run end with this one in any case.
    std::cerr << "downpour: " << error.what() << std::endl;
    return downpour::cli::kExitFailed;
  }
}
