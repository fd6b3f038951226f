#include "operator/api/memory.h"

#include <charconv>
#include <cstddef>
#include <limits>

namespace downpour::api {

std::optional<std::uint64_t> ParseMemory(std::string_view text) {
  constexpr std::size_t kMostDigits = 15;
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max();
  constexpr std::string_view kDecimal = "kMGTPE";
  constexpr std::string_view kBinary = "KMGTPE";
  std::uint64_t bytes = 0;
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), bytes);
  const std::size_t digits = static_cast<std::size_t>(stop - text.data());
  if (error != std::errc() || digits > kMostDigits || text.front() == '0') return std::nullopt;
  const std::string_view suffix = text.substr(digits);
  if (suffix.empty()) return bytes;
  const bool binary = suffix.size() == 2 && suffix[1] == 'i';
  const std::size_t power = (binary ? kBinary : kDecimal).find(suffix[0]);
  if (power == std::string_view::npos || (suffix.size() != 1 && !binary)) return std::nullopt;
  const std::uint64_t unit = binary ? 1024 : 1000;
  for (std::size_t i = 0; i <= power; ++i) bytes = bytes > kMost / unit ? kMost : bytes * unit;
  return bytes;
}

}  // namespace downpour::api
