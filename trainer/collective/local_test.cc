// What local.h promises beyond the contract.
#include "trainer/collective/local.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "trainer/collective/fake_nccl.h"

namespace downpour::collective {
namespace {

using testing::HasSubstr;
using Values = std::vector<float>;
using Ends = std::vector<std::unique_ptr<Collective>>;

// Reaching it is a hang.
constexpr absl::Duration kNotHung = absl::Seconds(30);
constexpr int kSize = 3;

void Together(const Ends& ends, const std::function<void(Collective* end)>& play) {
  std::vector<std::thread> threads;
  for (const auto& end : ends) threads.emplace_back([&play, end = end.get()] { play(end); });
  for (std::thread& thread : threads) thread.join();
}

void ExpectThatTheyAddUp(const Ends& ends, Precision travels = Precision::kFloat32) {
  const float size = static_cast<float>(ends.size());
  Together(ends, [size, travels](Collective* end) {
    Values values(200001, static_cast<float>(end->rank() + 1));
    EXPECT_EQ(end->AllReduce(absl::MakeSpan(values), kNotHung, travels), absl::OkStatus());
    EXPECT_TRUE(values == Values(values.size(), size * (size + 1) / 2));
  });
}

// Of the host and, over a fake, of devices.
class LocalMembersTest : public testing::TestWithParam<bool> {
 protected:
  LocalMembersTest() {
    for (int rank = 0; rank < kSize; ++rank) devices_.push_back(std::make_unique<FakeNcclDevice>(&nccl_));
    std::vector<NcclApi*> apis;
    for (const auto& device : devices_) apis.push_back(device.get());
    members_ = std::make_unique<LocalMembers>(GetParam() ? LocalMembers::OfNccl(apis) : LocalMembers::OfHost(kSize));
  }
  void TearDown() override {
    members_.reset();
    EXPECT_EQ(nccl_.Complaints() + nccl_.Leaks(), "");
  }
  Ends Form() {
    absl::StatusOr<Ends> ends = members_->Form(kNotHung);
    EXPECT_TRUE(ends.ok()) << ends.status();
    return ends.ok() ? *std::move(ends) : Ends();
  }

  FakeNccl nccl_;
  std::vector<std::unique_ptr<FakeNcclDevice>> devices_;
  std::unique_ptr<LocalMembers> members_;
};

TEST_P(LocalMembersTest, GiveGroupsOfAllOneAfterTheOther) {
  EXPECT_EQ(members_->size(), kSize);
  for (int i = 0; i < 3; ++i) {
    const Ends ends = Form();
    ASSERT_EQ(ends.size(), kSize);
    for (int rank = 0; rank < kSize; ++rank) {
      EXPECT_EQ(ends[static_cast<std::size_t>(rank)]->rank(), rank);
      EXPECT_EQ(ends[static_cast<std::size_t>(rank)]->size(), kSize);
    }
    ExpectThatTheyAddUp(ends);
    ExpectThatTheyAddUp(ends, Precision::kBfloat16);
  }
}

TEST_P(LocalMembersTest, FormANewGroupAfterAnAbort) {
  for (int i = 0; i < 20; ++i) {
    Ends ends = Form();
    ASSERT_EQ(ends.size(), kSize);
    ExpectThatTheyAddUp(ends);
    Together(ends, [i](Collective* end) {
      Values values(5);
      if (end->rank() == i % kSize) return end->Abort();
      const absl::Status status = end->AllReduce(absl::MakeSpan(values), kNotHung);
      EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    });
  }
}

TEST_P(LocalMembersTest, OneThreadStartsAllBeforeItWaits) {
  const Ends ends = Form();
  ASSERT_EQ(ends.size(), kSize);
  std::vector<Values> values(kSize, Values(100000, 1.0f));
  std::vector<Handle> handles;
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    handles.push_back(ends[rank]->StartAllReduce(absl::MakeSpan(values[rank])).value());
  }
  for (std::size_t rank = 0; rank < ends.size(); ++rank) {
    EXPECT_EQ(ends[rank]->Wait(handles[rank], kNotHung), absl::OkStatus());
    EXPECT_TRUE(values[rank] == Values(100000, kSize));
  }
}

INSTANTIATE_TEST_SUITE_P(Values, LocalMembersTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "OnDevices" : "OnTheHost"; });

// Over a fake, and a device of which something goes wrong.
class LocalNcclMembersTest : public testing::TestWithParam<int> {
 protected:
  LocalNcclMembersTest() {
    std::vector<NcclApi*> apis;
    for (int rank = 0; rank < kSize; ++rank) {
      devices_.push_back(std::make_unique<FakeNcclDevice>(&nccl_));
      apis.push_back(devices_.back().get());
    }
    members_ = std::make_unique<LocalMembers>(LocalMembers::OfNccl(apis));
  }
  void TearDown() override {
    members_.reset();
    EXPECT_EQ(nccl_.Complaints() + nccl_.Leaks(), "");
  }
  FakeNcclDevice& victim() { return *devices_[static_cast<std::size_t>(GetParam())]; }
  // It works from then on.
  void ExpectAGroup() {
    const absl::StatusOr<Ends> ends = members_->Form(kNotHung);
    ASSERT_TRUE(ends.ok()) << ends.status();
    ExpectThatTheyAddUp(*ends);
  }

  FakeNccl nccl_;
  std::vector<std::unique_ptr<FakeNcclDevice>> devices_;
  std::unique_ptr<LocalMembers> members_;
};

TEST_P(LocalNcclMembersTest, ADeviceThatFailsEndsTheFormingForAll) {
  victim().Inject({FakeNcclFault::Kind::kError, 1});
  const absl::Status status = members_->Form(absl::Minutes(10)).status();
  EXPECT_EQ(victim().failed_call(), "UseDevice");
  EXPECT_TRUE(absl::IsInternal(status) || absl::IsUnavailable(status)) << status;
  EXPECT_THAT(status.message(), HasSubstr("of 3, view local 1: "));
  ExpectAGroup();
}

TEST_P(LocalNcclMembersTest, AStopEndsTheForming) {
  victim().Inject({FakeNcclFault::Kind::kNever, GetParam() == 0 ? 4 : 3});
  absl::Notification stop;
  victim().SetHook([&stop](const std::string& call) {
    if (call == "AsyncError" && !stop.HasBeenNotified()) stop.Notify();
  });
  const absl::Status status = members_->Form(absl::Minutes(10), &stop).status();
  EXPECT_EQ(victim().failed_call(), "CommInitRank");
  EXPECT_EQ(status.code(), absl::StatusCode::kAborted) << status;
  ExpectAGroup();
}

INSTANTIATE_TEST_SUITE_P(Victims, LocalNcclMembersTest, testing::Range(0, kSize));

// What is of the host alone.
class LocalGroupTest : public testing::Test {
 protected:
  LocalGroupTest() : ends_(members_.Form(kNotHung).value()) {}

  LocalMembers members_ = LocalMembers::OfHost(kSize);
  Ends ends_;
};

TEST_F(LocalGroupTest, WhoLeavesWithEverythingCompleteIsMissedOnlyByThoseWhoNeedIt) {
  ExpectThatTheyAddUp(ends_);
  ends_[0].reset();
  // A message between the others does not need it.
  Values out(70000, 5.0f), in(70000);
  const Handle sent = ends_[1]->StartSend(out, 2).value();
  EXPECT_EQ(ends_[2]->Receive(absl::MakeSpan(in), 1, kNotHung), absl::OkStatus());
  EXPECT_EQ(ends_[1]->Wait(sent, kNotHung), absl::OkStatus());
  EXPECT_TRUE(in == out);
  const absl::Status status = ends_[2]->AllReduce(absl::MakeSpan(in), kNotHung);
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
  EXPECT_THAT(status.message(), HasSubstr("rank 0 left the group before a all-reduce of 70000 values"));
  EXPECT_EQ(ends_[1]->StartSend(out, 2).status().code(), absl::StatusCode::kUnavailable) << "all is broken";
}

TEST_F(LocalGroupTest, WhoLeavesWithSomethingUnderWayBreaksIt) {
  Values values(3);
  ASSERT_TRUE(ends_[1]->StartAllReduce(absl::MakeSpan(values)).ok());
  ends_[1].reset();
  EXPECT_EQ(ends_[0]->StartAllReduce(absl::MakeSpan(values)).status().code(), absl::StatusCode::kUnavailable);
}

TEST_F(LocalGroupTest, AnAbortAmidASumLetsGoOfItsValues) {
  static constexpr std::size_t kMany = 3000000;
  for (int round = 0; round < 5; ++round) {
    Together(ends_, [](Collective* end) {
      auto values = std::make_unique<Values>(kMany, 1.0f);
      const absl::StatusOr<Handle> handle = end->StartAllReduce(absl::MakeSpan(*values));
      if (!handle.ok()) return;
      if (end->rank() == 1) end->Abort();  // others may be amid it
      const absl::Status status = end->Wait(*handle, kNotHung);
      EXPECT_TRUE(status.ok() || absl::IsAborted(status) || absl::IsUnavailable(status)) << status;
      EXPECT_TRUE(!status.ok() || *values == Values(kMany, kSize));
      values.reset();  // a sanitizer would see whoever still writes there
    });
    ends_.clear();
    ends_ = members_.Form(kNotHung).value();
  }
}

}  // namespace
}  // namespace downpour::collective
