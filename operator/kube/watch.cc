#include "operator/kube/watch.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "operator/kube/json_text.h"

namespace downpour::kube {
namespace {

std::optional<WatchEvent::Type> TypeOf(std::string_view text) {
  if (text == "ADDED") return WatchEvent::Type::kAdded;
  if (text == "MODIFIED") return WatchEvent::Type::kModified;
  if (text == "DELETED") return WatchEvent::Type::kDeleted;
  if (text == "BOOKMARK") return WatchEvent::Type::kBookmark;
  if (text == "ERROR") return WatchEvent::Type::kError;
  return std::nullopt;
}

bool IsBlank(std::string_view line) { return line.find_first_not_of(" \t\r") == std::string_view::npos; }

absl::StatusOr<WatchEvent> DecodeEvent(absl::StatusOr<Json> json) {
  if (!json.ok()) return absl::DataLossError(absl::StrCat("watch event: ", json.status().message()));
  const std::optional<WatchEvent::Type> type = TypeOf(FindText(*json, {"type"}));
  const Json* const object = Find(*json, {"object"});
  if (!type.has_value() || object == nullptr || !object->is_object()) {
    return absl::DataLossError("watch event: neither ADDED, MODIFIED, DELETED, BOOKMARK nor ERROR of an object");
  }
  return WatchEvent{*type, std::move((*json)["object"])};
}

constexpr std::size_t kHead = 4;  // of a frame: how many bytes follow

std::size_t ReadSize(std::string_view head) {
  std::size_t size = 0;
  for (const char byte : head.substr(0, kHead)) size = size << 8 | static_cast<unsigned char>(byte);
  return size;
}

absl::Status TooLong() {
  return absl::ResourceExhaustedError(absl::StrCat("watch event of more than ", kMaxWatchEventBytes, " bytes"));
}

// Moves bytes from the front of one to the end of the other, until that has `size` of them; false: there are too few.
bool FillUpTo(std::size_t size, std::string_view& from, std::string& to) {
  if (to.size() < size) {
    const std::string_view moved = from.substr(0, size - to.size());
    to.append(moved);
    from.remove_prefix(moved.size());
  }
  return to.size() >= size;
}

}  // namespace

absl::StatusOr<std::vector<WatchEvent>> WatchDecoder::Decode(std::string_view bytes) {
  if (!failure_.ok()) return failure_;
  std::vector<WatchEvent> events;
  // Of a frame as long as frames may be the first byte is 0, which no text of JSON begins with.
  if (!framed_.has_value() && !bytes.empty()) framed_ = bytes.front() == '\0';
  while (!bytes.empty()) {
    const std::optional<std::string_view> whole = *framed_ ? TakeFrame(bytes) : TakeLine(bytes);
    if (!whole.has_value()) break;
    if (*framed_ || !IsBlank(*whole)) {
      absl::StatusOr<WatchEvent> event =
          DecodeEvent(*framed_ ? ParseProtobufEvent(*whole, fields_) : ParseJson(*whole));
      failure_ = event.status();
      if (!event.ok()) break;
      events.push_back(*std::move(event));
    }
    part_.clear();
  }
  if (!failure_.ok()) part_.clear();
  // What came before a bad event counts, however the bytes were cut; the failure is the next answer.
  if (!failure_.ok() && events.empty()) return failure_;
  return events;
}

std::optional<std::string_view> WatchDecoder::TakeLine(std::string_view& bytes) {
  const std::size_t newline = bytes.find('\n');
  const std::string_view piece = bytes.substr(0, newline);
  if (part_.size() + piece.size() > kMaxWatchEventBytes) {
    failure_ = TooLong();
    return std::nullopt;
  }
  bytes.remove_prefix(std::min(piece.size() + 1, bytes.size()));
  // Most come whole: those are not copied.
  if (newline != std::string_view::npos && part_.empty()) return piece;
  part_.append(piece);
  return newline != std::string_view::npos ? std::optional<std::string_view>(part_) : std::nullopt;
}

std::optional<std::string_view> WatchDecoder::TakeFrame(std::string_view& bytes) {
  const bool copied = !part_.empty() || bytes.size() < kHead;
  if (copied && !FillUpTo(kHead, bytes, part_)) return std::nullopt;
  const std::size_t size = ReadSize(copied ? part_ : bytes);
  if (size > kMaxWatchEventBytes) {
    failure_ = TooLong();
    return std::nullopt;
  }
  if (!copied && bytes.size() >= kHead + size) {
    const std::string_view frame = bytes.substr(kHead, size);
    bytes.remove_prefix(kHead + size);
    return frame;
  }
  if (!FillUpTo(kHead + size, bytes, part_)) return std::nullopt;
  return std::string_view(part_).substr(kHead);
}

absl::Status WatchDecoder::Finish() const {
  if (!failure_.ok()) return failure_;
  if (framed_.value_or(false) ? !part_.empty() : !IsBlank(part_)) {
    return absl::DataLossError(absl::StrCat("watch ended within an event, after ", part_.size(), " bytes of it"));
  }
  return absl::OkStatus();
}

}  // namespace downpour::kube
