#include "trainer/worker/staged_collective.h"

#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/collective/fake.h"
#include "trainer/cuda/testing/counting_kernels.h"

namespace downpour::worker {
namespace {

using collective::Collective;
using cuda::testing::CountingKernels;

constexpr absl::Duration kLimit = absl::Seconds(30);
constexpr int kSize = 3;

// Runs `rank(staged, counts)` on all ranks at once; nobody leaves before all are done, and then all memory is given
// back.
void OnAllRanks(StagedIn in, const std::function<void(Collective&, CountingKernels::Counts&)>& rank) {
  collective::FakeNetwork network;
  struct Rank {
    CountingKernels::Counts counts;
    std::unique_ptr<CountingKernels> kernels = std::make_unique<CountingKernels>(&counts);
    std::unique_ptr<Collective> staged;
  };
  std::vector<Rank> ranks(kSize);
  auto groups = network.NewGroup("v1", kSize);
  std::vector<std::thread> threads;
  for (std::size_t i = 0; i < ranks.size(); ++i) {
    ranks[i].staged = StageValues(groups[i].get(), ranks[i].kernels.get(), in);
    threads.emplace_back([&rank, &one = ranks[i]] { rank(*one.staged, one.counts); });
  }
  for (std::thread& thread : threads) thread.join();
  groups.clear();
  for (Rank& one : ranks) {
    one.staged.reset();
    EXPECT_EQ(one.counts.held, 0);
  }
}

std::vector<float> Of(int rank, std::size_t count = 4) {
  return std::vector<float>(count, static_cast<float>(1 << rank));
}

TEST(StagedCollectiveTest, DoesAllThatTheGroupDoes) {
  for (const StagedIn in : {StagedIn::kHost, StagedIn::kDevice}) {
    OnAllRanks(in, [](Collective& staged, CountingKernels::Counts& counts) {
      const int rank = staged.rank();
      ASSERT_EQ(staged.size(), kSize);
      EXPECT_EQ(staged.view(), "v1");
      int held = 0;
      for (int round = 0; round < 3; ++round) {
        std::vector<float> all = Of(rank), scattered = Of(rank, 3), gathered(3), from_one = Of(rank);
        EXPECT_EQ(staged.AllReduce(absl::MakeSpan(all), kLimit), absl::OkStatus());
        EXPECT_EQ(all, std::vector<float>(4, 7));
        EXPECT_EQ(staged.ReduceScatter(absl::MakeSpan(scattered), kLimit), absl::OkStatus());
        EXPECT_EQ(scattered[static_cast<std::size_t>(rank)], 7);
        gathered[static_cast<std::size_t>(rank)] = static_cast<float>(rank);
        EXPECT_EQ(staged.AllGather(absl::MakeSpan(gathered), kLimit), absl::OkStatus());
        EXPECT_EQ(gathered, (std::vector<float>{0, 1, 2}));
        EXPECT_EQ(staged.Broadcast(absl::MakeSpan(from_one), 2, kLimit), absl::OkStatus());
        EXPECT_EQ(from_one, Of(2));
        std::vector<float> sent = Of(rank), received(4);
        const auto send = staged.StartSend(sent, (rank + 1) % kSize);
        const auto receive = staged.StartReceive(absl::MakeSpan(received), (rank + 2) % kSize);
        ASSERT_TRUE(send.ok() && receive.ok());
        EXPECT_EQ(staged.Wait(*receive, kLimit), absl::OkStatus());
        EXPECT_EQ(staged.Wait(*send, kLimit), absl::OkStatus());
        EXPECT_EQ(received, Of((rank + 2) % kSize));
        if (round == 1) held = counts.held;
      }
      EXPECT_EQ(counts.held, held) << "what is alike takes no more memory";
      EXPECT_EQ(staged.Wait(4711, kLimit).code(), absl::StatusCode::kInvalidArgument);
    });
  }
}

TEST(StagedCollectiveTest, SeveralOperationsAtOnceDoNotMeet) {
  OnAllRanks(StagedIn::kDevice, [](Collective& staged, CountingKernels::Counts&) {
    std::vector<std::vector<float>> values;
    std::vector<collective::Handle> handles;
    for (std::size_t count = 1; count < 20; ++count) values.push_back(Of(staged.rank(), count));
    for (std::vector<float>& one : values) handles.push_back(*staged.StartAllReduce(absl::MakeSpan(one)));
    for (const collective::Handle handle : handles) EXPECT_EQ(staged.Wait(handle, kLimit), absl::OkStatus());
    for (const std::vector<float>& one : values) EXPECT_EQ(one, std::vector<float>(one.size(), 7));
  });
}

// At whatever call: all ranks hear of it, and nobody waits for what does not come.
TEST(StagedCollectiveTest, ADeviceThatFailsBreaksTheGroup) {
  for (int call = 0; call < 12; ++call) {
    OnAllRanks(StagedIn::kHost, [call](Collective& staged, CountingKernels::Counts& counts) {
      if (staged.rank() == 1) counts.fails_at = call;
      absl::Status status;
      for (int round = 0; status.ok() && round < 20; ++round) {
        std::vector<float> values = Of(staged.rank());
        status = staged.AllReduce(absl::MakeSpan(values), kLimit);
      }
      EXPECT_EQ(status.code(), staged.rank() == 1 ? absl::StatusCode::kInternal : absl::StatusCode::kUnavailable)
          << status;
      if (staged.rank() != 1) return;
      EXPECT_NE(std::string(status.message()).find("planted"), std::string::npos) << status;
    });
  }
}

TEST(StagedCollectiveTest, AbortIsTheGroups) {
  OnAllRanks(StagedIn::kHost, [](Collective& staged, CountingKernels::Counts&) {
    std::vector<float> values = Of(staged.rank());
    if (staged.rank() == 0) staged.Abort();
    EXPECT_EQ(staged.AllReduce(absl::MakeSpan(values), kLimit).code(),
              staged.rank() == 0 ? absl::StatusCode::kAborted : absl::StatusCode::kUnavailable);
  });
}

}  // namespace
}  // namespace downpour::worker
