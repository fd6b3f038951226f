// What holds for every rule.
#include "trainer/core/optimizers/vector_optimizer.h"

#include <algorithm>
#include <memory>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/core/testing/optimizers.h"

namespace downpour::core {
namespace {

using History = std::vector<std::vector<float>>;

// The parameter is a number of AllConfigs.
class EveryOptimizer : public ::testing::TestWithParam<std::size_t> {
 protected:
  static v1::OptimizerConfig Config() { return testing::AllConfigs().at(GetParam()); }
  static std::unique_ptr<Optimizer> Fresh() { return testing::Make(Config(), kElements); }

  static constexpr std::size_t kElements = 2500;
  std::mt19937 random_{7};
  const std::vector<testing::GivenStep> steps_ = testing::RandomSteps(random_, kElements, 0.01, 100);
  History history_ = {testing::RandomFloats(random_, kElements)};
};

TEST_P(EveryOptimizer, GoesOnFromItsStateBitForBit) {
  const std::unique_ptr<Optimizer> original = Fresh();
  testing::Take(*original, steps_, 0, 50, history_);
  // As a checkpoint does it: the bytes, not the memory.
  OptimizerState state = original->Export();
  for (StateVector& vector : state.vectors) vector.values = std::make_shared<const std::vector<float>>(*vector.values);
  History again = history_;
  testing::Take(*original, steps_, 50, 100, history_);
  const std::unique_ptr<Optimizer> restored = Fresh();
  ASSERT_TRUE(restored->Import(state).ok());
  testing::Take(*restored, steps_, 50, 100, again);
  EXPECT_TRUE(testing::SameBits(again.back(), history_.back()));
  EXPECT_TRUE(testing::SameState(restored->Export(), original->Export()));
}

TEST_P(EveryOptimizer, WhatWasExportedOrClonedHasALifeOfItsOwn) {
  const std::unique_ptr<Optimizer> original = Fresh();
  testing::Take(*original, steps_, 0, 20, history_);
  const OptimizerState state = original->Export();
  const std::unique_ptr<Optimizer> as_it_was = Fresh();
  History same = {history_.front()};
  testing::Take(*as_it_was, steps_, 0, 20, same);
  const std::unique_ptr<Optimizer> clone = original->Clone();
  EXPECT_EQ(clone->type(), original->type());

  History ahead = history_;
  testing::Take(*original, steps_, 20, 60, ahead);
  EXPECT_TRUE(testing::SameState(state, as_it_was->Export())) << "written by the original";
  EXPECT_TRUE(testing::SameState(clone->Export(), as_it_was->Export())) << "written by the original";
  History apart = history_;
  testing::Take(*clone, steps_, 20, 40, apart);
  EXPECT_TRUE(testing::SameBits(apart.back(), ahead[40]));
  EXPECT_TRUE(testing::SameState(state, as_it_was->Export())) << "written by the clone";
}

TEST_P(EveryOptimizer, ComputesTheSameInPlaceAndInAnySegments) {
  const std::unique_ptr<Optimizer> apart = Fresh();
  const std::unique_ptr<Optimizer> in_place = Fresh();
  std::vector<float> value = history_.front();
  testing::Take(*apart, steps_, 0, 20, history_);
  for (std::size_t i = 0; i < 20; ++i) {
    const std::vector<float>& gradient = steps_[i].gradient;
    // Odd lengths at odd addresses.
    auto pieces = std::make_shared<std::vector<std::vector<std::uint8_t>>>();
    const auto* bytes = reinterpret_cast<const std::uint8_t*>(gradient.data());
    for (std::size_t at = 0; at < kElements * sizeof(float);) {
      const std::size_t length = std::min<std::size_t>(kElements * sizeof(float) - at, 1 + random_() % 3000);
      pieces->emplace_back(1);
      pieces->back().insert(pieces->back().end(), bytes + at, bytes + at + length);
      at += length;
    }
    std::vector<absl::Span<const std::uint8_t>> segments;
    for (const auto& piece : *pieces) segments.push_back(absl::MakeConstSpan(piece).subspan(1));
    StepContext context = steps_[i].context;
    context.pulled = &history_[i - steps_[i].staleness];
    in_place->Step(value, Payload(std::move(segments), pieces), context, absl::MakeSpan(value));
  }
  EXPECT_TRUE(testing::SameBits(value, history_.back()));
  EXPECT_TRUE(testing::SameState(in_place->Export(), apart->Export()));
}

TEST_P(EveryOptimizer, TakesNoStateThatDoesNotFitAndStaysAsItWas) {
  const std::unique_ptr<Optimizer> optimizer = Fresh();
  testing::Take(*optimizer, steps_, 0, 3, history_);
  const OptimizerState good = optimizer->Export();
  const auto refused = [&](const OptimizerState& state, const std::string& why) {
    EXPECT_EQ(optimizer->Import(state).code(), absl::StatusCode::kInvalidArgument) << why;
    EXPECT_TRUE(testing::SameState(optimizer->Export(), good)) << why;
  };
  for (const v1::OptimizerConfig& other : testing::AllConfigs()) {
    const std::unique_ptr<Optimizer> one = testing::Make(other, kElements);
    if (one->type() != good.type) refused(one->Export(), one->type());
  }
  OptimizerState bad = good;
  bad.vectors.push_back({"more", std::make_shared<const std::vector<float>>(kElements)});
  refused(bad, "a vector more");
  bad = good;
  bad.scalars.push_back({"more", 1});
  refused(bad, "a scalar more");
  for (std::size_t i = 0; i < good.vectors.size(); ++i) {
    bad = good;
    bad.vectors[i].values = std::make_shared<const std::vector<float>>(kElements + 1);
    refused(bad, "another size");
    bad.vectors[i].values = nullptr;
    refused(bad, "no values");
    bad = good;
    bad.vectors[i].name = "other";
    refused(bad, "another name of a vector");
    bad = good;
    bad.vectors.erase(bad.vectors.begin() + static_cast<std::ptrdiff_t>(i));
    refused(bad, "a vector less");
  }
  for (std::size_t i = 0; i < good.scalars.size(); ++i) {
    bad = good;
    bad.scalars[i].name = "other";
    refused(bad, "another name of a scalar");
  }
  bad.scalars.clear();
  if (!good.scalars.empty()) refused(bad, "no scalars");
}

TEST_P(EveryOptimizer, SaysWhatItKeeps) {
  const std::unique_ptr<Optimizer> optimizer = Fresh();
  const OptimizerState state = optimizer->Export();
  EXPECT_EQ(optimizer->type(), OptimizerStateType(Config()));
  EXPECT_EQ(optimizer->vectors(), state.vectors.size());
  std::set<std::string> names;
  for (const StateVector& vector : state.vectors) EXPECT_TRUE(names.insert(vector.name).second) << vector.name;
  for (const StateScalar& scalar : state.scalars) EXPECT_TRUE(names.insert(scalar.name).second) << scalar.name;
}

TEST_P(EveryOptimizer, LeavesOutTheDecayOfWhatIsNamedSo) {
  v1::OptimizerConfig named = Config();
  named.add_no_decay("*.bias");
  named.add_no_decay("norm*");
  v1::OptimizerConfig none = Config();
  none.set_weight_decay(0);
  const auto value_of = [&](const v1::OptimizerConfig& config, const char* tensor) {
    History history = {history_.front()};
    testing::Take(**CreateOptimizer(config, tensor, kElements), steps_, 0, 3, history);
    return history.back();
  };
  const std::vector<float> with_decay = value_of(Config(), "fc.weight");
  const std::vector<float> without = value_of(none, "fc.weight");
  EXPECT_NE(with_decay, without);
  EXPECT_EQ(value_of(named, "fc.weight"), with_decay);
  EXPECT_EQ(value_of(named, "fc.bias"), without);
  EXPECT_EQ(value_of(named, "norm1.weight"), without);
}

INSTANTIATE_TEST_SUITE_P(Types, EveryOptimizer, ::testing::Range(std::size_t{0}, testing::AllConfigs().size()),
                         [](const auto& number) { return OptimizerStateType(testing::AllConfigs().at(number.param)); });

}  // namespace
}  // namespace downpour::core
