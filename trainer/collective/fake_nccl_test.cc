// The fake finds misuse, or the tests over it would say little.
#include "trainer/collective/fake_nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

namespace downpour::collective {
namespace {

using testing::HasSubstr;

// All devices on one thread.
class FakeNcclTest : public testing::Test {
 protected:
  FakeNcclTest() {
    one_.UseDevice();
    two_.UseDevice();
  }

  // Communicators of both, with a stream each.
  void FormBoth() {
    NcclUniqueId id;
    EXPECT_EQ(one_.GetUniqueId(&id), NcclResult::kSuccess);
    EXPECT_EQ(one_.CommInitRank(&comms_[0], 2, id, 0), NcclResult::kInProgress);
    for (int i = 0; i < 10; ++i) EXPECT_EQ(one_.AsyncError(comms_[0]), NcclResult::kInProgress);
    EXPECT_EQ(two_.CommInitRank(&comms_[1], 2, id, 1), NcclResult::kInProgress);
    EXPECT_EQ(one_.StreamCreate(&streams_[0]), NcclResult::kSuccess);
    EXPECT_EQ(two_.StreamCreate(&streams_[1]), NcclResult::kSuccess);
    AwaitBoth();
  }
  static NcclResult Await(FakeNcclDevice* device, NcclComm comm) {
    NcclResult result = NcclResult::kInProgress;
    for (int i = 0; i < 10 && result == NcclResult::kInProgress; ++i) result = device->AsyncError(comm);
    return result;
  }
  void AwaitBoth() {
    EXPECT_EQ(Await(&one_, comms_[0]), NcclResult::kSuccess);
    EXPECT_EQ(Await(&two_, comms_[1]), NcclResult::kSuccess);
  }
  NcclResult AwaitStream(int rank) {
    FakeNcclDevice& device = rank == 0 ? one_ : two_;
    NcclResult result = NcclResult::kInProgress;
    for (int i = 0; i < 10 && result == NcclResult::kInProgress; ++i) result = device.StreamQuery(streams_[rank]);
    return result;
  }
  void Release() {
    one_.CommAbort(comms_[0]);
    two_.CommAbort(comms_[1]);
    one_.StreamDestroy(streams_[0]);
    two_.StreamDestroy(streams_[1]);
  }
  NcclResult Broadcast(int rank, float* values, std::size_t count) {
    return (rank == 0 ? one_ : two_).Broadcast(values, count * sizeof(float), 0, comms_[rank], streams_[rank]);
  }

  FakeNccl nccl_;
  FakeNcclDevice one_{&nccl_}, two_{&nccl_};
  NcclComm comms_[2];
  NcclStream streams_[2];
};

TEST_F(FakeNcclTest, WhatIsUsedProperlyIsNotComplainedAbout) {
  FormBoth();
  float values[2] = {1, 2};
  EXPECT_THAT(nccl_.Leaks(), HasSubstr("communicator of device 0\n"));
  Broadcast(0, &values[0], 1);
  AwaitBoth();
  EXPECT_EQ(AwaitStream(0), NcclResult::kInProgress) << "the other has not begun";
  Broadcast(1, &values[1], 1);
  AwaitBoth();
  EXPECT_EQ(AwaitStream(0), NcclResult::kSuccess);
  EXPECT_EQ(AwaitStream(1), NcclResult::kSuccess);
  EXPECT_EQ(values[1], 1);
  EXPECT_EQ(one_.CommFinalize(comms_[0]), NcclResult::kInProgress);
  EXPECT_EQ(two_.CommFinalize(comms_[1]), NcclResult::kInProgress);
  AwaitBoth();
  one_.CommDestroy(comms_[0]);
  two_.CommDestroy(comms_[1]);
  EXPECT_EQ(nccl_.Leaks(), "stream of device 0\nstream of device 1\n");
  one_.StreamDestroy(streams_[0]);
  two_.StreamDestroy(streams_[1]);
  EXPECT_EQ(nccl_.Leaks(), "");
  EXPECT_EQ(nccl_.Complaints(), "");
}

TEST_F(FakeNcclTest, ADeviceWaitsAtAMessageAndAtASumInTheOrderOfItsStream) {
  FormBoth();
  float value[2] = {}, sum[2] = {};
  one_.Send(&value[0], 4, 1, comms_[0], streams_[0]);
  Broadcast(1, &sum[1], 1);
  AwaitBoth();
  Broadcast(0, &sum[0], 1);
  two_.Receive(&value[1], 4, 0, comms_[1], streams_[1]);
  AwaitBoth();
  EXPECT_EQ(AwaitStream(0), NcclResult::kInProgress) << "as real devices would wait for each other for ever";
  Release();
  EXPECT_EQ(nccl_.Complaints(), "");
}

TEST_F(FakeNcclTest, HandlesThatWereGivenBack) {
  FormBoth();
  one_.CommAbort(comms_[0]);
  one_.CommAbort(comms_[0]);
  EXPECT_THAT(nccl_.Complaints(), HasSubstr("device 0: CommAbort on a communicator that was given back"));
  one_.AsyncError(comms_[0]);
  EXPECT_THAT(nccl_.Complaints(), HasSubstr("device 0: AsyncError on a communicator that was given back"));
  two_.CommDestroy(comms_[1]);
  EXPECT_THAT(nccl_.Complaints(), HasSubstr("device 1: CommDestroy of a communicator that was not finalized"));
  NcclEvent event;
  one_.EventCreate(&event);
  EXPECT_THAT(nccl_.Leaks(), HasSubstr("event of device 0"));
  one_.EventQuery(event);
  EXPECT_THAT(nccl_.Complaints(), HasSubstr("EventQuery of what was given back, or was not recorded"));
  one_.EventDestroy(event);
  one_.EventDestroy(event);
  EXPECT_THAT(nccl_.Complaints(), HasSubstr("EventDestroy of what was given back"));
  void* memory = nullptr;
  one_.Allocate(&memory, 8, streams_[0]);
  EXPECT_THAT(nccl_.Leaks(), HasSubstr("8 bytes of memory"));
  one_.Free(memory, streams_[0]);
  one_.StreamDestroy(streams_[0]);
  one_.StreamDestroy(streams_[0]);
  EXPECT_THAT(nccl_.Complaints(), HasSubstr("StreamDestroy of what was given back"));
  two_.StreamDestroy(streams_[1]);
  EXPECT_EQ(nccl_.Leaks(), "");
}

TEST_F(FakeNcclTest, WhatIsUsedWhileACallGoesOn) {
  // The seed says how many polls it takes; some take none.
  for (int i = 0; i < 20 && nccl_.Complaints().empty(); ++i) {
    FormBoth();
    float values[2] = {};
    if (Broadcast(0, &values[0], 1) == NcclResult::kInProgress) Broadcast(0, &values[1], 1);
    Release();
  }
  EXPECT_THAT(nccl_.Complaints(), HasSubstr("device 0: an operation on a communicator that is not ready"));
  FormBoth();
  void* memory = nullptr;
  float value = 0;
  for (int i = 0; i < 20; ++i) {
    if (Broadcast(0, &value, 1) == NcclResult::kInProgress) break;
  }
  EXPECT_EQ(one_.Allocate(&memory, 1, streams_[0]), NcclResult::kSuccess);
  EXPECT_THAT(nccl_.Complaints(), HasSubstr("device 0: a stream is used while NCCL puts something on it"));
  one_.Free(memory, streams_[0]);
  Release();
}

TEST_F(FakeNcclTest, TwoThreadsInOneCommunicator) {
  FormBoth();
  bool inside = false;
  one_.SetHook([&](const std::string& call) {
    if (call != "AsyncError" || std::exchange(inside, true)) return;
    std::thread([&] {
      one_.UseDevice();
      one_.AsyncError(comms_[0]);
    }).join();
  });
  one_.AsyncError(comms_[0]);
  one_.SetHook(nullptr);
  EXPECT_THAT(nccl_.Complaints(), HasSubstr("device 0: AsyncError: two threads in one communicator"));
  Release();
}

TEST_F(FakeNcclTest, RanksThatDoDifferentThings) {
  FormBoth();
  float values[2] = {};
  Broadcast(0, &values[0], 1);
  Broadcast(1, &values[0], 2);
  AwaitBoth();
  EXPECT_THAT(nccl_.Complaints(), HasSubstr("the ranks of a communicator do different things"));
  Release();
}

TEST_F(FakeNcclTest, AThreadThatDidNotSayWhichDeviceItUses) {
  std::thread([&] {
    NcclUniqueId id;
    one_.GetUniqueId(&id);
  }).join();
  EXPECT_THAT(nccl_.Complaints(), HasSubstr("GetUniqueId on a thread that did not say which device it uses"));
}

TEST_F(FakeNcclTest, AGroupOfCallsThatWasNotEnded) {
  one_.GroupStart();
  EXPECT_EQ(nccl_.Leaks(), "group of calls that was not ended\n");
  one_.GroupEnd();
  EXPECT_EQ(nccl_.Leaks(), "");
}

TEST_F(FakeNcclTest, TwoCommunicatorsAtOnce) {
  FormBoth();
  NcclUniqueId id;
  one_.GetUniqueId(&id);
  NcclComm second = NcclComm::kNone;
  one_.CommInitRank(&second, 1, id, 0);
  EXPECT_THAT(nccl_.Complaints(), HasSubstr("device 0: two communicators at once"));
  one_.CommAbort(second);
  Release();
}

TEST_F(FakeNcclTest, AFaultIsOfTheCallItIsMeantForAndMovesTheClock) {
  FakeNccl nccl;
  FakeNcclDevice device(&nccl);
  device.Inject({FakeNcclFault::Kind::kNever, 3});
  device.UseDevice();
  NcclUniqueId id;
  EXPECT_EQ(device.GetUniqueId(&id), NcclResult::kSuccess);
  NcclComm comm = NcclComm::kNone;
  device.CommInitRank(&comm, 1, id, 0);
  EXPECT_EQ(device.failed_call(), "CommInitRank");
  const auto before = device.Now();
  for (int i = 0; i < 100; ++i) EXPECT_EQ(device.AsyncError(comm), NcclResult::kInProgress);
  const auto after = device.Now();
  EXPECT_GE(after - before, std::chrono::hours(1));
  EXPECT_LT(device.Now() - after, std::chrono::hours(1)) << "nothing was waited for";
  for (int i = 0; i < 3; ++i) device.AsyncError(comm);
  EXPECT_GE(device.Now() - after, std::chrono::hours(1)) << "for who looks late";
  EXPECT_EQ(device.calls(), 4) << "polls count once";
  device.CommAbort(comm);
  EXPECT_EQ(nccl.Complaints() + nccl.Leaks(), "");
}

}  // namespace
}  // namespace downpour::collective
