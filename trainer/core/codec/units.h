#ifndef DOWNPOUR_TRAINER_CORE_CODEC_UNITS_H_
#define DOWNPOUR_TRAINER_CORE_CODEC_UNITS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

#include "absl/types/span.h"
#include "trainer/core/frame.h"

namespace downpour::core {

// Calls visit(first_unit, bytes) over a payload cut anywhere, in order, with runs of whole units of kUnit bytes; only
// the last run of all may end within one. A unit that straddles two segments is visited through a copy. The bytes are
// aligned to nothing.
template <std::size_t kUnit, typename Visit>
void ForEachUnits(const Payload& payload, Visit&& visit) {
  std::array<std::uint8_t, kUnit> straddling{};
  std::size_t have = 0;
  std::size_t index = 0;
  for (absl::Span<const std::uint8_t> bytes : payload.segments()) {
    if (have != 0) {
      const std::size_t taken = std::min(kUnit - have, bytes.size());
      std::copy_n(bytes.begin(), taken, straddling.begin() + static_cast<std::ptrdiff_t>(have));
      have += taken;
      bytes.remove_prefix(taken);
      if (have < kUnit) continue;
      visit(index++, absl::Span<const std::uint8_t>(straddling));
      have = 0;
    }
    const std::size_t count = bytes.size() / kUnit;
    if (count != 0) visit(index, bytes.first(count * kUnit));
    index += count;
    bytes.remove_prefix(count * kUnit);
    std::copy(bytes.begin(), bytes.end(), straddling.begin());
    have = bytes.size();
  }
  if (have != 0) visit(index, absl::Span<const std::uint8_t>(straddling).first(have));
}

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_CODEC_UNITS_H_
