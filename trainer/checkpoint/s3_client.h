#ifndef DOWNPOUR_TRAINER_CHECKPOINT_S3_CLIENT_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_S3_CLIENT_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "trainer/checkpoint/s3_options.h"

namespace downpour::checkpoint {

struct S3Request {
  std::string method;
  std::string key = {};  // empty: the bucket itself
  // Not encoded; must be sorted by name, as it is signed as it stands.
  std::vector<std::pair<std::string, std::string>> query = {};
  std::vector<std::pair<std::string, std::string>> headers = {};  // names in small letters
  absl::Span<const std::uint8_t> body = {};                       // must outlive the call
  std::size_t max_answer_bytes = 1 << 20;
};

// What came of a request. kUnavailable: no (whole) answer, or a server that cannot now; what may be better in a moment
// is transient. kPermissionDenied, kNotFound, kResourceExhausted (no room), kInvalidArgument, ...: it was refused. The
// message says bucket and key, HTTP status, S3's code and its message.
struct S3Answer {
  absl::Status status;
  bool transient = false;
  int http_status = 0;                         // 0: no answer
  std::string code;                            // S3's, of what was refused; HEAD has none
  std::map<std::string, std::string> headers;  // names in small letters
  std::string body;

  // Empty: it is not there.
  std::string Header(const std::string& name) const;
};

// The time that one operation has for all its attempts, and the waits between them.
class S3Attempts {
 public:
  // `options` must outlive it.
  explicit S3Attempts(const S3Options& options) : S3Attempts(options, options.deadline) {}
  S3Attempts(const S3Options& options, absl::Duration limit);
  absl::Duration left() const;
  // After an attempt that failed for the moment: waits, with full jitter, or says in `failure` that it was the last as
  // the time is up, and answers false.
  bool Again(absl::Status* failure);

 private:
  const S3Options& options_;
  const absl::Duration begin_;
  const absl::Duration end_;
  int failed_ = 0;
};

// Speaks to one bucket, with signatures of version 4. Connections are kept. Thread-safe.
class S3Client {
 public:
  // kInvalidArgument: an option that cannot be.
  static absl::StatusOr<std::unique_ptr<S3Client>> Create(S3Options options, std::string bucket);
  ~S3Client();

  const S3Options& options() const;
  // One attempt; at most the time that is left.
  S3Answer SendOnce(const S3Request& request, const S3Attempts& attempts);
  // Attempts while the failure is transient.
  S3Answer Send(const S3Request& request, S3Attempts& attempts);

 private:
  class Impl;
  explicit S3Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace downpour::checkpoint

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_S3_CLIENT_H_
