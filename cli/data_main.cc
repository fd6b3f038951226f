// What `downpour data` runs.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/data_command.h"
#include "cli/manifest_input.h"
#ifdef DOWNPOUR_ARROW
#include "trainer/data/arrow_readers.h"
#include "trainer/data/writers/parquet_writer.h"
#endif

namespace downpour::cli {
namespace {

int Main(int argument_count, char** argument_values) {
  CLI::App app("Looks at data sets, and generates some.", "downpour data");
  app.require_subcommand(1);
  CLI::App* const inspect = app.add_subcommand(
      "inspect", "shows the fields of a TrainingJob's data, the first samples, and which of all are broken");
  std::string file;
  std::vector<std::string> settings;
  std::int64_t samples = 3;
  inspect->add_option("FILE", file, "the TrainingJob, YAML or JSON")->required();
  inspect->add_option("--set", settings, "path=value: overrides a field of the manifest; may be repeated")
      ->allow_extra_args(false);
  inspect->add_option("--samples", samples, "how many are shown")->check(CLI::NonNegativeNumber)->capture_default_str();
  CLI::App* const generate = app.add_subcommand("generate", "writes generated data as files of a format");
  GenerateOptions generated;
  generate->add_option("DIRECTORY", generated.directory, "new or empty")
      ->check([](const std::string& text) { return std::string(text.empty() ? "must not be empty" : ""); })
      ->required();
  generate->add_option("--kind", generated.kind, "what the samples are")
      ->check(CLI::IsMember({"Images", "Text", "Speech", "Radar"}))
      ->required();
  generate->add_option("--format", generated.format, "as spec.dataset.format has it")
      ->check(CLI::IsMember(
          {"IDX", "CIFAR10", "ImageFolder", "CSV", "Text", "NPY", "SafeTensors", "Parquet", "TFRecord", "WebDataset"}))
      ->required();
  generate->add_option("--samples", generated.samples, "of the training set")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  generate->add_option("--test-samples", generated.test_samples, "of the test set")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  generate->add_option("--seed", generated.seed, "another one makes other samples")
      ->check(CLI::PositiveNumber)
      ->capture_default_str();
  generate->add_option("--shape", generated.shape, "of an input, as 3,32,32; else the usual one of the kind")
      ->delimiter(',');
  generate->add_option("--classes", generated.classes, "else the usual number of the kind")->check(CLI::PositiveNumber);
  try {
    app.parse(argument_count, argument_values);
  } catch (const CLI::ParseError& error) {
    return app.exit(error) == 0 ? kExitDone : kExitBadInput;
  }

  data::ArrowReaders arrow;
  data::SampleWriterFactory parquet;
#ifdef DOWNPOUR_ARROW
  arrow = data::MakeArrowReaders();
  parquet = &data::MakeParquetWriter;
#endif
  if (generate->parsed()) return GenerateDataCommand(generated, parquet);
  const absl::StatusOr<Overrides> overrides = ParseOverrides(settings);
  if (!overrides.ok()) return Complain(overrides.status());
  return InspectDataCommand(file, *overrides, samples, arrow);
}

}  // namespace
}  // namespace downpour::cli

int main(int argument_count, char** argument_values) {
  try {
    return downpour::cli::Main(argument_count, argument_values);
  } catch (const std::exception& error) {
    std::cerr << "downpour data: " << error.what() << std::endl;
    return downpour::cli::kExitFailed;
  }
}
