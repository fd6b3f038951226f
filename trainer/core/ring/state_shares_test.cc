#include "trainer/core/ring/state_shares.h"

#include <map>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

// Three tensors, of which the middle one is a buffer; the last one, cut into two slices, lies first.
const std::vector<Slice> kSlices = {{0, 0, 7}, {1, 0, 3}, {2, 0, 8}, {2, 8, 5}};

GradientLayout Layout(std::size_t bucket_bytes) {
  const std::vector<GradientLayout::Tensor> tensors = {{7, false}, {3, true}, {13, false}};
  return GradientLayout(tensors, bucket_bytes);
}

TEST(GradientLayoutTest, NoBucketHasParametersAndBuffers) {
  const GradientLayout layout = Layout(1 << 20);
  ASSERT_EQ(layout.buckets().size(), 2u);
  EXPECT_EQ(layout.buckets()[0].values, (Range{0, 20}));
  EXPECT_EQ(layout.buckets()[1].values, (Range{20, 23}));
  EXPECT_EQ(layout.parameter_buckets(), 1u);
  EXPECT_EQ(layout.parameters(), 20u);
  EXPECT_EQ(layout.tensor(2), (Range{0, 13}));
  EXPECT_EQ(layout.tensor(0), (Range{13, 20}));
  EXPECT_EQ(Layout(4).parameter_buckets(), 2u);
  const std::vector<GradientLayout::Tensor> plain = {{4, false}};
  EXPECT_EQ(GradientLayout(plain).parameter_buckets(), 1u);
}

TEST(StateSharesTest, EveryValueIsHeldByAsManyAsThereAreCopies) {
  for (const std::size_t bytes : {std::size_t{4}, std::size_t{1} << 20}) {
    const GradientLayout layout = Layout(bytes);
    for (std::uint32_t holders = 1; holders <= 25; ++holders) {
      for (std::uint32_t copies = 1; copies <= 4; ++copies) {
        std::vector<std::uint32_t> held(layout.parameters());
        for (std::uint32_t rank = 0; rank < holders; ++rank) {
          std::size_t behind = 0;
          for (const Range& range : RangesOf({rank, holders}, copies, layout)) {
            EXPECT_GE(range.begin, behind);
            behind = range.end;
            for (std::size_t i = range.begin; i < range.end; ++i) ++held[i];
          }
        }
        for (const std::uint32_t count : held) ASSERT_EQ(count, CopiesOf(copies, holders));
      }
    }
  }
}

// Whether the fragments follow each other over all parameters, each within one slice and held by its source.
void ExpectSound(const std::vector<StateFragment>& fragments, const GradientLayout& layout, std::uint32_t copies,
                 const std::vector<std::vector<StateShare>>& shares) {
  std::size_t at = 0;
  for (const StateFragment& fragment : fragments) {
    EXPECT_EQ(fragment.values.begin, at);
    EXPECT_GT(fragment.values.size(), 0u);
    at = fragment.values.end;
    const Slice& slice = kSlices[fragment.slice];
    EXPECT_EQ(layout.tensor(slice.tensor).begin + slice.offset + fragment.offset, fragment.values.begin);
    EXPECT_LE(fragment.offset + fragment.values.size(), slice.elements);
    bool held = false;
    for (const StateShare& share : shares[static_cast<std::size_t>(fragment.source)]) {
      for (const Range& range : RangesOf(share, copies, layout)) {
        held = held || (range.begin <= fragment.values.begin && range.end >= fragment.values.end);
      }
    }
    EXPECT_TRUE(held);
  }
  EXPECT_EQ(at, layout.parameters());
}

TEST(StateSharesTest, WithTwoCopiesAnyOneMayBeMissing) {
  const GradientLayout layout = Layout(1 << 20);
  for (std::uint32_t holders = 2; holders <= 6; ++holders) {
    for (std::uint32_t missing = 0; missing < holders; ++missing) {
      std::vector<std::vector<StateShare>> shares;
      for (std::uint32_t rank = 0; rank < holders; ++rank) {
        if (rank != missing) shares.push_back({{rank, holders}});
      }
      const auto fragments = PlanFragments(layout, kSlices, 2, shares);
      ASSERT_TRUE(fragments.ok()) << fragments.status();
      ExpectSound(*fragments, layout, 2, shares);
      EXPECT_EQ(PlanFragments(layout, kSlices, 1, shares).status().code(), absl::StatusCode::kDataLoss);
    }
  }
}

TEST(StateSharesTest, SharesOfTwoDivisionsTogetherMayBeAll) {
  const GradientLayout layout = Layout(4);
  // Halves and thirds: the second half of each bucket, and its first two thirds.
  const std::vector<std::vector<StateShare>> shares = {{{1, 2}}, {{0, 3}, {1, 3}}, {}};
  const auto fragments = PlanFragments(layout, kSlices, 1, shares);
  ASSERT_TRUE(fragments.ok()) << fragments.status();
  ExpectSound(*fragments, layout, 1, shares);
  EXPECT_FALSE(PlanFragments(layout, kSlices, 1, {{{{1, 2}}, {{1, 3}}}}).ok());
  EXPECT_FALSE(PlanFragments(layout, kSlices, 1, {}).ok());
}

TEST(StateSharesTest, OfASliceTheValuesAreCountedFromItsFirst) {
  const GradientLayout layout = Layout(1 << 20);
  const std::vector<Range> ranges = {{2, 9}, {12, 15}};
  EXPECT_EQ(WithinSlice(ranges, kSlices[2], layout), (std::vector<Range>{{2, 8}}));
  EXPECT_EQ(WithinSlice(ranges, kSlices[3], layout), (std::vector<Range>{{0, 1}, {4, 5}}));
  EXPECT_EQ(WithinSlice(ranges, kSlices[0], layout), (std::vector<Range>{{0, 2}}));
}

}  // namespace
}  // namespace downpour::core
