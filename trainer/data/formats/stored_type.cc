#include "trainer/data/formats/stored_type.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "absl/strings/str_format.h"
#include "trainer/checkpoint/half_float.h"

namespace downpour::data {
namespace {

static_assert(std::endian::native == std::endian::little, "elements are read as they lie in memory");

// Calls `convert(value, &result)` for every element; where that is false, answers its number, else -1.
template <typename Stored, typename Given, typename Function>
std::ptrdiff_t Each(bool big_endian, absl::Span<const std::uint8_t> from, absl::Span<std::byte> to,
                    const Function& convert) {
  const std::size_t count = from.size() / sizeof(Stored);
  for (std::size_t i = 0; i < count; ++i) {
    std::uint8_t bytes[sizeof(Stored)];
    std::copy_n(from.data() + i * sizeof(Stored), sizeof(Stored), bytes);
    if (big_endian) std::reverse(bytes, bytes + sizeof(Stored));
    Stored stored{};
    std::memcpy(&stored, bytes, sizeof(Stored));
    Given given{};
    if (!convert(stored, &given)) return static_cast<std::ptrdiff_t>(i);
    std::memcpy(to.data() + i * sizeof(Given), &given, sizeof(Given));
  }
  return -1;
}

template <typename Stored, typename Given>
absl::Status Widen(bool big_endian, absl::Span<const std::uint8_t> from, absl::Span<std::byte> to) {
  if (std::is_same_v<Stored, Given> && !big_endian) {
    if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
    return absl::OkStatus();
  }
  Each<Stored, Given>(big_endian, from, to, [](Stored stored, Given* given) {
    *given = static_cast<Given>(stored);  // NOLINT(bugprone-signed-char-misuse): an int8 is a number
    return true;
  });
  return absl::OkStatus();
}

}  // namespace

std::size_t BytesOf(StoredType type) {
  switch (type) {
    case StoredType::kBool:
    case StoredType::kU8:
    case StoredType::kI8:
      return 1;
    case StoredType::kU16:
    case StoredType::kI16:
    case StoredType::kF16:
    case StoredType::kBF16:
      return 2;
    case StoredType::kU32:
    case StoredType::kI32:
    case StoredType::kF32:
      return 4;
    case StoredType::kU64:
    case StoredType::kI64:
    case StoredType::kF64:
      break;
  }
  return 8;
}

ElementType ElementTypeOf(StoredType type) {
  switch (type) {
    case StoredType::kBool:
    case StoredType::kU8:
      return ElementType::kU8;
    case StoredType::kI8:
    case StoredType::kI16:
    case StoredType::kU16:
    case StoredType::kI32:
      return ElementType::kI32;
    case StoredType::kU32:
    case StoredType::kI64:
    case StoredType::kU64:
      return ElementType::kI64;
    case StoredType::kF16:
    case StoredType::kBF16:
    case StoredType::kF32:
    case StoredType::kF64:
      break;
  }
  return ElementType::kF32;
}

absl::Status Convert(StoredType type, bool big_endian, absl::Span<const std::uint8_t> from, absl::Span<std::byte> to) {
  switch (type) {
    case StoredType::kBool: {
      const auto bad = std::find_if(from.begin(), from.end(), [](std::uint8_t byte) { return byte > 1; });
      if (bad != from.end()) {
        return absl::DataLossError(
            absl::StrFormat("element %d: found the byte %d, expected 0 or 1 of a bool", bad - from.begin(), *bad));
      }
      return Widen<std::uint8_t, std::uint8_t>(false, from, to);
    }
    case StoredType::kU8:
      return Widen<std::uint8_t, std::uint8_t>(false, from, to);
    case StoredType::kI8:
      return Widen<std::int8_t, std::int32_t>(big_endian, from, to);
    case StoredType::kI16:
      return Widen<std::int16_t, std::int32_t>(big_endian, from, to);
    case StoredType::kU16:
      return Widen<std::uint16_t, std::int32_t>(big_endian, from, to);
    case StoredType::kI32:
      return Widen<std::int32_t, std::int32_t>(big_endian, from, to);
    case StoredType::kU32:
      return Widen<std::uint32_t, std::int64_t>(big_endian, from, to);
    case StoredType::kI64:
      return Widen<std::int64_t, std::int64_t>(big_endian, from, to);
    case StoredType::kU64: {
      constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
      std::uint64_t last = 0;
      const std::ptrdiff_t bad =
          Each<std::uint64_t, std::int64_t>(big_endian, from, to, [&last](std::uint64_t stored, std::int64_t* given) {
            last = stored;
            *given = static_cast<std::int64_t>(stored);
            return stored <= kMost;
          });
      if (bad < 0) return absl::OkStatus();
      return absl::DataLossError(absl::StrFormat("element %d: found %d, expected no more than %d", bad, last, kMost));
    }
    case StoredType::kF16:
      Each<std::uint16_t, float>(big_endian, from, to, [](std::uint16_t stored, float* given) {
        *given = checkpoint::HalfToFloat(stored);
        return true;
      });
      return absl::OkStatus();
    case StoredType::kBF16:
      Each<std::uint16_t, float>(big_endian, from, to, [](std::uint16_t stored, float* given) {
        *given = std::bit_cast<float>(std::uint32_t{stored} << 16);
        return true;
      });
      return absl::OkStatus();
    case StoredType::kF32:  // as bits: a NaN stays what it is
      return Widen<std::uint32_t, std::uint32_t>(big_endian, from, to);
    case StoredType::kF64:
      break;
  }
  double last = 0;
  const std::ptrdiff_t bad = Each<double, float>(big_endian, from, to, [&last](double stored, float* given) {
    last = stored;
    // From here on a double rounds to an infinity.
    constexpr double kBeyond = 0x1.ffffffp127;
    if (std::isfinite(stored) && std::abs(stored) >= kBeyond) return false;
    *given = static_cast<float>(stored);
    return true;
  });
  if (bad < 0) return absl::OkStatus();
  return absl::DataLossError(absl::StrFormat("element %d: found %g, expected what a 32 bit float can hold", bad, last));
}

}  // namespace downpour::data
