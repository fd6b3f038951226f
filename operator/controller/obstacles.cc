#include "operator/controller/obstacles.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "operator/kube/api_error.h"
#include "operator/planner/failure.h"

namespace downpour::controller {
namespace {

constexpr api::Backoff kObstacleBackoff = {1, 60};
constexpr api::Backoff kErrorBackoff = {1, 10};  // what may be over any moment

}  // namespace

std::optional<planner::Obstacle> ToObstacle(const absl::Status& status, const std::string& what, int before) {
  if (absl::IsAlreadyExists(status)) return planner::Obstacle{"NameConflict", std::string(status.message())};
  // Such as a webhook that does not answer. One alone says little.
  const auto server_error = [before](const std::string& message) {
    return before > 0 ? std::optional(planner::Obstacle{"ServerError", message}) : std::nullopt;
  };
  const std::optional<kube::ApiError> error = kube::GetApiError(status);
  if (!error.has_value()) {
    // No error, our own word about a template, and the end of this process.
    if (status.ok() || absl::IsInvalidArgument(status) || absl::IsCancelled(status)) return std::nullopt;
    return server_error(absl::StrCat(what, ": ", std::string(status.message())));
  }
  const std::string message = absl::StrCat(what, ": ", error->message);
  // The latter: a quota so new that nobody has counted yet what it is about.
  if (error->code == 403 && (absl::StrContains(error->message, "exceeded quota") ||
                             absl::StrContains(error->message, "status unknown for quota"))) {
    return planner::Obstacle{kQuotaExceeded, message};
  }
  if (error->code == 403 && absl::StrContains(error->message, "because it is being terminated")) {
    return planner::Obstacle{kNamespaceTerminating, message};
  }
  if (error->code == 404) return planner::Obstacle{"NamespaceGone", message};
  if (error->code == 403) return planner::Obstacle{"Forbidden", message};
  if (error->code == 400 || error->code == 422) return planner::Obstacle{"Refused", message};
  return server_error(message);
}

absl::Status AsRefusal(const absl::Status& status) {
  if (!absl::IsAborted(status)) return status;
  absl::Status refusal = absl::UnknownError(status.message());
  status.ForEachPayload(
      [&refusal](absl::string_view type, const absl::Cord& payload) { refusal.SetPayload(type, payload); });
  return refusal;
}

absl::Status Vanished(const kube::Resource& resource, const std::string& name) {
  return absl::UnavailableError(absl::StrCat(resource.kind, " ", name, " was deleted a moment ago"));
}

void Hold::Note(const absl::Status& status, const std::string& what, double now) {
  if (absl::IsAborted(status)) return;
  if (status.ok()) {
    *this = Hold();
    return;
  }
  std::optional<planner::Obstacle> found = ToObstacle(status, what, refusals);
  if (found.has_value()) obstacle = std::move(found);
  // The queue's own back-off is not enough: each try stores a number, which is a change, which is looked at at once.
  // Unlike a replacement, already the second try waits.
  const api::Backoff& backoff = obstacle.has_value() ? kObstacleBackoff : kErrorBackoff;
  until = now + planner::BackoffSeconds(backoff, ++refusals + 1);
}

void Hold::BoundAt(double now) { until = std::min<double>(until, now + kObstacleBackoff.max_seconds); }

}  // namespace downpour::controller
