#include "operator/controller/obstacles.h"

#include <optional>
#include <random>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/kube/api_error.h"
#include "tests/support/seeds.h"

namespace downpour::controller {
namespace {

using ::testing::HasSubstr;

constexpr double kNow = 1'800'000'000;

absl::Status Answer(int code, const std::string& reason, const std::string& message = "no") {
  return kube::ToStatus({code, reason, message, std::nullopt});
}

std::string Reason(const absl::Status& status, int before) {
  const std::optional<planner::Obstacle> obstacle = ToObstacle(status, "a pod cannot be made", before);
  return obstacle.has_value() ? obstacle->reason : "";
}

TEST(ObstaclesTest, EachRefusalIsToldByItsOwnName) {
  const struct {
    absl::Status status;
    std::string at_once;
    std::string in_a_row;  // after another one
  } cases[] = {
      {absl::OkStatus(), "", ""},
      {absl::CancelledError("the process ends"), "", ""},
      {absl::InvalidArgumentError("spec.worker.template: no"), "", ""},
      {absl::AlreadyExistsError("Pod x is somebody else's"), "NameConflict", "NameConflict"},
      {Answer(403, "Forbidden", "exceeded quota: small"), "QuotaExceeded", "QuotaExceeded"},
      {Answer(403, "Forbidden", "status unknown for quota: small"), "QuotaExceeded", "QuotaExceeded"},
      {Answer(403, "Forbidden", "y because it is being terminated"), "NamespaceTerminating", "NamespaceTerminating"},
      {Answer(403, "Forbidden"), "Forbidden", "Forbidden"},
      {Answer(404, "NotFound"), "NamespaceGone", "NamespaceGone"},
      {Answer(400, "BadRequest"), "Refused", "Refused"},
      {Answer(422, "Invalid"), "Refused", "Refused"},
      {Answer(500, "InternalError", "exceeded quota"), "", "ServerError"},
      {Answer(409, "Conflict"), "", "ServerError"},
      {Answer(413, "TooLarge"), "", "ServerError"},
      {Answer(418, "Teapot"), "", "ServerError"},
      {Answer(429, "TooManyRequests"), "", "ServerError"},
      {absl::DeadlineExceededError("too late"), "", "ServerError"},
      {absl::InternalError("not JSON"), "", "ServerError"},
  };
  for (const auto& one : cases) {
    EXPECT_EQ(Reason(one.status, 0), one.at_once) << one.status;
    EXPECT_EQ(Reason(one.status, 1), one.in_a_row) << one.status;
    EXPECT_EQ(Reason(one.status, 100), one.in_a_row) << one.status;
  }
  EXPECT_EQ(ToObstacle(Answer(422, "Invalid", "bad field"), "a pod cannot be made", 0)->message,
            "a pod cannot be made: bad field");
}

TEST(ObstaclesTest, AConflictOfWhatIsMadeIsNoSignOfACacheThatIsBehind) {
  const absl::Status refusal = AsRefusal(Answer(409, "Conflict", "the webhook says no"));
  EXPECT_FALSE(absl::IsAborted(refusal));
  ASSERT_TRUE(kube::GetApiError(refusal).has_value()) << "what the server said is kept";
  EXPECT_EQ(kube::GetApiError(refusal)->code, 409);
  EXPECT_THAT(std::string(refusal.message()), HasSubstr("the webhook says no"));
  for (const absl::Status& other : {absl::OkStatus(), Answer(403, "Forbidden"), absl::AlreadyExistsError("x")}) {
    EXPECT_EQ(AsRefusal(other), other);
  }
}

TEST(ObstaclesTest, WhatVanishedIsTriedAgainAndIsNoMissingNamespace) {
  const absl::Status vanished = Vanished(kube::kPods, "lenet-worker-0");
  EXPECT_TRUE(absl::IsUnavailable(vanished));
  EXPECT_EQ(Reason(vanished, 0), "");
}

TEST(ObstaclesTest, WhatIsRefusedWaitsTwiceAsLongEachTimeUpToAMinute) {
  Hold hold;
  for (const double seconds : {1, 2, 4, 8, 16, 32, 60, 60}) {
    hold.Note(Answer(403, "Forbidden", "exceeded quota"), "a pod cannot be made", kNow);
    EXPECT_EQ(hold.until, kNow + seconds);
  }
  EXPECT_EQ(hold.obstacle->reason, kQuotaExceeded);
  hold.Note(absl::OkStatus(), "", kNow);
  EXPECT_FALSE(hold.obstacle.has_value());
  EXPECT_EQ(hold.refusals, 0);
  EXPECT_EQ(hold.until, 0);
}

TEST(ObstaclesTest, OneErrorOfTheServerSaysLittleAndTwoAreToldAndNeitherHidesWhatIsKnown) {
  Hold hold;
  hold.Note(Answer(500, "InternalError"), "a pod cannot be made", kNow);
  EXPECT_FALSE(hold.obstacle.has_value());
  EXPECT_EQ(hold.until, kNow + 1);
  hold.Note(Answer(500, "InternalError"), "a pod cannot be made", kNow);
  EXPECT_EQ(hold.obstacle->reason, "ServerError");
  Hold blocked;
  blocked.Note(absl::AlreadyExistsError("Pod x is somebody else's"), "a pod cannot be made", kNow);
  blocked.Note(absl::CancelledError("the process ends"), "a pod cannot be made", kNow);
  EXPECT_EQ(blocked.obstacle->reason, "NameConflict") << "that says nothing new";
}

// Whatever is answered, it is neither asked all the time nor given up for longer than a minute.
TEST(ObstaclesTest, EachFailureHoldsForASecondToAMinuteAndAConflictChangesNothing) {
  for (std::uint32_t seed = 0; seed < Seeds(300); ++seed) {
    std::mt19937 random(seed);
    Hold hold;
    double now = kNow;
    for (int step = 0; step < 60; ++step) {
      now += static_cast<double>(random() % 100);
      const Hold before = hold;
      switch (random() % 10) {
        case 0:
          hold.Note(absl::OkStatus(), "it cannot", now);
          ASSERT_FALSE(hold.obstacle.has_value());
          ASSERT_LE(hold.until, now);
          break;
        case 1:
          hold.Note(Answer(409, "Conflict"), "it cannot", now);
          ASSERT_EQ(hold.until, before.until);
          ASSERT_EQ(hold.refusals, before.refusals);
          ASSERT_EQ(hold.obstacle.has_value(), before.obstacle.has_value());
          break;
        case 2: {
          now -= 10000;  // the clock was ahead
          hold.BoundAt(now);
          ASSERT_LE(hold.until, now + 60);
          break;
        }
        default: {
          const int codes[] = {400, 403, 404, 413, 422, 429, 500, 503};
          hold.Note(Answer(codes[random() % 8], "Reason"), "it cannot", now);
          ASSERT_GE(hold.until, now + 1);
          ASSERT_LE(hold.until, now + 60);
          ASSERT_EQ(hold.refusals, before.refusals + 1);
          ASSERT_TRUE(hold.obstacle.has_value() || hold.refusals == 1) << "two in a row are told";
        }
      }
    }
  }
}

}  // namespace
}  // namespace downpour::controller
