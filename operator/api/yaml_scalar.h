#ifndef DOWNPOUR_OPERATOR_API_YAML_SCALAR_H_
#define DOWNPOUR_OPERATOR_API_YAML_SCALAR_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>

#include "absl/status/statusor.h"

// What a YAML scalar means: the types of YAML 1.1 as kubectl's reader (go-yaml 2) takes them, deviations included. Thus
// yes is true, 010 is 8, 08 is 8 as well, 1_000 is 1000, and 1:30 is text.
namespace downpour::api {

// Null, a boolean, an integer, one that needs the 64th bit, any other number (also not finite), or text.
using YamlScalar = std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string>;

// Of one that stands without quotes and without a tag (`tag` empty), or with a tag in its long form. kInvalidArgument
// says why the text is nothing that the tag allows.
absl::StatusOr<YamlScalar> ResolveYamlScalar(std::string_view tag, std::string_view text);

// The scalar as the key of a map, which is text in JSON. Nothing for null and what needs the 64th bit: kubectl refuses
// them.
std::optional<std::string> YamlKey(const YamlScalar& scalar);

// A finite number as kubectl hands it to the API server: an integer without a point or exponent where it is one.
std::string JsonNumber(double number);

}  // namespace downpour::api

#endif  // DOWNPOUR_OPERATOR_API_YAML_SCALAR_H_
