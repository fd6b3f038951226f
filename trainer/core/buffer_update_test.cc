#include "trainer/core/buffer_update.h"

#include <vector>

#include "gtest/gtest.h"
#include "trainer/core/testing/ps_messages.h"

namespace downpour::core {
namespace {

TEST(BufferUpdateTest, SubtractsWhatWasPushedWhateverTheRate) {
  const std::vector<float> value = {1, -2, 0.5f};
  for (const double rate : {0.0, 1e-30, 0.1, 1.0, 1e30}) {
    std::vector<float> updated(3);
    CreateBufferUpdate()->Step(value, Floats({0.25f, -1, 0}), {.learning_rate = rate}, absl::MakeSpan(updated));
    EXPECT_EQ(updated, (std::vector<float>{0.75f, -1, 0.5f})) << rate;
  }
}

TEST(BufferUpdateTest, TheNewValueMayTakeTheOldOnesPlace) {
  std::vector<float> value = {1, 2};
  CreateBufferUpdate()->Step(value, Floats({0.5f, -1}), {.learning_rate = 0.1}, absl::MakeSpan(value));
  EXPECT_EQ(value, (std::vector<float>{0.5f, 3}));
}

}  // namespace
}  // namespace downpour::core
