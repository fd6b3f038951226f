#include "trainer/worker/gradient_buckets.h"

#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::worker {
namespace {

using model::TensorKind;

std::vector<model::Tensor> Tensors() {
  return {{"first", {4}}, {"mean", {2}, TensorKind::kBuffer}, {"second", {3}}, {"third", {1}}};
}

GradientBuckets Make(core::GradientLayout layout) {
  static const std::unique_ptr<cuda::DeviceKernels> kernels = cuda::MakeHostKernels();
  return *GradientBuckets::Create(std::move(layout), kernels.get());
}

void Add(GradientBuckets* buckets, std::size_t tensor, const std::vector<float>& gradient, float weight) {
  EXPECT_EQ(buckets->Add(tensor, gradient.data(), weight), absl::OkStatus());
}

std::optional<std::size_t> Ready(GradientBuckets* buckets) {
  const absl::StatusOr<std::optional<std::size_t>> ready = buckets->TakeReady(/*waits=*/false);
  EXPECT_TRUE(ready.ok()) << ready.status();
  return *ready;
}

TEST(GradientBucketsTest, LaterLayersComeFirstAndBuffersLast) {
  GradientBuckets buckets = Make(LayoutOf(Tensors()));
  buckets.Begin();
  Add(&buckets, 3, {1}, 1);
  Add(&buckets, 2, {2, 3, 4}, 1);
  Add(&buckets, 0, {5, 6, 7, 8}, 1);
  Add(&buckets, 1, {9, 10}, 1);
  EXPECT_FALSE(Ready(&buckets).has_value());
  ASSERT_TRUE(buckets.CompleteAll().ok());
  std::vector<std::vector<float>> ready;
  while (const auto bucket = Ready(&buckets)) {
    ready.emplace_back(buckets.bucket(*bucket).begin(), buckets.bucket(*bucket).end());
  }
  EXPECT_EQ(ready, (std::vector<std::vector<float>>{{1, 2, 3, 4, 5, 6, 7, 8}, {9, 10}}));
  EXPECT_EQ(buckets.layout().parameters(), 8u);
  EXPECT_EQ(buckets.layout().parameter_buckets(), 1u);
}

TEST(GradientBucketsTest, ABucketGoesOnceItAndAllBeforeItAreComplete) {
  GradientBuckets buckets = Make(LayoutOf(Tensors(), 12));  // three floats: third and second, first, mean
  buckets.Begin();
  for (const std::size_t tensor : {0u, 2u}) {
    Add(&buckets, tensor, std::vector<float>(buckets.values(tensor).size(), 1), 2);
    ASSERT_TRUE(buckets.Complete(tensor).ok());
  }
  EXPECT_FALSE(Ready(&buckets).has_value()) << "third is missing";
  ASSERT_TRUE(buckets.Complete(3).ok());
  std::vector<std::size_t> sizes;
  while (const auto bucket = Ready(&buckets)) sizes.push_back(buckets.bucket(*bucket).size());
  EXPECT_EQ(sizes, (std::vector<std::size_t>{4, 4}));
  ASSERT_TRUE(buckets.CompleteAll().ok());
  EXPECT_EQ(buckets.bucket(*Ready(&buckets)).size(), 2u);
  EXPECT_EQ(buckets.values(3)[0], 0) << "nothing came for it";
  EXPECT_EQ(buckets.values(0)[0], 2);
}

TEST(GradientBucketsTest, WhatComesIsAddedWithinAStepAndForgottenWithTheNext) {
  GradientBuckets buckets = Make(LayoutOf(Tensors(), 1));
  buckets.Begin();
  Add(&buckets, 2, {1, 2, 3}, 2);
  Add(&buckets, 2, {1, 1, 1}, 3);
  EXPECT_EQ(buckets.values(2)[2], 9);
  buckets.Begin();
  Add(&buckets, 2, {1, 2, 3}, 1);
  EXPECT_EQ(buckets.values(2)[2], 3);
}

}  // namespace
}  // namespace downpour::worker
