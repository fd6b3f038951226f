#include "trainer/checkpoint/best_models.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/checkpoint/safetensors.h"

namespace downpour::checkpoint {
namespace {

constexpr char kUid[] = "00112233445566778899aabbccddeeff";

class BestModelsTest : public testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(testing::TempDir()) /
              (std::string("best-models-") + testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  BestModels Of(const std::string& metric, const std::string& uid = kUid, const std::string& name = "job") const {
    return {folder_.string(), name, uid, metric};
  }
  static void Write(const BestModels& models, const MeasuredModel& model) {
    const std::vector<float> values = {static_cast<float>(model.value)};
    ASSERT_TRUE(WriteSafetensors(models.PathOf(model), {{"w", {1}, values}}, models.MetadataOf(model)).ok());
  }
  // What an evaluation does. False: it is not the best.
  static bool Evaluate(const BestModels& models, const MeasuredModel& model) {
    const absl::StatusOr<bool> best = models.IsBest(model);
    EXPECT_TRUE(best.ok()) << best.status();
    if (!best.ok() || !*best) return false;
    Write(models, model);
    EXPECT_EQ(models.RemoveWorse(model), "");
    return true;
  }
  std::set<std::string> Files() const {
    std::set<std::string> names;
    for (const auto& entry : std::filesystem::directory_iterator(folder_)) {
      names.insert(entry.path().filename().string());
    }
    return names;
  }

  std::filesystem::path folder_;
};

TEST_F(BestModelsTest, KeepsTheFirstOfTheBest) {
  const BestModels models = Of("Accuracy");
  EXPECT_TRUE(Evaluate(models, {0.5, 1, 11}));
  EXPECT_FALSE(Evaluate(models, {0.4, 2, 12}));
  EXPECT_TRUE(Evaluate(models, {0.6, 3, 13}));
  EXPECT_FALSE(Evaluate(models, {0.6, 4, 14}));
  EXPECT_FALSE(Evaluate(models, {std::numeric_limits<double>::quiet_NaN(), 5, 15}));
  EXPECT_THAT(Files(), testing::ElementsAre("best-epoch-3-13.safetensors"));
  const absl::StatusOr<BestModels::Kept> kept = models.Keep();
  ASSERT_TRUE(kept.ok()) << kept.status();
  EXPECT_EQ(kept->path, (folder_ / "best.safetensors").string());
  EXPECT_EQ(kept->model.epoch, 3u);
  EXPECT_THAT(Files(), testing::ElementsAre("best.safetensors"));
  EXPECT_EQ(ReadSafetensors(kept->path)->tensors.at("w").values[0], 0.6f);
  // Whoever does it again finds it done.
  ASSERT_TRUE(models.Keep().ok());
  EXPECT_EQ(models.Keep()->model.epoch, 3u);
}

TEST_F(BestModelsTest, WhoeverEndedInTheMiddleOfIt) {
  const BestModels models = Of("Accuracy");
  Write(models, {0.6, 3, 13});
  ASSERT_TRUE(models.Keep().ok());
  Write(models, {0.5, 1, 11});  // was not removed yet
  EXPECT_EQ(models.Keep()->model.epoch, 3u);
  EXPECT_THAT(Files(), testing::ElementsAre("best.safetensors"));
}

TEST_F(BestModelsTest, OfALossLessIsBetter) {
  const BestModels models = Of("Loss");
  EXPECT_TRUE(Evaluate(models, {0.5, 1, 11}));
  EXPECT_TRUE(Evaluate(models, {0.4, 2, 12}));
  EXPECT_FALSE(Evaluate(models, {0.45, 3, 13}));
  EXPECT_EQ(models.Keep()->model.epoch, 2u);
}

TEST_F(BestModelsTest, WhateverIsBrokenOrAnothersIsLeftAlone) {
  const BestModels others = Of("Accuracy", "ffeeddccbbaa99887766554433221100", "another");
  Write(others, {0.9, 1, 11});
  std::ofstream(folder_ / "best-epoch-2-12.safetensors") << "torn";
  std::ofstream(folder_ / "model.safetensors") << "the model";
  const BestModels models = Of("Accuracy");
  EXPECT_EQ(models.Keep().status().code(), absl::StatusCode::kNotFound);
  EXPECT_TRUE(Evaluate(models, {0.5, 1, 21}));
  EXPECT_EQ(models.Keep()->model.epoch, 1u);
  EXPECT_THAT(Files(), testing::ElementsAre("best-epoch-1-11.safetensors", "best-epoch-2-12.safetensors",
                                            "best.safetensors", "model.safetensors"));
  // That of another job is not this one's.
  EXPECT_EQ(others.Keep()->model.epoch, 1u);
  EXPECT_EQ(models.Keep().status().code(), absl::StatusCode::kNotFound);
}

TEST_F(BestModelsTest, WhatAnEarlierJobOfTheNameLeftIsNoMatchAndRemovedInTheEnd) {
  Write(Of("Accuracy", "ffeeddccbbaa99887766554433221100"), {0.9, 7, 11});
  const BestModels models = Of("Accuracy");
  EXPECT_TRUE(Evaluate(models, {0.5, 1, 21}));
  EXPECT_EQ(Files().size(), 2u);
  EXPECT_EQ(models.Keep()->model.epoch, 1u);
  EXPECT_THAT(Files(), testing::ElementsAre("best.safetensors"));
}

TEST_F(BestModelsTest, AFolderThatIsNotThereIsAnError) {
  std::filesystem::remove_all(folder_);
  EXPECT_FALSE(Of("Loss").IsBest({1, 1, 1}).ok());
  EXPECT_FALSE(Of("Loss").Keep().ok());
  EXPECT_NE(Of("Loss").RemoveWorse({1, 1, 1}), "");
}

// Evaluations that go on side by side, step by step in any order, some of which end in the middle.
TEST_F(BestModelsTest, TheBestIsNeverRemovedWhoeverWritesMeanwhile) {
  const BestModels models = Of("Loss");
  for (std::uint32_t seed = 1; seed <= 40; ++seed) {
    std::mt19937 random(seed);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    std::vector<MeasuredModel> all;
    std::vector<int> steps;
    for (std::uint32_t number = 0; number < 6; ++number) {
      all.push_back({static_cast<double>(random() % 5), 1 + number / 2, number});
      steps.push_back(0);
    }
    const MeasuredModel* best = nullptr;  // of those that were written
    for (int count = 0; count < 40; ++count) {
      const std::size_t which = random() % all.size();
      int& step = steps[which];
      if (step == 0)
        step = *models.IsBest(all[which]) ? 1 : 3;
      else if (step == 1) {
        Write(models, all[which]);
        const auto order = [](const MeasuredModel& model) {
          return std::tuple(model.value, model.epoch, model.evaluation);
        };
        if (best == nullptr || order(all[which]) < order(*best)) best = &all[which];
        step = random() % 4 == 0 ? 3 : 2;
      } else if (step == 2) {
        EXPECT_EQ(models.RemoveWorse(all[which]), "");
        step = 3;
      }
      if (best != nullptr) {
        ASSERT_TRUE(std::filesystem::exists(models.PathOf(*best))) << "seed " << seed;
      }
    }
    if (best == nullptr) continue;
    ASSERT_EQ(models.Keep()->model.epoch, best->epoch) << "seed " << seed;
    EXPECT_THAT(Files(), testing::ElementsAre("best.safetensors"));
  }
}

}  // namespace
}  // namespace downpour::checkpoint
