#include "operator/kube/watch.h"

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

absl::StatusOr<WatchEvent> DecodeLine(std::string_view line, const std::vector<std::string>& spec_fields) {
  absl::StatusOr<Json> json = ParseJson(line, spec_fields);
  if (!json.ok()) return absl::DataLossError(absl::StrCat("watch event: ", json.status().message()));
  const std::optional<WatchEvent::Type> type = TypeOf(FindText(*json, {"type"}));
  const Json* const object = Find(*json, {"object"});
  if (!type.has_value() || object == nullptr || !object->is_object()) {
    return absl::DataLossError("watch event: neither ADDED, MODIFIED, DELETED, BOOKMARK nor ERROR of an object");
  }
  return WatchEvent{*type, std::move((*json)["object"])};
}

}  // namespace

absl::StatusOr<std::vector<WatchEvent>> WatchDecoder::Decode(std::string_view bytes) {
  if (!failure_.ok()) return failure_;
  std::vector<WatchEvent> events;
  while (!bytes.empty() && failure_.ok()) {
    const std::size_t newline = bytes.find('\n');
    const std::string_view piece = bytes.substr(0, newline);
    if (line_.size() + piece.size() > kMaxWatchLineBytes) {
      failure_ = absl::ResourceExhaustedError(absl::StrCat("watch event of more than ", kMaxWatchLineBytes, " bytes"));
      break;
    }
    if (newline == std::string_view::npos) {
      line_.append(piece);
      break;
    }
    bytes.remove_prefix(newline + 1);
    // Most lines come whole: those are not copied.
    std::string_view line = piece;
    if (!line_.empty()) {
      line_.append(piece);
      line = line_;
    }
    if (!IsBlank(line)) {
      absl::StatusOr<WatchEvent> event = DecodeLine(line, spec_fields_);
      if (event.ok()) {
        events.push_back(*std::move(event));
      } else {
        failure_ = event.status();
      }
    }
    line_.clear();
  }
  if (!failure_.ok()) line_.clear();
  // What came before the bad line counts, however the bytes were cut; the failure is the next answer.
  if (!failure_.ok() && events.empty()) return failure_;
  return events;
}

absl::Status WatchDecoder::Finish() const {
  if (!failure_.ok()) return failure_;
  if (!IsBlank(line_)) {
    return absl::DataLossError(absl::StrCat("watch ended within an event, after ", line_.size(), " bytes of it"));
  }
  return absl::OkStatus();
}

}  // namespace downpour::kube
