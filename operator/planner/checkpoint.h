#ifndef DOWNPOUR_OPERATOR_PLANNER_CHECKPOINT_H_
#define DOWNPOUR_OPERATOR_PLANNER_CHECKPOINT_H_

#include <string>
#include <string_view>

#include "operator/planner/context.h"

// Checkpoints as the planner sees them: what the newest is, whether they fail, and those that are wanted before
// something happens. The coordinator makes them, and training goes back to them by itself.
namespace downpour::planner {

// Of a job that begins: says so where its checkpoints go with its pods (CheckpointTemporary).
void AnnounceCheckpoints(Context& context);

// Follows status.checkpoint and CheckpointFailing, and says with which checkpoint training began (Resumed). A loss of
// parameters is told by ReportParametersLost.
void UpdateCheckpoint(Context& context);

// "the newest checkpoint, URI (update 120, of 2026-01-02T03:04:05Z)"; empty: none is known.
std::string NewestCheckpoint(const Context& context);

// Marks what training began with as told: `reason` is FromCheckpoint or RolledBack.
void NoteResumed(Context& context, const Restoration& restoration, std::string reason);

// ", newer ones were not used: NAME: why"; empty: all were.
std::string SkippedText(const Restoration& restoration);

// The beginnings of the names of requests.
inline constexpr char kSuspendRequest[] = "suspend-";
inline constexpr char kDrainRequest[] = "drain-";
// Reason of Suspended while it waits for one.
inline constexpr char kMakingCheckpoint[] = "MakingCheckpoint";

enum class RequestOutcome { kPending, kMade, kNotMade, kLate };

// Wants a checkpoint that holds everything applied until now, under a name that begins with `kind`: one that is wanted
// already stays, else `name` is. Late: spec.checkpoint.onDisruption.timeoutSeconds after it was wanted.
RequestOutcome WantCheckpoint(Context& context, std::string_view kind, const std::string& name);
// Nothing of this kind is wanted any more.
void UnwantCheckpoint(Context& context, std::string_view kind);
bool IsWanted(const api::TrainingJobStatus& status, std::string_view kind);

// How long one is waited for.
int RequestSeconds(const api::CheckpointSpec& spec);

// Why there is none after all: "the checkpoint was not made within 60 s", "the checkpoint failed: disk full".
std::string WhyNotMade(const Context& context, RequestOutcome outcome);

}  // namespace downpour::planner

#endif  // DOWNPOUR_OPERATOR_PLANNER_CHECKPOINT_H_
