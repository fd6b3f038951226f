#include "trainer/core/cuts.h"

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

class CutsTest : public ::testing::Test {
 protected:
  CutsTest() : cuts_(Options()) {
    cuts_.SetPs({0, 1});
    cuts_.StartClock(now_);
  }
  static CutOptions Options() {
    CutOptions options;
    options.interval = absl::Minutes(1);
    return options;
  }
  void Step() {
    cuts_.Step(now_, members_version_, members_confirmed_, [this] {
      std::vector<std::uint64_t> live;
      for (const auto& [session, cut] : sessions_) live.push_back(session);
      return live;
    });
  }
  void PsKnows(std::uint32_t ps, bool written = false, const std::string& error = "") {
    v1::CutState state;
    state.set_cut(cuts_.order().value_or(v1::CutOrder()).cut());
    state.set_error(error);
    if (written) state.mutable_files()->set_ps(ps);
    cuts_.OnPsState(ps, state, now_);
  }
  void Begin() {
    ASSERT_TRUE(cuts_.Due(now_));
    cuts_.Begin("checkpoint", now_);
    cuts_.OnStoreReady();
    PsKnows(0);
    PsKnows(1);
    Step();
    ASSERT_EQ(cuts_.phase(), Cuts::Phase::kMoving);
  }
  // Every session has moved: to the manifest.
  void Finish() {
    for (const auto& [session, cut] : sessions_) cuts_.OnSession(session, cuts_.announced());
    Step();
    PsKnows(0, true);
    PsKnows(1, true);
    Step();
    ASSERT_TRUE(cuts_.commit_due());
    EXPECT_EQ(cuts_.TakeFilesToCommit().size(), 2u);
    cuts_.OnCommitted(absl::OkStatus(), now_);
  }

  Time now_ = absl::Hours(5);
  Cuts cuts_;
  std::map<std::uint64_t, std::uint32_t> sessions_ = {{11, 0}, {12, 0}};
  std::uint64_t members_version_ = 3, members_confirmed_ = 3;
};

TEST_F(CutsTest, BeginsWhenTheIntervalIsOverAndNotBefore) {
  EXPECT_FALSE(cuts_.Due(now_));
  EXPECT_EQ(cuts_.next_timer(), now_ + absl::Minutes(1));
  now_ += absl::Minutes(1);
  EXPECT_TRUE(cuts_.Due(now_));
  Begin();
  EXPECT_FALSE(cuts_.Due(now_)) << "one at a time";
  Finish();
  EXPECT_EQ(cuts_.written(), 1u);
  EXPECT_FALSE(cuts_.Due(now_ + absl::Seconds(59)));
  EXPECT_TRUE(cuts_.Due(now_ + absl::Seconds(60)));
}

TEST_F(CutsTest, WorkersAreToldOnlyOnceEveryPsKnowsTheNumberAndTheStoreHasTheFolder) {
  now_ += absl::Minutes(1);
  cuts_.Begin("checkpoint", now_);
  EXPECT_EQ(cuts_.order()->cut(), 1u);
  EXPECT_FALSE(cuts_.order()->sealed());
  PsKnows(0);
  cuts_.OnStoreReady();
  Step();
  EXPECT_EQ(cuts_.announced(), 0u) << "ps 1 does not know it";
  PsKnows(1);
  Step();
  EXPECT_EQ(cuts_.announced(), 1u);
}

TEST_F(CutsTest, IsSealedWhenEverySessionHasMovedOrIsRefusedEverywhere) {
  now_ += absl::Minutes(1);
  Begin();
  cuts_.OnSession(11, 1);
  cuts_.OnSession(12, 0);
  Step();
  EXPECT_EQ(cuts_.phase(), Cuts::Phase::kMoving);
  members_version_ = 4;
  cuts_.OnSessionEnded(12, members_version_);
  Step();
  EXPECT_EQ(cuts_.phase(), Cuts::Phase::kMoving) << "a ps may still take pushes of it";
  members_confirmed_ = 4;
  Step();
  EXPECT_EQ(cuts_.phase(), Cuts::Phase::kWriting);
  EXPECT_TRUE(cuts_.order()->sealed());
}

TEST_F(CutsTest, WaitsForTheFenceOfSessionsThatEndedBefore) {
  now_ += absl::Minutes(1);
  members_version_ = 9;
  Begin();
  cuts_.OnSession(11, 1);
  cuts_.OnSession(12, 1);
  Step();
  EXPECT_EQ(cuts_.phase(), Cuts::Phase::kMoving);
  members_confirmed_ = 9;
  Step();
  EXPECT_EQ(cuts_.phase(), Cuts::Phase::kWriting);
}

TEST_F(CutsTest, AWishIsCoveredOnlyByACutThatIsToldToWorkersAfterIt) {
  const std::uint64_t first = cuts_.Wish();
  Begin();
  const std::uint64_t second = cuts_.Wish();
  Finish();
  EXPECT_GE(cuts_.settled(), first);
  EXPECT_LT(cuts_.settled(), second);
  EXPECT_TRUE(cuts_.settled_well());
  Begin();
  Finish();
  EXPECT_GE(cuts_.settled(), second);
  EXPECT_FALSE(cuts_.Due(now_));
}

TEST_F(CutsTest, AFailureIsToldAndTriedAgainMoreAndMoreSeldom) {
  now_ += absl::Minutes(1);
  const std::uint64_t wish = cuts_.Wish();
  absl::Duration before = absl::ZeroDuration();
  for (int attempt = 1; attempt <= 8; ++attempt) {
    Begin();
    PsKnows(1, false, "disk full");
    EXPECT_EQ(cuts_.phase(), Cuts::Phase::kIdle);
    EXPECT_EQ(cuts_.error(), "disk full");
    EXPECT_FALSE(cuts_.order().has_value());
    EXPECT_GE(cuts_.settled(), wish);
    EXPECT_FALSE(cuts_.settled_well());
    const absl::Duration pause = cuts_.next_timer() - now_;
    EXPECT_GE(pause, before);
    EXPECT_LE(pause, absl::Minutes(1));
    before = pause;
    now_ += pause;
  }
  EXPECT_EQ(cuts_.failed(), 8u);
  Begin();
  Finish();
  EXPECT_EQ(cuts_.error(), "");
  EXPECT_EQ(cuts_.next_timer(), now_ + absl::Minutes(1));
}

TEST_F(CutsTest, NumbersOnlyRise) {
  cuts_.NoteNumber(41);
  EXPECT_EQ(cuts_.announced(), 41u) << "whoever joins begins there";
  now_ += absl::Minutes(1);
  Begin();
  EXPECT_EQ(cuts_.number(), 42u);
  cuts_.NoteNumber(50);  // a worker that an older coordinator told
  EXPECT_EQ(cuts_.number(), 42u);
  EXPECT_EQ(cuts_.announced(), 42u);
  Finish();
  now_ += absl::Minutes(1);
  Begin();
  EXPECT_EQ(cuts_.number(), 51u);
  cuts_.Abort(now_);
  EXPECT_FALSE(cuts_.order().has_value());
  Begin();
  EXPECT_EQ(cuts_.number(), 52u);
  EXPECT_EQ(cuts_.failed(), 0u);
}

TEST_F(CutsTest, NothingIsWaitedForWithoutEnd) {
  now_ += absl::Minutes(1);
  cuts_.Begin("checkpoint", now_);
  now_ = cuts_.next_timer() + absl::Milliseconds(1);
  Step();
  EXPECT_EQ(cuts_.phase(), Cuts::Phase::kIdle);
  EXPECT_EQ(cuts_.error(), "the store did not answer");
  now_ = cuts_.next_timer();
  Begin();
  cuts_.OnSession(11, cuts_.announced());
  cuts_.OnSession(12, cuts_.announced());
  Step();
  now_ = cuts_.next_timer() + absl::Milliseconds(1);
  Step();
  EXPECT_EQ(cuts_.error(), "the ps did not write it in time");
}

}  // namespace
}  // namespace downpour::core
