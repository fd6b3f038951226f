#ifndef DOWNPOUR_CLI_LEDGER_SAMPLE_COUNT_H_
#define DOWNPOUR_CLI_LEDGER_SAMPLE_COUNT_H_

#include <cstdint>
#include <string>

#include "absl/status/statusor.h"

namespace downpour::cli {

// The number of training samples that the header of train-labels-idx1-ubyte (or .gz) in `dataset_directory` states.
// A reader of its own, since the audit shares no code with the trainer. kNotFound: no such file; kInvalidArgument: not
// an idx label file.
absl::StatusOr<std::uint64_t> CountTrainingSamples(const std::string& dataset_directory);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_LEDGER_SAMPLE_COUNT_H_
