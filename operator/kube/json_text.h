#ifndef DOWNPOUR_OPERATOR_KUBE_JSON_TEXT_H_
#define DOWNPOUR_OPERATOR_KUBE_JSON_TEXT_H_

#include <cstddef>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"
#include "operator/kube/object.h"

namespace downpour::kube {

inline constexpr std::size_t kMaxJsonBytes = std::size_t{64} << 20;
inline constexpr int kMaxJsonDepth = 128;

// The text without metadata.managedFields, which is often the larger half of an object and which nobody here reads: of
// the object that it is, of the items of a list or of the object of a watch event. kDataLoss: not JSON, or nested too
// deep. kResourceExhausted: too large.
absl::StatusOr<Json> ParseJson(std::string_view text);
// Never throws: what is not UTF-8 becomes U+FFFD.
std::string DumpJson(const Json& json);

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_JSON_TEXT_H_
