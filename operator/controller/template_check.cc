#include "operator/controller/template_check.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "operator/api/pod_template.h"

namespace downpour::controller {
namespace {

constexpr double kRetrySeconds = 30;

std::vector<api::Role> RolesWithTemplates(const api::TrainingJobSpec& spec) {
  std::vector<api::Role> roles;
  for (const api::Role role : {api::Role::kCoordinator, api::Role::kParameterServer, api::Role::kWorker}) {
    if (!api::PodTemplate(spec, role).empty()) roles.push_back(role);
  }
  return roles;
}

// Our own word on them, as long as a condition may be; empty: nothing is wrong.
std::string Refusal(const std::vector<api::FieldError>& errors) {
  constexpr std::size_t kMost = 5;
  std::string text;
  for (std::size_t i = 0; i < std::min(errors.size(), kMost); ++i) {
    absl::StrAppend(&text, i == 0 ? "" : "; ", errors[i].ToString());
  }
  if (errors.size() > kMost) absl::StrAppend(&text, "; and ", errors.size() - kMost, " more");
  return text;
}

}  // namespace

bool TemplateCheck::IsDue(const JobRecord& record, double now) const {
  const bool begins =
      !record.job.status.start_time.has_value() && !record.job.spec.suspend && !record.meta.deletion_time.has_value();
  return begins && (!IsChecked(record) || (!error_.empty() && now >= checked_at_ + kRetrySeconds));
}

bool TemplateCheck::Asks(const JobRecord& record) { return !RolesWithTemplates(record.job.spec).empty(); }

absl::Status TemplateCheck::Run(const JobRecord& record, const PodOptions& options, kube::Client& client, Hold& starts,
                                double now) {
  std::string refusal = Refusal(api::CheckPodTemplates(record.job.spec));
  for (const api::Role role : RolesWithTemplates(record.job.spec)) {
    if (!refusal.empty()) break;
    const std::string whose = absl::StrCat("the template of ", std::string(api::ToString(role)));
    absl::StatusOr<kube::Json> pod = PodsOfRole(record.job, options, role).Make(0, 1);
    absl::Status status = pod.status();
    if (pod.ok()) {
      status = client.Create(kube::kPods, record.meta.namespace_name, *pod, {/*dry_run=*/true, /*metadata_only=*/true})
                   .status();
    }
    if (absl::IsAlreadyExists(status)) continue;  // the name is taken, which is another matter
    const std::optional<planner::Obstacle> obstacle = ToObstacle(status, whose, starts.refusals);
    // Quotas are looked at last, once all else is well. That there is no room is told of the pods themselves.
    if (obstacle.has_value() && obstacle->reason == kQuotaExceeded) continue;
    const bool no_namespace = obstacle.has_value() && obstacle->reason == kNamespaceTerminating;
    if (absl::IsInvalidArgument(status) || (absl::IsPermissionDenied(status) && !no_namespace)) {
      refusal = obstacle.has_value() ? obstacle->message : std::string(status.message());
    } else if (!status.ok()) {  // no verdict
      starts.Note(AsRefusal(status), absl::StrCat(whose, " cannot be checked"), now);
      return status;
    }
  }
  error_ = std::move(refusal);
  checked_ = record.meta.generation;
  checked_at_ = now;
  return absl::OkStatus();
}

std::optional<absl::Duration> TemplateCheck::LookAgain() const {
  return error_.empty() ? std::nullopt : std::optional(absl::Seconds(kRetrySeconds));
}

}  // namespace downpour::controller
