#include "operator/kube/api_error.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::kube {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

TEST(ApiError, EachCodeHasItsStatus) {
  const auto code = [](int http, const char* reason = "") { return ToStatus({http, reason, "text", {}}).code(); };
  EXPECT_EQ(code(404), absl::StatusCode::kNotFound);
  EXPECT_EQ(code(409, "AlreadyExists"), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(code(409, "Conflict"), absl::StatusCode::kAborted);
  EXPECT_EQ(code(410, "Expired"), absl::StatusCode::kOutOfRange);
  EXPECT_EQ(code(401), absl::StatusCode::kUnauthenticated);
  EXPECT_EQ(code(403), absl::StatusCode::kPermissionDenied);
  for (const int http : {400, 405, 415, 422}) EXPECT_EQ(code(http), absl::StatusCode::kInvalidArgument) << http;
  EXPECT_EQ(code(429), absl::StatusCode::kResourceExhausted);
  for (const int http : {302, 500, 502, 503, 504, 0}) EXPECT_EQ(code(http), absl::StatusCode::kUnavailable) << http;
}

TEST(ApiError, SurvivesItsStatus) {
  const ApiError error{429, "TooManyRequests", "slow down", absl::Seconds(3)};
  const std::optional<ApiError> read = GetApiError(ToStatus(error));
  ASSERT_TRUE(read.has_value());
  EXPECT_EQ(read->code, 429);
  EXPECT_EQ(read->reason, "TooManyRequests");
  EXPECT_EQ(read->message, "slow down");
  EXPECT_EQ(read->retry_after, absl::Seconds(3));
  EXPECT_EQ(GetApiError(ToStatus({404, "NotFound", "x", {}}))->retry_after, std::nullopt);
  EXPECT_EQ(GetApiError(absl::NotFoundError("no server said so")), std::nullopt);
}

TEST(ApiError, ReadsAStatusObject) {
  HttpResponse response{422,
                        R"({"kind": "Status", "reason": "Invalid", "message": "bad request",
      "details": {"retryAfterSeconds": 2, "causes": [
        {"reason": "FieldValueInvalid", "message": "left out"},
        {"reason": "UnexpectedServerResponse", "message": "testing value /metadata/uid failed"}]}})",
                        {}};
  const ApiError error = ReadApiError(response);
  EXPECT_EQ(error.code, 422);
  EXPECT_EQ(error.reason, "Invalid");
  EXPECT_EQ(error.message, "bad request: testing value /metadata/uid failed");
  EXPECT_EQ(error.retry_after, absl::Seconds(2));
  response.retry_after = absl::Seconds(9);
  EXPECT_EQ(ReadApiError(response).retry_after, absl::Seconds(9)) << "the header wins";
}

TEST(ApiError, ReadsWhatIsNoStatusObject) {
  const ApiError error = ReadApiError({502, "<html>\nbad gateway\x1b[31m" + std::string(1000, 'x'), {}});
  EXPECT_EQ(error.code, 502);
  EXPECT_EQ(error.message.size(), 256u);
  EXPECT_THAT(error.message, HasSubstr("bad gateway"));
  EXPECT_THAT(error.message, Not(HasSubstr("\n")));
  EXPECT_THAT(error.message, Not(HasSubstr("\x1b")));
  for (const char* body : {"", "null", "[]", R"({"kind": "Status", "details": 3, "message": 4})"}) {
    EXPECT_EQ(ReadApiError({500, body, {}}).reason, "") << body;
  }
}

}  // namespace
}  // namespace downpour::kube
