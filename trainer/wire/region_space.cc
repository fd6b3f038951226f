#include "trainer/wire/region_space.h"

#include <iterator>

namespace downpour::wire {

RegionSpace::RegionSpace(std::uint64_t bytes) : free_bytes_(bytes / kAlignment * kAlignment) {
  if (free_bytes_ != 0) free_.emplace(0, free_bytes_);
}

std::optional<std::uint64_t> RegionSpace::Take(std::uint64_t bytes) {
  if (bytes == 0 || bytes > free_bytes_) return std::nullopt;
  const std::uint64_t length = (bytes + kAlignment - 1) / kAlignment * kAlignment;
  for (auto part = free_.begin(); part != free_.end(); ++part) {
    const auto [offset, available] = *part;
    if (available < length) continue;
    free_.erase(part);
    if (available > length) free_.emplace(offset + length, available - length);
    taken_.emplace(offset, length);
    free_bytes_ -= length;
    return offset;
  }
  return std::nullopt;
}

void RegionSpace::GiveBack(std::uint64_t offset) {
  const auto taken = taken_.find(offset);
  std::uint64_t length = taken->second;
  taken_.erase(taken);
  free_bytes_ += length;
  const auto next = free_.lower_bound(offset);
  const auto before = next == free_.begin() ? free_.end() : std::prev(next);
  if (next != free_.end() && offset + length == next->first) {
    length += next->second;
    free_.erase(next);
  }
  if (before != free_.end() && before->first + before->second == offset) {
    before->second += length;
  } else {
    free_.emplace(offset, length);
  }
}

}  // namespace downpour::wire
