#ifndef DOWNPOUR_CLI_RUN_SCALE_H_
#define DOWNPOUR_CLI_RUN_SCALE_H_

#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/run_folder.h"
#include "operator/api/training_job.h"

// How `downpour scale` tells a run of this machine how many processes there are to be: by a file in its folder, which
// the run takes away.
namespace downpour::cli {

struct ScaleWish {
  std::optional<int> ps, workers;  // absent: as many as before
};

// kInvalidArgument: parameter servers of a job that has none.
absl::Status CheckScale(const api::TrainingJob& job, const ScaleWish& wish);

// The job with that many processes and the next revision (metadata.generation). kInvalidArgument: that of CheckScale,
// or no manifest may say that; names the field.
absl::StatusOr<api::TrainingJob> ScaledJob(const api::TrainingJob& job, const ScaleWish& wish);

// Replaces a wish that the run has not taken yet.
absl::Status PutScaleWish(const RunPaths& paths, const ScaleWish& wish);

// Takes the wish away; absent: there is none. kInvalidArgument: what was taken away is none.
absl::StatusOr<std::optional<ScaleWish>> TakeScaleWish(const RunPaths& paths);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_RUN_SCALE_H_
