#ifndef DOWNPOUR_CLI_MODEL_CHECK_H_
#define DOWNPOUR_CLI_MODEL_CHECK_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "cli/clock.h"
#include "cli/wake.h"
#include "operator/api/field_errors.h"
#include "operator/api/training_job.h"

// Whether the model of a manifest can be made and fits its data set, before anything is started.
namespace downpour::cli {

// By planning it, and by a look at the file with initial weights: a network of the zoo or a list of layers, where the
// data set can be looked at on this machine, and that is sound as far as opening it tells. What cannot be looked at
// here is no error: a manifest may be meant for a cluster. Without `read_data`, as far as can be told without data.
std::vector<api::FieldError> PlanErrors(const api::TrainingJob& job, bool read_data = true);

// How much of local files is read from beginning to end before the fields of the data set are known: what an index or
// a vocabulary is built of. 0 for formats that need neither.
std::uint64_t BytesToIndex(const api::DatasetSpec& dataset);

// "spec.model.layers[2]: needs ..." in its two parts; a message without a path is of `field`.
api::FieldError SplitPath(const std::string& field, const std::string& message);

// A plug-in, a TorchScript module and whether initial weights fit can only be tried: no plan knows what is in them.
bool NeedsTrial(const api::ModelSpec& model);
// What a trial reads: fields and paths.
std::vector<std::pair<std::string, std::string>> FilesOf(const api::ModelSpec& model);

// Lets a worker make the model, in a process of its own: what is loaded there may do anything, and may take this one
// with it. kInvalidArgument: the reason, beginning with the path of the field; kFailedPrecondition: it could not be
// tried; kCancelled: the user asked to stop. The process writes to `log_path`, and reads `config_path`. It has two
// minutes, and more for `bytes_to_index`.
absl::Status TryModel(const std::string& binary_directory, const std::string& config_path, const std::string& log_path,
                      std::uint64_t bytes_to_index, const Clock& clock, Waiter& waiter);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_MODEL_CHECK_H_
