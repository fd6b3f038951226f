#include "trainer/model/staged_values.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "trainer/model/testing/late_copies.h"

namespace downpour::model {
namespace {

using ::testing::ElementsAre;
using testing::LateCopies;

std::vector<float> Numbers(std::int64_t count, float first) {
  std::vector<float> numbers(static_cast<std::size_t>(count));
  std::iota(numbers.begin(), numbers.end(), first);
  return numbers;
}

std::vector<float> RowMajor(const at::Tensor& tensor) {
  const at::Tensor values = tensor.contiguous();
  return {values.const_data_ptr<float>(), values.const_data_ptr<float>() + values.numel()};
}

class StagedValuesTest : public ::testing::Test {
 protected:
  LateCopies::Record record_;
  const std::vector<at::Tensor> tensors_ = {at::zeros({3}),
                                            at::zeros({2, 3, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast),
                                            at::zeros({1, 2, 2, 2}).contiguous(at::MemoryFormat::ChannelsLast)};
  StagedValues staged_{std::make_unique<LateCopies>(&record_), tensors_};
};

TEST_F(StagedValuesTest, AreThereForWhatIsComputedBehindUse) {
  for (std::size_t i = 0; i < tensors_.size(); ++i) staged_.Set(i, Numbers(tensors_[i].numel(), 1));
  EXPECT_THAT(RowMajor(tensors_[0]), ElementsAre(0, 0, 0)) << "nobody has waited yet";
  staged_.Use(0);
  EXPECT_THAT(RowMajor(tensors_[0]), ElementsAre(1, 2, 3));
  EXPECT_EQ(RowMajor(tensors_[1]), std::vector<float>(24)) << "the next layer's is not waited for";
  staged_.UseAll();
  EXPECT_EQ(RowMajor(tensors_[1]), Numbers(24, 1)) << "through one memory for both that are not row-major";
  EXPECT_EQ(RowMajor(tensors_[2]), Numbers(8, 1));
  EXPECT_TRUE(tensors_[1].is_contiguous(at::MemoryFormat::ChannelsLast));
}

TEST_F(StagedValuesTest, TheSourceStaysUntilItsCopyIsMade) {
  std::vector<float> values = {1, 2, 3};
  staged_.Set(0, values);
  values = {4, 5, 6};  // is the caller's
  staged_.Use(0);
  EXPECT_THAT(RowMajor(tensors_[0]), ElementsAre(1, 2, 3));
  // Twice without a use between: the host waits, and the last values count.
  staged_.Set(0, values);
  EXPECT_EQ(record_.awaited, 0);
  staged_.Set(0, Numbers(3, 7));
  EXPECT_EQ(record_.awaited, 1);
  EXPECT_THAT(RowMajor(tensors_[0]), ElementsAre(4, 5, 6));
  staged_.Use(0);
  EXPECT_THAT(RowMajor(tensors_[0]), ElementsAre(7, 8, 9));
}

TEST_F(StagedValuesTest, NothingIsOverwrittenThatIsStillComputedWith) {
  for (record_.computed = 1; record_.computed < 4; ++record_.computed) {
    record_.made.clear();
    staged_.Set(0, Numbers(3, 1));
    staged_.Set(1, Numbers(24, 1));
    staged_.UseAll();
    ASSERT_EQ(record_.made.size(), 3U);
    for (const LateCopies::Made& made : record_.made) EXPECT_EQ(made.behind, record_.computed);
  }
}

TEST_F(StagedValuesTest, MemoryIsTakenOnce) {
  for (int step = 0; step < 5; ++step) {
    for (std::size_t i = 0; i < tensors_.size(); ++i) staged_.Set(i, Numbers(tensors_[i].numel(), 1));
    staged_.UseAll();
    EXPECT_EQ(record_.allocations, 3);
  }
  EXPECT_EQ(record_.awaited, 0) << "the step waited for each copy already";
}

TEST_F(StagedValuesTest, WhatIsThrownComesWithTheNextUse) {
  record_.fails = true;
  staged_.Set(1, Numbers(24, 1));
  EXPECT_THROW(staged_.Use(0), c10::Error);
  staged_.Set(1, Numbers(24, 2));
  staged_.UseAll();
  EXPECT_EQ(RowMajor(tensors_[1]), Numbers(24, 2));
}

}  // namespace
}  // namespace downpour::model
