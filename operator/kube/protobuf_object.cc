#include "operator/kube/protobuf_object.h"

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "google/protobuf/io/coded_stream.h"
#include "operator/kube/json_text.h"
#include "simdjson.h"

namespace downpour::kube {
namespace {

using Kind = ProtobufField::Kind;
using google::protobuf::io::CodedInputStream;

constexpr std::string_view kMagic("k8s\0", 4);

constexpr ProtobufField kOwnerFields[] = {{4, "uid", Kind::kText}, {6, "controller", Kind::kBool}};
constexpr ProtobufField kMetadataFields[] = {
    {1, "name", Kind::kText},
    {3, "namespace", Kind::kText},
    {5, "uid", Kind::kText},
    {6, "resourceVersion", Kind::kText},
    {7, "generation", Kind::kInteger},
    {8, "creationTimestamp", Kind::kTime},
    {9, "deletionTimestamp", Kind::kTime},
    {10, "deletionGracePeriodSeconds", Kind::kInteger},
    {11, "labels", Kind::kTextMap},
    {13, "ownerReferences", Kind::kMessages, kOwnerFields},
};

constexpr ProtobufField kListMetadataFields[] = {{2, "resourceVersion", Kind::kText}, {3, "continue", Kind::kText}};

constexpr ProtobufField kCauseFields[] = {{1, "reason", Kind::kText}, {2, "message", Kind::kText}};
constexpr ProtobufField kDetailsFields[] = {{4, "causes", Kind::kMessages, kCauseFields},
                                            {5, "retryAfterSeconds", Kind::kInteger}};
constexpr ProtobufField kStatusFields[] = {{3, "message", Kind::kText},
                                           {4, "reason", Kind::kText},
                                           {5, "details", Kind::kMessage, kDetailsFields},
                                           {6, "code", Kind::kInteger}};

absl::Status Malformed(const std::string& what) {
  return absl::DataLossError(absl::StrCat("not an object of Kubernetes in Protocol Buffers: ", what));
}

// The number of a field and what kind of value follows.
struct Tag {
  int number;
  enum class Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 } wire;
};

// One message, field by field. Does not own the bytes.
class Message {
 public:
  explicit Message(std::string_view bytes)
      : bytes_(bytes), input_(reinterpret_cast<const std::uint8_t*>(bytes.data()), static_cast<int>(bytes.size())) {}

  // The next field; nothing at the end, or if the message is malformed.
  std::optional<Tag> Next() {
    const std::uint32_t tag = input_.ReadTag();
    if (tag == 0) {
      ok_ = ok_ && input_.ConsumedEntireMessage();
      return std::nullopt;
    }
    return Tag{static_cast<int>(tag >> 3), static_cast<Tag::Wire>(tag & 7)};
  }
  // The value of a field that must be of this type; nothing: it is not, or is cut.
  std::optional<std::uint64_t> ReadVarint(Tag::Wire wire) {
    std::uint64_t value;
    if (wire != Tag::Wire::kVarint || !input_.ReadVarint64(&value)) return Fail();
    return value;
  }
  std::optional<std::string_view> ReadBytes(Tag::Wire wire) {
    std::uint64_t size;
    if (wire != Tag::Wire::kBytes || !input_.ReadVarint64(&size)) return Fail();
    const auto begin = static_cast<std::size_t>(input_.CurrentPosition());
    if (size > bytes_.size() - begin || !input_.Skip(static_cast<int>(size))) return Fail();
    return bytes_.substr(begin, size);
  }
  void Skip(Tag::Wire wire) {
    switch (wire) {
      case Tag::Wire::kVarint:
        ReadVarint(wire);
        return;
      case Tag::Wire::kBytes:
        ReadBytes(wire);
        return;
      case Tag::Wire::kFixed64:
      case Tag::Wire::kFixed32:
        if (!input_.Skip(wire == Tag::Wire::kFixed64 ? 8 : 4)) Fail();
        return;
    }
    Fail();  // groups, which these messages never had
  }
  bool ok() const { return ok_; }

 private:
  std::nullopt_t Fail() {
    ok_ = false;
    return std::nullopt;
  }

  const std::string_view bytes_;
  CodedInputStream input_;
  bool ok_ = true;
};

bool ReadMessage(std::string_view bytes, ProtobufFields fields, Json& json);

// Seconds since 1970; nothing: the zero time, of which nothing is written. False: malformed.
bool ReadTime(std::string_view bytes, std::optional<double>& seconds) {
  constexpr int kSeconds = 1;
  Message message(bytes);
  while (const std::optional<Tag> tag = message.Next()) {
    if (tag->number != kSeconds) {
      message.Skip(tag->wire);
    } else if (const auto value = message.ReadVarint(tag->wire)) {
      seconds = static_cast<double>(static_cast<std::int64_t>(*value));
    }
  }
  return message.ok();
}

// Servers store what they get in this encoding as it is: one bad text must not make a whole list unreadable.
std::string ToText(std::string_view bytes) {
  std::string text(bytes);
  if (simdjson::validate_utf8(text)) return text;
  return Json::parse(DumpJson(text)).get<std::string>();
}

// The last value of each of these fields, all of them strings, bytes or messages.
bool ReadBytesOf(std::string_view bytes, std::initializer_list<std::pair<int, std::string_view*>> wanted) {
  Message message(bytes);
  while (const std::optional<Tag> tag = message.Next()) {
    const auto found =
        std::find_if(wanted.begin(), wanted.end(), [&tag](const auto& one) { return one.first == tag->number; });
    if (found == wanted.end()) {
      message.Skip(tag->wire);
    } else if (const auto value = message.ReadBytes(tag->wire)) {
      *found->second = *value;
    }
  }
  return message.ok();
}

bool ReadMapEntry(std::string_view bytes, Json& map) {
  std::string_view key;
  std::string_view value;
  if (!ReadBytesOf(bytes, {{1, &key}, {2, &value}})) return false;
  map[ToText(key)] = ToText(value);
  return true;
}

bool ReadNumber(Message& message, Tag::Wire wire, const ProtobufField& field, Json& json) {
  const std::optional<std::uint64_t> value = message.ReadVarint(wire);
  if (!value.has_value()) return false;
  json[std::string(field.name())] =
      field.kind() == Kind::kBool ? Json(*value != 0) : Json(static_cast<std::int64_t>(*value));
  return true;
}

bool ReadField(Message& message, Tag::Wire wire, const ProtobufField& field, Json& json) {
  if (field.kind() == Kind::kInteger || field.kind() == Kind::kBool) return ReadNumber(message, wire, field, json);
  const std::optional<std::string_view> bytes = message.ReadBytes(wire);
  if (!bytes.has_value()) return false;
  const std::string name(field.name());
  if (field.kind() == Kind::kText) {
    // Servers write each of them, empty or not.
    if (!bytes->empty()) json[name] = ToText(*bytes);
    return true;
  }
  if (field.kind() == Kind::kTime) {
    std::optional<double> seconds;
    if (!ReadTime(*bytes, seconds)) return false;
    if (seconds.has_value()) json[name] = FormatTime(*seconds);
    return true;
  }
  Json& value = json[name];
  if (field.kind() == Kind::kTextMap) return ReadMapEntry(*bytes, value);
  if (field.kind() == Kind::kMessages) {
    return ReadMessage(*bytes, field.message(), value.emplace_back(Json::object()));
  }
  if (value.is_null()) value = Json::object();  // else it is merged, as Protocol Buffers say
  return ReadMessage(*bytes, field.message(), value);
}

bool ReadMessage(std::string_view bytes, ProtobufFields fields, Json& json) {
  Message message(bytes);
  while (const std::optional<Tag> tag = message.Next()) {
    const auto field = std::find_if(fields.begin(), fields.end(),
                                    [&tag](const ProtobufField& known) { return known.number() == tag->number; });
    if (field == fields.end()) {
      message.Skip(tag->wire);
    } else if (!ReadField(message, tag->wire, *field, json)) {
      return false;
    }
  }
  return message.ok();
}

}  // namespace

ProtobufFields MetadataFields() { return kMetadataFields; }

bool IsProtobuf(std::string_view bytes) { return bytes.starts_with(kMagic); }

absl::StatusOr<Json> ParseProtobuf(std::string_view bytes, ProtobufFields fields) {
  if (!IsProtobuf(bytes)) return Malformed("it begins otherwise");
  if (bytes.size() > kMaxJsonBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("an object must be of at most ", kMaxJsonBytes, " bytes, got ", bytes.size()));
  }
  // runtime.Unknown: what an object is, and the object. Without either it was cut.
  std::string_view type;
  std::string_view raw;
  std::string_view kind;
  if (!ReadBytesOf(bytes.substr(kMagic.size()), {{1, &type}, {2, &raw}}) || !ReadBytesOf(type, {{2, &kind}}) ||
      kind.empty() || raw.data() == nullptr) {
    return Malformed("its envelope is broken");
  }
  const ProtobufField list_fields[] = {{1, "metadata", Kind::kMessage, kListMetadataFields},
                                       {2, "items", Kind::kMessages, fields}};
  const ProtobufFields known = kind == "Status"         ? ProtobufFields(kStatusFields)
                               : kind.ends_with("List") ? ProtobufFields(list_fields)
                                                        : fields;
  Json json = {{"kind", ToText(kind)}};
  if (!ReadMessage(raw, known, json)) return Malformed(absl::StrCat("a broken ", ToText(kind)));
  return json;
}

absl::StatusOr<Json> ParseBody(std::string_view bytes, ProtobufFields fields) {
  return IsProtobuf(bytes) ? ParseProtobuf(bytes, fields) : ParseJson(bytes);
}

absl::StatusOr<Json> ParseProtobufEvent(std::string_view bytes, ProtobufFields fields) {
  std::string_view type;
  std::string_view extension;
  std::string_view object;
  if (!ReadBytesOf(bytes, {{1, &type}, {2, &extension}}) || !ReadBytesOf(extension, {{1, &object}})) {
    return Malformed("a broken event");
  }
  absl::StatusOr<Json> parsed = ParseProtobuf(object, fields);
  if (!parsed.ok()) return parsed.status();
  Json json = Json::object();
  json["type"] = ToText(type);
  json["object"] = *std::move(parsed);
  return json;
}

}  // namespace downpour::kube
