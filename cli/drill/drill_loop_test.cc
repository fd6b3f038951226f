#include "cli/drill/drill_loop.h"

#include <sstream>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

class FakeClock final : public Clock {
 public:
  double Now() const override { return now; }
  double now = 1000;
};

// A job with two workers that applies ten updates a second, and replaces who is killed after two.
class FakeTarget final : public DrillTarget {
 public:
  explicit FakeTarget(const FakeClock& clock) : clock_(clock) {}

  absl::StatusOr<DrillLook> Look() override {
    if (!look_error.ok()) return look_error;
    DrillLook look;
    look.now = clock_.Now();
    if (look.now >= end) {
      look.outcome = outcome;
      return look;
    }
    look.training = true;
    for (int index = 0; index < 2; ++index) {
      DrillMember member;
      member.id = std::to_string(index) + "." + std::to_string(starts[index]);
      member.index = index;
      member.alive = member.member = look.now >= back[index];
      member.heard = look.now;
      look.members.push_back(member);
    }
    DrillProgress& progress = look.progress.emplace();
    progress.word = look.now;
    progress.generation = 1;
    progress.updates = static_cast<std::uint64_t>((look.now - 1000) * 10 + 0.5);
    return look;
  }
  absl::Status Break(const DrillAttack& attack) override {
    if (!break_error.ok()) return break_error;
    ++kills;
    const int index = attack.victims.front().index;
    ++starts[index];
    back[index] = clock_.Now() + recovery;
    return absl::OkStatus();
  }
  void LetGoOn() override { ++let_gone; }
  absl::StatusOr<LedgerSummary> ReadLedger(bool over) override {
    ++ledgers;
    asked_over = over;
    return ledger;
  }

  double recovery = 2;
  double end = 1e9;
  std::string outcome = "Succeeded";
  absl::Status look_error;
  absl::Status break_error;
  absl::StatusOr<LedgerSummary> ledger = LedgerSummary();
  int kills = 0;
  int let_gone = 0;
  int ledgers = 0;
  bool asked_over = false;

 private:
  const FakeClock& clock_;
  int starts[2] = {1, 1};
  double back[2] = {0, 0};
};

class DrillLoopTest : public ::testing::Test {
 protected:
  DrillLoopTest() { options.kinds = {DrillKind::kWorker}; }

  DrillVerdict Run() {
    const DrillParts parts{target, clock,
                           [this](double seconds) {
                             clock.now += seconds;
                             return clock.now < stop_time;
                           },
                           out};
    return RunDrill(options, /*seed=*/1, parts);
  }

  FakeClock clock;
  FakeTarget target{clock};
  DrillOptions options;
  std::ostringstream out;
  double stop_time = 1e9;
};

TEST_F(DrillLoopTest, KillsUntilItsTimeIsOverAndWaitsForTheLast) {
  EXPECT_EQ(Run(), DrillVerdict::kDone);
  EXPECT_EQ(target.kills, 12);  // at 0, 5, ..., 55 s
  EXPECT_THAT(out.str(), HasSubstr("[    0.00 s] killed worker-"));
  EXPECT_THAT(out.str(), HasSubstr("is a member again, 2.00 s after it"));
  EXPECT_THAT(out.str(), EndsWith("drill: 12 kills, ledger exact\n"));
  EXPECT_FALSE(target.asked_over);
}

TEST_F(DrillLoopTest, ASlowRecoveryPutsTheNextOff) {
  target.recovery = 20.05;
  EXPECT_EQ(Run(), DrillVerdict::kDone);
  EXPECT_EQ(target.kills, 3);
}

TEST_F(DrillLoopTest, NoRecoveryEndsIt) {
  target.recovery = 100;
  EXPECT_EQ(Run(), DrillVerdict::kFailed);
  EXPECT_EQ(target.kills, 1);
  EXPECT_THAT(out.str(), HasSubstr("drill: 1 kill, worker-"));
  EXPECT_THAT(out.str(), EndsWith("was not replaced within 1 m 00 s, ledger exact\n"));
}

TEST_F(DrillLoopTest, TheEndOfTheJobEndsIt) {
  target.end = 1012.5;
  EXPECT_EQ(Run(), DrillVerdict::kDone);
  EXPECT_EQ(target.kills, 3);
  EXPECT_TRUE(target.asked_over);
  EXPECT_THAT(out.str(), EndsWith("drill: 3 kills, the job is over: Succeeded, ledger exact\n"));
}

TEST_F(DrillLoopTest, AJobThatFailsIsAFailedDrill) {
  target.end = 1013;
  target.outcome = "Failed";
  EXPECT_EQ(Run(), DrillVerdict::kFailed);
}

TEST_F(DrillLoopTest, TheUserEndsItAndGetsTheReport) {
  stop_time = 1006;
  EXPECT_EQ(Run(), DrillVerdict::kStopped);
  EXPECT_EQ(target.kills, 2);
  EXPECT_EQ(target.ledgers, 1);
  EXPECT_THAT(out.str(), HasSubstr("drill: 2 kills, stopped by the user, "));
}

TEST_F(DrillLoopTest, WhatIsStoppedGoesOnAtItsTimeAndAtTheEnd) {
  options.pause = true;
  options.stop_for = 3;
  options.duration = 4;
  EXPECT_EQ(Run(), DrillVerdict::kDone);
  EXPECT_EQ(target.let_gone, 2);
  EXPECT_THAT(out.str(), HasSubstr("stopped worker-"));
}

TEST_F(DrillLoopTest, WhoIsGoneIsNoKillAndAnErrorEndsIt) {
  target.break_error = absl::NotFoundError("gone");
  EXPECT_EQ(Run(), DrillVerdict::kFailed);
  EXPECT_THAT(out.str(), HasSubstr("drill: 0 kills, nothing that could be killed"));
  target.break_error = absl::PermissionDeniedError("no permission");
  EXPECT_EQ(Run(), DrillVerdict::kFailed);
  EXPECT_THAT(out.str(), HasSubstr("no permission, ledger exact\n"));
}

TEST_F(DrillLoopTest, SilenceIsWaitedForAMinute) {
  target.look_error = absl::UnavailableError("no answer from the API server");
  EXPECT_EQ(Run(), DrillVerdict::kFailed);
  EXPECT_GT(clock.now, 1060);
  EXPECT_LT(clock.now, 1062);
  target.look_error = absl::PermissionDeniedError("no permission");
  const double before = clock.now;
  EXPECT_EQ(Run(), DrillVerdict::kFailed);
  EXPECT_EQ(clock.now, before);
}

TEST_F(DrillLoopTest, TheLedgerIsAskedForAgainButNotATableThatContradictsItself) {
  target.ledger = absl::UnavailableError("no answer");
  EXPECT_EQ(Run(), DrillVerdict::kUnaudited);
  EXPECT_GT(target.ledgers, 20);
  target.ledgers = 0;
  target.ledger = absl::DataLossError("slice 0 is on two ps");
  EXPECT_EQ(Run(), DrillVerdict::kFailed);
  EXPECT_EQ(target.ledgers, 1);
}

}  // namespace
}  // namespace downpour::cli
