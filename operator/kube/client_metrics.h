#ifndef DOWNPOUR_OPERATOR_KUBE_CLIENT_METRICS_H_
#define DOWNPOUR_OPERATOR_KUBE_CLIENT_METRICS_H_

#include <functional>
#include <string>

#include "absl/time/time.h"

namespace downpour::kube {

// What a Client reports; each may be empty. Called from any thread.
struct ClientMetrics {
  // One HTTP exchange: "GET", 200 (0: no response), how long.
  std::function<void(const std::string& method, int code, absl::Duration taken)> on_request;
  // How long a request waited for the client's own limit; only those that had to.
  std::function<void(const std::string& method, absl::Duration waited)> on_rate_limited;
  // A request is sent again because of this code.
  std::function<void(const std::string& method, int code)> on_retry;
};

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_CLIENT_METRICS_H_
