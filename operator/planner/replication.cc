#include "operator/planner/replication.h"

#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "operator/planner/status.h"

namespace downpour::planner {
namespace {

constexpr char kDegraded[] = "Degraded";  // reason and event

}  // namespace

std::string MissingPs(const Context& context, const std::vector<int>& indices) {
  std::vector<std::string> names;
  for (const int index : indices) {
    const Instance* ps = context.LiveInstance(api::Role::kParameterServer, index);
    if (!IsWorking(ps) || !ps->ready) names.push_back(InstanceName(api::Role::kParameterServer, index));
  }
  return absl::StrJoin(names, ", ");
}

void ReportFailover(Context& context, const std::string& what) {
  const std::optional<api::ReplicationSpec>& replication = context.job.spec.parameter_server->replication;
  const int lag = replication.has_value() ? replication->lag() : 0;
  std::string cost = "nothing that was acknowledged is lost";
  if (lag > 0) {
    cost = absl::StrCat("up to ", lag, " updates of each of its slices are lost (replication.maxLag)");
  }
  const std::string message = absl::StrCat(what, "; standbys take over, ", cost);
  context.Emit(true, "PsLost", message);
  context.SetCondition(kProtected, false, kDegraded, message);
}

void UpdateReplication(Context& context) {
  const CoordinatorReport* report = TrainingReport(context);
  if (report == nullptr || !report->replication.has_value()) return;
  for (const char* type : {kSuspended, kRestarting}) {
    if (IsTrue(context.status, type)) return;
  }
  if (IsSettled(context.status)) return;  // all of them end
  const ReplicationReport& told = *report->replication;
  // The first word of it is stored with that of the job being ready.
  if (context.status.slices.has_value() || IsTrue(context.status, kReady)) {
    context.status.slices = {told.slices, told.in_sync, told.moving, report->placed_ps};
  }
  if (!HasStandbys(context.job.spec)) return;
  const std::string missing = MissingPs(context, report->placed_ps);
  const api::Condition* const known = FindCondition(context.status, kProtected);
  // It may be from before a loss that was just told.
  if (known != nullptr && !known->status && report->received_time <= known->last_transition_time) return;
  const bool before = IsTrue(context.status, kProtected);
  if (told.slices > 0 && told.in_sync == told.slices && missing.empty()) {
    const std::string message = absl::StrCat("each of the ", told.slices, " slices has a standby that is in sync");
    if (!before) context.Emit(false, kProtected, message);
    context.SetCondition(kProtected, true, "InSync", message);
    return;
  }
  std::string message = absl::StrCat(told.in_sync, " of ", told.slices, " slices have a standby that is in sync");
  if (!missing.empty()) absl::StrAppend(&message, "; missing: ", missing);
  if (!told.message.empty()) absl::StrAppend(&message, "; ", told.message);
  if (before) context.Emit(true, kDegraded, message);
  context.SetCondition(kProtected, false, kDegraded, std::move(message));
}

}  // namespace downpour::planner
