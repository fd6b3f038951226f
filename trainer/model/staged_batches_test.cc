#include "trainer/model/staged_batches.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "trainer/model/testing/late_copies.h"

namespace downpour::model {
namespace {

using testing::LateCopies;

std::shared_ptr<const data::Batch> Some() { return std::make_shared<const data::Batch>(); }

std::vector<at::Tensor> Arrays(std::int64_t samples, int value) {
  return {at::full({samples, 2, 3}, value, at::kByte), at::full({samples}, value, at::kLong)};
}

class StagedBatchesTest : public ::testing::Test {
 protected:
  // What the device finds when it computes with `batch`.
  void ExpectFound(const data::Batch& batch, const std::vector<at::Tensor>& given,
                   const std::vector<at::Tensor>& expected) {
    const std::vector<at::Tensor>& found = staged_.Begin(batch, given);
    ++record_.computed;
    ASSERT_EQ(found.size(), expected.size());
    for (std::size_t i = 0; i < found.size(); ++i) {
      EXPECT_EQ(found[i].scalar_type(), expected[i].scalar_type());
      EXPECT_TRUE(at::equal(found[i], expected[i])) << found[i] << expected[i];
    }
  }

  LateCopies::Record record_;
  StagedBatches staged_{std::make_unique<LateCopies>(&record_)};
};

TEST_F(StagedBatchesTest, TheNextIsCopiedWhileOneIsComputedWith) {
  std::shared_ptr<const data::Batch> batch = Some();
  staged_.Stage(batch, Arrays(4, 1));
  for (int step = 1; step < 6; ++step) {
    ASSERT_TRUE(staged_.IsStaged(*batch));
    // Nothing is read again of what was staged.
    const std::vector<at::Tensor>& here = staged_.Begin(*batch, {});
    const auto next = Some();
    staged_.Stage(next, Arrays(4, step + 1));
    EXPECT_TRUE(at::equal(here[0], Arrays(4, step)[0])) << "the next one has memory of its own";
    EXPECT_TRUE(at::equal(here[1], Arrays(4, step)[1]));
    ++record_.computed;
    batch = next;
  }
  EXPECT_EQ(record_.allocations, 4);
  EXPECT_EQ(record_.awaited, 0) << "the host has waited for nothing";
}

TEST_F(StagedBatchesTest, ACopyComesBehindWhatReadsTheMemory) {
  std::vector<std::shared_ptr<const data::Batch>> batches;
  for (int i = 0; i < 6; ++i) batches.push_back(Some());
  staged_.Stage(batches[0], Arrays(4, 0));
  for (std::size_t step = 0; step + 1 < batches.size(); ++step) {
    record_.made.clear();
    ExpectFound(*batches[step], {}, Arrays(4, static_cast<int>(step)));
    // Memory that step - 2 computed with, which is over with the first `step - 1`; the step between goes on.
    if (step >= 2) {
      ASSERT_EQ(record_.made.size(), 2U);
      for (const LateCopies::Made& made : record_.made) EXPECT_EQ(made.behind, step - 1);
    }
    staged_.Stage(batches[step + 1], Arrays(4, static_cast<int>(step) + 1));
  }
}

TEST_F(StagedBatchesTest, WhatIsNotStagedIsCopiedNow) {
  const auto first = Some(), second = Some();
  ExpectFound(*first, Arrays(4, 1), Arrays(4, 1));
  staged_.Stage(second, Arrays(4, 2));
  ExpectFound(*first, Arrays(4, 3), Arrays(4, 3));
  EXPECT_FALSE(staged_.IsStaged(*second)) << "its memory was needed";
  ExpectFound(*second, Arrays(4, 4), Arrays(4, 4));
  ExpectFound(*second, Arrays(4, 5), Arrays(4, 5));
}

TEST_F(StagedBatchesTest, AnotherObjectAtTheSamePlaceIsAnother) {
  // As a variable in a loop.
  auto batch = std::make_unique<data::Batch>();
  for (int value = 1; value < 4; ++value) ExpectFound(*batch, Arrays(4, value), Arrays(4, value));
  // One that is staged is kept, so that nothing else can be in its place.
  auto staged = Some();
  const std::weak_ptr<const data::Batch> seen = staged;
  staged_.Stage(std::move(staged), Arrays(4, 9));
  EXPECT_FALSE(seen.expired());
  ExpectFound(*batch, Arrays(4, 5), Arrays(4, 5));
  EXPECT_TRUE(seen.expired());
}

TEST_F(StagedBatchesTest, MemoryGrowsWithTheLargestAndNotWithSteps) {
  const auto batch = Some();
  for (const std::int64_t samples : {4, 4, 2, 7, 7, 7, 1, 7}) {
    ExpectFound(*batch, Arrays(samples, 1), Arrays(samples, 1));
  }
  EXPECT_EQ(record_.allocations, 8) << "two arrays, two slots, two sizes";
}

TEST_F(StagedBatchesTest, WhatFailedIsNotTakenForWhole) {
  const auto batch = Some();
  ExpectFound(*batch, Arrays(4, 1), Arrays(4, 1));
  record_.fails = true;
  EXPECT_THROW(staged_.Stage(batch, Arrays(4, 2)), c10::Error);
  EXPECT_FALSE(staged_.IsStaged(*batch));
  ExpectFound(*batch, Arrays(4, 3), Arrays(4, 3));
}

}  // namespace
}  // namespace downpour::model
