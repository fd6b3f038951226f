#include "operator/kube/api_error.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "operator/kube/json_text.h"
#include "operator/kube/protobuf_object.h"

namespace downpour::kube {
namespace {

constexpr char kPayload[] = "downpour.dev/kube.ApiError";
constexpr std::size_t kLongestPlainText = 256;

absl::StatusCode CodeOf(const ApiError& error) {
  switch (error.code) {
    case 400:
    case 405:
    case 415:
    case 422:
      return absl::StatusCode::kInvalidArgument;
    case 401:
      return absl::StatusCode::kUnauthenticated;
    case 403:
      return absl::StatusCode::kPermissionDenied;
    case 404:
      return absl::StatusCode::kNotFound;
    case 409:
      return error.reason == "AlreadyExists" ? absl::StatusCode::kAlreadyExists : absl::StatusCode::kAborted;
    case 410:
      return absl::StatusCode::kOutOfRange;
    case 429:
      return absl::StatusCode::kResourceExhausted;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

// Where the server has nothing to say itself, what it ran into is among the causes: a failed test of a JSON patch, say.
std::string UnexpectedCauses(const Json& status) {
  std::string causes;
  const Json* const found = Find(status, {"details", "causes"});
  if (found == nullptr || !found->is_array()) return causes;
  for (const Json& cause : *found) {
    if (FindText(cause, {"reason"}) == "UnexpectedServerResponse")
      absl::StrAppend(&causes, ": ", FindText(cause, {"message"}));
  }
  return causes;
}

}  // namespace

absl::Status ToStatus(const ApiError& error) {
  absl::Status status(CodeOf(error), absl::StrCat(error.message, " (HTTP ", error.code, error.reason.empty() ? "" : " ",
                                                  error.reason, ")"));
  Json payload = {{"code", error.code}, {"reason", error.reason}, {"message", error.message}};
  if (error.retry_after.has_value()) payload["retryAfterNanoseconds"] = absl::ToInt64Nanoseconds(*error.retry_after);
  status.SetPayload(kPayload, absl::Cord(DumpJson(payload)));
  return status;
}

ApiError ReadApiError(const HttpResponse& response) {
  ApiError error;
  error.code = response.status;
  error.retry_after = response.retry_after;
  const absl::StatusOr<Json> status = ParseBody(response.body, {});
  if (status.ok() && FindText(*status, {"kind"}) == "Status") {
    error.reason = FindText(*status, {"reason"});
    error.message = absl::StrCat(FindText(*status, {"message"}), UnexpectedCauses(*status));
    const auto seconds = FindInteger(*status, {"details", "retryAfterSeconds"});
    if (!error.retry_after.has_value() && seconds.has_value() && *seconds > 0) {
      error.retry_after = absl::Seconds(std::min<std::int64_t>(*seconds, 86'400));
    }
  } else if (IsProtobuf(response.body)) {
    error.message = std::string(status.status().message());
  } else {
    // Of a proxy in between. Control characters would let it write lines of its own into a log.
    error.message = response.body.substr(0, kLongestPlainText);
    std::replace_if(
        error.message.begin(), error.message.end(), [](char c) { return c >= 0 && (c < ' ' || c == 0x7f); }, ' ');
  }
  return error;
}

std::optional<ApiError> GetApiError(const absl::Status& status) {
  const absl::optional<absl::Cord> payload = status.GetPayload(kPayload);
  if (!payload.has_value()) return std::nullopt;
  const absl::StatusOr<Json> json = ParseJson(std::string(*payload));
  if (!json.ok()) return std::nullopt;
  ApiError error;
  error.code = static_cast<int>(FindInteger(*json, {"code"}).value_or(0));
  error.reason = FindText(*json, {"reason"});
  error.message = FindText(*json, {"message"});
  if (const auto wait = FindInteger(*json, {"retryAfterNanoseconds"})) error.retry_after = absl::Nanoseconds(*wait);
  return error;
}

}  // namespace downpour::kube
