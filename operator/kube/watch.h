#ifndef DOWNPOUR_OPERATOR_KUBE_WATCH_H_
#define DOWNPOUR_OPERATOR_KUBE_WATCH_H_

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "operator/kube/object.h"

namespace downpour::kube {

inline constexpr std::size_t kMaxWatchLineBytes = std::size_t{8} << 20;

struct WatchEvent {
  enum class Type { kAdded, kModified, kDeleted, kBookmark, kError };
  Type type = Type::kAdded;
  Json object;  // without metadata.managedFields; of kError: a Status
};

// Bytes of a watch, cut anywhere, to events. Not thread-safe. After an error it answers that error for ever.
class WatchDecoder {
 public:
  // `spec_fields`: as of ParseJson.
  explicit WatchDecoder(std::vector<std::string> spec_fields = {}) : spec_fields_(std::move(spec_fields)) {}

  // Events that became complete. kDataLoss: a line that is no event; kResourceExhausted: a line that is too long.
  // Events before such a line are answered first, its error by the next call.
  absl::StatusOr<std::vector<WatchEvent>> Decode(std::string_view bytes);
  // The stream has ended: kDataLoss if it did so within a line.
  absl::Status Finish() const;

 private:
  const std::vector<std::string> spec_fields_;
  std::string line_;
  absl::Status failure_;
};

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_WATCH_H_
