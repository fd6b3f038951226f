#include "trainer/core/layout_plan.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <map>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

namespace downpour::core {
namespace {

using Kind = AfterLoss::Kind;

constexpr std::uint64_t kReplica = 50;  // of the primaries to begin with; standbys have one more

v1::PsMember Member(std::uint32_t index, const std::string& node = "") {
  v1::PsMember member;
  member.set_index(index);
  member.set_session(100 + index);
  member.set_node(node);
  return member;
}

// Slices of so many floats; each placed on {primary} or {primary, standby}.
struct Placed {
  std::uint32_t primary = 0;
  std::optional<std::uint32_t> standby;
};
struct Job {
  v1::View view;
  std::vector<Slice> slices;
  PsConditions ps;
  MovesKnown known;

  Job(std::uint32_t ps_count, std::uint32_t factor, const std::vector<Placed>& placed,
      const std::vector<std::string>& nodes = {}) {
    view.set_replication_factor(factor);
    for (std::uint32_t index = 0; index < ps_count; ++index) {
      ps[index].member = Member(index, nodes.empty() ? "" : nodes[index]);
      *view.add_ps() = ps[index].member;
    }
    for (const Placed& one : placed) {
      slices.push_back({static_cast<std::uint32_t>(slices.size()), 0, 16});
      v1::SlicePlacement* placement = view.add_layout();
      placement->set_primary(one.primary);
      placement->set_primary_replica(kReplica);
      if (!one.standby.has_value()) continue;
      placement->set_standby(*one.standby);
      placement->set_standby_replica(kReplica + 1);
    }
  }

  v1::SlicePlacement& slice(int number) { return *view.mutable_layout(number); }
  void Join(int number, std::uint32_t to, bool leads) {
    slice(number).set_joining(to);
    slice(number).set_joining_replica(kReplica + 2);
    slice(number).set_joining_leads(leads);
  }
  AfterLoss Lose(std::uint32_t index) {
    ps[index].lives = false;
    return PlanAfterLoss(view, ps);
  }
  std::optional<NextLayout> Next(bool may_begin = true, std::string* why = nullptr) const {
    return PlanNextLayout(view, slices, ps, known, kReplica + 9, may_begin, why);
  }
};

std::vector<std::uint32_t> Indices(const std::vector<v1::PsMember>& members) {
  std::vector<std::uint32_t> indices;
  indices.reserve(members.size());
  for (const v1::PsMember& member : members) indices.push_back(member.index());
  return indices;
}

// ---- after a loss

TEST(PlanAfterLossTest, NothingIsToBeDoneWhereAllLive) {
  const Job job(2, 2, {{0, 1}, {1, 0}});
  EXPECT_EQ(PlanAfterLoss(job.view, job.ps).kind, Kind::kNothing);
}

TEST(PlanAfterLossTest, AStandbyTakesOverAndOneThatIsLostIsForgotten) {
  Job job(3, 2, {{0, 1}, {1, 0}, {1, 2}});
  const AfterLoss after = job.Lose(0);
  ASSERT_EQ(after.kind, Kind::kGoesOn);
  EXPECT_EQ(Indices(after.next.ps), (std::vector<std::uint32_t>{1, 2}));
  EXPECT_EQ(after.next.failovers, 1u);
  EXPECT_EQ(after.next.layout[0].primary(), 1u);
  EXPECT_EQ(after.next.layout[0].primary_replica(), kReplica + 1);
  EXPECT_FALSE(after.next.layout[0].has_standby());
  EXPECT_EQ(after.next.layout[0].standby_replica(), 0u);
  EXPECT_EQ(after.next.layout[1].primary(), 1u);
  EXPECT_EQ(after.next.layout[1].primary_replica(), kReplica);
  EXPECT_FALSE(after.next.layout[1].has_standby());
  EXPECT_EQ(after.next.layout[2].SerializeAsString(), job.view.layout(2).SerializeAsString()) << "not touched by it";
  EXPECT_NE(after.next.reason.find("ps-0"), std::string::npos) << after.next.reason;
}

TEST(PlanAfterLossTest, AnotherProcessInThePlaceOfAPsHasNothing) {
  Job job(2, 2, {{0, 1}});
  job.ps[0].member.set_session(999);
  const AfterLoss after = PlanAfterLoss(job.view, job.ps);
  ASSERT_EQ(after.kind, Kind::kGoesOn);
  EXPECT_EQ(after.next.layout[0].primary(), 1u);
  EXPECT_EQ(Indices(after.next.ps), std::vector<std::uint32_t>{1});
}

TEST(PlanAfterLossTest, AReplicaThatIsBeingCopiedNeverTakesOver) {
  Job job(3, 2, {{0, std::nullopt}, {0, 1}});
  job.Join(0, 1, false);
  job.Join(1, 2, true);
  job.slice(1).set_frozen(true);
  AfterLoss after = job.Lose(0);
  EXPECT_EQ(after.kind, Kind::kWaits) << "slice 0 is nowhere else";
  job.view.mutable_layout()->DeleteSubrange(0, 1);
  after = PlanAfterLoss(job.view, job.ps);
  ASSERT_EQ(after.kind, Kind::kGoesOn);
  EXPECT_EQ(after.next.layout[0].primary(), 1u) << "the standby, not the one that joins";
  EXPECT_FALSE(after.next.layout[0].has_joining());
  EXPECT_FALSE(after.next.layout[0].joining_leads());
  EXPECT_EQ(after.next.layout[0].joining_replica(), 0u);
  EXPECT_FALSE(after.next.layout[0].frozen());
}

TEST(PlanAfterLossTest, ASliceThatWasToGoToALostPsThaws) {
  Job job(3, 2, {{0, 1}, {0, 2}, {0, 1}});
  job.Join(0, 2, true);
  job.slice(0).set_frozen(true);
  job.slice(1).set_frozen(true);  // on its way to its standby
  job.Join(2, 2, false);
  const AfterLoss after = job.Lose(2);
  ASSERT_EQ(after.kind, Kind::kGoesOn);
  for (int slice = 0; slice < 3; ++slice) {
    SCOPED_TRACE(slice);
    EXPECT_FALSE(after.next.layout[slice].frozen());
    EXPECT_FALSE(after.next.layout[slice].has_joining());
    EXPECT_EQ(after.next.layout[slice].primary(), 0u);
    EXPECT_EQ(after.next.layout[slice].has_standby(), slice != 1);
  }
  EXPECT_EQ(after.next.failovers, 0u);
}

TEST(PlanAfterLossTest, AFrozenSliceWhoseStandbyIsLostGoesOnToItsTarget) {
  Job job(3, 2, {{0, 1}});
  job.Join(0, 2, true);
  job.slice(0).set_frozen(true);
  const AfterLoss after = job.Lose(1);
  ASSERT_EQ(after.kind, Kind::kGoesOn);
  EXPECT_TRUE(after.next.layout[0].frozen());
  EXPECT_EQ(after.next.layout[0].joining(), 2u);
  EXPECT_FALSE(after.next.layout[0].has_standby());
}

TEST(PlanAfterLossTest, ASliceOnASilentPsAloneIsWaitedForAndOnOneThatIsGoneLost) {
  Job job(3, 1, {{0, std::nullopt}, {1, std::nullopt}});
  AfterLoss after = job.Lose(0);
  EXPECT_EQ(after.kind, Kind::kWaits);
  EXPECT_NE(after.reason.find("waiting for ps-0"), std::string::npos) << after.reason;
  job.ps[0].ended = true;
  after = PlanAfterLoss(job.view, job.ps);
  EXPECT_EQ(after.kind, Kind::kLost);
  EXPECT_NE(after.reason.find("slice 0"), std::string::npos) << after.reason;
  job.ps[0].ended = false;
  job.ps[0].lives = true;
  job.ps[0].member.set_session(999);
  EXPECT_EQ(PlanAfterLoss(job.view, job.ps).kind, Kind::kLost) << "another process is there";
  // One that is gone counts for more than one that is silent, in whatever order they come.
  job.ps[1].lives = false;
  EXPECT_EQ(PlanAfterLoss(job.view, job.ps).kind, Kind::kLost);
  std::swap(job.slice(0), job.slice(1));
  EXPECT_EQ(PlanAfterLoss(job.view, job.ps).kind, Kind::kLost);
}

TEST(PlanAfterLossTest, PrimaryAndStandbyLostTogetherAreMissed) {
  Job job(3, 2, {{0, 1}, {2, 0}});
  job.ps[1].lives = false;
  EXPECT_EQ(job.Lose(0).kind, Kind::kWaits);
  job.ps[1].ended = true;  // the standby; the primary may come back
  EXPECT_EQ(PlanAfterLoss(job.view, job.ps).kind, Kind::kWaits);
  job.ps[0].ended = true;
  EXPECT_EQ(PlanAfterLoss(job.view, job.ps).kind, Kind::kLost);
}

// ---- the next step

TEST(PlanNextLayoutTest, NothingIsLeftWhereAllIsAsWanted) {
  EXPECT_FALSE(Job(2, 2, {{0, 1}, {1, 0}}).Next().has_value());
  EXPECT_FALSE(Job(2, 1, {{0, std::nullopt}, {1, std::nullopt}}).Next().has_value());
}

TEST(PlanNextLayoutTest, StandbysAreMadeOnAnotherPsAndPreferablyOnAnotherNode) {
  const Job job(4, 2, {{0, std::nullopt}, {1, std::nullopt}, {2, std::nullopt}, {3, std::nullopt}},
                {"one", "one", "two", "two"});
  const std::optional<NextLayout> next = job.Next();
  ASSERT_TRUE(next.has_value());
  EXPECT_NE(next->reason.find("standby"), std::string::npos) << next->reason;
  std::set<std::uint32_t> used;
  for (const v1::SlicePlacement& placement : next->layout) {
    ASSERT_TRUE(placement.has_joining());
    EXPECT_FALSE(placement.joining_leads());
    EXPECT_EQ(placement.joining_replica(), kReplica + 9);
    EXPECT_NE(placement.joining() / 2, placement.primary() / 2) << "the same node";
    used.insert(placement.joining());
    EXPECT_FALSE(placement.has_standby()) << "it has nothing yet";
  }
  EXPECT_EQ(used.size(), 4u) << "the load is spread";
  // Where there is no other node, another ps will do.
  const std::optional<NextLayout> same = Job(2, 2, {{0, std::nullopt}}, {"one", "one"}).Next();
  ASSERT_TRUE(same.has_value());
  EXPECT_EQ(same->layout[0].joining(), 1u);
}

TEST(PlanNextLayoutTest, StandbysStayOnAnotherNodeHoweverUnevenThatIs) {
  // All standbys of two ps are on the third, which alone is elsewhere.
  const std::vector<Placed> placed = {{0, 2}, {0, 2}, {1, 2}, {1, 2}, {2, 0}, {2, 1}};
  EXPECT_FALSE(Job(3, 2, placed, {"one", "one", "two"}).Next().has_value());
  // One that is on the node of its primary goes away from there.
  const std::optional<NextLayout> next = Job(3, 2, {{0, 1}, {1, 2}, {2, 0}}, {"one", "one", "two"}).Next();
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->layout[0].joining(), 2u);
  EXPECT_FALSE(next->layout[0].joining_leads());
  EXPECT_EQ(next->layout[0].standby(), 1u) << "until it is there";
  EXPECT_FALSE(next->layout[1].has_joining());
}

TEST(PlanNextLayoutTest, WithoutAnotherPsNothingIsDoneAndItSaysWhy) {
  std::string why;
  EXPECT_FALSE(Job(1, 2, {{0, std::nullopt}}).Next(true, &why).has_value());
  EXPECT_NE(why.find("no other ps"), std::string::npos) << why;
}

TEST(PlanNextLayoutTest, AReplicaThatIsLevelIsInSync) {
  Job job(2, 2, {{0, std::nullopt}, {1, 0}});
  job.Join(0, 1, false);
  std::string why;
  EXPECT_FALSE(job.Next(true, &why).has_value());
  EXPECT_NE(why.find("1 slices are being copied"), std::string::npos) << why;
  job.known.level = {{0, kReplica + 7}};  // another replica
  EXPECT_FALSE(job.Next().has_value());
  job.known.level = {{0, kReplica + 2}};
  for (const bool may_begin : {true, false}) {
    const std::optional<NextLayout> next = job.Next(may_begin);
    ASSERT_TRUE(next.has_value());
    EXPECT_EQ(next->layout[0].primary(), 0u);
    EXPECT_EQ(next->layout[0].standby(), 1u);
    EXPECT_EQ(next->layout[0].standby_replica(), kReplica + 2);
    EXPECT_FALSE(next->layout[0].has_joining());
    EXPECT_EQ(next->moved, 1u);
  }
}

TEST(PlanNextLayoutTest, ALeaderThatIsLevelIsFrozenThenMoved) {
  Job job(3, 2, {{0, 1}});
  job.Join(0, 2, true);
  job.known.level = {{0, kReplica + 2}};
  std::optional<NextLayout> next = job.Next(/*may_begin=*/false);
  ASSERT_TRUE(next.has_value());
  EXPECT_TRUE(next->layout[0].frozen());
  EXPECT_EQ(next->layout[0].primary(), 0u);
  EXPECT_EQ(next->moved, 0u);
  job.slice(0) = next->layout[0];
  EXPECT_FALSE(job.Next().has_value()) << "not frozen yet";
  job.known.frozen = {0};
  next = job.Next(/*may_begin=*/false);
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->layout[0].primary(), 2u);
  EXPECT_EQ(next->layout[0].primary_replica(), kReplica + 2);
  EXPECT_EQ(next->layout[0].standby(), 1u) << "it has all there is";
  EXPECT_FALSE(next->layout[0].has_joining());
  EXPECT_FALSE(next->layout[0].joining_leads());
  EXPECT_FALSE(next->layout[0].frozen());
  EXPECT_EQ(next->moved, 1u);
}

TEST(PlanNextLayoutTest, ThePrimaryBeforeIsTheStandbyWhereThereIsNone) {
  Job job(2, 2, {{0, std::nullopt}});
  job.Join(0, 1, true);
  job.slice(0).set_frozen(true);
  job.known.frozen = {0};
  EXPECT_EQ(job.Next()->layout[0].standby(), 0u);
  EXPECT_EQ(job.Next()->layout[0].standby_replica(), kReplica);
  job.ps[0].leaving = true;
  EXPECT_FALSE(job.Next(/*may_begin=*/false)->layout[0].has_standby());
  job.ps[0].leaving = false;
  job.view.set_replication_factor(1);
  EXPECT_FALSE(job.Next()->layout[0].has_standby());
}

TEST(PlanNextLayoutTest, WhatALeavingPsOwnsGoesToTheStandby) {
  Job job(3, 2, {{0, 1}, {1, 2}, {2, 1}});
  job.ps[0].leaving = true;
  std::optional<NextLayout> next = job.Next();
  ASSERT_TRUE(next.has_value());
  EXPECT_TRUE(next->layout[0].frozen());
  EXPECT_FALSE(next->layout[0].has_joining());
  EXPECT_EQ(Indices(next->ps), (std::vector<std::uint32_t>{0, 1, 2})) << "it has something yet";
  job.slice(0) = next->layout[0];
  job.known.frozen = {0};
  next = job.Next(/*may_begin=*/false);
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->layout[0].primary(), 1u);
  EXPECT_EQ(next->layout[0].primary_replica(), kReplica + 1);
  EXPECT_FALSE(next->layout[0].has_standby()) << "the one before is to leave";
  EXPECT_EQ(Indices(next->ps), (std::vector<std::uint32_t>{1, 2})) << "nothing is left on it";
}

TEST(PlanNextLayoutTest, NothingIsPlacedOnALeavingPs) {
  Job job(3, 2, {{0, 1}, {0, std::nullopt}});
  job.ps[1].leaving = true;
  const std::optional<NextLayout> next = job.Next();
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(next->layout[0].joining(), 2u) << "in the place of the standby there";
  EXPECT_EQ(next->layout[0].standby(), 1u) << "until it is there";
  EXPECT_EQ(next->layout[1].joining(), 2u);
  // Without a standby a slice is copied.
  Job alone(3, 1, {{0, std::nullopt}});
  alone.ps[0].leaving = alone.ps[1].leaving = true;
  ASSERT_TRUE(alone.Next().has_value());
  EXPECT_EQ(alone.Next()->layout[0].joining(), 2u);
  EXPECT_TRUE(alone.Next()->layout[0].joining_leads());
}

TEST(PlanNextLayoutTest, StandbysThatAreNotWantedAreDropped) {
  const std::optional<NextLayout> next = Job(2, 1, {{0, 1}, {1, std::nullopt}}).Next();
  ASSERT_TRUE(next.has_value());
  EXPECT_FALSE(next->layout[0].has_standby());
  EXPECT_EQ(next->layout[0].standby_replica(), 0u);
}

TEST(PlanNextLayoutTest, ANewPsIsInTheListAndGetsItsPart) {
  Job job(1, 1, {{0, std::nullopt}, {0, std::nullopt}, {0, std::nullopt}, {0, std::nullopt}});
  job.ps[1].member = Member(1);
  job.ps[2].member = Member(2);
  job.ps[2].lives = false;
  const std::optional<NextLayout> next = job.Next();
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(Indices(next->ps), (std::vector<std::uint32_t>{0, 1}));
  int copied = 0;
  for (const v1::SlicePlacement& placement : next->layout) {
    if (!placement.has_joining()) continue;
    EXPECT_EQ(placement.joining(), 1u);
    EXPECT_TRUE(placement.joining_leads());
    ++copied;
  }
  EXPECT_EQ(copied, 2);
}

TEST(PlanNextLayoutTest, ASlowPsHoldsLessAndThatIsSaid) {
  Job job(2, 1,
          {{0, std::nullopt},
           {0, std::nullopt},
           {0, std::nullopt},
           {0, std::nullopt},
           {1, std::nullopt},
           {1, std::nullopt},
           {1, std::nullopt},
           {1, std::nullopt}});
  EXPECT_FALSE(job.Next().has_value());
  job.ps[1].slowness = 3;
  const std::optional<NextLayout> next = job.Next();
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(std::count_if(next->layout.begin(), next->layout.end(),
                          [](const v1::SlicePlacement& placement) { return placement.has_joining(); }),
            2);
  EXPECT_NE(next->reason.find("ps-1 takes 3.0 times as long"), std::string::npos) << next->reason;
}

TEST(PlanNextLayoutTest, CopiesAreNotMoreThanSixteenAtATime) {
  const std::vector<Placed> placed(40, Placed{0, std::nullopt});
  Job job(2, 2, placed);
  std::optional<NextLayout> next = job.Next();
  ASSERT_TRUE(next.has_value());
  const auto copies = [](const NextLayout& layout) {
    return std::count_if(layout.layout.begin(), layout.layout.end(),
                         [](const v1::SlicePlacement& placement) { return placement.has_joining(); });
  };
  EXPECT_EQ(copies(*next), 16);
  // As some are there, others begin.
  for (int slice = 0; slice < 40; ++slice) job.slice(slice) = next->layout[static_cast<std::size_t>(slice)];
  for (std::uint32_t slice = 0; slice < 5; ++slice) job.known.level.emplace(slice, kReplica + 9);
  next = job.Next();
  ASSERT_TRUE(next.has_value());
  EXPECT_EQ(copies(*next), 16);
  EXPECT_EQ(copies(*job.Next(/*may_begin=*/false)), 11);
}

TEST(PlanNextLayoutTest, NothingBeginsThatMayNot) {
  Job job(3, 2, {{0, std::nullopt}, {0, 1}, {0, 1}});
  job.ps[1].leaving = true;
  EXPECT_FALSE(job.Next(/*may_begin=*/false).has_value());
  EXPECT_TRUE(job.Next(/*may_begin=*/true).has_value());
}

TEST(PlanNextLayoutTest, CountsTheSlicesThatAreInSync) {
  EXPECT_EQ(SlicesInSync(Job(2, 2, {{0, 1}, {1, std::nullopt}}).view), 1u);
  EXPECT_EQ(SlicesInSync(Job(2, 1, {{0, std::nullopt}, {1, std::nullopt}}).view), 2u);
}

TEST(PlanNextLayoutTest, ReplicasOfTwoViewsHaveTwoNumbers) {
  EXPECT_LT(ReplicaNumber(1, UINT32_MAX), ReplicaNumber(2, 0));
  EXPECT_LT(ReplicaNumber(1, 1), ReplicaNumber(1, 2));
}

// ---- any job, as a coordinator goes on with it

class RandomJob {
 public:
  explicit RandomJob(std::uint32_t seed) : random_(seed) {
    const std::uint32_t count = 1 + Random(5);
    const std::uint32_t nodes = 1 + Random(3);
    for (std::uint32_t index = 0; index < count + Random(2); ++index) {
      ps_[index].member = Member(index, nodes == 1 ? "" : absl::StrCat("node", Random(nodes)));
    }
    const std::uint32_t slices = 1 + Random(30);
    for (std::uint32_t slice = 0; slice < slices; ++slice) {
      slices_.push_back({slice, 0, Random(3) == 0 ? 1 + Random(1000) : 256});
    }
    view_.mutable_stamp()->set_epoch(1);
    view_.set_replication_factor(1 + (Random(4) == 0 ? 0 : 1));
    for (std::uint32_t index = 0; index < count; ++index) *view_.add_ps() = ps_[index].member;
    for (const std::uint32_t primary : PlaceSlices(slices_, count)) {
      v1::SlicePlacement* placement = view_.add_layout();
      placement->set_primary(primary);
      placement->set_primary_replica(ReplicaNumber(1, 1));
    }
    Note();
  }

  std::uint32_t Random(std::uint32_t below) { return static_cast<std::uint32_t>(random_() % below); }

  // Something happens to a ps.
  void Disturb() {
    const auto some = std::next(ps_.begin(), Random(static_cast<std::uint32_t>(ps_.size())));
    PsCondition& condition = some->second;
    switch (Random(6)) {
      case 0:
        condition.lives = false;
        condition.ended = Random(2) == 0;
        break;
      case 1:
        condition.leaving = !condition.leaving;
        break;
      case 2:  // another process takes its place
        condition.member.set_session(next_session_++);
        condition.lives = true;
        condition.ended = false;
        break;
      case 3: {
        const std::uint32_t index = Random(8);
        if (ps_.count(index) != 0) break;
        ps_[index].member = Member(index);
        ps_[index].member.set_session(next_session_++);
        break;
      }
      case 4:
        condition.slowness = 1 + Random(8) / 2.0;
        break;
      default:
        view_.set_replication_factor(1 + Random(2));
        break;
    }
  }

  // What has been copied is, or all of it `at_once`, and what is frozen is.
  void Copy(bool at_once) {
    for (std::uint32_t slice = 0; slice < slices_.size(); ++slice) {
      const v1::SlicePlacement& placement = view_.layout(static_cast<int>(slice));
      if (placement.has_joining() && (at_once || Random(2) == 0 || placement.frozen())) {
        known_.level.emplace(slice, placement.joining_replica());
      }
      if (placement.frozen() && (at_once || Random(2) == 0)) known_.frozen.insert(slice);
    }
  }

  // False: it cannot go on.
  bool TakeLoss() {
    const AfterLoss after = PlanAfterLoss(view_, ps_);
    if (after.kind == Kind::kNothing) return true;
    if (after.kind != Kind::kGoesOn) {
      EXPECT_FALSE(after.reason.empty());
      EXPECT_TRUE(SomeSliceIsNowhere());
      return false;
    }
    Become(after.next, /*loss=*/true);
    return true;
  }

  // Whether anything changed.
  bool TakeStep(bool may_begin) {
    const auto next =
        PlanNextLayout(view_, slices_, ps_, known_, ReplicaNumber(1, view_.stamp().epoch() + 1), may_begin);
    if (next.has_value()) Become(*next, /*loss=*/false);
    return next.has_value();
  }

  void CheckRest() {
    std::vector<std::uint32_t> eligible;
    for (const auto& [index, condition] : ps_) {
      if (condition.lives && !condition.leaving) eligible.push_back(index);
    }
    const auto is_eligible = [&](std::uint32_t index) {
      return std::find(eligible.begin(), eligible.end(), index) != eligible.end();
    };
    std::set<std::uint32_t> placed;
    std::map<std::uint32_t, double> bytes;
    double sum = 0, largest = 0;
    for (std::uint32_t slice = 0; slice < slices_.size(); ++slice) {
      SCOPED_TRACE(absl::StrCat("slice ", slice));
      const v1::SlicePlacement& placement = view_.layout(static_cast<int>(slice));
      EXPECT_FALSE(placement.has_joining());
      EXPECT_FALSE(placement.frozen());
      placed.insert(placement.primary());
      if (placement.has_standby()) placed.insert(placement.standby());
      if (!eligible.empty()) {
        EXPECT_TRUE(is_eligible(placement.primary())) << "on a ps that is to leave";
      }
      if (eligible.size() >= 2) {
        EXPECT_EQ(placement.has_standby(), view_.replication_factor() == 2);
        if (placement.has_standby()) {
          EXPECT_TRUE(is_eligible(placement.standby())) << "on a ps that is to leave";
        }
      }
      const std::string& node = ps_.at(placement.primary()).member.node();
      const bool other_node = std::any_of(eligible.begin(), eligible.end(),
                                          [&](std::uint32_t index) { return ps_.at(index).member.node() != node; });
      if (eligible.size() >= 2 && placement.has_standby() && !node.empty() && other_node) {
        EXPECT_NE(ps_.at(placement.standby()).member.node(), node) << "there is another node";
      }
      const auto of_slice = static_cast<double>(slices_[slice].bytes());
      bytes[placement.primary()] += of_slice;
      sum += of_slice;
      largest = std::max(largest, of_slice);
    }
    for (const v1::PsMember& member : view_.ps()) {
      if (ps_.at(member.index()).leaving) {
        EXPECT_EQ(placed.count(member.index()), 1u) << "it might leave";
      }
    }
    if (eligible.empty()) return;
    double quickness = 0, slowest = 1;
    for (const std::uint32_t index : eligible) {
      quickness += 1 / ps_.at(index).slowness;
      slowest = std::max(slowest, ps_.at(index).slowness);
    }
    for (const auto& [index, of_it] : bytes) {
      EXPECT_LE(of_it * ps_.at(index).slowness, sum / quickness + largest * slowest + 1) << "ps-" << index;
    }
  }

  std::size_t slices() const { return slices_.size(); }

 private:
  bool SomeSliceIsNowhere() const {
    const auto lives = [this](std::uint32_t index) {
      return ps_.at(index).lives && std::any_of(view_.ps().begin(), view_.ps().end(), [&](const v1::PsMember& member) {
               return member.index() == index && member.session() == ps_.at(index).member.session();
             });
    };
    return std::any_of(view_.layout().begin(), view_.layout().end(), [&](const v1::SlicePlacement& placement) {
      return !lives(placement.primary()) && !(placement.has_standby() && lives(placement.standby()));
    });
  }

  // Whose (slice, number) it is never changes, and what is gone never comes back.
  void Note() {
    std::map<std::pair<int, std::uint64_t>, std::uint64_t> now;
    std::map<std::uint32_t, std::uint64_t> sessions;
    for (const v1::PsMember& member : view_.ps()) sessions[member.index()] = member.session();
    for (int slice = 0; slice < view_.layout_size(); ++slice) {
      const v1::SlicePlacement& placement = view_.layout(slice);
      const auto add = [&](std::uint32_t index, std::uint64_t number) {
        ASSERT_EQ(sessions.count(index), 1u) << "slice " << slice << " on ps-" << index << ", which is not in the view";
        EXPECT_TRUE(now.emplace(std::pair(slice, number), sessions[index]).second) << "two replicas of one number";
      };
      add(placement.primary(), placement.primary_replica());
      if (placement.has_standby()) add(placement.standby(), placement.standby_replica());
      if (placement.has_joining()) add(placement.joining(), placement.joining_replica());
    }
    for (const auto& [replica, session] : now) {
      EXPECT_EQ(over_.count(replica), 0u) << "slice " << replica.first << " has a number again";
      const auto [before, fresh] = replicas_.emplace(replica, session);
      EXPECT_EQ(before->second, session) << "slice " << replica.first << " has a number for two ps";
    }
    for (const auto& [replica, session] : replicas_) {
      if (now.count(replica) == 0) over_.insert(replica);
    }
  }

  void Become(const NextLayout& next, bool loss) {
    ASSERT_EQ(next.layout.size(), slices_.size());
    EXPECT_FALSE(next.reason.empty());
    std::uint32_t copies = 0;
    for (int slice = 0; slice < view_.layout_size(); ++slice) {
      SCOPED_TRACE(absl::StrCat("slice ", slice, ", epoch ", view_.stamp().epoch()));
      const auto number = static_cast<std::uint32_t>(slice);
      const v1::SlicePlacement& before = view_.layout(slice);
      const v1::SlicePlacement& after = next.layout[number];
      const bool frozen = before.frozen() && known_.frozen.count(number) != 0;
      const bool level = before.has_joining() && known_.level.count({number, before.joining_replica()}) != 0;
      // Who has all that was acknowledged.
      using Who = std::pair<std::uint32_t, std::uint64_t>;
      const Who primary{before.primary(), before.primary_replica()};
      std::set<Who> may_lead = {primary};
      if (before.has_standby()) may_lead.emplace(before.standby(), before.standby_replica());
      if (before.joining_leads() && level && frozen) may_lead.emplace(before.joining(), before.joining_replica());
      EXPECT_EQ(may_lead.count({after.primary(), after.primary_replica()}), 1u) << "it has not all there is";
      if (!loss && primary != Who{after.primary(), after.primary_replica()}) {
        EXPECT_TRUE(frozen) << "two would be the primary";
      }
      if (after.has_standby()) {
        const Who standby{after.standby(), after.standby_replica()};
        const bool was_standby = before.has_standby() && standby == Who{before.standby(), before.standby_replica()};
        const bool has_joined = level && standby == Who{before.joining(), before.joining_replica()};
        EXPECT_TRUE(was_standby || has_joined || (frozen && standby == primary)) << "it has not all there is";
        EXPECT_NE(after.standby(), after.primary());
      }
      if (after.frozen()) {
        EXPECT_TRUE(after.has_standby() || after.has_joining()) << "nobody is to take it";
      }
      if (after.has_joining()) {
        ++copies;
        EXPECT_NE(after.joining(), after.primary());
        EXPECT_FALSE(after.has_standby() && after.joining() == after.standby());
        if (loss) {
          EXPECT_EQ(after.joining_replica(), before.joining_replica()) << "a loss begins nothing";
        }
      }
    }
    EXPECT_LE(copies, std::max<std::size_t>(16, 4 * ps_.size()));
    *view_.mutable_layout() = {next.layout.begin(), next.layout.end()};
    *view_.mutable_ps() = {next.ps.begin(), next.ps.end()};
    view_.mutable_stamp()->set_epoch(view_.stamp().epoch() + 1);
    known_ = MovesKnown();
    for (const v1::PsMember& member : view_.ps()) {
      const PsCondition& condition = ps_.at(member.index());
      if (!loss) {
        EXPECT_TRUE(condition.lives && condition.member.session() == member.session());
      }
    }
    Note();
  }

  std::mt19937 random_;
  v1::View view_;
  std::vector<Slice> slices_;
  PsConditions ps_;
  MovesKnown known_;
  std::uint64_t next_session_ = 1000;
  std::map<std::pair<int, std::uint64_t>, std::uint64_t> replicas_;
  std::set<std::pair<int, std::uint64_t>> over_;
};

TEST(LayoutPlanTest, WhateverHappensNobodyLeadsThatHasNotAllAndItComesToRest) {
  int rested = 0;
  for (std::uint32_t seed = 0; seed < 400 && !::testing::Test::HasFailure(); ++seed) {
    SCOPED_TRACE(absl::StrCat("seed ", seed));
    RandomJob job(seed);
    bool goes_on = true;
    for (int step = 0; step < 30 && goes_on; ++step) {
      if (job.Random(4) == 0) job.Disturb();
      goes_on = job.TakeLoss();
      if (!goes_on) break;
      job.Copy(/*at_once=*/false);
      job.TakeStep(job.Random(3) != 0);
    }
    if (!goes_on) continue;
    std::size_t steps = 0;
    do {
      job.Copy(/*at_once=*/true);
      ASSERT_LT(++steps, 8 * job.slices() + 20) << "it does not end";
    } while (job.TakeStep(/*may_begin=*/true));
    job.CheckRest();
    ++rested;
  }
  EXPECT_GT(rested, 100);
}

}  // namespace
}  // namespace downpour::core
