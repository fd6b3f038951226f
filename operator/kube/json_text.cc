#include "operator/kube/json_text.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace downpour::kube {
namespace {

// Deep documents would overflow the stack where trees are copied and written. Text that is no JSON may be misjudged:
// the parser refuses it anyway.
bool TooDeep(std::string_view text) {
  int depth = 0;
  bool in_string = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (in_string) {
      if (c == '\\') {
        ++i;
      } else if (c == '"') {
        in_string = false;
      }
    } else if (c == '"') {
      in_string = true;
    } else if (c == '{' || c == '[') {
      if (++depth > kMaxJsonDepth) return true;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return false;
}

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text) {
  if (text.size() > kMaxJsonBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("JSON must be at most ", kMaxJsonBytes, " bytes, got ", text.size()));
  }
  if (TooDeep(text)) return absl::DataLossError(absl::StrCat("JSON nested deeper than ", kMaxJsonDepth, " levels"));
  Json json = Json::parse(text.begin(), text.end(), nullptr, /*allow_exceptions=*/false);
  if (json.is_discarded()) return absl::DataLossError(absl::StrCat("not JSON: ", text.size(), " bytes"));
  return json;
}

std::string DumpJson(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

void StripManagedFields(Json& object) {
  if (!object.is_object()) return;
  const auto metadata = object.find("metadata");
  if (metadata != object.end() && metadata->is_object()) metadata->erase("managedFields");
}

}  // namespace downpour::kube
