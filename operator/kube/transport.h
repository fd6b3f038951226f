#ifndef DOWNPOUR_OPERATOR_KUBE_TRANSPORT_H_
#define DOWNPOUR_OPERATOR_KUBE_TRANSPORT_H_

#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace downpour::kube {

struct HttpRequest {
  std::string method = "GET";
  std::string path;                                        // percent-encoded, from the root of the server
  std::vector<std::pair<std::string, std::string>> query;  // not encoded
  std::string content_type = "application/json";
  std::string accept = "application/json";
  std::string body;
  // Exchange: for all of it. Stream: to the response's headers, and then between two pieces of the body. Without the
  // time that making credentials takes.
  absl::Duration timeout = absl::Seconds(30);
};

struct HttpResponse {
  int status = 0;
  std::string body;  // of a stream that was accepted: empty
  std::optional<absl::Duration> retry_after;
};

// HTTP to one API server, credentials included. Blocking: for threads of the caller's own. Thread-safe.
class Transport {
 public:
  virtual ~Transport() = default;

  // Any HTTP status is a response. kUnavailable: no connection, or it broke; kDeadlineExceeded; kCancelled: `stop`;
  // kResourceExhausted: a body larger than 64 MiB; kUnauthenticated: the credentials cannot be read.
  virtual absl::StatusOr<HttpResponse> Exchange(const HttpRequest& request, std::stop_token stop) = 0;

  // Calls `on_data` with every piece of the body as it arrives, those that follow one another closely together, until
  // the server ends the stream (the response), `on_data` returns false or `stop` is requested (kCancelled), or nothing
  // came for `request.timeout` (kDeadlineExceeded). A status other than 200 is answered with its body, and `on_data` is
  // not called.
  virtual absl::StatusOr<HttpResponse> Stream(const HttpRequest& request, std::stop_token stop,
                                              const std::function<bool(std::string_view)>& on_data) = 0;
};

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_TRANSPORT_H_
