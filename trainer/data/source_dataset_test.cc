#include "trainer/data/source_dataset.h"

#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/data/testing/memory_source.h"

namespace downpour::data {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MemorySource;
using testing::ValueOf;

// Rows of an image of 1 x 2 x 2, a text of one to three numbers, a number and a label.
std::shared_ptr<const SampleSource> Source(std::int64_t samples, std::int64_t broken = -1) {
  std::vector<absl::StatusOr<Sample>> all;
  for (std::int64_t i = 0; i < samples; ++i) {
    const auto pixel = static_cast<std::uint8_t>(i);
    std::vector<std::int32_t> words(static_cast<std::size_t>(1 + i % 3), static_cast<std::int32_t>(i));
    const auto length = static_cast<std::int64_t>(words.size());
    all.push_back(Sample{ValueOf<std::uint8_t>({1, 2, 2}, {pixel, 1, 2, 3}), ValueOf<std::int32_t>({length}, words),
                         ValueOf<float>({}, {static_cast<float>(i) / 2}), ValueOf<std::int64_t>({}, {i % 4})});
  }
  if (broken >= 0) all[static_cast<std::size_t>(broken)] = absl::DataLossError("file: sample is broken");
  return std::make_shared<MemorySource>(std::vector<Column>{{"image", ElementType::kU8, {1, 2, 2}},
                                                            {"words", ElementType::kI32, {kAnyExtent}},
                                                            {"number", ElementType::kF32},
                                                            {"label", ElementType::kI64, {}, false, 4}},
                                        std::move(all));
}

std::string Refusal(const std::vector<SourceField>& fields) {
  const auto dataset = MakeSourceDataset(Source(3), fields, {}, 0);
  EXPECT_TRUE(absl::IsInvalidArgument(dataset.status())) << dataset.status();
  return std::string(dataset.status().message());
}

TEST(SourceDatasetTest, MakesBatchesOfTheUsualFields) {
  const auto source = Source(10);
  for (const int threads : {0, 3}) {
    const auto dataset = MakeSourceDataset(source, UsualFields(source->columns()), {}, threads);
    ASSERT_TRUE(dataset.ok()) << dataset.status();
    EXPECT_EQ(ToString((*dataset)->fields()), ToString(SampleFields{{{"image", ElementType::kU8, {1, 2, 2}},
                                                                     {"words", ElementType::kI32, {kRagged}},
                                                                     {"number", ElementType::kF32, {}}},
                                                                    {{"label", ElementType::kI64, {}, 4}}}));
    const absl::StatusOr<Batch> batch = (*dataset)->Read({5, 0, 7}, 1);
    ASSERT_TRUE(batch.ok()) << batch.status();
    EXPECT_THAT(batch->inputs[0].shape, ElementsAre(3, 1, 2, 2));
    EXPECT_THAT(batch->inputs[0].values<std::uint8_t>(), ElementsAre(5, 1, 2, 3, 0, 1, 2, 3, 7, 1, 2, 3));
    EXPECT_THAT(batch->inputs[1].lengths, ElementsAre(3, 1, 2));
    EXPECT_THAT(batch->inputs[1].values<std::int32_t>(), ElementsAre(5, 5, 5, 0, 0, 0, 7, 7, 0));
    EXPECT_THAT(batch->inputs[2].values<float>(), ElementsAre(2.5F, 0.0F, 3.5F));
    EXPECT_THAT(batch->targets[0].values<std::int64_t>(), ElementsAre(1, 0, 3));
  }
}

TEST(SourceDatasetTest, StepsFollowOneAnotherAndNamesAreOnesOwn) {
  const auto dataset = MakeSourceDataset(
      Source(4),
      {{.column = "number",
        .name = "x",
        .steps = {[](const Column& column) { return Normalise(column, {1}, {0.5F}); },
                  [](const Column& column) { return Cast(column, ElementType::kI32); }}},
       {.column = "label", .target = true, .steps = {[](const Column& column) { return OneHot(column, 0); }}}},
      {}, 0);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->fields().inputs[0], (Field{"x", ElementType::kI32, {}}));
  const absl::StatusOr<Batch> batch = (*dataset)->Read({2}, 1);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(batch->inputs[0].values<std::int32_t>(), ElementsAre(0));
  EXPECT_THAT(batch->targets[0].values<float>(), ElementsAre(0, 0, 1, 0));
  EXPECT_EQ((*dataset)->Read({1}, 1).ok(), true);
  EXPECT_EQ((*dataset)->Read({0, 3}, 1).ok(), true);
}

TEST(SourceDatasetTest, SeveralColumnsMakeOneField) {
  const auto dataset = MakeSourceDataset(
      Source(4), {{.name = "x", .columns = {"number", "label"}}, {.column = "label", .target = true}}, {}, 0);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->fields().inputs[0], (Field{"x", ElementType::kF32, {2}}));
  EXPECT_THAT((*dataset)->Read({3, 1}, 1)->inputs[0].values<float>(), ElementsAre(1.5F, 3.0F, 0.5F, 1.0F));
  EXPECT_EQ(Refusal({{.name = "x", .columns = {"number", "image"}}}),
            "column \"image\": a field of several columns is of single numbers, not of u8 [1, 2, 2]");
}

TEST(SourceDatasetTest, WhatIsRandomIsAFunctionOfSeedAndSample) {
  const auto dataset = MakeSourceDataset(
      Source(50),
      {{.column = "image", .steps = {[](const Column& column) { return RandomFlip(column, 0.5); }}},
       {.column = "image", .name = "mask", .steps = {[](const Column& column) { return RandomFlip(column, 0.5); }}},
       {.column = "label", .target = true}},
      {}, 2);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<std::int64_t> indices(50);
  for (std::size_t i = 0; i < indices.size(); ++i) indices[i] = static_cast<std::int64_t>(i);
  const auto images = [&](std::optional<std::uint64_t> seed) {
    return (*dataset)->Read(indices, seed)->inputs[0].bytes;
  };
  EXPECT_EQ(images(1), images(1));
  EXPECT_NE(images(1), images(2));
  EXPECT_NE(images(1), images(std::nullopt)) << "nothing is random in evaluation";
  const absl::StatusOr<Batch> batch = (*dataset)->Read(indices, 3);
  EXPECT_EQ(batch->inputs[0].bytes, batch->inputs[1].bytes) << "an image and its mask are turned alike";
  // Whoever reads a part reads the same.
  const absl::StatusOr<Batch> one = (*dataset)->Read({17}, 3);
  EXPECT_TRUE(
      std::equal(one->inputs[0].bytes.begin(), one->inputs[0].bytes.end(), batch->inputs[0].bytes.begin() + 17 * 4));
}

TEST(SourceDatasetTest, BrokenSamplesFailOrAreLeftOutAndCounted) {
  const auto source = Source(5, 2);
  const auto strict = MakeSourceDataset(source, UsualFields(source->columns()), {}, 0);
  EXPECT_EQ((*strict)->Read({1, 2}, 1).status().message(), "file: sample is broken");
  const auto lenient = MakeSourceDataset(source, UsualFields(source->columns()), {.skip = true, .most = 1}, 0);
  const absl::StatusOr<Batch> batch = (*lenient)->Read({1, 2, 3}, 1);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->size(), 2);
  EXPECT_THAT(batch->inputs[1].lengths, ElementsAre(2, 1));
  EXPECT_EQ((*lenient)->skipped(), 1U);
}

TEST(SourceDatasetTest, EachBrokenSampleCountsOnceInHoweverManyEpochs) {
  std::vector<absl::StatusOr<Sample>> samples;
  for (int i = 0; i < 3; ++i) samples.emplace_back(absl::DataLossError("file: sample is broken"));
  samples.push_back(Sample{ValueOf<float>({}, {1}), ValueOf<std::int64_t>({}, {1})});
  const auto source = std::make_shared<MemorySource>(
      std::vector<Column>{{"x", ElementType::kF32}, {"label", ElementType::kI64, {}, false, 2}}, std::move(samples));
  for (const int threads : {0, 3}) {
    const auto dataset = MakeSourceDataset(source, UsualFields(source->columns()), {.skip = true, .most = 2}, threads);
    for (std::uint64_t epoch = 0; epoch < 5; ++epoch) {
      const absl::StatusOr<Batch> batch = (*dataset)->Read({3, 1, 0, 1}, epoch);
      ASSERT_TRUE(batch.ok()) << batch.status();
      EXPECT_EQ(batch->size(), 1);
      EXPECT_EQ((*dataset)->skipped(), 2U);
    }
    for (int attempt = 0; attempt < 2; ++attempt) {
      EXPECT_EQ((*dataset)->Read({3, 2}, 9).status().message(),
                "file: sample is broken; 2 broken samples were skipped before, and no more may be");
    }
    EXPECT_EQ((*dataset)->skipped(), 2U);
    EXPECT_TRUE((*dataset)->Read({0, 1}, 9).ok()) << "these were counted";
  }
}

TEST(SourceDatasetTest, AFileThatIsAwayIsNoBrokenSample) {
  std::vector<absl::StatusOr<Sample>> samples;
  samples.emplace_back(absl::UnavailableError("the store is away"));
  const auto source = std::make_shared<MemorySource>(
      std::vector<Column>{{"x", ElementType::kF32}, {"label", ElementType::kI64, {}, false, 2}}, std::move(samples));
  const auto dataset = MakeSourceDataset(source, UsualFields(source->columns()), {.skip = true, .most = 9}, 0);
  EXPECT_TRUE(absl::IsUnavailable((*dataset)->Read({0}, 1).status()));
  EXPECT_EQ((*dataset)->skipped(), 0U);
}

TEST(SourceDatasetTest, RefusesFieldsThatTheColumnsDoNotMake) {
  EXPECT_EQ(Refusal({{.column = "picture"}}),
            "column \"picture\": there is none of this name; there are image, words, number, label");
  EXPECT_EQ(Refusal({{.column = "image"}}), "no column is a target among image");
  EXPECT_EQ(Refusal({{.column = "label", .target = true}}), "no column is an input among label");
  EXPECT_THAT(Refusal({{.column = "words", .steps = {[](const Column& column) { return Resize(column, 1, 1); }}}}),
              HasSubstr("column \"words\": Resize is for images"));
  const auto text = std::make_shared<MemorySource>(
      std::vector<Column>{{"text", ElementType::kU8, {kAnyExtent}, true}, {"label", ElementType::kI64, {}, false, 2}},
      std::vector<absl::StatusOr<Sample>>{});
  EXPECT_THAT(std::string(MakeSourceDataset(text, UsualFields(text->columns()), {}, 0).status().message()),
              HasSubstr("needs Tokenize"));
  const auto images =
      std::make_shared<MemorySource>(std::vector<Column>{{"image", ElementType::kU8, {3, kAnyExtent, kAnyExtent}},
                                                         {"label", ElementType::kI64, {}, false, 2}},
                                     std::vector<absl::StatusOr<Sample>>{});
  EXPECT_THAT(std::string(MakeSourceDataset(images, UsualFields(images->columns()), {}, 0).status().message()),
              HasSubstr("needs Resize or a crop"));
}

}  // namespace
}  // namespace downpour::data
