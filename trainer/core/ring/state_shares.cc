#include "trainer/core/ring/state_shares.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "trainer/collective/part.h"

namespace downpour::core {
namespace {

Range RangeOf(const Slice& slice, const GradientLayout& layout) {
  const std::size_t begin = layout.tensor(slice.tensor).begin + slice.offset;
  return {begin, begin + slice.elements};
}

// Of ascending ranges the one that has the value; null: none.
const Range* Find(absl::Span<const Range> ranges, std::size_t value) {
  const auto found =
      std::partition_point(ranges.begin(), ranges.end(), [value](const Range& range) { return range.end <= value; });
  return found == ranges.end() || found->begin > value ? nullptr : &*found;
}

}  // namespace

Range PartOfBucket(const GradientLayout::Bucket& bucket, std::uint32_t rank, std::uint32_t holders) {
  const collective::Part part =
      collective::PartOf(bucket.values.size(), static_cast<int>(rank), static_cast<int>(holders));
  return {bucket.values.begin + part.begin, bucket.values.begin + part.end};
}

std::vector<Range> RangesOf(const StateShare& share, std::uint32_t copies, const GradientLayout& layout) {
  std::vector<Range> ranges;
  for (std::size_t bucket = 0; bucket < layout.parameter_buckets(); ++bucket) {
    const auto first = static_cast<std::ptrdiff_t>(ranges.size());
    for (std::uint32_t copy = 0; copy < CopiesOf(copies, share.holders); ++copy) {
      const std::uint32_t rank = (share.rank + share.holders - copy) % share.holders;
      const Range range = PartOfBucket(layout.buckets()[bucket], rank, share.holders);
      if (range.size() > 0) ranges.push_back(range);
    }
    std::sort(ranges.begin() + first, ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  }
  return ranges;
}

absl::StatusOr<std::vector<StateFragment>> PlanFragments(const GradientLayout& layout, absl::Span<const Slice> slices,
                                                         std::uint32_t copies,
                                                         absl::Span<const std::vector<StateShare>> shares) {
  struct Held {
    int rank = 0;
    std::vector<Range> ranges;
  };
  std::vector<Held> held;
  for (std::size_t rank = 0; rank < shares.size(); ++rank) {
    for (const StateShare& share : shares[rank]) {
      held.push_back({static_cast<int>(rank), RangesOf(share, copies, layout)});
    }
  }
  std::vector<std::uint32_t> ordered;  // slices of parameters, as they lie
  for (std::uint32_t slice = 0; slice < slices.size(); ++slice) {
    if (RangeOf(slices[slice], layout).begin < layout.parameters()) ordered.push_back(slice);
  }
  std::sort(ordered.begin(), ordered.end(), [&](std::uint32_t a, std::uint32_t b) {
    return RangeOf(slices[a], layout).begin < RangeOf(slices[b], layout).begin;
  });
  std::vector<StateFragment> fragments;
  for (const std::uint32_t slice : ordered) {
    const Range whole = RangeOf(slices[slice], layout);
    for (std::size_t at = whole.begin; at < whole.end;) {
      StateFragment fragment{{at, at}, slice, at - whole.begin, 0};
      for (const Held& one : held) {
        const Range* const range = Find(one.ranges, at);
        if (range == nullptr) continue;
        fragment.values.end = std::min(range->end, whole.end);
        fragment.source = one.rank;
        break;
      }
      if (fragment.values.size() == 0) {
        return absl::DataLossError(absl::StrCat("of tensor ", slices[slice].tensor,
                                                " no worker that is left has all of the optimizer's state"));
      }
      at = fragment.values.end;
      fragments.push_back(fragment);
    }
  }
  return fragments;
}

std::vector<Range> WithinSlice(absl::Span<const Range> ranges, const Slice& slice, const GradientLayout& layout) {
  const Range whole = RangeOf(slice, layout);
  std::vector<Range> within;
  for (const Range& range : ranges) {
    const std::size_t begin = std::max(range.begin, whole.begin), end = std::min(range.end, whole.end);
    if (begin < end) within.push_back({begin - whole.begin, end - whole.begin});
  }
  return within;
}

}  // namespace downpour::core
