#include "operator/planner/disruption.h"

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "operator/api/rfc3339.h"
#include "operator/planner/checkpoint.h"
#include "operator/planner/leaving.h"
#include "operator/planner/status.h"

namespace downpour::planner {
namespace {

// The reason of DrainWaits, which is false then, while a drain goes on that does not wait any more.
constexpr char kLetThrough[] = "LetThrough";

bool IsLetThrough(const Context& context) {
  const api::Condition* drain = FindCondition(context.status, kDrainWaits);
  return drain != nullptr && !drain->status && drain->reason == kLetThrough;
}

// "ps-0 runs on node-1" of each that is in the way of a drain; empty: none is.
std::string InTheWay(const Context& context, const std::vector<std::string>& cordoned) {
  std::vector<std::string> found;
  for (const Instance& instance : context.observed.instances) {
    if (instance.role != api::Role::kParameterServer || !IsLive(instance) || instance.terminating) continue;
    if (std::find(cordoned.begin(), cordoned.end(), instance.node) == cordoned.end()) continue;
    if (HoldsNothing(context, instance.index)) continue;
    found.push_back(absl::StrCat(InstanceName(instance.role, instance.index), " runs on ", instance.node));
  }
  return absl::StrJoin(found, ", ");
}

std::string Cost(const Context& context) {
  if (context.job.spec.checkpoint.has_value()) {
    const std::string newest = NewestCheckpoint(context);
    return newest.empty() ? "all progress, as there is no checkpoint yet" : absl::StrCat("all progress since ", newest);
  }
  const std::optional<api::ProgressStatus>& progress = context.status.progress;
  std::string cost = "all progress";
  if (progress.has_value()) {
    absl::StrAppend(&cost, " (", progress->step, " updates");
    if (progress->epoch > 0) {
      absl::StrAppend(&cost, ", in epoch ", progress->epoch);
      if (const int epochs = context.job.spec.training.whole_epochs(); epochs > 0)
        absl::StrAppend(&cost, " of ", epochs);
    }
    absl::StrAppend(&cost, ")");
  }
  return absl::StrCat(cost, ", as no checkpoint is configured");
}

bool Empties(const Context& context) { return !context.status.leaving_parameter_servers.empty(); }

// Where standbys take over at once, nothing has to be saved before.
bool WaitsForCheckpoint(const Context& context) {
  return SavesBeforeDrain(context.job.spec) && !(Empties(context) && IsTrue(context.status, kProtected));
}

// What is done meanwhile, or what it would cost.
std::string WhatOfIt(const Context& context) {
  if (WaitsForCheckpoint(context)) return "a checkpoint is made first. ";
  if (Empties(context)) return "what is there goes to other parameter servers first, and nothing is lost. ";
  return absl::StrCat("it would cost ", Cost(context), ". ");
}

std::string HowToAllow(const Context& context, double deadline) {
  const char* const when = WaitsForCheckpoint(context) ? "when it is made, at the latest from "
                           : Empties(context)          ? "of who holds nothing any more, of all at the latest from "
                                                       : "from ";
  const api::Metadata& job = context.job.metadata;
  return absl::StrCat(
      "Evictions are let through ", when, api::FormatTime(std::round(deadline)),
      SavesBeforeDrain(context.job.spec) ? " on (checkpoint.onDisruption.timeoutSeconds)" : " on (maxProtectSeconds)",
      ", or now with: kubectl patch trainingjob ", job.name, " -n ", job.namespace_name,
      R"( --type=merge -p '{"spec":{"parameterServer":{"disruption":"Allow"}}}')");
}

// Nothing is in the way of the drain any more, if there is one.
void Emptied(Context& context) {
  const std::vector<int> free = FreeParameterServers(context);
  if (free.empty() || !IsTrue(context.status, kDrainWaits)) return;
  std::vector<std::string> names;
  names.reserve(free.size());
  for (const int index : free) names.push_back(InstanceName(api::Role::kParameterServer, index));
  context.Emit(false, "PsEmptied",
               absl::StrCat(absl::StrJoin(names, ", "), " hold", free.size() == 1 ? "s" : "",
                            " nothing any more: an eviction costs nothing"));
}

// No drain waits, or is let through, any more.
void Forget(Context& context, const std::string& reason, const std::string& message) {
  UnwantCheckpoint(context, kDrainRequest);
  if (!IsTrue(context.status, kDrainWaits) && !IsLetThrough(context)) return;
  context.SetCondition(kDrainWaits, false, reason, message);
}

// From now on, until no ps runs on a node that is drained.
void LetThrough(Context& context, bool warning, const std::string& why) {
  const std::string message =
      absl::StrCat(why, ": evictions of parameter servers are let through until none runs on a node that is drained");
  UnwantCheckpoint(context, kDrainRequest);
  context.SetCondition(kDrainWaits, false, kLetThrough, message);
  context.Emit(warning, "DrainLetThrough", message);
}

// Whether the drain that waits since `since` is let through now, as its checkpoint is made, or is not waited for any
// longer. A suspension that makes one makes it for both.
bool LetThroughOnceSaved(Context& context, double since) {
  const double deadline = DrainDeadline(context.job.spec, since);
  RequestOutcome outcome = RequestOutcome::kPending;
  if (!IsWanted(context.status, kSuspendRequest)) {
    outcome = WantCheckpoint(context, kDrainRequest, absl::StrCat(kDrainRequest, std::llround(since * 1000)));
  }
  if (outcome == RequestOutcome::kPending && context.now >= deadline) outcome = RequestOutcome::kLate;
  switch (outcome) {
    case RequestOutcome::kPending:
      return false;
    case RequestOutcome::kMade:
      LetThrough(
          context, false,
          absl::StrCat("the checkpoint before the drain is made, ", context.observed.report->checkpoint->newest));
      return true;
    case RequestOutcome::kNotMade:
    case RequestOutcome::kLate:
      break;
  }
  LetThrough(context, true,
             absl::StrCat("a drain waits, but ", WhyNotMade(context, outcome), "; it costs ", Cost(context)));
  return true;
}

}  // namespace

bool SavesBeforeDrain(const api::TrainingJobSpec& spec) {
  return spec.checkpoint.has_value() && spec.checkpoint->on_disruption.has_value();
}

double DrainDeadline(const api::TrainingJobSpec& spec, double since) {
  return since +
         (SavesBeforeDrain(spec) ? RequestSeconds(*spec.checkpoint) : spec.parameter_server->max_protect_seconds);
}

bool ProtectParameterServers(Context& context) {
  const api::TrainingJobStatus& status = context.status;
  const std::optional<api::ParameterServerSpec>& spec = context.job.spec.parameter_server;
  if (!spec.has_value()) return false;
  if (spec->disruption == api::DisruptionPolicy::kAllow) {
    Forget(context, "Allowed", "evictions of parameter servers are allowed");
    return false;
  }
  const bool known = context.observed.cordoned_nodes.has_value();
  const std::string in_the_way = known ? InTheWay(context, *context.observed.cordoned_nodes) : "";
  const bool loses = !IsSettled(status) && !IsTrue(status, kSuspended) && TrainingHasBegun(context);
  if (!loses || (known && in_the_way.empty())) {
    Emptied(context);
    Forget(context, "NothingWaits", "no drain waits for a parameter server of this job");
    return true;
  }
  const bool waited = IsTrue(status, kDrainWaits);
  if (!waited && (!known || IsLetThrough(context))) return !IsLetThrough(context);

  const double since = waited ? FindCondition(status, kDrainWaits)->last_transition_time : context.now;
  if (!waited) UnwantCheckpoint(context, kDrainRequest);  // that was another drain
  const double deadline = DrainDeadline(context.job.spec, since);
  if (WaitsForCheckpoint(context)) {
    if (LetThroughOnceSaved(context, since)) return false;
  } else if (context.now >= deadline) {
    LetThrough(context, true,
               SavesBeforeDrain(context.job.spec)
                   ? absl::StrCat("a drain waits, but nobody took over what is there; it costs ", Cost(context))
                   : absl::StrCat("a drain has waited for maxProtectSeconds = ", spec->max_protect_seconds));
    return false;
  }
  context.WakeAt(deadline);
  if (!known) return true;
  const std::string message =
      absl::StrCat("a drain waits, as ", in_the_way, ": ", WhatOfIt(context), HowToAllow(context, deadline));
  context.SetCondition(kDrainWaits, true, "NodeCordoned", message);
  if (!waited) context.Emit(!Empties(context), kDrainWaits, message);
  return true;
}

}  // namespace downpour::planner
