#ifndef DOWNPOUR_TRAINER_CHECKPOINT_S3_OPTIONS_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_S3_OPTIONS_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace downpour::checkpoint {

struct S3Credentials {
  std::string access_key_id;
  std::string secret_access_key;
  std::string session_token;  // may be empty
};

struct S3Options {
  // http:// or https://HOST[:PORT], with the bucket in the path of each request. Empty: AWS in this region.
  std::string endpoint;
  std::string region = "us-east-1";
  S3Credentials credentials;
  // A file of certificate authorities in place of the system's; empty: the system's.
  std::string ca_bundle;

  // What a writer holds in memory: a file up to this size is one request, a larger one is made of parts of it, 10,000
  // at most. S3 takes none under 5 MiB but the last.
  std::size_t part_bytes = 16 << 20;
  // What a reader asks for at once, and holds in memory.
  std::size_t read_ahead_bytes = 4 << 20;

  // Of one operation with all its attempts: a part or a range, a file that is committed, a whole list.
  absl::Duration deadline = absl::Seconds(60);
  // To connect, TLS included.
  absl::Duration connect_timeout = absl::Seconds(10);
  // An attempt ends when less than 1 KiB/s has moved for so long; whole seconds, at least one.
  absl::Duration stall_timeout = absl::Seconds(20);
  // Before attempt n + 1: a random time up to initial * 2^(n-1), but not more than max.
  absl::Duration backoff_initial = absl::Milliseconds(100);
  absl::Duration backoff_max = absl::Seconds(5);

  // Empty: the real ones. `now` counts from any origin and does not go back; `random` is in [0, 1). Called by all
  // threads that use the store.
  std::function<absl::Duration()> now;
  std::function<void(absl::Duration)> sleep;
  std::function<double()> random;
};

// From AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN, or else the profile AWS_PROFILE of the file
// AWS_SHARED_CREDENTIALS_FILE (~/.aws/credentials); AWS_REGION or AWS_DEFAULT_REGION; AWS_ENDPOINT_URL_S3 or
// AWS_ENDPOINT_URL; AWS_CA_BUNDLE. kInvalidArgument: no credentials, or a file that cannot be read as such. Errors show
// no secrets.
absl::StatusOr<S3Options> S3OptionsFromEnvironment();

}  // namespace downpour::checkpoint

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_S3_OPTIONS_H_
