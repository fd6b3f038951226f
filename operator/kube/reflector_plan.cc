#include "operator/kube/reflector_plan.h"

#include <algorithm>

#include "operator/kube/api_error.h"

namespace downpour::kube {

ReflectorPlan::Step ReflectorPlan::Next(double random) const {
  Step step;
  step.action = action_;
  if (action_ == Action::kListNextPage) step.continue_token = continue_token_;
  if (action_ == Action::kWatch) step.resource_version = watch_version_;
  if (failed_) {
    const absl::Duration most =
        std::min(limits_.most_backoff, limits_.first_backoff * (1 << std::clamp(failures_ - 1, 0, 16)));
    step.wait = most * random;
    if (asked_wait_.has_value()) step.wait = std::max(step.wait, *asked_wait_);
  }
  return step;
}

void ReflectorPlan::OnPage(const std::string& resource_version, const std::string& continue_token) {
  failed_ = false;
  if (action_ == Action::kListFirstPage) page_version_ = resource_version;
  continue_token_ = continue_token;
  if (!continue_token.empty()) {
    action_ = Action::kListNextPage;
    return;
  }
  action_ = Action::kWatch;
  watch_version_ = page_version_;
  progress_ = false;
  short_watches_ = 0;
}

void ReflectorPlan::OnListFailed(const absl::Status& status, absl::Duration now) {
  Failed(status, now);
  // A next page is not asked for again: its token may be what is wrong with it.
  action_ = Action::kListFirstPage;
  continue_token_.clear();
}

void ReflectorPlan::OnWatchProgress(const std::string& resource_version) {
  if (!resource_version.empty()) watch_version_ = resource_version;
  progress_ = true;
}

void ReflectorPlan::OnWatchEnded(WatchEnd end, const absl::Status& status, absl::Duration lived, absl::Duration now) {
  const bool progress = progress_;
  progress_ = false;
  failed_ = false;
  switch (end) {
    case WatchEnd::kClosed:
      if (progress || lived > limits_.short_watch) {
        short_watches_ = 0;
        return;
      }
      Failed(status, now);
      if (++short_watches_ >= limits_.short_watches) ListAgain();
      return;
    case WatchEnd::kBroken:
      return Failed(status, now);
    case WatchEnd::kRefused:
      Failed(status, now);
      // A server that has trouble has it with lists too; anything else may be about the version.
      if (!absl::IsUnavailable(status) && !absl::IsResourceExhausted(status)) ListAgain();
      return;
    case WatchEnd::kExpired:
    case WatchEnd::kUnreadable:
      Failed(status, now);
      return ListAgain();
  }
}

void ReflectorPlan::Failed(const absl::Status& status, absl::Duration now) {
  if (failed_at_.has_value() && now - *failed_at_ >= limits_.healthy) failures_ = 0;
  ++failures_;
  failed_ = true;
  failed_at_ = now;
  const std::optional<ApiError> error = GetApiError(status);
  asked_wait_ = error.has_value() ? error->retry_after : std::nullopt;
}

void ReflectorPlan::ListAgain() {
  action_ = Action::kListFirstPage;
  continue_token_.clear();
  short_watches_ = 0;
}

}  // namespace downpour::kube
