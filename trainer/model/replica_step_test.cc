#include "trainer/model/replica_step.h"

#include <gtest/gtest.h>

#include <thread>
#include <vector>

namespace downpour::model {
namespace {

TEST(ReplicaStepTest, AllGoOnOrNobodyDoes) {
  for (const bool go_on : {true, false}) {
    ReplicaStep step(2);
    std::vector<int> told(2);
    std::vector<std::thread> replicas;
    for (std::size_t r = 0; r < 2; ++r) {
      replicas.emplace_back([&step, &told, r] { told[r] = step.AwaitDecision(r, 10.0 + static_cast<double>(r)); });
    }
    EXPECT_EQ(step.AwaitLosses(), (std::vector<double>{10, 11}));
    step.Decide(go_on);
    step.Decide(!go_on);
    for (std::thread& replica : replicas) replica.join();
    EXPECT_EQ(told, std::vector<int>(2, go_on));
    EXPECT_FALSE(step.End(absl::OkStatus()));
    EXPECT_TRUE(step.End(absl::OkStatus()));
    EXPECT_TRUE(step.status().ok());
  }
}

TEST(ReplicaStepTest, TheFirstErrorEndsItForAll) {
  ReplicaStep step(3);
  bool told = true;
  std::thread replica([&step, &told] { told = step.AwaitDecision(0, 1); });
  EXPECT_FALSE(step.End(absl::InternalError("first")));
  EXPECT_EQ(step.AwaitLosses(), std::nullopt);
  step.Decide(true);
  replica.join();
  EXPECT_FALSE(told);
  EXPECT_FALSE(step.End(absl::InternalError("second")));
  EXPECT_TRUE(step.End(absl::OkStatus()));
  EXPECT_EQ(step.status(), absl::InternalError("first"));
}

TEST(ReplicaStepTest, WhoEndsWithoutALossKeepsNobodyWaiting) {
  ReplicaStep step(2);
  std::thread replica([&step] { step.End(absl::OkStatus()); });
  EXPECT_EQ(step.AwaitLosses(), std::nullopt);
  replica.join();
}

}  // namespace
}  // namespace downpour::model
