#include "operator/planner/output.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

namespace downpour::planner {
namespace {

constexpr char kGone[] = "Gone";  // reason of OutputTemporary once the model went with its pod

// As one word of a shell's command line.
std::string Quoted(const std::string& text) {
  constexpr std::string_view kPlain = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789/._-";
  if (text.find_first_not_of(kPlain) == std::string::npos) return text;
  return absl::StrCat("'", absl::StrReplaceAll(text, {{"'", "'\\''"}}), "'");
}

std::string PodOfModel(const Context& context) {
  return absl::StrCat(context.job.metadata.name, "-", InstanceName(api::Role::kWorker, context.status.output->worker));
}

bool AnyKeepsModel(const Context& context) {
  const std::vector<Instance>& instances = context.observed.instances;
  return std::any_of(instances.begin(), instances.end(),
                     [&context](const Instance& instance) { return KeepsModel(context, instance); });
}

}  // namespace

void AnnounceOutput(Context& context) {
  context.status.output.reset();
  const std::string& directory = context.observed.temporary_output;
  if (directory.empty()) {
    context.ClearCondition(kOutputTemporary, "Kept", "the output is in a volume that outlives its pod");
    return;
  }
  const int seconds = context.job.spec.output.keep_seconds;
  const std::string message =
      absl::StrCat("the model is written to ", directory, ", which is in no volume that outlives its pod: it is gone ",
                   seconds == 0 ? "at the end" : absl::StrCat(seconds, " s after the end (spec.output.keepSeconds)"),
                   ". To keep it, mount a volume there in spec.worker.template");
  if (!IsTrue(context.status, kOutputTemporary)) context.Emit(true, kOutputTemporary, message);
  context.SetCondition(kOutputTemporary, true, "NoVolume", message);
}

bool KeepsModel(const Context& context, const Instance& instance) {
  const std::optional<api::OutputStatus>& output = context.status.output;
  return output.has_value() && IsTrue(context.status, kOutputTemporary) && context.job.spec.output.keep_seconds > 0 &&
         !context.observed.deletion_requested && instance.role == api::Role::kWorker &&
         instance.index == output->worker && instance.incarnation == output->incarnation &&
         instance.phase == InstancePhase::kRunning && !instance.terminating &&
         (!output->kept_until || context.now < *output->kept_until);
}

void BeginToKeepModel(Context& context) {
  if (!AnyKeepsModel(context)) return;
  int seconds = context.job.spec.output.keep_seconds;
  // With the job its pods go.
  if (context.job.spec.ttl_seconds_after_finished) {
    seconds = std::min(seconds, *context.job.spec.ttl_seconds_after_finished);
  }
  api::OutputStatus& output = *context.status.output;
  output.kept_until = context.now + seconds;
  const std::string& space = context.job.metadata.namespace_name;
  const std::string message = absl::StrCat("the model is kept for ", seconds, " s by its pod: kubectl exec ",
                                           space.empty() ? "" : absl::StrCat("-n ", space, " "), PodOfModel(context),
                                           " -c trainer -- cat ", Quoted(output.path), " > model.safetensors");
  context.SetCondition(kOutputTemporary, true, "ModelKept", message);
  context.Emit(false, "ModelKept", message);
}

void FollowKeptModel(Context& context) {
  const std::optional<api::OutputStatus>& output = context.status.output;
  if (!output.has_value() || !output->kept_until) return;
  if (AnyKeepsModel(context)) {
    context.WakeAt(*output->kept_until);
  } else if (FindCondition(context.status, kOutputTemporary)->reason != kGone) {
    context.SetCondition(kOutputTemporary, true, kGone, absl::StrCat("the model went with ", PodOfModel(context)));
  }
}

}  // namespace downpour::planner
