#ifndef DOWNPOUR_TRAINER_CORE_RING_STATE_SHARES_H_
#define DOWNPOUR_TRAINER_CORE_RING_STATE_SHARES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/core/frame.h"
#include "trainer/core/layout.h"
#include "trainer/core/ring/gradient_layout.h"

// Who has what of an optimizer's state that is divided among the members of a ring (ZeRO stage 1: Rajbhandari et al.
// 2020, section 5.1; BigDL: Dai et al. 2019, section 3.3). A value's state belongs to the rank that sums its gradient,
// and the ranks behind it have copies, so that members may be lost. Pure functions.
namespace downpour::core {

// The part of a rank among so many, with copies of those before it.
struct StateShare {
  std::uint32_t rank = 0;
  std::uint32_t holders = 1;
  bool operator==(const StateShare& other) const = default;
};

// What all that took a step have in common, so that others can take it later.
struct TakenStep {
  Verdict verdict = Verdict::kApply;
  double factor = 1;          // of the mean of parameters
  std::uint32_t updates = 0;  // so many
};

// How many of `holders` have each part.
inline std::uint32_t CopiesOf(std::uint32_t copies, std::uint32_t holders) {
  return copies < holders ? copies : holders;
}

// The part of one bucket's values that a rank sums.
Range PartOfBucket(const GradientLayout::Bucket& bucket, std::uint32_t rank, std::uint32_t holders);
// All values of parameters that the share has, ascending; each range within one bucket and one part. `copies` > 0.
std::vector<Range> RangesOf(const StateShare& share, std::uint32_t copies, const GradientLayout& layout);

// Neighbouring values of one slice whose state one member has in one piece.
struct StateFragment {
  Range values;  // as they lie in the layout
  std::uint32_t slice = 0;
  std::size_t offset = 0;  // of the first value in the slice
  int source = 0;          // rank
};

// What each of a ring's members gives to the others so that all of the state comes together: fragments that follow each
// other over all parameters, each from the first that has it. `shares`: by rank, what each has; none: nothing that
// counts. kDataLoss: some of it nobody has.
absl::StatusOr<std::vector<StateFragment>> PlanFragments(const GradientLayout& layout, absl::Span<const Slice> slices,
                                                         std::uint32_t copies,
                                                         absl::Span<const std::vector<StateShare>> shares);

// Of a slice, what of the ranges lies within it, as numbers of its own values.
std::vector<Range> WithinSlice(absl::Span<const Range> ranges, const Slice& slice, const GradientLayout& layout);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_RING_STATE_SHARES_H_
