#include "trainer/data/split.h"

#include <memory>

#include "gtest/gtest.h"
#include "trainer/data/testing/memory_source.h"

namespace downpour::data {
namespace {

std::shared_ptr<const SampleSource> Numbers(std::int64_t count) {
  std::vector<absl::StatusOr<Sample>> samples;
  for (std::int64_t i = 0; i < count; ++i) samples.push_back(Sample{testing::ValueOf<std::int64_t>({}, {i})});
  return std::make_shared<testing::MemorySource>(std::vector<Column>{{"number", ElementType::kI64}},
                                                 std::move(samples));
}

std::vector<std::int64_t> Of(const SampleSource& source) {
  std::vector<std::int64_t> numbers;
  for (std::int64_t i = 0; i < source.size(); ++i) {
    numbers.push_back(testing::ElementsOf<std::int64_t>(source.Read(i)->front()).front());
  }
  return numbers;
}

TEST(SplitTest, EachSampleIsInOnePart) {
  const auto all = Numbers(2000);
  for (const double fraction : {0.0, 0.1, 0.5, 1.0}) {
    const std::vector<std::int64_t> held_out = Of(*MakePart(all, fraction, 7, true));
    const std::vector<std::int64_t> others = Of(*MakePart(all, fraction, 7, false));
    EXPECT_EQ(held_out.size() + others.size(), 2000U);
    EXPECT_NEAR(static_cast<double>(held_out.size()), fraction * 2000, 80) << fraction;
    for (const std::int64_t number : held_out) EXPECT_TRUE(IsHeldOut(fraction, 7, number));
    for (const std::int64_t number : others) EXPECT_FALSE(IsHeldOut(fraction, 7, number));
  }
}

TEST(SplitTest, MoreSamplesMoveNoneAndAnotherSeedMovesSome) {
  const std::vector<std::int64_t> few = Of(*MakePart(Numbers(500), 0.2, 7, true));
  std::vector<std::int64_t> many = Of(*MakePart(Numbers(1000), 0.2, 7, true));
  many.resize(few.size());
  EXPECT_EQ(few, many);
  EXPECT_NE(few, Of(*MakePart(Numbers(500), 0.2, 8, true)));
}

}  // namespace
}  // namespace downpour::data
