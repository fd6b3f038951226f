#include "trainer/worker/ring_forming.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/collective/fake_nccl.h"
#include "trainer/collective/nccl_collective.h"
#include "trainer/collective/tcp.h"

namespace downpour::worker {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

// Reaching it is a hang.
constexpr absl::Duration kNotHung = absl::Seconds(30);

TEST(DecideTransportTest, NcclIsForRingsOfWhichAllHaveIt) {
  EXPECT_TRUE(DecideTransport({false, false}).nccl);
  EXPECT_TRUE(DecideTransport({false, false, false, false}).nccl);
  for (const std::vector<bool>& without :
       {std::vector<bool>{false, true}, {true, false}, {true, true}, {false, true, false}, {false, true, true}}) {
    EXPECT_FALSE(DecideTransport(without).nccl);
  }
  EXPECT_THAT(DecideTransport({false, false, true, true}).why, StartsWith("rank 2 has not"));
  EXPECT_FALSE(DecideTransport({false}).nccl) << "there is nothing to sum";
  EXPECT_THAT(DecideTransport({true}).why, HasSubstr("one worker"));
}

class FormedRingTest : public ::testing::Test {
 protected:
  // With NCCL, on a device of its own, or on the host.
  void AddWorker(bool with_nccl) {
    Worker& worker = workers_.emplace_back();
    worker.device.kernels = cuda::MakeHostKernels();
    worker.device.on_device = with_nccl;
    worker.members.tcp = *collective::NewTcpMember("127.0.0.1:0");
    if (!with_nccl) return;
    worker.nccl = std::make_unique<collective::FakeNcclDevice>(&nccl_);
    collective::NcclOptions options;
    options.address = "127.0.0.1:0";
    worker.members.nccl = *collective::NewNcclMember(worker.nccl.get(), options);
  }

  void TearDown() override {
    workers_.clear();
    EXPECT_EQ(nccl_.Complaints() + nccl_.Leaks(), "");
  }

  void Together(const std::function<void(std::size_t)>& play) {
    std::vector<std::thread> threads;
    for (std::size_t rank = 0; rank < workers_.size(); ++rank) threads.emplace_back([&play, rank] { play(rank); });
    for (std::thread& thread : threads) thread.join();
  }

  void Form(const std::string& view) {
    Together([&](std::size_t rank) {
      collective::GroupOptions options;
      options.view = view;
      options.rank = static_cast<int>(rank);
      options.size = static_cast<int>(workers_.size());
      options.host = "127.0.0.1";
      options.store = absl::StrCat("127.0.0.1:", workers_[0].members.tcp->port());
      options.limit = kNotHung;
      Worker& worker = workers_[rank];
      auto ring = FormedRing::Form(worker.members, worker.device, options);
      ASSERT_TRUE(ring.ok()) << ring.status();
      worker.ring = *std::move(ring);
    });
  }

  void ExpectSums() {
    Together([&](std::size_t rank) {
      const RingGroup sides = workers_[rank].ring.sides();
      std::vector<float> values(1001, static_cast<float>(rank + 1)), words(3, static_cast<float>(rank + 1));
      const auto total = static_cast<float>(workers_.size() * (workers_.size() + 1) / 2);
      EXPECT_EQ(sides.values->AllReduce(absl::MakeSpan(values), kNotHung), absl::OkStatus());
      EXPECT_EQ(values, std::vector<float>(1001, total));
      EXPECT_EQ(sides.words->AllReduce(absl::MakeSpan(words), kNotHung), absl::OkStatus());
      EXPECT_EQ(words, std::vector<float>(3, total));
    });
  }

  struct Worker {
    RingDevice device;
    std::unique_ptr<collective::FakeNcclDevice> nccl;
    RingMembers members;
    FormedRing ring;
  };
  collective::FakeNccl nccl_;
  std::vector<Worker> workers_;
};

TEST_F(FormedRingTest, SumsByNcclWhereAllHaveIt) {
  for (int i = 0; i < 3; ++i) AddWorker(true);
  for (const char* const view : {"v1", "v2", "v3"}) {
    Form(view);
    for (const Worker& worker : workers_) EXPECT_TRUE(worker.ring.transport().nccl);
    ExpectSums();
  }
  for (const Worker& worker : workers_) {
    EXPECT_EQ(worker.nccl->Count("CommInitRank"), 3) << "each view has a communicator of its own";
    EXPECT_GT(worker.nccl->Count("Reduce") + worker.nccl->Count("ReduceScatter"), 0);
  }
}

TEST_F(FormedRingTest, SumsByTcpWhereOneHasNone) {
  AddWorker(true);
  AddWorker(false);
  AddWorker(true);
  Form("v1");
  for (const Worker& worker : workers_) {
    EXPECT_FALSE(worker.ring.transport().nccl);
    EXPECT_THAT(worker.ring.transport().why, StartsWith("rank 1 "));
    EXPECT_EQ(worker.nccl == nullptr ? 0 : worker.nccl->Count("CommInitRank"), 0);
  }
  ExpectSums();
  // Of a device they are copied, and not given to TCP.
  EXPECT_NE(workers_[0].ring.sides().values, workers_[0].ring.sides().words);
  EXPECT_EQ(workers_[1].ring.sides().values, workers_[1].ring.sides().words);
}

TEST_F(FormedRingTest, OneWorkerNeedsNoNccl) {
  AddWorker(true);
  Form("v1");
  EXPECT_FALSE(workers_[0].ring.transport().nccl);
  EXPECT_EQ(workers_[0].nccl->Count("CommInitRank"), 0);
}

// Whoever aborts, and whoever waits on which side: all come back, and the next view is formed.
TEST_F(FormedRingTest, AbortedByOneAllLeaveAndFormAnother) {
  for (int i = 0; i < 3; ++i) AddWorker(true);
  for (std::size_t one = 0; one < 3; ++one) {
    Form(absl::StrCat("broken", one));
    Together([&](std::size_t rank) {
      const FormedRing& ring = workers_[rank].ring;
      std::vector<float> values(10);
      if (rank == one) return ring.Abort();
      const bool waits_for_values = (rank + one) % 2 == 0;
      const absl::Status waited =
          (waits_for_values ? ring.sides().values : ring.sides().words)->AllReduce(absl::MakeSpan(values), kNotHung);
      EXPECT_EQ(waited.code(), absl::StatusCode::kUnavailable) << waited;
      // So that whoever waits on the other side of another rank hears of it too, as from a worker that gives a ring up.
      ring.Abort();
    });
    Form(absl::StrCat("whole", one));
    ExpectSums();
  }
}

// NCCL itself fails while it is formed: an error at all of them, and nobody sums by something else.
TEST_F(FormedRingTest, WhatFailsWhileItIsFormedIsAnErrorOfTheGroup) {
  for (int i = 0; i < 2; ++i) AddWorker(true);
  workers_[1].nccl->Inject({collective::FakeNcclFault::Kind::kError, 2});
  Together([&](std::size_t rank) {
    collective::GroupOptions options;
    options.view = "v1";
    options.rank = static_cast<int>(rank);
    options.size = 2;
    options.host = "127.0.0.1";
    options.store = absl::StrCat("127.0.0.1:", workers_[0].members.tcp->port());
    options.limit = kNotHung;
    EXPECT_FALSE(FormedRing::Form(workers_[rank].members, workers_[rank].device, options).ok());
  });
  Form("v2");
  ExpectSums();
}

}  // namespace
}  // namespace downpour::worker
