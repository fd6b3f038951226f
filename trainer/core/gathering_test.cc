#include "trainer/core/gathering.h"

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/core/quorum.h"

namespace downpour::core {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using Kind = Gathered::Kind;

constexpr std::uint32_t kBefore = 1;  // incarnation of the coordinator that made the views
constexpr std::uint32_t kNow = 2;

v1::PsMember Process(std::uint32_t index, std::uint32_t process_incarnation = 1) {
  v1::PsMember member;
  member.set_index(index);
  member.set_session(100 * process_incarnation + index);
  member.set_process_incarnation(process_incarnation);
  return member;
}

// Three ps, each the primary of one slice, whose standby is the next one.
v1::View ReplicatedView() {
  v1::View view;
  view.mutable_stamp()->set_generation(1);
  view.mutable_stamp()->set_incarnation(kBefore);
  view.mutable_stamp()->set_epoch(5);
  view.set_mode(v1::ASYNC);
  view.set_mode_epoch(1);
  view.set_replication_factor(2);
  for (std::uint32_t index = 0; index < 3; ++index) {
    *view.add_ps() = Process(index);
    v1::SlicePlacement& placement = *view.add_layout();
    placement.set_primary(index);
    placement.set_primary_replica(10 + index);
    placement.set_standby((index + 1) % 3);
    placement.set_standby_replica(20 + index);
  }
  SetQuorum({100, 101, 102}, &view);
  return view;
}

// Whoever comes with `view`, of those that have a place in it.
class GatheringTest : public ::testing::Test {
 protected:
  void Come(const v1::View& view, const std::set<std::uint32_t>& indices) {
    for (const std::uint32_t index : indices) {
      v1::RegisterPsRequest request;
      *request.mutable_self() = Process(index);
      *request.mutable_view() = view;
      registry_.Register(request);
    }
  }
  // A process that holds nothing, in place of an earlier one or as a new ps.
  void ComeAnew(std::uint32_t index, std::uint32_t process_incarnation) {
    v1::RegisterPsRequest request;
    *request.mutable_self() = Process(index, process_incarnation);
    registry_.Register(request);
  }
  Gathered Plan(const v1::View& newest, std::uint32_t incarnation = kNow) const {
    PsConditions conditions;
    for (const auto& [index, registration] : registry_.registrations()) {
      // Silence does not count here.
      conditions[index] = {.member = registration.self(), .lives = false, .ended = registry_.HasEnded(index)};
    }
    return PlanGathered(newest, registry_, conditions, incarnation);
  }

  PsRegistry registry_{3};
};

TEST_F(GatheringTest, AHistoryOfWhichAllIsThereGoesOnAsItIs) {
  const v1::View view = ReplicatedView();
  Come(view, {0, 1, 2});
  const Gathered gathered = Plan(view);
  EXPECT_EQ(gathered.kind, Kind::kGoesOn) << gathered.reason;
  EXPECT_FALSE(gathered.own);
  EXPECT_FALSE(gathered.change.has_value());
  EXPECT_EQ(gathered.view.SerializeAsString(), view.SerializeAsString());
}

TEST_F(GatheringTest, AMajorityGoesOnWithWhatStandbysHave) {
  const v1::View view = ReplicatedView();
  Come(view, {0, 1});
  const Gathered gathered = Plan(view);
  ASSERT_EQ(gathered.kind, Kind::kGoesOn) << gathered.reason;
  ASSERT_TRUE(gathered.change.has_value());
  EXPECT_EQ(gathered.change->failovers, 1u);
  EXPECT_THAT(gathered.reason, HasSubstr("ps-2"));
  EXPECT_EQ(gathered.view.ps_size(), 2);
  EXPECT_EQ(gathered.view.layout(2).primary(), 0u);
  EXPECT_EQ(gathered.view.lost_epoch(), 0u) << "standbys have all that was acknowledged";
}

TEST_F(GatheringTest, StandbysThatMayLagLoseWhatWasAcknowledged) {
  v1::View view = ReplicatedView();
  view.set_replication_lag(4);
  Come(view, {0, 1});
  EXPECT_EQ(Plan(view).view.lost_epoch(), 6u);
}

TEST_F(GatheringTest, AMinorityWaitsAsOthersMayHaveDecided) {
  const v1::View view = ReplicatedView();
  Come(view, {1});
  const Gathered gathered = Plan(view);
  EXPECT_EQ(gathered.kind, Kind::kWaits);
  EXPECT_FALSE(gathered.reason.empty());
}

TEST_F(GatheringTest, WithoutStandbysASilentPsIsWaitedForAndOneThatWasReplacedIsLost) {
  v1::View view = ReplicatedView();
  for (v1::SlicePlacement& placement : *view.mutable_layout()) placement.clear_standby();
  Come(view, {0, 1});
  EXPECT_EQ(Plan(view).kind, Kind::kWaits);
  ComeAnew(2, 2);
  const Gathered gathered = Plan(view);
  EXPECT_EQ(gathered.kind, Kind::kLost);
  EXPECT_THAT(gathered.reason, HasSubstr("ps-2 is gone"));
}

TEST_F(GatheringTest, OfMoreThanAreWantedThoseThatMayDecideAreWaitedForUntilTheyHaveEnded) {
  v1::View view = ReplicatedView();
  view.mutable_layout(1)->set_standby(0);  // ps-0 has a replica of every slice
  registry_.SetCount(1);
  Come(view, {0});
  EXPECT_TRUE(registry_.complete());
  EXPECT_EQ(Plan(view).kind, Kind::kWaits);
  registry_.OnEnded(1, 1);
  EXPECT_EQ(Plan(view).kind, Kind::kWaits) << "with ps-0 the other would decide";
  registry_.OnEnded(2, 1);
  EXPECT_EQ(Plan(view).kind, Kind::kLost);
}

TEST_F(GatheringTest, ItsOwnViewCountsOnlyByThoseThatDecide) {
  const v1::View view = ReplicatedView();
  Come(view, {0, 1, 2});
  Gathered gathered = Plan(view, kBefore);
  EXPECT_EQ(gathered.kind, Kind::kGoesOn);
  EXPECT_TRUE(gathered.own);
  v1::View undecided = view;
  SetQuorum({100, 110, 111}, &undecided);  // of these only one is here
  gathered = Plan(undecided, kBefore);
  EXPECT_EQ(gathered.kind, Kind::kLost);
  EXPECT_THAT(gathered.reason, HasSubstr("too few"));
  EXPECT_EQ(Plan(undecided, kNow).kind, Kind::kGoesOn) << "another one makes it count itself";
}

TEST_F(GatheringTest, ACheckpointThatIsNotLoadedIsBegunWithAgain) {
  v1::View view = ReplicatedView();
  view.mutable_restore()->set_checkpoint("c1");
  Come(view, {0, 1, 2});
  EXPECT_EQ(Plan(view).kind, Kind::kGoesOn);
  v1::RegisterPsRequest request;
  *request.mutable_self() = Process(1);
  *request.mutable_view() = view;
  request.set_restoring(true);
  registry_.Register(request);
  const Gathered gathered = Plan(view);
  EXPECT_EQ(gathered.kind, Kind::kLost);
  EXPECT_THAT(gathered.reason, HasSubstr("checkpoint"));
  EXPECT_EQ(Plan(view, kBefore).kind, Kind::kGoesOn) << "who made it knows what is done";
}

class ResumedViewTest : public GatheringTest {
 protected:
  ResumedViewTest() {
    v1::DataPlan data;
    data.set_sample_count(8);
    data.set_batch_size(1);
    data.set_updates_per_shard(1);
    data.set_epochs(2);
    plan_ = *DataPlan::Create(data);
  }
  v1::View Resume(const v1::View& newest, const UpdateMode& mode) const {
    return ResumedView(Plan(newest).view, newest, registry_, plan_, mode, kNow);
  }
  DataPlan plan_;
};

TEST_F(ResumedViewTest, IsTheSameUnderItsOwnNumber) {
  v1::View view = ReplicatedView();
  SetQuorum({100}, &view);
  Come(view, {0, 1});
  v1::RegisterPsRequest request;
  *request.mutable_self() = Process(2);
  request.mutable_self()->set_address("elsewhere");
  *request.mutable_view() = view;
  registry_.Register(request);
  const v1::View resumed = Resume(view, ModeOf(view));
  EXPECT_EQ(resumed.stamp().incarnation(), kNow);
  EXPECT_EQ(resumed.stamp().generation(), 1u);
  EXPECT_EQ(resumed.stamp().epoch(), 5u);
  EXPECT_EQ(resumed.mode_epoch(), 1u);
  EXPECT_THAT(resumed.quorum(), ElementsAre(100, 101, 102)) << "those of the view before decide";
  EXPECT_EQ(resumed.ps(2).address(), "elsewhere");
}

TEST_F(ResumedViewTest, IsTheNextEpochWithoutAPsAndAModeOfItsOwnWhereUpdatesMayBeLost) {
  v1::View view = ReplicatedView();
  Come(view, {0, 1});
  v1::View resumed = Resume(view, ModeOf(view));
  EXPECT_EQ(resumed.stamp().epoch(), 6u);
  EXPECT_EQ(resumed.mode_epoch(), 1u);
  EXPECT_THAT(resumed.quorum(), ElementsAre(100, 101, 102));
  view.set_replication_lag(4);
  resumed = Resume(view, ModeOf(view));
  EXPECT_EQ(resumed.lost_epoch(), 6u);
  EXPECT_EQ(resumed.mode_epoch(), 6u);
}

TEST_F(ResumedViewTest, AnotherModeIsAnotherEpochAndEndsBehindWholeSteps) {
  v1::View view = ReplicatedView();
  view.mutable_end()->set_dataset_epoch(0);
  view.mutable_end()->set_shard(3);
  Come(view, {0, 1, 2});
  const v1::View resumed = Resume(view, {.mode = v1::SYNCHRONOUS, .updates_per_step = 2});
  EXPECT_EQ(resumed.stamp().epoch(), 6u);
  EXPECT_EQ(resumed.mode_epoch(), 6u);
  EXPECT_EQ(resumed.mode(), v1::SYNCHRONOUS);
  EXPECT_EQ(resumed.end().shard(), 4u);
}

}  // namespace
}  // namespace downpour::core
