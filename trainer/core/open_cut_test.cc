#include "trainer/core/open_cut.h"

#include <algorithm>
#include <map>
#include <memory>
#include <random>
#include <set>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/core/testing/momentum.h"
#include "trainer/core/testing/ps_messages.h"

namespace downpour::core {
namespace {

constexpr std::uint32_t kCut = 7;
constexpr std::uint64_t kBytesOfSlice = 2 * kElements * sizeof(float);  // value and velocity

class OpenCutTest : public ::testing::Test {
 protected:
  void Begin(std::uint32_t slices, std::uint64_t extra_bytes_limit) {
    std::set<std::uint32_t> numbers;
    live_.clear();
    for (std::uint32_t number = 0; number < slices; ++number) {
      live_.emplace(number, Fresh(number));
      numbers.insert(number);
    }
    v1::CutOrder order;
    order.set_cut(kCut);
    order.set_checkpoint("cut");
    cut_.emplace(order, numbers, extra_bytes_limit);
  }
  static SliceState Fresh(std::uint32_t number) {
    SliceState state(number, Slice{number, 0, kElements}, std::make_unique<TestMomentum>(kElements),
                     *DataPlan::Create(MakeView().data()));
    state.Initialise(Floats(std::vector<float>(kElements, 0)));
    return state;
  }
  static void Apply(SliceState& state, std::uint32_t update) {
    state.Apply({update / 12, update / 4 % 3, update % 4}, Verdict::kApply,
                Floats(std::vector<float>(kElements, static_cast<float>(update))), {.learning_rate = 1});
  }
  // As a ps does. False: the push has to come again.
  bool Push(std::uint32_t slice, std::uint32_t update, std::uint32_t cut) {
    if (!cut_->BeforePush(live_.at(slice), cut)) return false;
    Apply(live_.at(slice), update);
    if (SliceState* const fork = cut_->LatePush(slice, cut)) Apply(*fork, update);
    return true;
  }
  SliceSnapshot Take(std::uint32_t slice) { return *cut_->Take(live_.at(slice)); }

  std::map<std::uint32_t, SliceState> live_;
  std::optional<OpenCut> cut_;
};

TEST_F(OpenCutTest, HoldsExactlyWhatCameBeforeItInWhateverOrderItComes) {
  for (std::uint32_t seed = 1; seed <= 300; ++seed) {
    std::mt19937 engine(seed);
    const auto below = [&engine](std::uint32_t bound) { return static_cast<std::uint32_t>(engine() % bound); };
    const std::uint32_t slices = 1 + below(4);
    Begin(slices, 0);
    // Each slice gets the updates in an order of its own; those below `border` are of before the cut.
    const std::uint32_t border = below(13);
    std::map<std::uint32_t, SliceState> expected;
    for (std::uint32_t slice = 0; slice < slices; ++slice) {
      expected.emplace(slice, Fresh(slice));
      std::vector<std::uint32_t> order;
      for (std::uint32_t update = 0; update < 12; ++update) order.push_back(update);
      std::shuffle(order.begin(), order.end(), engine);
      const std::size_t untouched = below(5) == 0 ? border : 0;  // nothing of behind the cut ever comes
      for (const std::uint32_t update : order) {
        if (untouched != 0 && update >= border) continue;
        EXPECT_TRUE(Push(slice, update, update < border ? kCut - 1 : kCut + below(2)));
        if (update < border) Apply(expected.at(slice), update);
      }
    }
    cut_->Seal();
    for (std::uint32_t slice = 0; slice < slices; ++slice) {
      const SliceSnapshot snapshot = Take(slice);
      const SliceSnapshot wanted = expected.at(slice).Export();
      EXPECT_EQ(*snapshot.value, *wanted.value) << "seed " << seed;
      EXPECT_EQ(*snapshot.optimizer.vectors[0].values, *wanted.optimizer.vectors[0].values) << "seed " << seed;
      EXPECT_EQ(snapshot.table.SerializeAsString(), wanted.table.SerializeAsString()) << "seed " << seed;
    }
    cut_->OnWritten(v1::PsFiles());
    EXPECT_EQ(cut_->state().extra_bytes(), 0u);
  }
}

TEST_F(OpenCutTest, TakesMemoryOnlyForWhatIsWrittenMeanwhileAndNotBeyondTheLimit) {
  Begin(4, 2 * kBytesOfSlice);
  EXPECT_TRUE(Push(0, 0, kCut - 1));
  EXPECT_EQ(cut_->state().extra_bytes(), 0u) << "of before the cut";
  EXPECT_TRUE(Push(0, 1, kCut));
  EXPECT_TRUE(Push(0, 2, kCut));
  EXPECT_EQ(cut_->state().extra_bytes(), kBytesOfSlice);
  EXPECT_TRUE(Push(1, 1, kCut));
  EXPECT_FALSE(Push(2, 1, kCut)) << "used up";
  EXPECT_TRUE(Push(2, 0, kCut - 1)) << "what the cut waits for is never held up";
  EXPECT_TRUE(Push(0, 3, kCut)) << "has its fork";
  cut_->Seal();
  EXPECT_EQ(Take(0).number, 0u);
  EXPECT_FALSE(Push(2, 1, kCut)) << "still being written";
  EXPECT_EQ(Take(1).number, 1u);
  EXPECT_TRUE(Push(2, 1, kCut));
  Take(2);
  Take(3);
  EXPECT_TRUE(Push(3, 1, kCut)) << "taken already";
  EXPECT_EQ(cut_->Take(live_.at(3)).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST_F(OpenCutTest, OneForkFitsWhateverTheLimit) {
  Begin(2, 1);
  EXPECT_TRUE(Push(0, 0, kCut));
  EXPECT_FALSE(Push(1, 0, kCut));
}

TEST_F(OpenCutTest, LetsGoOfEverythingWhenItCannotBeWritten) {
  Begin(2, 0);
  EXPECT_TRUE(Push(0, 0, kCut));
  cut_->OnWritten(absl::ResourceExhaustedError("disk full"));
  EXPECT_TRUE(cut_->failed());
  EXPECT_EQ(cut_->state().error(), "disk full");
  EXPECT_EQ(cut_->state().extra_bytes(), 0u);
  EXPECT_TRUE(Push(1, 0, kCut));
  EXPECT_EQ(cut_->state().extra_bytes(), 0u);
}

}  // namespace
}  // namespace downpour::core
