#include "trainer/core/ring/divided_optimizer.h"

#include <deque>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/core/testing/optimizers.h"

namespace downpour::core {
namespace {

constexpr std::uint32_t kElements = 37;

std::unique_ptr<Optimizer> Whole(v1::OptimizerType type, std::uint32_t elements = kElements) {
  auto rule = CreateOptimizer(testing::ConfigOf(type), "weight", elements);
  EXPECT_TRUE(rule.ok()) << rule.status();
  return *std::move(rule);
}

DividedOptimizer Divided(v1::OptimizerType type) {
  return DividedOptimizer(Whole(type)->type(), kElements,
                          [type](std::uint32_t elements) { return Whole(type, elements); });
}

std::vector<float> GradientOf(int step) {
  std::vector<float> gradient(kElements);
  for (std::uint32_t i = 0; i < kElements; ++i)
    gradient[i] = static_cast<float>((i * 7 + step * 13) % 11) * 0.01f - 0.04f;
  return gradient;
}

// Of which others, by their ranges, together have all.
class DividedOptimizerTest : public ::testing::TestWithParam<v1::OptimizerType> {};

TEST_P(DividedOptimizerTest, PiecesComputeTheBitsOfTheWhole) {
  const std::unique_ptr<Optimizer> whole = Whole(GetParam());
  std::vector<float> expected(kElements, 0.5f), value = expected;
  const std::vector<Range> first = {{0, 5}, {5, 21}, {21, 37}};
  std::deque<DividedOptimizer> members;  // which stay where they are
  for (std::size_t member = 0; member < first.size(); ++member) {
    members.push_back(Divided(GetParam()));
    members.back().Begin();
    std::vector<DividedOptimizer::Piece> pieces;
    pieces.push_back(*members.back().MakePiece(first[member], members.back().ExportRange(first[member])));
    members.back().Hold(std::move(pieces));
    members.back().Settle();
  }
  StepContext context;
  context.learning_rate = 0.1;
  context.factor = 0.5;
  for (int step = 0; step < 6; ++step) {
    const std::vector<float> gradient = GradientOf(step);
    const EncodedGradient encoded(Payload::OfFloats(gradient, nullptr));
    if (step == 4) {
      whole->Skip();
      for (DividedOptimizer& member : members) member.Skip();
      continue;
    }
    whole->Step(expected, encoded, context, absl::MakeSpan(expected));
    std::vector<float> next(kElements);
    for (DividedOptimizer& member : members) member.UpdateHeld(value, encoded, context, absl::MakeSpan(next));
    for (DividedOptimizer& member : members) {
      member.ExpectValues();
      member.Step(value, EncodedGradient(Payload::OfFloats(next, nullptr)), context, absl::MakeSpan(value));
      EXPECT_EQ(value, expected) << step;
    }
    if (step != 2) continue;
    // Divided anew among two: what lies across two pieces comes of both.
    for (std::size_t member = 0; member < 2; ++member) {
      const Range range = member == 0 ? Range{0, 5} : Range{5, 37};
      std::vector<DividedOptimizer::Piece> pieces;
      OptimizerState state = members[member == 0 ? 0 : 1].ExportRange(member == 0 ? range : Range{5, 21});
      if (member == 1) {
        const OptimizerState rest = members[2].ExportRange({21, 37});
        for (std::size_t i = 0; i < state.vectors.size(); ++i) {
          std::vector<float> both = *state.vectors[i].values;
          both.insert(both.end(), rest.vectors[i].values->begin(), rest.vectors[i].values->end());
          state.vectors[i].values = std::make_shared<const std::vector<float>>(both);
        }
      }
      auto piece = members[member].MakePiece(range, state);
      ASSERT_TRUE(piece.ok()) << piece.status();
      pieces.push_back(*std::move(piece));
      members[member].Hold(std::move(pieces));
      members[member].Settle();
    }
    members.pop_back();
  }
}

INSTANTIATE_TEST_SUITE_P(Rules, DividedOptimizerTest,
                         ::testing::Values(v1::SGD, v1::MOMENTUM, v1::NESTEROV, v1::ADAGRAD, v1::RMS_PROP, v1::ADAM,
                                           v1::ADAM_W),
                         [](const auto& instance) { return v1::OptimizerType_Name(instance.param); });

TEST(DividedOptimizerTest, WithAllPiecesItIsTheRuleItself) {
  DividedOptimizer divided = Divided(v1::ADAM);
  const std::unique_ptr<Optimizer> whole = Whole(v1::ADAM);
  std::vector<float> expected(kElements, 0.5f), value = expected;
  StepContext context;
  context.learning_rate = 0.1;
  const std::vector<float> gradient = GradientOf(1);
  const EncodedGradient encoded(Payload::OfFloats(gradient, nullptr));
  whole->Step(expected, encoded, context, absl::MakeSpan(expected));
  ASSERT_TRUE(divided.Import(whole->Export()).ok());
  whole->Step(expected, encoded, context, absl::MakeSpan(expected));
  value = std::vector<float>(kElements, 0.5f);
  {
    const std::unique_ptr<Optimizer> before = Whole(v1::ADAM);
    before->Step(value, encoded, context, absl::MakeSpan(value));
  }
  std::vector<float> updated(kElements);
  divided.Step(value, encoded, context, absl::MakeSpan(updated));
  EXPECT_EQ(updated, expected);
  const OptimizerState exported = divided.ExportRange({0, kElements});
  EXPECT_EQ(exported.type, "Adam");
  ASSERT_EQ(exported.vectors.size(), whole->Export().vectors.size());
  EXPECT_EQ(*exported.vectors[0].values, *whole->Export().vectors[0].values);
}

TEST(DividedOptimizerTest, AStateOfAnotherShapeIsRefused) {
  DividedOptimizer divided = Divided(v1::ADAM);
  EXPECT_FALSE(divided.MakePiece({0, 5}, Whole(v1::MOMENTUM, 5)->Export()).ok());
  EXPECT_FALSE(divided.MakePiece({0, 5}, Whole(v1::ADAM, 6)->Export()).ok());
  EXPECT_FALSE(divided.Import(Whole(v1::ADAM, 5)->Export()).ok());
}

}  // namespace
}  // namespace downpour::core
