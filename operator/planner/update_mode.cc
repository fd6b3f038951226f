#include "operator/planner/update_mode.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "operator/api/field_names.h"
#include "operator/planner/conditions.h"
#include "operator/planner/status.h"

namespace downpour::planner {
namespace {

std::string TextOf(const api::UpdateModeStatus& mode) {
  std::string text(api::schema::Choice<api::UpdateMode>(api::schema::kUpdateModes).NameOf(mode.mode));
  if (mode.staleness.has_value()) absl::StrAppend(&text, " with at most ", *mode.staleness, " updates ahead");
  if (mode.updates_per_step.has_value()) absl::StrAppend(&text, " with ", *mode.updates_per_step, " updates a step");
  return text;
}

}  // namespace

bool IsInWantedMode(const api::UpdateSpec& wanted, const api::TrainingJobStatus& status) {
  if (!status.update.has_value()) return true;
  const api::UpdateModeStatus& mode = *status.update;
  if (mode.mode != wanted.mode) return false;
  switch (wanted.mode) {
    case api::UpdateMode::kAsync:
    case api::UpdateMode::kSandblaster:
      return true;
    case api::UpdateMode::kBoundedStaleness:
      return mode.staleness == wanted.staleness.value_or(api::kUsualStaleness);
    case api::UpdateMode::kSynchronous:
      return !wanted.updates_per_step.has_value() || mode.updates_per_step == wanted.updates_per_step;
  }
  return true;
}

void UpdateModeInForce(Context& context) {
  const CoordinatorReport* report = TrainingReport(context);
  if (report == nullptr || !report->mode.has_value()) return;
  std::optional<api::UpdateModeStatus>& known = context.status.update;
  // The first word of it is stored with that of the job being ready.
  if (known == report->mode || (!known.has_value() && !IsTrue(context.status, kReady))) return;
  if (known.has_value()) {
    context.Emit(false, "UpdateModeChanged",
                 absl::StrCat("updates are applied in the mode ", TextOf(*report->mode), " from update ",
                              report->updates_applied, " on; before: ", TextOf(*known)));
  }
  known = report->mode;
}

}  // namespace downpour::planner
