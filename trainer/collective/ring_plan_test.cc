#include "trainer/collective/ring_plan.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <random>
#include <vector>

namespace downpour::collective {
namespace {

TEST(PartOfTest, PartsFollowEachOtherAndDifferByOne) {
  for (const std::size_t count : {0u, 1u, 2u, 7u, 8u, 1000u}) {
    for (int size = 1; size <= 5; ++size) {
      std::size_t end = 0;
      for (int rank = 0; rank < size; ++rank) {
        const Part part = PartOf(count, rank, size);
        EXPECT_EQ(part.begin, end);
        end = part.end;
        EXPECT_LE(part.end - part.begin, count / static_cast<std::size_t>(size) + 1);
        EXPECT_GE(part.end - part.begin, count / static_cast<std::size_t>(size));
      }
      EXPECT_EQ(end, count);
    }
  }
}

// A rank that moves value by value, in an order that chance gives: what was sent before is read as it was then.
struct Player {
  RingPlan plan;
  std::vector<float> values;
  std::vector<float> wire;  // to the next rank
  std::size_t read = 0;     // of the wire of the rank before
  std::size_t sends = 0, send_at = 0, receives = 0, receive_at = 0, may_send = 0;
};

bool Step(Player& player, const Player& previous, bool send) {
  auto& piece = send ? player.sends : player.receives;
  auto& at = send ? player.send_at : player.receive_at;
  const std::vector<Piece>& pieces = send ? player.plan.sends : player.plan.receives;
  while (piece < pieces.size() && pieces[piece].begin + at == pieces[piece].end) {
    ++piece;
    at = 0;
  }
  if (piece == pieces.size()) return false;
  float& value = player.values[pieces[piece].begin + at];
  if (send) {
    if (player.may_send == 0) return false;
    --player.may_send;
    player.wire.push_back(value);
  } else {
    if (player.read == previous.wire.size()) return false;
    const float got = previous.wire[player.read++];
    value = pieces[piece].add ? value + got : got;
    ++player.may_send;
  }
  ++at;
  return true;
}

std::vector<std::vector<float>> Play(OperationKind kind, std::size_t count, int size, int root, unsigned seed) {
  std::vector<Player> players(static_cast<std::size_t>(size));
  for (std::size_t rank = 0; rank < players.size(); ++rank) {
    players[rank].values.resize(count);
    for (std::size_t i = 0; i < count; ++i) players[rank].values[i] = static_cast<float>(i + 1000 * (rank + 1));
    const Operation operation = {kind, absl::MakeSpan(players[rank].values), root};
    players[rank].plan = PlanRing(operation, static_cast<int>(rank), size);
    players[rank].may_send = players[rank].plan.ahead;
  }
  std::mt19937 random(seed);
  for (int idle = 0; idle < 200;) {
    const std::size_t rank = random() % players.size();
    const std::size_t previous = (rank + players.size() - 1) % players.size();
    idle = Step(players[rank], players[previous], random() % 2 == 0) ? 0 : idle + 1;
  }
  std::vector<std::vector<float>> values;
  for (std::size_t rank = 0; rank < players.size(); ++rank) {
    const Player& next = players[(rank + 1) % players.size()];
    EXPECT_EQ(next.read, players[rank].wire.size()) << "something sent is not received";
    values.push_back(players[rank].values);
  }
  return values;
}

TEST(RingPlanTest, WhateverTheOrderOfEventsEverybodyHasWhatItShould) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    for (int size = 1; size <= 5; ++size) {
      for (const std::size_t count : {0u, 1u, 3u, 16u}) {
        SCOPED_TRACE(testing::Message() << "seed " << seed << ", " << size << " ranks, " << count << " values");
        const auto sum = [size](std::size_t i) {
          return static_cast<float>(size) * static_cast<float>(i) + 500.0f * static_cast<float>(size * (size + 1));
        };
        const auto reduced = Play(OperationKind::kAllReduce, count, size, 0, seed);
        const auto scattered = Play(OperationKind::kReduceScatter, count, size, 0, seed);
        const auto gathered = Play(OperationKind::kAllGather, count, size, 0, seed);
        for (int rank = 0; rank < size; ++rank) {
          const std::size_t at = static_cast<std::size_t>(rank);
          for (int owner = 0; owner < size; ++owner) {
            const Part part = PartOf(count, owner, size);
            for (std::size_t i = part.begin; i < part.end; ++i) {
              EXPECT_EQ(reduced[at][i], sum(i));
              EXPECT_EQ(gathered[at][i], static_cast<float>(i + 1000 * static_cast<std::size_t>(owner + 1)));
              if (owner == rank) {
                EXPECT_EQ(scattered[at][i], sum(i));
              }
            }
          }
        }
        for (int root = 0; root < size; ++root) {
          for (const auto& values : Play(OperationKind::kBroadcast, count, size, root, seed)) {
            for (std::size_t i = 0; i < count; ++i) {
              EXPECT_EQ(values[i], static_cast<float>(i + 1000 * static_cast<std::size_t>(root + 1)));
            }
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace downpour::collective
