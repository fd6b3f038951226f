#include "trainer/data/files/retry_policy.h"

#include <algorithm>

namespace downpour::data {

void RetryPolicy::Answered(absl::Duration now) {
  answered_ = now;
  failing_since_.reset();
}

std::optional<absl::Duration> RetryPolicy::Failed(const Call& call, absl::Duration now, double random) {
  // What began before the last answer says nothing about the time until then.
  if (!failing_since_.has_value())
    failing_since_ = std::max(call.attempt_begin, answered_.value_or(call.attempt_begin));
  const absl::Duration left = options_.patience - std::max(Outage(now), now - call.begin);
  if (left <= absl::ZeroDuration()) return std::nullopt;
  absl::Duration most = options_.backoff_initial;
  for (int attempt = 1; attempt < call.attempts && most < options_.backoff_max; ++attempt) most *= 2;
  return std::min(random * std::min(most, options_.backoff_max), left);
}

absl::Duration RetryPolicy::Outage(absl::Duration now) const {
  return failing_since_.has_value() ? now - *failing_since_ : absl::ZeroDuration();
}

}  // namespace downpour::data
