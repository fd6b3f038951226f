#include "cli/drill/drill_report.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

using ::testing::EndsWith;
using ::testing::HasSubstr;

DrillKill Kill(DrillKind kind, double replaced, double trained, double stood_still = 0) {
  DrillKill kill;
  kill.attack.kind = kind;
  DrillMember victim;
  victim.index = 1;
  kill.attack.victims = {victim};
  kill.replaced = replaced;
  kill.trained = trained;
  kill.stood_still = stood_still;
  return kill;
}

LedgerSummary Ledger(std::uint64_t missing, std::uint64_t duplicated) {
  LedgerSummary ledger;
  ledger.expected = 100;
  ledger.missing = missing;
  ledger.applied = 100 - missing;
  ledger.duplicated = duplicated;
  return ledger;
}

class DrillReportTest : public ::testing::Test {
 protected:
  DrillReportTest() {
    state.kills = {Kill(DrillKind::kWorker, 1, 0.5), Kill(DrillKind::kWorker, 4, 0.1), Kill(DrillKind::kWorker, 2, 0.2),
                   Kill(DrillKind::kPs, 3, 6, 6)};
    state.kills.back().rollbacks = 1;
    state.kills.back().lost = 32;
    ending.ledger = Ledger(40, 0);
  }
  DrillState state;
  DrillEnding ending;
};

TEST_F(DrillReportTest, ATableOfTheKindsAndTheLedger) {
  EXPECT_EQ(JudgeDrill(state, ending), DrillVerdict::kDone);
  EXPECT_EQ(DrillReport(state, ending),
            "KILLED  TIMES  REPLACED AFTER  AT MOST  TRAINED ON AFTER  AT MOST  STOOD STILL  ROLL-BACKS  UPDATES LOST\n"
            "ps      1      3.00 s          3.00 s   6.00 s            6.00 s   6.00 s       1           32\n"
            "worker  3      2.00 s          4.00 s   0.20 s            0.50 s   0.00 s       0           0\n"
            "all     4      2.50 s          4.00 s   0.35 s            6.00 s   6.00 s       1           32\n"
            "ledger: 60 of 100 updates are on every slice so far, 0 applied twice\n"
            "drill: 4 kills, ledger exact\n");
}

TEST_F(DrillReportTest, AnUpdateThatWasAppliedTwiceIsAFailure) {
  ending.ledger = Ledger(40, 2);
  EXPECT_EQ(JudgeDrill(state, ending), DrillVerdict::kFailed);
  EXPECT_THAT(DrillReport(state, ending),
              EndsWith("drill: 4 kills, ledger: 60 of 100 updates are on every slice, 40 missing, 2 applied twice\n"));
  ending.ledger = absl::DataLossError("slice 3 is on two ps");
  EXPECT_EQ(JudgeDrill(state, ending), DrillVerdict::kFailed);
}

TEST_F(DrillReportTest, OnceTheJobIsOverNothingMayBeMissing) {
  ending.job_over = true;
  EXPECT_EQ(JudgeDrill(state, ending), DrillVerdict::kFailed);
  ending.ledger = Ledger(0, 0);
  ending.reason = "the job is over: Succeeded";
  EXPECT_EQ(JudgeDrill(state, ending), DrillVerdict::kDone);
  EXPECT_THAT(DrillReport(state, ending), EndsWith("drill: 4 kills, the job is over: Succeeded, ledger exact\n"));
}

TEST_F(DrillReportTest, WhatDidNotRecoverIsAFailureUnlessTheUserStoppedIt) {
  state.kills.back().trained.reset();
  state.kills.back().attack.victims.front().role = api::Role::kParameterServer;
  EXPECT_EQ(JudgeDrill(state, ending), DrillVerdict::kFailed);
  ending.stopped = true;
  EXPECT_EQ(JudgeDrill(state, ending), DrillVerdict::kStopped);
  EXPECT_THAT(DrillReport(state, ending), HasSubstr("drill: 4 kills, stopped by the user, no update was applied after "
                                                    "ps-1 until then, ledger exact\n"));
  ending.ledger = Ledger(0, 1);
  EXPECT_EQ(JudgeDrill(state, ending), DrillVerdict::kFailed);
}

TEST_F(DrillReportTest, SilenceSaysNothingOfTheLedger) {
  for (const absl::Status& silence : {absl::UnavailableError("no answer"), absl::NotFoundError("gone"),
                                      absl::FailedPreconditionError("two generations")}) {
    ending.ledger = silence;
    EXPECT_EQ(JudgeDrill(state, ending), DrillVerdict::kUnaudited) << silence;
  }
  EXPECT_THAT(DrillReport(state, ending), EndsWith("drill: 4 kills, ledger not read: two generations\n"));
}

TEST_F(DrillReportTest, NoKillShowsNothing) {
  state.kills.clear();
  EXPECT_EQ(JudgeDrill(state, ending), DrillVerdict::kFailed);
  EXPECT_THAT(DrillReport(state, ending), EndsWith("drill: 0 kills, ledger exact\n"));
  state.kills = {Kill(DrillKind::kCoordinator, 1, 1)};
  EXPECT_THAT(DrillReport(state, ending), EndsWith("drill: 1 kill, ledger exact\n"));
}

}  // namespace
}  // namespace downpour::cli
