#ifndef DOWNPOUR_OPERATOR_KUBE_RETRY_H_
#define DOWNPOUR_OPERATOR_KUBE_RETRY_H_

#include <optional>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "operator/kube/transport.h"

// When a client sends its requests, and sends them again. Pure; times are of a clock that does not go back.
namespace downpour::kube {

// Permits that come at a rate; as many as `burst` wait in it. Not thread-safe.
class TokenBucket {
 public:
  // No limit if `per_second` is not positive.
  TokenBucket(double per_second, double burst) : per_second_(per_second), burst_(burst), permits_(burst) {}

  // Takes a permit and says how long its owner has to wait before using it, if that is at most `most`; else nothing.
  std::optional<absl::Duration> Take(absl::Duration now, absl::Duration most);

 private:
  const double per_second_;
  const double burst_;
  double permits_;  // negative: promised, not there yet
  std::optional<absl::Duration> updated_;
};

inline constexpr int kMaxTries = 10;

// How long to wait before the try after `tries` of them, of which this was the last one's end; nothing: it stands.
// 0 <= random < 1.
std::optional<absl::Duration> RetryDelay(const absl::StatusOr<HttpResponse>& last, int tries, double random);

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_RETRY_H_
