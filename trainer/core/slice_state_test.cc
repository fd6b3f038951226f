#include "trainer/core/slice_state.h"

#include <memory>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "trainer/core/testing/momentum.h"
#include "trainer/core/testing/ps_messages.h"

namespace downpour::core {
namespace {

DataPlan Plan() { return *DataPlan::Create(MakeView().data()); }

SliceState Make() {
  SliceState state(3, Slice{1, 8, kElements}, std::make_unique<TestMomentum>(kElements), Plan());
  EXPECT_TRUE(state.Initialise(Floats({1, 2, 3, 4})));
  return state;
}

void Push(SliceState& state, const UpdateId& update, float gradient) {
  state.Apply(update, Verdict::kApply, Floats(std::vector<float>(kElements, gradient)), {.learning_rate = 0.5});
}

void ExpectAlike(const SliceSnapshot& a, const SliceSnapshot& b) {
  EXPECT_EQ(a.number, b.number);
  EXPECT_EQ(*a.value, *b.value);
  EXPECT_EQ(*a.optimizer.vectors.at(0).values, *b.optimizer.vectors.at(0).values);
  EXPECT_EQ(a.optimizer.scalars.at(0).value, b.optimizer.scalars.at(0).value);
  EXPECT_EQ(a.table.SerializeAsString(), b.table.SerializeAsString());
}

TEST(SliceStateTest, WhatWasExportedStaysAsItWas) {
  SliceState state = Make();
  Push(state, {0, 0, 0}, 1);
  const SliceSnapshot before = state.Export();
  const std::vector<float> value = *before.value;
  const std::vector<float> velocity = *before.optimizer.vectors[0].values;
  for (std::uint32_t group = 1; group < 4; ++group) Push(state, {0, 0, group}, 2);
  EXPECT_EQ(*before.value, value);
  EXPECT_EQ(*before.optimizer.vectors[0].values, velocity);
  EXPECT_EQ(before.table.version(), 1u);
  EXPECT_NE(*state.Export().value, value);
}

// Two data shards of four updates side by side, by their samples; a skipped one is as good as there.
TEST(SliceStateTest, UpdatesOfAStepAreOneStepWithTheirMean) {
  const DataPlan plan = Plan();
  SliceState state = Make();
  state.SetStepWidth(2);
  EXPECT_EQ(state.step(), (StepId{0, 0, 0}));
  const std::vector<float> first = *state.value();
  Push(state, {0, 0, 0}, 1);
  EXPECT_EQ(*state.value(), first);
  EXPECT_TRUE(state.table().Contains({0, 0, 0}));
  EXPECT_EQ(state.version(), 1u);
  Push(state, {0, 1, 0}, 5);
  EXPECT_EQ(state.step(), (StepId{0, 0, 1}));
  const double samples = plan.samples_in_update({0, 0, 0});
  const double others = plan.samples_in_update({0, 1, 0});
  SliceState alone = Make();
  Push(alone, {0, 0, 0}, static_cast<float>((samples + 5 * others) / (samples + others)));
  EXPECT_EQ(*state.value(), *alone.value());
  EXPECT_EQ(*state.value_at({0, 0, 0}), first);
  EXPECT_EQ(state.value_at({0, 0, 1}), state.value());

  Push(state, {0, 1, 1}, 3);
  state.Apply({0, 0, 1}, Verdict::kSkip, Payload(), {.learning_rate = 0.5});
  EXPECT_EQ(state.step(), (StepId{0, 0, 2}));
  Push(alone, {0, 0, 1}, 3);
  EXPECT_EQ(*state.value(), *alone.value());
}

TEST(SliceStateTest, AStepInTheMiddleIsExportedForkedAndTakenUpAgain) {
  SliceState whole = Make();
  whole.SetStepWidth(2);
  Push(whole, {0, 0, 0}, 1);
  const SliceSnapshot snapshot = whole.Export();
  SliceState fork = whole.Fork();
  Push(whole, {0, 1, 0}, 5);

  SliceState restored(3, Slice{1, 8, kElements}, std::make_unique<TestMomentum>(kElements), Plan());
  restored.SetStepWidth(2);
  ASSERT_TRUE(restored.Import(snapshot, 0.5).ok());
  for (SliceState* state : {&fork, &restored}) {
    EXPECT_EQ(state->step(), (StepId{0, 0, 0}));
    Push(*state, {0, 1, 0}, 5);
    ExpectAlike(state->Export(), whole.Export());
  }
  SliceSnapshot half = snapshot;
  half.optimizer.vectors.pop_back();
  EXPECT_EQ(restored.Import(half, 0.5).code(), absl::StatusCode::kInvalidArgument);

  // In another mode what had arrived is a step of its own before the next one.
  SliceState other(3, Slice{1, 8, kElements}, std::make_unique<TestMomentum>(kElements), Plan());
  ASSERT_TRUE(other.Import(snapshot, 0.5).ok());
  Push(other, {0, 1, 0}, 5);
  SliceState alone = Make();
  Push(alone, {0, 0, 0}, 1);
  Push(alone, {0, 1, 0}, 5);
  ExpectAlike(other.Export(), alone.Export());
}

// As the members of a ring take it: the same as if each update had come by itself, also behind some that have.
TEST(SliceStateTest, AStepThatIsTakenAtOnceIsThatOfItsUpdates) {
  const DataPlan plan = Plan();
  const double first = plan.samples_in_update({0, 0, 0}), second = plan.samples_in_update({0, 1, 0});
  SliceState pushed = Make(), whole = Make(), half = Make();
  for (SliceState* const one : {&pushed, &whole, &half}) one->SetStepWidth(2);
  Push(pushed, {0, 0, 0}, 1);
  Push(pushed, {0, 1, 0}, 5);
  const auto mean_of = [](double value) {
    static std::vector<float> values;
    values.assign(kElements, static_cast<float>(value));
    return EncodedGradient(Payload::OfFloats(values, nullptr));
  };
  const StepContext context{.learning_rate = 0.5};
  whole.TakeWholeStep({{0, 0, 0}, {0, 1, 0}}, Verdict::kApply, mean_of((first + 5 * second) / (first + second)),
                      context);
  Push(half, {0, 0, 0}, 1);
  half.TakeWholeStep({{0, 1, 0}}, Verdict::kApply, mean_of(5), context);
  for (const SliceState* const one : {&whole, &half}) {
    EXPECT_EQ(one->step(), pushed.step());
    EXPECT_EQ(one->version(), pushed.version());
    for (std::size_t i = 0; i < kElements; ++i) EXPECT_FLOAT_EQ((*one->value())[i], (*pushed.value())[i]);
  }
  // Skipped, what had come is taken.
  SliceState skipped = Make(), alone = Make();
  skipped.SetStepWidth(2);
  Push(skipped, {0, 0, 0}, 1);
  skipped.TakeWholeStep({{0, 1, 0}}, Verdict::kSkip, EncodedGradient(), context);
  Push(alone, {0, 0, 0}, 1);
  EXPECT_EQ(*skipped.value(), *alone.value());
  EXPECT_EQ(skipped.skipped(), 1u);
}

TEST(SliceStateTest, WithOtherStepsThatOfBeforeIsSettledAndForgotten) {
  SliceState whole = Make();
  whole.SetStepWidth(1);
  Push(whole, {0, 0, 0}, 1);  // leaves the value before its step
  const SliceSnapshot after_a_step = whole.Export();
  ASSERT_EQ(after_a_step.optimizer.vectors.size(), 2u);
  whole = Make();
  whole.SetStepWidth(2);
  Push(whole, {0, 0, 0}, 1);
  const SliceSnapshot within_a_step = whole.Export();
  for (const SliceSnapshot& snapshot : {after_a_step, within_a_step}) {
    SliceState restored(3, Slice{1, 8, kElements}, std::make_unique<TestMomentum>(kElements), Plan());
    restored.SetStepWidth(3);
    ASSERT_TRUE(restored.Import(snapshot, 0.5).ok());
    restored.SettleSum();
    SliceState alone = Make();
    Push(alone, {0, 0, 0}, 1);
    EXPECT_EQ(*restored.value(), *alone.value());
    EXPECT_EQ(restored.value_at({0, 0, 0}), restored.value());
    EXPECT_EQ(restored.Export().optimizer.vectors.size(), 1u);
  }
}

// Whatever was applied before in another order, the steps that are not whole are gone through in their order.
TEST(SliceStateTest, StepsThatAreWholeAlreadyArePassedOver) {
  SliceState state = Make();
  for (std::uint32_t group = 0; group < 3; ++group) Push(state, {0, 0, group}, 1);
  for (std::uint32_t group = 0; group < 2; ++group) Push(state, {0, 1, group}, 1);
  state.SetStepWidth(2);
  EXPECT_EQ(state.step(), (StepId{0, 0, 2}));
  Push(state, {0, 1, 2}, 1);
  EXPECT_EQ(state.step(), (StepId{0, 0, 3}));
}

// Another view of the same mode, as each evaluation that is counted makes one.
TEST(SliceStateTest, AStepInTheMiddleGoesOnWhereStepsStayAsWide) {
  SliceState state = Make(), undisturbed = Make();
  for (SliceState* const one : {&state, &undisturbed}) {
    one->SetStepWidth(2);
    Push(*one, {0, 0, 0}, 1);
    Push(*one, {0, 1, 0}, 1);
    Push(*one, {0, 0, 1}, 3);
    if (one == &state) one->SetStepWidth(2);
    Push(*one, {0, 1, 1}, 5);
    EXPECT_EQ(one->step(), (StepId{0, 0, 2}));
  }
  EXPECT_EQ(*state.value(), *undisturbed.value());
  EXPECT_EQ(*state.value_at({0, 0, 1}), *undisturbed.value_at({0, 0, 1})) << "what the step before ended with is kept";
}

TEST(SliceStateTest, AStepInTheMiddleIsTakenWhereAnotherModeBegins) {
  for (const std::uint32_t width : {0u, 3u}) {
    SliceState state = Make();
    state.SetStepWidth(2);
    Push(state, {0, 0, 0}, 1);
    Push(state, {0, 1, 0}, 1);
    Push(state, {0, 0, 1}, 3);
    state.SetStepWidth(width);
    SliceState alone = Make();
    Push(alone, {0, 0, 0}, 1);
    Push(alone, {0, 0, 1}, 3);
    EXPECT_EQ(*state.value(), *alone.value()) << width;
    EXPECT_EQ(state.version(), 3u);
    EXPECT_EQ(state.value_at({0, 0, 0}), state.value()) << "what it begins with is what there is";
  }
}

// What came of the next step in another mode says nothing of other slices, which may lack something of the step before.
TEST(SliceStateTest, TheValueBeforeIsExportedThoughSomethingOfTheNextStepWasThere) {
  SliceState state = Make();
  Push(state, {0, 0, 1}, 1);
  state.SetStepWidth(2);
  const std::vector<float> first = *state.value();
  Push(state, {0, 0, 0}, 1);
  Push(state, {0, 1, 0}, 1);
  ASSERT_EQ(state.step(), (StepId{0, 0, 1}));
  SliceState restored(3, Slice{1, 8, kElements}, std::make_unique<TestMomentum>(kElements), Plan());
  restored.SetStepWidth(2);
  ASSERT_TRUE(restored.Import(state.Export(), 0.5).ok());
  EXPECT_EQ(*restored.value_at({0, 0, 0}), first);
}

TEST(SliceStateTest, AForkAndItsOriginalGoOnApart) {
  SliceState state = Make();
  Push(state, {0, 0, 0}, 1);
  SliceState fork = state.Fork();
  ExpectAlike(fork.Export(), state.Export());
  Push(state, {0, 0, 1}, 2);
  Push(fork, {0, 0, 2}, 4);
  SliceState alone = Make();
  Push(alone, {0, 0, 0}, 1);
  Push(alone, {0, 0, 2}, 4);
  ExpectAlike(fork.Export(), alone.Export());
  EXPECT_TRUE(state.table().Contains({0, 0, 1}));
  EXPECT_FALSE(fork.table().Contains({0, 0, 1}));
}

// Otherwise each cut would take the memory of one more value a slice, whatever it is allowed.
TEST(SliceStateTest, NobodyButAForkKeepsTheValueThatItShared) {
  SliceState state = Make();
  Push(state, {0, 0, 0}, 1);
  const std::weak_ptr<const std::vector<float>> shared = state.value();
  auto fork = std::make_unique<SliceState>(state.Fork());
  Push(state, {0, 0, 1}, 2);
  EXPECT_EQ(shared.lock(), fork->value());
  fork.reset();
  EXPECT_TRUE(shared.expired());
}

TEST(SliceStateTest, GoesOnFromASnapshotAsTheOriginalDoes) {
  for (std::uint32_t seed = 1; seed <= 200; ++seed) {
    std::mt19937 engine(seed);
    const auto below = [&engine](std::uint32_t bound) { return static_cast<std::uint32_t>(engine() % bound); };
    SliceState original = Make();
    const auto step = [&](SliceState& state, std::uint32_t number) {
      const Verdict verdict = number % 5 == 3 ? Verdict::kSkip : Verdict::kApply;
      state.Apply({number / 12, number / 4 % 3, number % 4}, verdict,
                  Floats(std::vector<float>(kElements, static_cast<float>(number))), {.learning_rate = 0.25});
    };
    const std::uint32_t cut = below(24);
    for (std::uint32_t number = 0; number < cut; ++number) step(original, number);
    if (cut >= 12) {
      for (std::uint32_t shard = 0; shard < 3; ++shard) EXPECT_TRUE(original.table().Retire(0, shard));
      original.table().Advance(1);
    }
    SliceState restored(3, Slice{1, 8, kElements}, std::make_unique<TestMomentum>(kElements), Plan());
    EXPECT_FALSE(restored.initialised());
    ASSERT_TRUE(restored.Import(original.Export(), 0.5).ok());
    EXPECT_TRUE(restored.initialised());
    ExpectAlike(restored.Export(), original.Export());
    for (std::uint32_t number = cut; number < 24; ++number) {
      step(original, number);
      step(restored, number);
    }
    ExpectAlike(restored.Export(), original.Export());
  }
}

TEST(SliceStateTest, ASnapshotThatDoesNotFitChangesNothing) {
  const SliceSnapshot good = Make().Export();
  SliceState state = Make();
  Push(state, {0, 0, 0}, 1);
  const SliceSnapshot before = state.Export();
  const auto refused = [&](const SliceSnapshot& snapshot, const char* why) {
    const absl::Status imported = state.Import(snapshot, 0.5);
    EXPECT_EQ(imported.code(), absl::StatusCode::kInvalidArgument) << why;
    ExpectAlike(state.Export(), before);
  };
  SliceSnapshot bad = good;
  bad.value = nullptr;
  refused(bad, "no value");
  bad = good;
  bad.value = std::make_shared<std::vector<float>>(kElements + 1);
  refused(bad, "another size");
  bad = good;
  bad.optimizer.type = "SGD";
  refused(bad, "another rule");
  bad = good;
  v1::EpochTable* epoch = bad.table.add_epochs();
  epoch->add_open()->set_shard(99);
  refused(bad, "a data shard that the plan has not");
  bad = good;
  bad.table.set_watermark(1);
  bad.table.add_epochs();
  refused(bad, "an epoch below the watermark");
}

}  // namespace
}  // namespace downpour::core
