#ifndef DOWNPOUR_OPERATOR_KUBE_WATCH_H_
#define DOWNPOUR_OPERATOR_KUBE_WATCH_H_

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "operator/kube/object.h"
#include "operator/kube/protobuf_object.h"

namespace downpour::kube {

inline constexpr std::size_t kMaxWatchEventBytes = std::size_t{8} << 20;

struct WatchEvent {
  enum class Type { kAdded, kModified, kDeleted, kBookmark, kError };
  Type type = Type::kAdded;
  Json object;  // without metadata.managedFields; of kError: a Status
};

// Bytes of a watch, cut anywhere, to events: lines of JSON or, as the first byte tells, frames of Protocol Buffers,
// each behind its length of 4 bytes, the highest first. Not thread-safe. After an error it answers that error for ever.
class WatchDecoder {
 public:
  // `fields`: as of ParseProtobuf; not owned.
  explicit WatchDecoder(ProtobufFields fields = {}) : fields_(fields) {}

  // Events that became complete. kDataLoss: what is no event; kResourceExhausted: one that is too long. Events before
  // such a one are answered first, its error by the next call.
  absl::StatusOr<std::vector<WatchEvent>> Decode(std::string_view bytes);
  // The stream has ended: kDataLoss if it did so within an event.
  absl::Status Finish() const;

 private:
  // The next whole event, and `bytes` without it; nothing: it is not whole yet, and in `part_` now, or too long. Good
  // as long as both are.
  std::optional<std::string_view> TakeLine(std::string_view& bytes);
  std::optional<std::string_view> TakeFrame(std::string_view& bytes);

  const ProtobufFields fields_;
  std::optional<bool> framed_;
  std::string part_;  // of an event that is not whole yet
  absl::Status failure_;
};

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_WATCH_H_
