#include "operator/kube/retry.h"

#include <algorithm>

#include "operator/kube/api_error.h"

namespace downpour::kube {
namespace {

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(100);
constexpr absl::Duration kMostBackoff = absl::Seconds(5);

}  // namespace

std::optional<absl::Duration> TokenBucket::Take(absl::Duration now, absl::Duration most) {
  if (per_second_ <= 0) return absl::ZeroDuration();
  if (updated_.has_value() && now > *updated_) {
    permits_ = std::min(burst_, permits_ + absl::ToDoubleSeconds(now - *updated_) * per_second_);
  }
  updated_ = now;
  const absl::Duration wait = permits_ >= 1 ? absl::ZeroDuration() : absl::Seconds((1 - permits_) / per_second_);
  if (wait > most) return std::nullopt;
  permits_ -= 1;
  return wait;
}

std::optional<absl::Duration> RetryDelay(const absl::StatusOr<HttpResponse>& last, int tries, double random) {
  if (tries >= kMaxTries) return std::nullopt;
  // Half of it fixed, so that many clients spread but none hurries.
  const absl::Duration backoff = std::min(kMostBackoff, kFirstBackoff * (1 << std::min(tries - 1, 10)));
  const absl::Duration jittered = backoff * (0.5 + 0.5 * random);
  if (!last.ok()) {
    if (!absl::IsUnavailable(last.status())) return std::nullopt;
    return jittered;
  }
  const bool limited = last->status == 429;
  if (!limited && last->status < 500) return std::nullopt;
  const std::optional<absl::Duration> asked = ReadApiError(*last).retry_after;
  if (!limited && !asked.has_value()) return std::nullopt;
  return asked.has_value() ? std::max(*asked, jittered) : jittered;
}

}  // namespace downpour::kube
