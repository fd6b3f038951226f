#ifndef DOWNPOUR_CLI_DATA_COMMAND_H_
#define DOWNPOUR_CLI_DATA_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "trainer/data/open_dataset.h"
#include "trainer/data/writers/writer.h"

namespace downpour::cli {

struct GenerateOptions {
  std::string kind;       // of trainer/data/synthetic.h
  std::string format;     // of trainer/data/writers/writer.h
  std::string directory;  // new or empty; train/ and test/ are made in it where the format has no names for both
  std::uint64_t samples = 1000;
  std::uint64_t test_samples = 100;
  std::uint64_t seed = 1;
  std::vector<std::int64_t> shape;  // empty: the usual one of the kind
  std::uint64_t classes = 0;        // likewise
};

// Writes generated data as files.
int GenerateDataCommand(const GenerateOptions& options, const data::SampleWriterFactory& parquet);

// Shows the fields of a manifest's data, how many samples there are, the first ones, and which are broken: all are
// read. 1: one is.
int InspectDataCommand(const std::string& file, const Overrides& overrides, std::int64_t samples,
                       const data::ArrowReaders& arrow);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_DATA_COMMAND_H_
