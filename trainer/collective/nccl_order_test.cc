#include "trainer/collective/nccl_order.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"

namespace downpour::collective {
namespace {

using testing::HasSubstr;

OperationShape Sum(std::uint64_t count) { return {OperationKind::kAllReduce, Precision::kFloat32, count, 0}; }
OperationShape Send(int to, std::uint64_t count) { return {OperationKind::kSend, Precision::kFloat32, count, to}; }
OperationShape Receive(int from, std::uint64_t count) {
  return {OperationKind::kReceive, Precision::kFloat32, count, from};
}

// Devices that each do one operation after the other, and wait at each for all who take part.
class Devices {
 public:
  explicit Devices(int size) : queues_(static_cast<std::size_t>(size)) {}

  void Put(const std::vector<NcclOrder::Turn>& turns) {
    for (const NcclOrder::Turn& turn : turns) queues_[static_cast<std::size_t>(turn.rank)].push_back(turn.shape);
  }

  // What is left when nothing can go on.
  std::size_t Run() {
    for (bool moved = true; moved;) {
      moved = Round();
      for (std::size_t rank = 0; rank < queues_.size(); ++rank) moved = Message(rank) || moved;
    }
    std::size_t left = 0;
    for (const auto& queue : queues_) left += queue.size();
    return left;
  }

 private:
  bool Round() {
    for (const auto& queue : queues_) {
      if (queue.empty() || !(queue.front() == queues_[0].front()) || queue.front().kind != OperationKind::kAllReduce) {
        return false;
      }
    }
    for (auto& queue : queues_) queue.pop_front();
    return true;
  }

  bool Message(std::size_t from) {
    if (queues_[from].empty() || queues_[from].front().kind != OperationKind::kSend) return false;
    auto& to = queues_[static_cast<std::size_t>(queues_[from].front().peer)];
    if (to.empty() || !(to.front() == Receive(static_cast<int>(from), queues_[from].front().count))) return false;
    queues_[from].pop_front();
    to.pop_front();
    return true;
  }

  std::vector<std::deque<OperationShape>> queues_;
};

TEST(NcclOrderTest, DevicesDoEverythingInWhateverOrderItIsStarted) {
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    std::mt19937_64 random(seed);
    const int size = 1 + static_cast<int>(random() % 4);
    // What each rank starts; messages anywhere among the sums, those between two ranks in one order.
    std::vector<std::deque<OperationShape>> scripts(static_cast<std::size_t>(size));
    for (auto& script : scripts) {
      for (std::uint64_t i = 0; i < 3; ++i) script.push_back(Sum(i));
    }
    const auto insert = [&](int rank, const OperationShape& shape) {
      auto& script = scripts[static_cast<std::size_t>(rank)];
      std::size_t at = random() % (script.size() + 1);
      for (std::size_t i = at; i < script.size(); ++i) {
        if (script[i].kind == shape.kind && script[i].peer == shape.peer) at = i + 1;
      }
      script.insert(script.begin() + static_cast<std::ptrdiff_t>(at), shape);
    };
    for (std::uint64_t i = 0; size > 1 && i < 6; ++i) {
      const int from = static_cast<int>(random() % static_cast<std::uint64_t>(size));
      const int to = (from + 1 + static_cast<int>(random() % static_cast<std::uint64_t>(size - 1))) % size;
      insert(from, Send(to, i));
      insert(to, Receive(from, i));
    }
    NcclOrder order(size);
    Devices devices(size);
    std::size_t put = 0, all = 0;
    for (const auto& script : scripts) all += script.size();
    for (std::size_t started = 0; started < all;) {
      const std::size_t rank = random() % scripts.size();
      if (scripts[rank].empty()) continue;
      std::vector<NcclOrder::Turn> turns;
      ASSERT_EQ(order.Started(static_cast<int>(rank), scripts[rank].front(), &turns), absl::OkStatus());
      scripts[rank].pop_front();
      ++started;
      put += turns.size();
      devices.Put(turns);
      if (scripts[rank].empty()) {
        ASSERT_EQ(order.Left(static_cast<int>(rank)), absl::OkStatus()) << seed;
      }
    }
    ASSERT_EQ(put, all) << seed;
    ASSERT_EQ(devices.Run(), 0u) << seed;
    ASSERT_TRUE(order.all_left());
  }
}

TEST(NcclOrderTest, MembersThatDisagreeAreFoundOut) {
  const OperationShape others[] = {Sum(4),
                                   {OperationKind::kReduceScatter, Precision::kFloat32, 3, 0},
                                   {OperationKind::kAllReduce, Precision::kBfloat16, 3, 0},
                                   {OperationKind::kBroadcast, Precision::kFloat32, 3, 1}};
  for (const OperationShape& other : others) {
    NcclOrder order(2);
    std::vector<NcclOrder::Turn> turns;
    EXPECT_EQ(order.Started(1, Sum(3), &turns), absl::OkStatus());
    const absl::Status status = order.Started(0, other, &turns);
    EXPECT_EQ(status.code(), absl::StatusCode::kInternal);
    EXPECT_THAT(status.message(), HasSubstr("rank 1 all-reduce of 3 values"));
  }
  NcclOrder order(3);
  std::vector<NcclOrder::Turn> turns;
  EXPECT_EQ(order.Started(2, Receive(1, 5), &turns), absl::OkStatus());
  EXPECT_EQ(order.Started(1, Send(2, 6), &turns).code(), absl::StatusCode::kInternal);
}

TEST(NcclOrderTest, WhoLeftIsMissedWhereItIsNeeded) {
  NcclOrder order(3);
  std::vector<NcclOrder::Turn> turns;
  EXPECT_EQ(order.Left(2), absl::OkStatus());
  EXPECT_EQ(order.Started(0, Send(1, 5), &turns), absl::OkStatus());
  EXPECT_EQ(order.Started(1, Receive(0, 5), &turns), absl::OkStatus());
  EXPECT_EQ(turns.size(), 2u) << "the others do without it";
  EXPECT_EQ(order.Started(0, Sum(1), &turns).code(), absl::StatusCode::kUnavailable);
  for (const OperationShape& message : {Send(2, 1), Receive(2, 1)}) {
    NcclOrder before(3), after(3);
    EXPECT_EQ(before.Left(2), absl::OkStatus());
    EXPECT_EQ(before.Started(0, message, &turns).code(), absl::StatusCode::kUnavailable);
    EXPECT_EQ(after.Started(0, message, &turns), absl::OkStatus());
    EXPECT_EQ(after.Left(2).code(), absl::StatusCode::kUnavailable);
  }
}

}  // namespace
}  // namespace downpour::collective
