#include "operator/kube/json_text.h"

#include <cstdint>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "simdjson.h"

namespace downpour::kube {
namespace {

namespace dom = simdjson::dom;

// The parser's memory, about fourteen times the text, is kept for texts up to this size: nearly all.
constexpr std::size_t kKeptBytes = std::size_t{16} << 10;
constexpr std::string_view kManagedFields = "managedFields";

// Where in a document an element stands.
enum class Place {
  kTop,       // the document: an object of the API, a list of them or an event of a watch
  kObject,    // an object of the API
  kItems,     // the objects of a list
  kMetadata,  // of an object of the API
  kElsewhere,
};

Place PlaceBelow(Place place, std::string_view key) {
  switch (place) {
    case Place::kTop:
      if (key == "items") return Place::kItems;
      if (key == "object") return Place::kObject;
      [[fallthrough]];
    case Place::kObject:
      return key == "metadata" ? Place::kMetadata : Place::kElsewhere;
    case Place::kItems:
    case Place::kMetadata:
    case Place::kElsewhere:
      return Place::kElsewhere;
  }
  return Place::kElsewhere;
}

bool IsLeftOut(Place place, std::string_view key) { return place == Place::kMetadata && key == kManagedFields; }

// Nesting is limited by the parser. Numbers are of the types that nlohmann's parser gives them.
Json ToJson(dom::element element, Place place) {
  switch (element.type()) {
    case dom::element_type::OBJECT: {
      Json json = Json::object();
      for (const auto& [key, value] : dom::object(element)) {
        if (IsLeftOut(place, key)) continue;
        json[std::string(key)] = ToJson(value, PlaceBelow(place, key));
      }
      return json;
    }
    case dom::element_type::ARRAY: {
      Json json = Json::array();
      const Place below = place == Place::kItems ? Place::kObject : Place::kElsewhere;
      for (const dom::element value : dom::array(element)) json.push_back(ToJson(value, below));
      return json;
    }
    case dom::element_type::INT64: {
      const std::int64_t number = element;
      if (number >= 0) return static_cast<std::uint64_t>(number);
      return number;
    }
    case dom::element_type::UINT64:
      return std::uint64_t(element);
    case dom::element_type::DOUBLE:
      return double(element);
    case dom::element_type::STRING:
      return std::string(std::string_view(element));
    case dom::element_type::BOOL:
      return bool(element);
    case dom::element_type::NULL_VALUE:
      return nullptr;
  }
  return nullptr;
}

absl::Status TooDeepError() {
  return absl::DataLossError(absl::StrCat("JSON nested deeper than ", kMaxJsonDepth, " levels"));
}

// Leaves out of a whole tree what ToJson leaves out while it makes one.
void LeaveOut(Json& json, Place place) {
  if (json.is_array()) {
    if (place != Place::kItems) return;
    for (Json& value : json) LeaveOut(value, Place::kObject);
  } else if (json.is_object()) {
    auto& fields = json.get_ref<Json::object_t&>();
    std::erase_if(fields, [&](const auto& field) { return IsLeftOut(place, field.first); });
    for (auto& [key, value] : fields) {
      const Place below = PlaceBelow(place, key);
      if (below != Place::kElsewhere) LeaveOut(value, below);
    }
  }
}

// simdjson refuses integers of more than 64 bits, which servers do write: 1e20 comes back as one. nlohmann's parser,
// the slower, takes them for floating-point numbers, as servers do.
absl::StatusOr<Json> ParseLargeNumbers(std::string_view text) {
  bool too_deep = false;
  const auto limit_depth = [&too_deep](int depth, Json::parse_event_t event, const Json&) {
    const bool starts = event == Json::parse_event_t::object_start || event == Json::parse_event_t::array_start;
    too_deep = too_deep || (starts && depth >= kMaxJsonDepth);
    return !too_deep;
  };
  Json json = Json::parse(text.begin(), text.end(), limit_depth, /*allow_exceptions=*/false);
  if (too_deep) return TooDeepError();
  if (json.is_discarded()) return absl::DataLossError(absl::StrCat("not JSON: ", text.size(), " bytes"));
  LeaveOut(json, Place::kTop);
  return json;
}

// `capacity`: of the parser, if it has none yet.
absl::StatusOr<Json> Parse(std::string_view text, std::size_t capacity, dom::parser& parser) {
  simdjson::error_code error = simdjson::SUCCESS;
  // simdjson counts what stands in the innermost list as a level too.
  if (parser.capacity() == 0) error = parser.allocate(capacity, kMaxJsonDepth + 1);
  dom::element document;
  if (error == simdjson::SUCCESS) error = parser.parse(text.data(), text.size()).get(document);
  switch (error) {
    case simdjson::SUCCESS:
      return ToJson(document, Place::kTop);
    case simdjson::MEMALLOC:
      return absl::ResourceExhaustedError(absl::StrCat("no memory to read JSON of ", text.size(), " bytes"));
    case simdjson::DEPTH_ERROR:
      return TooDeepError();
    case simdjson::NUMBER_ERROR:
      return ParseLargeNumbers(text);
    default:
      return absl::DataLossError(absl::StrCat("not JSON: ", text.size(), " bytes: ", simdjson::error_message(error)));
  }
}

}  // namespace

absl::StatusOr<Json> ParseJson(std::string_view text) {
  if (text.size() > kMaxJsonBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("JSON must be at most ", kMaxJsonBytes, " bytes, got ", text.size()));
  }
  if (text.size() > kKeptBytes) {
    dom::parser parser;
    return Parse(text, text.size(), parser);
  }
  thread_local dom::parser kept;
  return Parse(text, kKeptBytes, kept);
}

std::string DumpJson(const Json& json) { return json.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace downpour::kube
