#ifndef DOWNPOUR_TRAINER_CORE_LAYOUT_H_
#define DOWNPOUR_TRAINER_CORE_LAYOUT_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "downpour/v1/control.pb.h"

namespace downpour::core {

// The most bytes of a slice; a multiple of 64 so that cuts stay aligned.
inline constexpr std::uint64_t kSliceBytes = 4u << 20;

// A piece of one tensor, flattened row-major. Slices are numbered by tensor, then by offset.
struct Slice {
  std::uint32_t tensor = 0;
  std::uint64_t offset = 0;  // in elements
  std::uint32_t elements = 0;
  std::uint64_t bytes() const { return std::uint64_t{elements} * 4; }
};

// The cuts depend on each tensor alone, never on the number of ps. kInvalidArgument: a tensor without elements, of
// an unknown type, or too large.
absl::StatusOr<std::vector<Slice>> CutTensors(absl::Span<const v1::TensorSpec> tensors);
absl::StatusOr<std::vector<Slice>> CutTensors(const v1::View& view);

// The primary of each slice: longest processing time first by bytes (Graham 1969), so that the fullest ps carries at
// most the mean and one slice. Deterministic.
std::vector<std::uint32_t> PlaceSlices(absl::Span<const Slice> slices, std::uint32_t ps_count);

// What distinguishes `theirs` from `ours`, for people: "tensor 3 is the buffer norm.mean [8], expected ...". Empty: the
// same names, types, kinds and shapes in the same order.
std::string TensorDifference(absl::Span<const v1::TensorSpec> ours,
                             const google::protobuf::RepeatedPtrField<v1::TensorSpec>& theirs);

// Of the ps that have a place in the view.
std::set<std::uint64_t> PsSessions(const v1::View& view);

// Negative, zero or positive as a is older than, the same as or newer than b.
int CompareStamps(const v1::ViewStamp& a, const v1::ViewStamp& b);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_LAYOUT_H_
