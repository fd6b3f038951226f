#include "trainer/model/batch_parts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace downpour::model {
namespace {

using ::testing::ElementsAre;

data::Batch Numbered(std::int64_t samples) {
  const data::Field words{"words", data::ElementType::kI32, {data::kRagged}};
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(samples));
  for (std::int64_t i = 0; i < samples; ++i) lengths[i] = 1 + i % 3;
  data::Batch batch{{data::MakeRaggedArray(words, lengths)},
                    {data::MakeArray({"label", data::ElementType::kI64, {}}, samples)}};
  const auto input = batch.inputs[0].mutable_values<std::int32_t>();
  std::iota(input.begin(), input.end(), 0);
  const auto target = batch.targets[0].mutable_values<std::int64_t>();
  std::iota(target.begin(), target.end(), 100);
  return batch;
}

std::vector<std::int64_t> SizesOf(std::int64_t samples, int parts) {
  std::vector<std::int64_t> sizes;
  for (const BatchPart& part : PartsOf(Numbered(samples), parts)) sizes.push_back(part.samples);
  return sizes;
}

TEST(BatchPartsTest, TheLastMayHaveLessOrNothing) {
  EXPECT_THAT(SizesOf(8, 1), ElementsAre(8));
  EXPECT_THAT(SizesOf(8, 2), ElementsAre(4, 4));
  EXPECT_THAT(SizesOf(10, 4), ElementsAre(3, 3, 4, 0)) << "no single sample";
  EXPECT_THAT(SizesOf(11, 4), ElementsAre(3, 3, 3, 2));
  EXPECT_THAT(SizesOf(3, 2), ElementsAre(3, 0));
  EXPECT_THAT(SizesOf(5, 4), ElementsAre(2, 3, 0, 0));
  EXPECT_THAT(SizesOf(4, 4), ElementsAre(1, 1, 1, 1));
  EXPECT_THAT(SizesOf(1, 3), ElementsAre(1, 0, 0));
}

TEST(BatchPartsTest, EverySampleIsInOnePartAndNoneIsAlone) {
  for (std::int64_t samples = 1; samples < 40; ++samples) {
    for (int parts = 1; parts < 9; ++parts) {
      std::int64_t next = 0, most = 0;
      const std::vector<BatchPart> all = PartsOf(Numbered(samples), parts);
      for (const BatchPart& part : all) {
        EXPECT_TRUE(part.samples == 0 || part.first == next);
        next += part.samples;
        most = std::max(most, part.samples);
      }
      EXPECT_EQ(next, samples);
      EXPECT_EQ(all.size(), static_cast<std::size_t>(parts));
      EXPECT_LE(most, (samples + parts - 1) / parts + 1);
      for (const BatchPart& part : all) EXPECT_TRUE(part.samples != 1 || most == 1) << samples << " in " << parts;
    }
  }
}

TEST(BatchPartsTest, PartsAreTheSamplesInTheirOrder) {
  const data::Batch batch = Numbered(5);
  data::Batch joined{{batch.inputs[0]}, {batch.targets[0]}};
  for (data::Array* const array : {&joined.inputs[0], &joined.targets[0]}) {
    array->bytes.clear();
    array->lengths.clear();
  }
  for (const BatchPart& range : PartsOf(batch, 2)) {
    const data::Batch part = CopyPart(batch, range);
    EXPECT_EQ(part.size(), range.samples);
    EXPECT_EQ(part.inputs[0].shape, (std::vector<std::int64_t>{range.samples, 3})) << "as wide as the longest of all";
    for (const auto& [array, all] :
         {std::pair{&part.inputs[0], &joined.inputs[0]}, {&part.targets[0], &joined.targets[0]}}) {
      all->bytes.insert(all->bytes.end(), array->bytes.begin(), array->bytes.end());
      all->lengths.insert(all->lengths.end(), array->lengths.begin(), array->lengths.end());
    }
  }
  EXPECT_EQ(joined.inputs[0].bytes, batch.inputs[0].bytes);
  EXPECT_EQ(joined.inputs[0].lengths, batch.inputs[0].lengths);
  EXPECT_EQ(joined.targets[0].bytes, batch.targets[0].bytes);
}

TEST(BatchPartsTest, WhatIsNoBatchIsNotCut) {
  EXPECT_THAT(PartsOf(data::Batch(), 2), ElementsAre(BatchPart{0, 1}, BatchPart{}));
  data::Batch batch = Numbered(4);
  batch.targets = Numbered(3).targets;
  EXPECT_THAT(PartsOf(batch, 2), ElementsAre(BatchPart{0, 4}, BatchPart{}));
  batch = Numbered(4);
  batch.inputs[0].bytes.pop_back();
  EXPECT_THAT(PartsOf(batch, 2), ElementsAre(BatchPart{0, 4}, BatchPart{}));
  batch = Numbered(4);
  batch.inputs[0].lengths.pop_back();
  EXPECT_THAT(PartsOf(batch, 2), ElementsAre(BatchPart{0, 4}, BatchPart{}));
}

}  // namespace
}  // namespace downpour::model
