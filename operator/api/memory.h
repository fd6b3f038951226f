#ifndef DOWNPOUR_OPERATOR_API_MEMORY_H_
#define DOWNPOUR_OPERATOR_API_MEMORY_H_

#include <cstdint>
#include <optional>
#include <string_view>

namespace downpour::api {

// Bytes of an amount of memory as Kubernetes writes it, a whole number above 0 of at most 15 digits with an optional
// suffix: "1000000", "512Mi", "2G". What is more than 2^63-1 counts as that. Nothing: it is no such text.
std::optional<std::uint64_t> ParseMemory(std::string_view text);

}  // namespace downpour::api

#endif  // DOWNPOUR_OPERATOR_API_MEMORY_H_
