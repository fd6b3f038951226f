#ifndef DOWNPOUR_TRAINER_CORE_RESTORE_H_
#define DOWNPOUR_TRAINER_CORE_RESTORE_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "downpour/v1/checkpoint.pb.h"
#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/ledger.h"

// Which checkpoint a generation begins with, and how it goes on from there.
namespace downpour::core {

// A checkpoint whose manifest is sound and whose files are there.
struct FoundCheckpoint {
  std::string store;  // URI of the folder that it lies in
  std::string name;   // there
  v1::CheckpointManifest manifest;
  std::string uri() const { return store + "/" + name; }
};

// One that is not sound.
struct SkippedCheckpoint {
  std::string store;
  std::string name;
  std::string why;
  std::string text() const { return store + "/" + name + ": " + why; }
};

// Newest first.
struct FoundCheckpoints {
  std::vector<FoundCheckpoint> own;     // in the job's own folder
  std::vector<FoundCheckpoint> source;  // in that of ResumeMode RESUME_FROM
  std::vector<SkippedCheckpoint> skipped;
  std::uint32_t highest_cut = 0;  // of anything in the job's own folder
};

// The one to begin with: the newest that this job made; if it made none, as `config` says. nullopt: none; a worker
// initialises the parameters. kNotFound: the manifest asks for one that is not there. `unusable`: URIs of those that a
// ps could not load.
absl::StatusOr<std::optional<FoundCheckpoint>> ChooseCheckpoint(const FoundCheckpoints& found,
                                                                const v1::TrainingConfig& config,
                                                                const std::map<std::string, std::string>& unusable);

// What is to be said of those that would have been taken before `chosen` (nullopt: nothing was) but are not sound, and
// of the `unusable` ones: a line each, the newest first, ten at most.
std::vector<std::string> SkippedFor(const FoundCheckpoints& found, const std::optional<FoundCheckpoint>& chosen,
                                    const std::map<std::string, std::string>& unusable);

// Whether a job of `config` with these tensors and samples can go on from it. kFailedPrecondition: the first thing that
// differs, both sides named.
absl::Status CheckFits(const FoundCheckpoint& checkpoint, const v1::TrainingConfig& config,
                       absl::Span<const v1::TensorSpec> tensors, std::uint64_t sample_count);

// The data plan from there on: what was begun keeps its updates, the next data shard on has the batch size of `config`,
// whose epochs count.
absl::StatusOr<DataPlan> ResumedPlan(const v1::CheckpointManifest& manifest, const v1::TrainingConfig& config);

// Has the view of a history that begins, with initial values so far, begin with the checkpoint. What of the history is
// done by that. Errors of CheckFits: the view is as it was.
absl::StatusOr<Ledger> BeginWith(const FoundCheckpoint& checkpoint, const v1::TrainingConfig& config, v1::View* view);

// What of it is applied for good, as far as the plan goes.
Ledger LedgerOf(const v1::CheckpointManifest& manifest, const DataPlan& plan);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_RESTORE_H_
