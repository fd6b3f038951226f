#ifndef DOWNPOUR_OPERATOR_KUBE_API_ERROR_H_
#define DOWNPOUR_OPERATOR_KUBE_API_ERROR_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "operator/kube/transport.h"

namespace downpour::kube {

// What the API server answered instead of success: the fields of its Status object.
struct ApiError {
  int code = 0;         // HTTP
  std::string reason;   // "AlreadyExists", "Conflict", "Invalid", "Forbidden", "Expired", ...
  std::string message;  // for people
  std::optional<absl::Duration> retry_after;
};

// 404 kNotFound; 409 AlreadyExists kAlreadyExists, other 409 kAborted; 410 kOutOfRange; 401 kUnauthenticated;
// 403 kPermissionDenied; 400, 405, 415, 422 kInvalidArgument; 429 kResourceExhausted; 5xx and the rest kUnavailable.
// Carries the ApiError as payload.
absl::Status ToStatus(const ApiError& error);
// Of a response with a status of 300 or more.
ApiError ReadApiError(const HttpResponse& response);
// The ApiError that a status carries, if it came from the API server.
std::optional<ApiError> GetApiError(const absl::Status& status);

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_API_ERROR_H_
