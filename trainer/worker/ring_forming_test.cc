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

TEST(DecideTransportTest, NcclIsForRingsOfWhichAllHaveItOnDevicesOfTheirOwn) {
  EXPECT_TRUE(DecideTransport({{1, 7}, {2, 8}}).nccl);
  EXPECT_TRUE(DecideTransport({{1, 7}, {1, 8}, {1, 9}, {1, 0}}).nccl);
  for (const std::vector<RankNccl>& ranks : {std::vector<RankNccl>{{1, 7}, {0, 0}},
                                             {{0, 0}, {1, 7}},
                                             {{0, 0}, {0, 0}},
                                             {{1, 7}, {0, 0}, {1, 8}},
                                             {{1, 7}, {1, 8}, {1, 7}}}) {
    EXPECT_FALSE(DecideTransport(ranks).nccl);
  }
  EXPECT_THAT(DecideTransport({{1, 7}, {1, 8}, {0, 0}, {0, 0}}).why, StartsWith("rank 2 has not"));
  EXPECT_THAT(DecideTransport({{1, 7}, {1, 8}, {1, 9}, {1, 8}}).why, StartsWith("ranks 1 and 3 have one device"));
  EXPECT_FALSE(DecideTransport({{1, 7}}).nccl) << "there is nothing to sum";
  EXPECT_THAT(DecideTransport({{0, 0}}).why, HasSubstr("one worker"));
}

// As of a GPU that is shared: NCCL would fail, or wait for ever.
TEST(MakeRingMembersTest, TellsDevicesApart) {
  collective::FakeNccl nccl;
  collective::FakeNcclDevice one(&nccl), another(&nccl), same(&nccl);
  one.SetAddress("0000:1b:00.0");
  same.SetAddress("0000:1b:00.0");
  RingDevice device;
  device.kernels = cuda::MakeHostKernels();
  device.on_device = true;
  model::ModelOptions options;
  options.model.layers = R"([{"type": "dense", "units": 2}])";
  options.fields = {{{"x", data::ElementType::kF32, {3}}}, {{"label", data::ElementType::kI64, {}, 2}}};
  const auto model = model::CreateModel(options);
  ASSERT_TRUE(model.ok()) << model.status();
  std::vector<std::uint32_t> numbers;
  for (collective::FakeNcclDevice* const nccl_device : {&one, &another, &same}) {
    const auto members = MakeRingMembers("127.0.0.1:0", device, **model, nccl_device);
    ASSERT_TRUE(members.ok()) << members.status();
    ASSERT_NE(members->nccl, nullptr);
    numbers.push_back(members->device);
  }
  EXPECT_NE(numbers[0], numbers[1]);
  EXPECT_EQ(numbers[0], numbers[2]);
  const auto without = MakeRingMembers("127.0.0.1:0", device, **model, nullptr);
  ASSERT_TRUE(without.ok()) << without.status();
  EXPECT_EQ(without->nccl, nullptr) << "the model computes on the CPU";
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
    worker.members.device = static_cast<std::uint32_t>(workers_.size());
  }

  void TearDown() override {
    // Together, as each waits for the others to leave.
    Together([this](std::size_t rank) { workers_[rank].ring = FormedRing(); });
    Together([this](std::size_t rank) { workers_[rank].members = RingMembers(); });
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
      worker.ring = FormedRing();
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
