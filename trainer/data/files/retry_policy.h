#ifndef DOWNPOUR_TRAINER_DATA_FILES_RETRY_POLICY_H_
#define DOWNPOUR_TRAINER_DATA_FILES_RETRY_POLICY_H_

#include <optional>

#include "absl/time/time.h"

namespace downpour::data {

struct RetryOptions {
  // After so long of nothing but failures a store is given up, and so is a call that alone failed for so long.
  absl::Duration patience = absl::Minutes(5);
  // Before attempt n + 1: a random time up to initial * 2^(n-1), but not more than max.
  absl::Duration backoff_initial = absl::Milliseconds(100);
  absl::Duration backoff_max = absl::Seconds(10);
};

// Whether a store is asked again, and when. Times count from any origin and do not go back. Does not read a clock; not
// thread-safe.
class RetryPolicy {
 public:
  // A call, from its first attempt on.
  struct Call {
    absl::Duration begin;          // of the first attempt
    absl::Duration attempt_begin;  // of the last one
    int attempts = 1;
  };

  explicit RetryPolicy(const RetryOptions& options) : options_(options) {}

  // The store answered something, be it that there is no such file.
  void Answered(absl::Duration now);
  // The last attempt of the call failed; `random` is in [0, 1). How long to wait before the next one; nothing: there is
  // to be none.
  std::optional<absl::Duration> Failed(const Call& call, absl::Duration now, double random);

  // For how long there has been nothing but failures, the first attempt that failed included; zero: there is an answer.
  absl::Duration Outage(absl::Duration now) const;
  bool GivenUp(absl::Duration now) const { return Outage(now) >= options_.patience; }

 private:
  const RetryOptions options_;
  std::optional<absl::Duration> answered_;
  std::optional<absl::Duration> failing_since_;
};

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FILES_RETRY_POLICY_H_
