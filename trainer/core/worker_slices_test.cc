#include "trainer/core/worker_slices.h"

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

using Push = WorkerSlices::Push;
using Kind = PsExchanges::Kind;

// Slices 0 and 1 are of tensor 0, slice 2 of tensor 1; slice 0 is at ps 0, the others at ps 1.
class WorkerSlicesTest : public ::testing::Test {
 protected:
  WorkerSlicesTest() {
    for (const std::uint32_t ps : {0u, 1u, 1u}) view_.add_layout()->set_primary(ps);
    view_.add_tensors();
    view_.add_tensors()->set_kind(v1::BUFFER);
    slices_.Begin({{0, 0, 10}, {0, 10, 20}, {1, 0, 30}}, view_);
  }
  // By slice.
  template <typename Value>
  std::vector<Value> Each(Value WorkerSlices::Entry::*member) const {
    std::vector<Value> values;
    for (std::uint32_t number = 0; number < slices_.size(); ++number) values.push_back(slices_[number].*member);
    return values;
  }
  std::vector<Push> Pushes() const { return Each(&WorkerSlices::Entry::push); }
  std::vector<bool> Fresh() const { return Each(&WorkerSlices::Entry::fresh); }
  void SetFresh() {
    for (std::uint32_t number = 0; number < slices_.size(); ++number) slices_[number].fresh = true;
  }

  v1::View view_;
  WorkerSlices slices_;
};

TEST_F(WorkerSlicesTest, BeginWithoutValues) {
  EXPECT_EQ(slices_.size(), 3u);
  EXPECT_EQ(Each(&WorkerSlices::Entry::ps), (std::vector<std::uint32_t>{0, 1, 1}));
  EXPECT_EQ(slices_[1].slice.elements, 20u);
  EXPECT_EQ(Each(&WorkerSlices::Entry::buffer), (std::vector<bool>{false, false, true}));
  EXPECT_FALSE(slices_.fresh());
  EXPECT_FALSE(slices_.sent());
}

TEST_F(WorkerSlicesTest, ValuesAreRenewedWhereTheyDoNotDo) {
  SetFresh();
  EXPECT_TRUE(slices_.fresh());
  slices_[1].clock = 4;
  slices_[2].clock = 5;
  slices_.RenewBehind(0);
  EXPECT_TRUE(slices_.fresh());
  slices_[0].fresh = false;
  slices_.RenewBehind(5);
  EXPECT_EQ(Fresh(), (std::vector<bool>{false, false, true}));
  slices_[0].clock = 9;
  slices_.RenewBehind(5);
  EXPECT_EQ(Fresh(), (std::vector<bool>{false, false, true})) << "no value comes back";

  const StepId step{0, 1, 2};
  slices_[1].value_of = step;
  slices_[2].value_of = StepId{0, 1, 3};
  slices_.RenewAllBut(step);
  EXPECT_EQ(Fresh(), (std::vector<bool>{false, true, false}));
  slices_.Renew();
  EXPECT_EQ(Fresh(), (std::vector<bool>{false, false, false}));
}

TEST_F(WorkerSlicesTest, TheFirstStepIsThatOfTheSliceThatIsBehind) {
  EXPECT_EQ(slices_.first_step(), StepId());
  slices_[0].step = {1, 0, 0};
  slices_[1].step = {0, 2, 1};
  slices_[2].step = {0, 2, 3};
  EXPECT_EQ(slices_.first_step(), (StepId{0, 2, 1}));
}

TEST_F(WorkerSlicesTest, GradientsGoOnTheirWayTensorByTensor) {
  slices_[0].version = 7;
  slices_[0].maybe_applied = true;
  slices_.BeginUpdate();
  EXPECT_EQ(slices_[0].computed_version, 7u);
  EXPECT_FALSE(slices_[0].maybe_applied);
  EXPECT_EQ(slices_.SetReady(1), 30 * sizeof(float));
  EXPECT_EQ(Pushes(), (std::vector<Push>{Push::kUnready, Push::kUnready, Push::kReady}));
  slices_[2].push = Push::kSent;
  EXPECT_EQ(slices_.SetReady(0), (10 + 20) * sizeof(float)) << "but for what has left";
  slices_[0].push = Push::kUnready;
  slices_.SetAllReady();
  EXPECT_EQ(Pushes(), (std::vector<Push>{Push::kReady, Push::kReady, Push::kSent}));
  slices_[0].push = slices_[1].push = Push::kDone;
  EXPECT_TRUE(slices_.sent());
  EXPECT_FALSE(slices_.done());
  slices_[2].push = Push::kDone;
  EXPECT_TRUE(slices_.done());
  slices_.BeginUpdate();
  EXPECT_FALSE(slices_.sent());
}

TEST_F(WorkerSlicesTest, APushThatWasNotAnsweredIsSentAgainAndMayBeApplied) {
  slices_.SetAllReady();
  EXPECT_FALSE(slices_.MayBeApplied(0));
  slices_[0].push = Push::kSent;
  EXPECT_TRUE(slices_.MayBeApplied(0));
  slices_.OnLost(0, Kind::kPush, /*current=*/false);
  EXPECT_EQ(slices_[0].push, Push::kSent) << "of an update before";
  slices_.OnLost(0, Kind::kPush, /*current=*/true);
  EXPECT_EQ(slices_[0].push, Push::kReady);
  EXPECT_TRUE(slices_[0].maybe_applied);
  EXPECT_TRUE(slices_.MayBeApplied(0));
  slices_[0].push = Push::kDone;
  EXPECT_FALSE(slices_.MayBeApplied(0)) << "it is known";
  slices_.OnLost(0, Kind::kPush, /*current=*/true);
  EXPECT_EQ(slices_[0].push, Push::kDone);

  slices_[1].pull_in_flight = slices_[1].initial_in_flight = true;
  slices_.OnLost(1, Kind::kPull, /*current=*/false);
  EXPECT_FALSE(slices_[1].pull_in_flight);
  EXPECT_TRUE(slices_[1].initial_in_flight);
  slices_.OnLost(1, Kind::kInitialise, /*current=*/false);
  EXPECT_FALSE(slices_[1].initial_in_flight);
  EXPECT_EQ(slices_[1].push, Push::kReady);
}

TEST_F(WorkerSlicesTest, WhatIsWantedIsListedByPs) {
  slices_[1].fresh = true;
  const auto parts = slices_.Parts([](const WorkerSlices::Entry& entry) { return !entry.fresh; });
  ASSERT_EQ(parts.size(), 2u);
  ASSERT_EQ(parts.at(0).size(), 1u);
  EXPECT_EQ(parts.at(0)[0].slice, 0u);
  EXPECT_EQ(parts.at(0)[0].bytes, 10 * sizeof(float));
  ASSERT_EQ(parts.at(1).size(), 1u);
  EXPECT_EQ(parts.at(1)[0].slice, 2u);
}

TEST_F(WorkerSlicesTest, WhatWasOnItsWayToAPsThatHasItNoMoreIsSentAgain) {
  for (const bool bounded : {false, true}) {
    SCOPED_TRACE(bounded);
    slices_.Begin({{0, 0, 10}, {0, 10, 20}, {1, 0, 30}}, view_);
    SetFresh();
    for (std::uint32_t number = 0; number < 3; ++number) {
      slices_[number].pull_in_flight = true;
      slices_[number].push = number == 1 ? Push::kDone : Push::kSent;
    }
    v1::View view = view_;
    if (bounded) view.set_mode(v1::BOUNDED_STALENESS);
    view.mutable_layout(1)->set_primary(0);
    slices_.Reroute(view, {});
    EXPECT_EQ(slices_[1].ps, 0u);
    EXPECT_EQ(slices_[1].push, Push::kDone);
    EXPECT_FALSE(slices_[1].pull_in_flight);
    EXPECT_EQ(slices_[2].push, Push::kSent) << "it is where it was";
    EXPECT_TRUE(slices_[2].pull_in_flight);
    slices_.Reroute(view, {1});
    EXPECT_EQ(slices_[2].push, Push::kReady) << "another ps of the same number";
    EXPECT_TRUE(slices_[2].maybe_applied);
    EXPECT_EQ(Fresh(), (std::vector<bool>{true, !bounded, !bounded})) << "who waits there has to hear of it";
  }
}

TEST_F(WorkerSlicesTest, DroppedTheyAreAsTheyBegan) {
  for (std::uint32_t number = 0; number < 3; ++number) {
    WorkerSlices::Entry& entry = slices_[number];
    entry.fresh = entry.pull_in_flight = entry.initial_in_flight = entry.initial_done = true;
    entry.version = 5;
    entry.value_of = entry.step = {0, 1, 2};
    entry.push = Push::kSent;
  }
  slices_.InitialiseAgain();
  EXPECT_FALSE(slices_[0].initial_done);
  EXPECT_TRUE(slices_[0].initial_in_flight);
  slices_[0].initial_done = true;
  slices_.Drop();
  for (std::uint32_t number = 0; number < 3; ++number) {
    const WorkerSlices::Entry& entry = slices_[number];
    EXPECT_FALSE(entry.fresh || entry.pull_in_flight || entry.initial_in_flight || entry.initial_done);
    EXPECT_EQ(entry.version, 0u) << "a history of the same number may have begun anew";
    EXPECT_FALSE(entry.value_of.has_value());
    EXPECT_EQ(entry.step, StepId());
    EXPECT_EQ(entry.push, Push::kUnready);
  }
  EXPECT_EQ(slices_[2].slice.elements, 30u);
}

}  // namespace
}  // namespace downpour::core
