#include "trainer/worker/gradient_buckets.h"

#include <vector>

#include "gtest/gtest.h"

namespace downpour::worker {
namespace {

using model::TensorKind;

std::vector<model::Tensor> Tensors() {
  return {{"first", {4}}, {"mean", {2}, TensorKind::kBuffer}, {"second", {3}}, {"third", {1}}};
}

TEST(GradientBucketsTest, LaterLayersComeFirstAndBuffersLast) {
  GradientBuckets buckets(LayoutOf(Tensors()));
  buckets.Begin();
  buckets.Add(3, {1}, 1);
  buckets.Add(2, {2, 3, 4}, 1);
  buckets.Add(0, {5, 6, 7, 8}, 1);
  buckets.Add(1, {9, 10}, 1);
  EXPECT_FALSE(buckets.TakeReady().has_value());
  buckets.CompleteAll();
  std::vector<std::vector<float>> ready;
  while (const auto bucket = buckets.TakeReady()) {
    ready.emplace_back(buckets.bucket(*bucket).begin(), buckets.bucket(*bucket).end());
  }
  EXPECT_EQ(ready, (std::vector<std::vector<float>>{{1, 2, 3, 4, 5, 6, 7, 8}, {9, 10}}));
  EXPECT_EQ(buckets.layout().parameters(), 8u);
  EXPECT_EQ(buckets.layout().parameter_buckets(), 1u);
}

TEST(GradientBucketsTest, ABucketGoesOnceItAndAllBeforeItAreComplete) {
  GradientBuckets buckets(LayoutOf(Tensors(), 12));  // three floats: third and second, first, mean
  buckets.Begin();
  for (const std::size_t tensor : {0u, 2u}) {
    buckets.Add(tensor, std::vector<float>(buckets.values(tensor).size(), 1), 2);
    buckets.Complete(tensor);
  }
  EXPECT_FALSE(buckets.TakeReady().has_value()) << "third is missing";
  buckets.Complete(3);
  std::vector<std::size_t> sizes;
  while (const auto bucket = buckets.TakeReady()) sizes.push_back(buckets.bucket(*bucket).size());
  EXPECT_EQ(sizes, (std::vector<std::size_t>{4, 4}));
  buckets.CompleteAll();
  EXPECT_EQ(buckets.bucket(*buckets.TakeReady()).size(), 2u);
  EXPECT_EQ(buckets.values(3)[0], 0) << "nothing came for it";
  EXPECT_EQ(buckets.values(0)[0], 2);
}

TEST(GradientBucketsTest, WhatComesIsAddedWithinAStepAndForgottenWithTheNext) {
  GradientBuckets buckets(LayoutOf(Tensors(), 1));
  buckets.Begin();
  buckets.Add(2, {1, 2, 3}, 2);
  buckets.Add(2, {1, 1, 1}, 3);
  EXPECT_EQ(buckets.values(2)[2], 9);
  buckets.Begin();
  buckets.Add(2, {1, 2, 3}, 1);
  EXPECT_EQ(buckets.values(2)[2], 3);
}

}  // namespace
}  // namespace downpour::worker
