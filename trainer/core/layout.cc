#include "trainer/core/layout.h"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace downpour::core {
namespace {

constexpr std::uint64_t kMaxElements = std::uint64_t{1} << 40;

}  // namespace

absl::StatusOr<std::vector<Slice>> CutTensors(absl::Span<const v1::TensorSpec> tensors) {
  std::vector<Slice> slices;
  for (std::size_t index = 0; index < tensors.size(); ++index) {
    const v1::TensorSpec& tensor = tensors[index];
    if (tensor.type() != v1::FLOAT32) {
      return absl::InvalidArgumentError(
          absl::StrCat("tensor ", tensor.name(), ": type must be FLOAT32, got ", v1::ElementType_Name(tensor.type())));
    }
    std::uint64_t elements = 1;
    for (std::int64_t dimension : tensor.shape()) {
      if (dimension <= 0 || elements > kMaxElements / static_cast<std::uint64_t>(dimension)) {
        return absl::InvalidArgumentError(
            absl::StrCat("tensor ", tensor.name(), ": shape has no or too many elements"));
      }
      elements *= static_cast<std::uint64_t>(dimension);
    }
    for (std::uint64_t offset = 0; offset < elements; offset += kSliceBytes / 4) {
      slices.push_back({static_cast<std::uint32_t>(index), offset,
                        static_cast<std::uint32_t>(std::min(kSliceBytes / 4, elements - offset))});
    }
  }
  if (slices.empty()) return absl::InvalidArgumentError("the model has no tensors");
  return slices;
}

absl::StatusOr<std::vector<Slice>> CutTensors(const v1::View& view) {
  return CutTensors(std::vector<v1::TensorSpec>(view.tensors().begin(), view.tensors().end()));
}

std::string TensorDifference(absl::Span<const v1::TensorSpec> ours,
                             const google::protobuf::RepeatedPtrField<v1::TensorSpec>& theirs) {
  const auto text = [](const v1::TensorSpec& tensor) {
    return absl::StrCat(tensor.kind() == v1::BUFFER ? "the buffer " : "the parameter ", tensor.name(), " [",
                        absl::StrJoin(tensor.shape(), ", "), "]",
                        tensor.type() == v1::FLOAT32 ? "" : " of " + v1::ElementType_Name(tensor.type()));
  };
  const auto count = static_cast<std::size_t>(theirs.size());
  for (std::size_t i = 0; i < std::min(ours.size(), count); ++i) {
    const std::string found = text(theirs[static_cast<int>(i)]);
    const std::string expected = text(ours[i]);
    if (found != expected) return absl::StrCat("tensor ", i + 1, " is ", found, ", expected ", expected);
  }
  if (ours.size() == count) return "";
  return absl::StrCat(count, " tensors, expected ", ours.size());
}

std::vector<std::uint32_t> PlaceSlices(absl::Span<const Slice> slices, std::uint32_t ps_count) {
  std::vector<std::uint32_t> order(slices.size());
  std::iota(order.begin(), order.end(), 0u);
  std::stable_sort(order.begin(), order.end(),
                   [&](std::uint32_t a, std::uint32_t b) { return slices[a].elements > slices[b].elements; });
  std::vector<std::uint64_t> load(ps_count, 0);
  std::vector<std::uint32_t> primary(slices.size(), 0);
  for (std::uint32_t slice : order) {
    const auto emptiest = std::min_element(load.begin(), load.end());
    *emptiest += slices[slice].bytes();
    primary[slice] = static_cast<std::uint32_t>(emptiest - load.begin());
  }
  return primary;
}

std::set<std::uint64_t> PsSessions(const v1::View& view) {
  std::set<std::uint64_t> sessions;
  for (const v1::PsMember& member : view.ps()) sessions.insert(member.session());
  return sessions;
}

int CompareStamps(const v1::ViewStamp& a, const v1::ViewStamp& b) {
  const auto key = [](const v1::ViewStamp& stamp) {
    return std::make_tuple(stamp.generation(), stamp.incarnation(), stamp.epoch());
  };
  if (key(a) < key(b)) return -1;
  return key(b) < key(a) ? 1 : 0;
}

}  // namespace downpour::core
