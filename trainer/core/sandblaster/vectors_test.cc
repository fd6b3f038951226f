#include "trainer/core/sandblaster/vectors.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "trainer/core/sandblaster/lbfgs.h"

namespace downpour::core::sandblaster {
namespace {

constexpr std::uint32_t kElements = 1300;  // no whole number of blocks
constexpr std::uint32_t kHistory = 2;

std::vector<float> Random(std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(kElements);
  for (float& value : values) value = normal(random);
  return values;
}

v1::VectorCommand Command(std::uint64_t number) {
  v1::VectorCommand command;
  command.set_number(number);
  for (std::size_t i = 0; i < Lbfgs::StateSize(kHistory); ++i) command.add_search(0);
  command.set_search(0, static_cast<double>(number));
  return command;
}

void AddSum(std::uint32_t target, const std::vector<std::pair<std::uint32_t, double>>& terms,
            v1::VectorCommand* command) {
  v1::VectorSum* sum = command->add_sums();
  sum->set_target(target);
  for (const auto& [vector, factor] : terms) {
    v1::VectorTerm* term = sum->add_terms();
    term->set_vector(vector);
    term->set_factor(factor);
  }
}

void Add(const std::vector<float>& gradient, double loss, std::uint32_t samples, Vectors* vectors) {
  StepContext context;
  context.loss = loss;
  context.samples = samples;
  vectors->Step(gradient, Payload::OfFloats(gradient, nullptr), context, {});
}

TEST(VectorsTest, SumsGradientsAndLossesInAnyOrder) {
  std::vector<std::vector<float>> gradients;
  for (std::uint64_t seed = 0; seed < 50; ++seed) gradients.push_back(Random(seed));
  const auto mean = [&](bool backwards) {
    Vectors vectors(kHistory, kElements);
    for (std::size_t i = 0; i < gradients.size(); ++i) {
      const std::size_t at = backwards ? gradients.size() - 1 - i : i;
      Add(gradients[at], 0.25 * static_cast<double>(at), 7, &vectors);
    }
    v1::VectorCommand command = Command(1);
    AddSum(kGradient, {{kGradient, 1.0 / 350}}, &command);
    command.add_products(kGradient);
    std::vector<float> value(kElements);
    vectors.CarryOut(command, absl::MakeSpan(value));
    return vectors;
  };
  const Vectors forwards = mean(false);
  const std::vector<float>& gradient = *forwards.Export().vectors[1].values;
  double greatest = 0;
  double square = 0;
  for (std::size_t i = 0; i < kElements; ++i) {
    double expected = 0;
    for (const std::vector<float>& one : gradients) expected += 7 * double{one[i]};
    expected /= 350;
    EXPECT_EQ(gradient[i], static_cast<float>(expected)) << i;
    greatest = std::max(greatest, std::abs(expected));
    square += expected * expected;
  }
  ASSERT_EQ(forwards.sums().size(), 3u);
  EXPECT_DOUBLE_EQ(forwards.sums()[0], 7 * 0.25 * 49 * 50 / 2);
  EXPECT_FLOAT_EQ(static_cast<float>(forwards.sums()[1]), static_cast<float>(greatest));
  EXPECT_NEAR(forwards.sums()[2], square, 1e-12 * square);
  EXPECT_EQ(*mean(true).Export().vectors[1].values, gradient);
}

TEST(VectorsTest, CarriesOutSumsInOrderAndFormsProducts) {
  Vectors vectors(kHistory, kElements);
  const std::vector<float> before = Random(1);
  std::vector<float> value = before;
  v1::VectorCommand command = Command(1);
  AddSum(kBase, {{kValue, 1}}, &command);
  AddSum(kDirection, {{kBase, -2}}, &command);
  AddSum(kValue, {{kBase, 1}, {kDirection, 0.25}}, &command);
  AddSum(StepVector(1), {{kValue, 1}, {kBase, -1}}, &command);
  for (std::uint32_t vector : {StepVector(1), kBase + 0u}) command.add_products(vector);
  EXPECT_TRUE(Vectors::SetsValue(command));
  ASSERT_TRUE(vectors.Check(command).ok());
  vectors.CarryOut(command, absl::MakeSpan(value));
  double square = 0;
  for (std::size_t i = 0; i < kElements; ++i) {
    EXPECT_EQ(value[i], before[i] / 2);
    square += double{before[i]} * before[i];
  }
  ASSERT_EQ(vectors.sums().size(), 5u);
  EXPECT_NEAR(vectors.sums()[2], square / 4, 1e-12 * square);
  EXPECT_NEAR(vectors.sums()[3], -square / 2, 1e-12 * square);
  EXPECT_NEAR(vectors.sums()[4], square, 1e-12 * square);
  EXPECT_EQ(vectors.number(), 1u);
}

TEST(VectorsTest, AnUpdateWithoutAGradientMakesTheFunctionInfinite) {
  Vectors vectors(kHistory, kElements);
  std::vector<float> value(kElements);
  vectors.Skip();
  Add(Random(1), 1, 1, &vectors);
  v1::VectorCommand command = Command(1);
  command.add_products(kGradient);
  vectors.CarryOut(command, absl::MakeSpan(value));
  EXPECT_TRUE(std::isinf(vectors.sums()[0]));
  command = Command(2);
  AddSum(kGradient, {}, &command);
  command.add_products(kGradient);
  vectors.CarryOut(command, absl::MakeSpan(value));
  EXPECT_EQ(vectors.sums(), (std::vector<double>{0, 0, 0}));
}

TEST(VectorsTest, WhatIsExportedStaysAndComesBack) {
  Vectors vectors(kHistory, kElements);
  Add(Random(1), 1, 3, &vectors);
  v1::VectorCommand command = Command(4);
  std::vector<float> value = Random(2);
  AddSum(kBase, {{kValue, 1}}, &command);
  vectors.CarryOut(command, absl::MakeSpan(value));
  const OptimizerState exported = vectors.Export();
  const std::unique_ptr<Optimizer> clone = vectors.Clone();
  Vectors restored(kHistory, kElements);
  ASSERT_TRUE(restored.Import(exported).ok());
  EXPECT_EQ(restored.number(), 4u);
  EXPECT_EQ(restored.search(), vectors.search());
  const std::vector<float> gradient = *exported.vectors[1].values;
  Add(Random(3), 1, 3, &vectors);
  EXPECT_EQ(*exported.vectors[1].values, gradient);
  EXPECT_NE(*vectors.Export().vectors[1].values, gradient);
  for (Optimizer* other : std::vector<Optimizer*>{&restored, clone.get()}) {
    Add(Random(3), 1, 3, other->search_vectors());
    const OptimizerState after = other->Export();
    for (std::size_t i = 0; i < after.vectors.size(); ++i) {
      EXPECT_EQ(*after.vectors[i].values, *vectors.Export().vectors[i].values) << after.vectors[i].name;
    }
    for (std::size_t i = 0; i < after.scalars.size(); ++i) {
      EXPECT_EQ(after.scalars[i].value, vectors.Export().scalars[i].value) << after.scalars[i].name;
    }
  }
}

TEST(VectorsTest, RefusesWhatIsNotForIt) {
  Vectors vectors(kHistory, kElements);
  EXPECT_TRUE(vectors.Check(Command(1)).ok());
  v1::VectorCommand other_vector = Command(1);
  other_vector.add_products(ChangeVector(kHistory));
  EXPECT_EQ(vectors.Check(other_vector).code(), absl::StatusCode::kInvalidArgument);
  v1::VectorCommand other_target = Command(1);
  AddSum(StepVector(kHistory), {}, &other_target);
  EXPECT_EQ(vectors.Check(other_target).code(), absl::StatusCode::kInvalidArgument);
  v1::VectorCommand other_search = Command(1);
  other_search.add_search(0);
  EXPECT_EQ(vectors.Check(other_search).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(vectors.Import(Vectors(kHistory + 1, kElements).Export()).code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(vectors.Import(Vectors(kHistory, kElements - 1).Export()).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace downpour::core::sandblaster
