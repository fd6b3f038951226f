#ifndef DOWNPOUR_TRAINER_CORE_CODEC_UNITS_H_
#define DOWNPOUR_TRAINER_CORE_CODEC_UNITS_H_

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstring>

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

// Calls visit(index, bytes) for each unit by itself, in order.
template <std::size_t kUnit, typename Visit>
void ForEachUnit(const Payload& payload, Visit&& visit) {
  ForEachUnits<kUnit>(payload, [&](std::size_t index, absl::Span<const std::uint8_t> bytes) {
    for (; !bytes.empty(); ++index) {
      const absl::Span<const std::uint8_t> unit = bytes.first(std::min(bytes.size(), kUnit));
      bytes.remove_prefix(unit.size());
      visit(index, unit);
    }
  });
}

// Of units that begin with a Header: calls visit(index, header, the bytes behind it) for each, in order.
template <typename Header, std::size_t kUnit, typename Visit>
void ForEachBlock(const Payload& payload, Visit&& visit) {
  ForEachUnit<kUnit>(payload, [&](std::size_t index, absl::Span<const std::uint8_t> unit) {
    Header header;
    std::memcpy(&header, unit.data(), sizeof(header));
    visit(index, header, unit.subspan(sizeof(header)));
  });
}

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_CODEC_UNITS_H_
