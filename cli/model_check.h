#ifndef DOWNPOUR_CLI_MODEL_CHECK_H_
#define DOWNPOUR_CLI_MODEL_CHECK_H_

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
// data set can be looked at on this machine. What cannot be looked at here is no error: a manifest may be meant for a
// cluster.
std::vector<api::FieldError> PlanErrors(const api::TrainingJob& job);

// "spec.model.layers[2]: needs ..." in its two parts; a message without a path is of `field`.
api::FieldError SplitPath(const std::string& field, const std::string& message);

// A plug-in, a TorchScript module and whether initial weights fit can only be tried: no plan knows what is in them.
bool NeedsTrial(const api::ModelSpec& model);
// What a trial reads: fields and paths.
std::vector<std::pair<std::string, std::string>> FilesOf(const api::ModelSpec& model);

// Lets a worker make the model, in a process of its own: what is loaded there may do anything, and may take this one
// with it. kInvalidArgument: the reason, beginning with the path of the field; kFailedPrecondition: it could not be
// tried; kCancelled: the user asked to stop. The process writes to `log_path`, and reads `config_path`.
absl::Status TryModel(const std::string& binary_directory, const std::string& config_path, const std::string& log_path,
                      const Clock& clock, Waiter& waiter);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_MODEL_CHECK_H_
