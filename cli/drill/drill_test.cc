#include "cli/drill/drill.h"

#include <set>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

DrillMember Member(api::Role role, int index, const std::string& id, const std::string& node = "") {
  DrillMember member;
  member.id = id;
  member.role = role;
  member.index = index;
  member.node = node;
  member.alive = member.member = true;
  return member;
}

DrillMember Worker(int index, const std::string& id, const std::string& node = "") {
  return Member(api::Role::kWorker, index, id, node);
}

DrillLook Look(double now, std::uint64_t updates, std::uint64_t generation = 1) {
  DrillLook look;
  look.now = now;
  look.training = true;
  look.members = {Member(api::Role::kCoordinator, 0, "c"), Member(api::Role::kParameterServer, 0, "p"), Worker(0, "a"),
                  Worker(1, "b")};
  DrillProgress& progress = look.progress.emplace();
  progress.word = now;
  progress.generation = generation;
  progress.updates = updates;
  return look;
}

DrillOptions Options(std::vector<DrillKind> kinds) {
  DrillOptions options;
  options.kinds = std::move(kinds);
  return options;
}

// A job that lost worker-1 at 10.
class AfterAKillTest : public ::testing::Test {
 protected:
  AfterAKillTest() {
    TakeLook(Look(10, 100), &state);
    NoteKill({DrillKind::kWorker, {Worker(1, "b")}}, 10, &state);
  }
  const DrillKill& kill() const { return state.kills.back(); }
  DrillStep Decide(const DrillLook& look) { return DecideDrill(options, state, look, &random).step; }

  DrillOptions options = Options({DrillKind::kWorker});
  DrillState state;
  std::mt19937_64 random{1};
};

TEST(DrillKindsTest, WordsWithCommasBetween) {
  EXPECT_THAT(*ParseDrillKinds("ps,worker,ps"), ElementsAre(DrillKind::kPs, DrillKind::kWorker));
  for (const char* text : {"", "worker,", "server"}) {
    const auto kinds = ParseDrillKinds(text);
    EXPECT_TRUE(absl::IsInvalidArgument(kinds.status())) << text;
    EXPECT_THAT(kinds.status().message(), HasSubstr("expected worker, ps, coordinator or node"));
  }
}

TEST(DrillChoiceTest, EveryMemberOfTheKindsIsChosenAndNobodyElse) {
  DrillLook look = Look(0, 1);
  look.members.push_back(Worker(2, "d"));
  look.members.back().member = false;
  look.members.push_back(Worker(3, "e"));
  look.members.back().alive = false;
  const DrillOptions options = Options({DrillKind::kWorker, DrillKind::kCoordinator});
  std::set<std::string> chosen;
  std::mt19937_64 random(7);
  for (int i = 0; i < 200; ++i) {
    const DrillDecision decision = DecideDrill(options, {}, look, &random);
    ASSERT_EQ(decision.step, DrillStep::kKill);
    ASSERT_EQ(decision.attack.victims.size(), 1u);
    chosen.insert(decision.attack.what());
  }
  EXPECT_THAT(chosen, ElementsAre("coordinator-0", "worker-0", "worker-1"));
}

TEST(DrillChoiceTest, TheSameSeedChoosesTheSame) {
  const DrillOptions options = Options({DrillKind::kWorker, DrillKind::kPs});
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    std::mt19937_64 first(seed);
    std::mt19937_64 second(seed);
    for (int i = 0; i < 10; ++i) {
      EXPECT_EQ(DecideDrill(options, {}, Look(0, 1), &first).attack.what(),
                DecideDrill(options, {}, Look(0, 1), &second).attack.what());
    }
  }
}

TEST(DrillChoiceTest, AnIndexIsKeptTo) {
  DrillOptions options = Options({DrillKind::kWorker});
  options.index = 1;
  std::mt19937_64 random(1);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(DecideDrill(options, {}, Look(0, 1), &random).attack.what(), "worker-1");
  options.index = 9;
  EXPECT_EQ(DecideDrill(options, {}, Look(0, 1), &random).step, DrillStep::kWait);
}

TEST(DrillChoiceTest, ANodeIsAllThatIsOnIt) {
  DrillLook look = Look(0, 1);
  look.members = {Worker(0, "a", "n1"), Worker(1, "b", "n2"), Member(api::Role::kParameterServer, 0, "p", "n1")};
  look.members[2].member = false;  // it starts
  std::mt19937_64 random(1);
  std::set<std::string> chosen;
  for (int i = 0; i < 50; ++i) {
    chosen.insert(DecideDrill(Options({DrillKind::kNode}), {}, look, &random).attack.what());
  }
  EXPECT_THAT(chosen, ElementsAre("worker-0 and ps-0 on node n1", "worker-1 on node n2"));
}

TEST_F(AfterAKillTest, TheNextOneWaitsForTheRecoveryAndForItsTime) {
  DrillLook gone = Look(11, 100);
  gone.members.pop_back();
  TakeLook(gone, &state);
  EXPECT_EQ(Decide(gone), DrillStep::kWait);
  // Another start of it is a member, and no update has come since.
  DrillLook back = Look(12, 100);
  back.members.back().id = "b2";
  EXPECT_THAT(TakeLook(back, &state), ElementsAre("worker-1 is a member again, 2.00 s after it"));
  EXPECT_FALSE(kill().recovered());
  DrillLook trains = back;
  trains.now = 12.5;
  trains.progress->updates = 101;
  trains.progress->word = 12.5;
  EXPECT_THAT(TakeLook(trains, &state), ElementsAre("updates rise again, 2.50 s after it, to 101"));
  EXPECT_TRUE(kill().recovered());
  EXPECT_EQ(*kill().replaced, 2);
  EXPECT_EQ(*kill().trained, 2.5);
  EXPECT_EQ(kill().stood_still, 2.5);
  EXPECT_EQ(Decide(trains), DrillStep::kWait);
  trains.now = 15;
  EXPECT_EQ(Decide(trains), DrillStep::kKill);
  trains.training = false;
  EXPECT_EQ(Decide(trains), DrillStep::kWait);
  trains.now = 60;
  EXPECT_EQ(Decide(trains), DrillStep::kEnd);
}

TEST_F(AfterAKillTest, TheSameStartIsNotAReplacement) {
  TakeLook(Look(11, 100), &state);
  TakeLook(Look(12, 105), &state);
  EXPECT_TRUE(kill().trained.has_value());
  EXPECT_FALSE(kill().replaced.has_value());
  EXPECT_THAT(kill().missing(), HasSubstr("worker-1 was not replaced"));
}

// What the first word after the kill tells may have been applied before it.
TEST_F(AfterAKillTest, OnlyUpdatesAfterTheFirstWordCount) {
  DrillLook old = Look(11, 100);
  old.progress->word = 10;  // said before
  TakeLook(old, &state);
  TakeLook(Look(12, 150), &state);
  EXPECT_FALSE(kill().trained.has_value());
  TakeLook(Look(13, 150), &state);
  EXPECT_FALSE(kill().trained.has_value());
  TakeLook(Look(14, 151), &state);
  EXPECT_EQ(kill().trained, 4);
}

TEST_F(AfterAKillTest, ACoordinatorThatGathersSaysNothingOfUpdates) {
  DrillLook gathers = Look(11, 0);
  gathers.training = false;
  TakeLook(gathers, &state);
  TakeLook(Look(12, 100), &state);
  EXPECT_FALSE(kill().trained.has_value());
  EXPECT_EQ(state.updates, 100u);
}

TEST_F(AfterAKillTest, ARollBackIsCountedAndWhatRoseBeforeIsGone) {
  TakeLook(Look(11, 110), &state);
  TakeLook(Look(12, 120), &state);
  EXPECT_TRUE(kill().trained.has_value());
  DrillLook fallen = Look(13, 0, 2);
  fallen.progress->restored = 90;  // what it holds is not counted yet
  EXPECT_THAT(TakeLook(fallen, &state), ElementsAre("rolled back to update 90: 30 updates lost"));
  EXPECT_EQ(kill().rollbacks, 1);
  EXPECT_EQ(kill().lost, 30u);
  EXPECT_FALSE(kill().trained.has_value());
  TakeLook(Look(14, 90, 2), &state);
  EXPECT_FALSE(kill().trained.has_value());
  TakeLook(Look(15, 91, 2), &state);
  EXPECT_EQ(kill().trained, 5);
  DrillLook known = Look(16, 50, 3);
  known.progress->lost = 44;
  TakeLook(known, &state);
  EXPECT_EQ(kill().lost, 74u);
  EXPECT_EQ(kill().rollbacks, 2);
}

TEST_F(AfterAKillTest, PatienceEnds) {
  DrillLook gone = Look(70, 100);
  gone.members.pop_back();
  TakeLook(gone, &state);
  EXPECT_EQ(Decide(gone), DrillStep::kWait);  // the last kill is waited for beyond the time of the drill
  gone.now = 70.1;
  const DrillDecision decision = DecideDrill(options, state, gone, &random);
  EXPECT_EQ(decision.step, DrillStep::kEnd);
  EXPECT_EQ(decision.reason, "worker-1 was not replaced within 1 m 00 s");
}

TEST_F(AfterAKillTest, WhatWasStoppedGoesOnAndIsHeardAgain) {
  options.pause = true;
  options.stop_for = 3;
  options.patience = 5;
  DrillLook look = Look(12, 100);
  TakeLook(look, &state);
  EXPECT_EQ(Decide(look), DrillStep::kWait);
  look.now = 13;
  EXPECT_EQ(Decide(look), DrillStep::kLetGoOn);
  state.kills.back().let_go = 13;
  look = Look(14, 101);
  look.members.back().heard = 12.9;
  TakeLook(look, &state);
  EXPECT_FALSE(kill().replaced.has_value());
  look.now = 15;
  look.members.back().heard = 14.5;
  TakeLook(look, &state);
  EXPECT_EQ(kill().replaced, 5);
  EXPECT_TRUE(kill().recovered());
  state.kills.back().replaced.reset();
  look.now = 18;
  EXPECT_EQ(Decide(look), DrillStep::kWait);
  look.now = 18.1;
  EXPECT_EQ(Decide(look), DrillStep::kEnd);
}

TEST_F(AfterAKillTest, AJobThatSucceededNeedsNobodyBack) {
  DrillLook over;
  over.now = 12;
  over.outcome = "Succeeded";
  EXPECT_THAT(TakeLook(over, &state), IsEmpty());
  EXPECT_TRUE(kill().recovered());
  EXPECT_EQ(DecideDrill(options, state, over, &random).reason, "the job is over: Succeeded");
}

TEST_F(AfterAKillTest, AJobThatFailedDidNotRecover) {
  DrillLook over;
  over.now = 12;
  over.outcome = "Failed";
  TakeLook(over, &state);
  EXPECT_FALSE(kill().recovered());
  EXPECT_EQ(Decide(over), DrillStep::kEnd);
}

TEST(DrillTimeTest, WithoutAVictimItEndsAtItsTimeAndSaysSo) {
  DrillState state;
  state.start = 10;
  std::mt19937_64 random(1);
  DrillLook look = Look(69, 1);
  look.training = false;
  const DrillOptions options = Options({DrillKind::kWorker});
  EXPECT_EQ(DecideDrill(options, state, look, &random).step, DrillStep::kWait);
  look.now = 70;
  EXPECT_THAT(DecideDrill(options, state, look, &random).reason, HasSubstr("nothing that could be killed"));
}

}  // namespace
}  // namespace downpour::cli
