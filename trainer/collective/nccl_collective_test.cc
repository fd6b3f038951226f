// What nccl_collective.h promises beyond the contract.
#include "trainer/collective/nccl_collective.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/collective/fake_nccl.h"
#include "trainer/collective/local.h"

namespace downpour::collective {
namespace {

using testing::HasSubstr;
using Values = std::vector<float>;

// Reaching it is a hang.
constexpr absl::Duration kNotHung = absl::Seconds(30);
constexpr std::size_t kSize = 3;

class NcclCollectiveTest : public testing::Test {
 protected:
  explicit NcclCollectiveTest(absl::Duration leave_limit = kNotHung) {
    NcclOptions options;
    options.leave_limit = leave_limit;
    for (std::size_t rank = 0; rank < kSize; ++rank) {
      devices_.push_back(std::make_unique<FakeNcclDevice>(&nccl_));
      members_.push_back(NewNcclMember(devices_.back().get(), options, network_.NewRendezvous()));
    }
  }

  void TearDown() override {
    End();
    EXPECT_EQ(nccl_.Complaints() + nccl_.Leaks(), "");
  }

  // All groups are over when it returns.
  void End() {
    ends_.clear();
    members_.clear();
  }

  static void Together(const std::function<void(std::size_t)>& play) {
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < kSize; ++rank) threads.emplace_back([&play, rank] { play(rank); });
    for (std::thread& thread : threads) thread.join();
  }

  void Form(const std::string& view) {
    std::vector<std::unique_ptr<Collective>> ends(kSize);
    Together([&](std::size_t rank) {
      GroupOptions options;
      options.view = view;
      options.rank = static_cast<int>(rank);
      options.size = kSize;
      options.host = "here";
      options.store = "here:1";
      auto end = members_[rank]->Form(options);
      ASSERT_TRUE(end.ok()) << end.status();
      ends[rank] = *std::move(end);
    });
    ends_.swap(ends);
  }

  void ExpectThatTheyAddUp(std::size_t count) {
    Together([&](std::size_t rank) {
      Values values(count, 1.0f);
      EXPECT_EQ(ends_[rank]->AllReduce(absl::MakeSpan(values), kNotHung), absl::OkStatus());
      EXPECT_EQ(values, Values(count, kSize));
    });
  }

  void ExpectCalls(const std::string& call, std::int64_t times) {
    for (const auto& device : devices_) EXPECT_EQ(device->Count(call), times) << call;
  }

  FakeNccl nccl_;
  LocalNetwork network_;
  std::vector<std::unique_ptr<FakeNcclDevice>> devices_;
  std::vector<std::unique_ptr<Member>> members_;
  std::vector<std::unique_ptr<Collective>> ends_;
};

TEST_F(NcclCollectiveTest, WhoLeaveTogetherFinalizeAndDestroy) {
  Form("view");
  ExpectThatTheyAddUp(7);
  End();
  ExpectCalls("CommFinalize", 1);
  ExpectCalls("CommDestroy", 1);
  ExpectCalls("CommAbort", 0);
}

TEST_F(NcclCollectiveTest, WhenOneAbortsAllAbortOnce) {
  Form("view");
  ExpectThatTheyAddUp(7);
  ends_[1]->Abort();
  ends_[1]->Abort();
  // The others hear of it whether they do something or not.
  Values values(5);
  EXPECT_EQ(ends_[0]->AllReduce(absl::MakeSpan(values), kNotHung).code(), absl::StatusCode::kUnavailable);
  End();
  ExpectCalls("CommAbort", 1);
  ExpectCalls("CommFinalize", 0);
  ExpectCalls("CommDestroy", 0);
}

TEST_F(NcclCollectiveTest, EachViewHasAnIdOfItsOwnThatRankZeroMakes) {
  for (int view = 1; view <= 3; ++view) {
    Form(absl::StrCat("view ", view));
    ExpectThatTheyAddUp(1);
  }
  EXPECT_EQ(devices_[0]->Count("GetUniqueId"), 3);
  EXPECT_EQ(devices_[1]->Count("GetUniqueId"), 0);
  ExpectCalls("CommInitRank", 3);
}

TEST_F(NcclCollectiveTest, FormingAnotherGroupEndsTheOneBefore) {
  Form("one");
  const std::vector<std::unique_ptr<Collective>> before = std::move(ends_);
  ends_.clear();
  Form("two");
  Values values(5);
  EXPECT_EQ(before[0]->AllReduce(absl::MakeSpan(values), kNotHung).code(), absl::StatusCode::kAborted);
  ExpectThatTheyAddUp(5);
  ExpectCalls("CommAbort", 0);
}

TEST_F(NcclCollectiveTest, EqualPartsAreOneCallAndOthersAGroupOfThem) {
  Form("view");
  ExpectThatTheyAddUp(6);
  ExpectCalls("ReduceScatter", 1);
  ExpectCalls("AllGather", 1);
  ExpectCalls("GroupStart", 0);
  ExpectThatTheyAddUp(7);
  ExpectCalls("Reduce", 3);
  ExpectCalls("Broadcast", 3);
  ExpectCalls("GroupEnd", 2);
  ExpectThatTheyAddUp(2);
  ExpectCalls("Reduce", 5);  // the last rank has no part
}

TEST_F(NcclCollectiveTest, WithoutKernelsNothingTravelsAsBfloat16) {
  for (const auto& device : devices_) device->SetRounds(false);
  Form("view");
  Values values(5);
  const absl::Status status = ends_[1]->AllReduce(absl::MakeSpan(values), kNotHung, Precision::kBfloat16);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented) << status;
  EXPECT_THAT(status.message(), HasSubstr("all-reduce of 5 values as bfloat16, rank 1 of 3, view view"));
  ExpectThatTheyAddUp(5);
}

TEST_F(NcclCollectiveTest, AHundredTimesFormedSummedAndAborted) {
  for (int i = 0; i < 100; ++i) {
    Form(absl::StrCat("view ", i));
    ExpectThatTheyAddUp(static_cast<std::size_t>(i));
    ends_[static_cast<std::size_t>(i) % kSize]->Abort();
    ends_.clear();
  }
  End();
  EXPECT_EQ(nccl_.Leaks(), "");
}

class NcclLeaveTest : public NcclCollectiveTest {
 protected:
  NcclLeaveTest() : NcclCollectiveTest(absl::Milliseconds(1)) {}
};

TEST_F(NcclLeaveTest, WhoLeavesAloneAbortsInTheEnd) {
  Form("view");
  ExpectThatTheyAddUp(7);
  ends_[1].reset();
  members_[1].reset();
  EXPECT_EQ(devices_[1]->Count("CommAbort"), 1);
  Values values(5);
  EXPECT_EQ(ends_[0]->AllReduce(absl::MakeSpan(values), kNotHung).code(), absl::StatusCode::kUnavailable);
}

}  // namespace
}  // namespace downpour::collective
