#ifndef DOWNPOUR_CLI_LEDGER_SAMPLE_COUNT_H_
#define DOWNPOUR_CLI_LEDGER_SAMPLE_COUNT_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "operator/api/training_job.h"

namespace downpour::cli {

// The number of training samples: of IDX what the header of train-labels-idx1-ubyte (or .gz) states, of Synthetic what
// the manifest says. A reader of its own, since the audit shares no code with the trainer. kNotFound: no such file;
// kInvalidArgument: not an idx label file; kUnimplemented: another format, whose samples only the trainer counts.
absl::StatusOr<std::uint64_t> CountTrainingSamples(const api::DatasetSpec& dataset);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_LEDGER_SAMPLE_COUNT_H_
