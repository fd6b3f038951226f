#include "operator/api/document.h"

#include <algorithm>
#include <exception>
#include <limits>
#include <sstream>
#include <unordered_set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "operator/api/yaml_reader.h"
#include "operator/api/yaml_scalar.h"

namespace downpour::api {
namespace {

using Kind = DocumentNode::Kind;

// Ends the parse from inside a handler; caught in ReadJson.
struct Refused {
  FieldError error;
  bool wrong_syntax = false;
};

// Puts the tree together from the events of the parser.
class TreeBuilder {
 public:
  explicit TreeBuilder(Document& document) : document_(document) {}

  void Key(std::string key) {
    Frame& frame = open_.back();
    frame.key = std::move(key);
    frame.has_key = true;
    frame.duplicate = !frame.seen.insert(frame.key).second;
    if (frame.duplicate) document_.errors.push_back({document_.next_position, {Path(), "duplicate field"}});
  }

  void Scalar(Kind kind, std::string text, std::string value = {}) {
    DocumentNode node;
    node.kind = kind;
    node.position = document_.next_position++;
    node.text = std::move(text);
    node.value = std::move(value);
    Attach(std::move(node));
  }

  void Open(Kind kind) {
    if (open_.size() == kMaxManifestDepth) {
      throw Refused{{"", absl::StrCat("the document is nested deeper than ", kMaxManifestDepth, " levels")}};
    }
    open_.emplace_back();
    open_.back().node.kind = kind;
    open_.back().node.position = document_.next_position++;
  }

  void Close() {
    DocumentNode node = std::move(open_.back().node);
    open_.pop_back();
    Attach(std::move(node));
  }

  // Of the value that comes next.
  std::string Path() const {
    std::string path;
    for (const Frame& frame : open_) {
      if (frame.node.kind == Kind::kList) {
        path = JoinPath(path, frame.node.items.size());
      } else if (frame.has_key) {
        path = JoinPath(path, frame.key);
      }
    }
    return path;
  }

 private:
  struct Frame {
    DocumentNode node;
    std::string key;
    bool has_key = false;
    bool duplicate = false;
    std::unordered_set<std::string> seen;
  };

  void Attach(DocumentNode node) {
    if (open_.empty()) {
      document_.root = std::move(node);
      return;
    }
    Frame& frame = open_.back();
    const bool duplicate = frame.has_key && frame.duplicate;
    node.key = std::move(frame.key);
    frame.key.clear();
    frame.has_key = false;
    if (!duplicate) frame.node.items.push_back(std::move(node));
  }

  Document& document_;
  std::vector<Frame> open_;
};

class JsonHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonHandler(TreeBuilder& builder) : builder_(builder) {}

  bool null() override { return Scalar(Kind::kNull, "null"); }
  bool boolean(bool value) override {
    const std::string text = value ? "true" : "false";
    builder_.Scalar(Kind::kBoolean, text, text);
    return true;
  }
  bool number_integer(number_integer_t value) override { return Number(absl::StrCat(value), absl::StrCat(value)); }
  bool number_unsigned(number_unsigned_t value) override {
    const bool large = value > static_cast<number_unsigned_t>(std::numeric_limits<number_integer_t>::max());
    return Number(absl::StrCat(value), large ? JsonNumber(static_cast<double>(value)) : absl::StrCat(value));
  }
  bool number_float(number_float_t value, const string_t& text) override { return Number(text, JsonNumber(value)); }
  bool string(string_t& value) override { return Scalar(Kind::kString, value); }
  bool binary(binary_t&) override { return false; }  // not part of JSON text
  bool start_object(std::size_t) override { return Open(Kind::kMap); }
  bool end_object() override { return Close(); }
  bool start_array(std::size_t) override { return Open(Kind::kList); }
  bool end_array() override { return Close(); }
  bool key(string_t& value) override {
    builder_.Key(value);
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 2: ..."
    std::string message = error.what();
    for (const std::string_view mark : {"] ", "parse error at "}) {
      if (const std::size_t at = message.find(mark); at != std::string::npos && at < 40) {
        message.erase(0, at + mark.size());
      }
    }
    constexpr int kNumberOutOfRange = 406;
    throw Refused{{"", absl::StrCat("not valid JSON: ", message)}, /*wrong_syntax=*/error.id != kNumberOutOfRange};
  }

 private:
  bool Scalar(Kind kind, std::string text) {
    builder_.Scalar(kind, std::move(text));
    return true;
  }
  bool Number(std::string text, std::string value) {
    builder_.Scalar(Kind::kNumber, std::move(text), std::move(value));
    return true;
  }
  bool Open(Kind kind) {
    builder_.Open(kind);
    return true;
  }
  bool Close() {
    builder_.Close();
    return true;
  }

  TreeBuilder& builder_;
};

}  // namespace

const DocumentNode* DocumentNode::Find(std::string_view name) const {
  if (kind != Kind::kMap) return nullptr;
  const auto found =
      std::find_if(items.begin(), items.end(), [&](const DocumentNode& item) { return item.key == name; });
  return found == items.end() ? nullptr : &*found;
}

DocumentNode* DocumentNode::Find(std::string_view name) {
  return const_cast<DocumentNode*>(std::as_const(*this).Find(name));
}

JsonDocument ReadJson(std::istream& text) {
  JsonDocument read;
  Document& document = read.document;
  try {
    TreeBuilder builder(document);
    JsonHandler handler(builder);
    nlohmann::json::sax_parse(text, &handler, nlohmann::json::input_format_t::json, /*strict=*/false);
    document.readable = true;
  } catch (const Refused& refused) {
    document.errors.push_back({document.next_position, refused.error});
    read.wrong_syntax = refused.wrong_syntax;
  } catch (const std::exception& error) {
    document.errors.push_back({document.next_position, {"", absl::StrCat("cannot be parsed: ", error.what())}});
  }
  return read;
}

Document ParseDocument(std::string_view text) {
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  if (first == std::string_view::npos || text[first] != '{') return ParseYamlValue(text, 0);
  std::istringstream stream{std::string(text)};
  JsonDocument read = ReadJson(stream);
  if (read.document.readable && !(stream >> std::ws).eof()) {
    read.document.readable = false;
    read.document.errors.push_back({read.document.next_position, {"", "must be a single document"}});
  }
  return std::move(read.document);
}

Document ParseYamlValue(std::string_view text, std::size_t first_position) {
  Document document;
  document.next_position = first_position;
  if (std::optional<FieldError> error = CheckYamlCharacters(text)) {
    document.errors.push_back({first_position, *std::move(error)});
  } else if (ReadYaml(text, 1, document) == YamlRest::kMore) {
    document.readable = false;
    document.errors.push_back({document.next_position, {"", "must be a single value, got several"}});
  }
  return document;
}

std::optional<FieldError> CheckYamlCharacters(std::string_view text) {
  std::size_t line = 1;
  std::size_t line_begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f) {
      return FieldError{"", absl::StrCat("line ", line, ", column ", i - line_begin + 1, ": control character 0x",
                                         absl::Hex(c, absl::kZeroPad2))};
    }
    if (c == '\n') {
      ++line;
      line_begin = i + 1;
    }
  }
  if (!IsUtf8(text)) return FieldError{"", "not valid UTF-8"};
  return std::nullopt;
}

bool IsUtf8(std::string_view text) {
  try {
    (void)nlohmann::json(std::string(text)).dump();
    return true;
  } catch (const nlohmann::json::exception&) {
    return false;
  }
}

std::string JoinPath(const std::string& path, std::string_view key) {
  const bool word = !key.empty() && key.size() <= 64 && std::all_of(key.begin(), key.end(), [](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '_' || c == '-';
  });
  if (!word) return absl::StrCat(path, "[", Quote(key), "]");
  return path.empty() ? std::string(key) : path + "." + std::string(key);
}

std::string JoinPath(const std::string& path, std::size_t index) { return absl::StrCat(path, "[", index, "]"); }

std::string Quote(std::string_view text) {
  constexpr std::size_t kLongest = 64;
  std::string shown(text.substr(0, kLongest));
  if (text.size() > kLongest) shown += "...";
  if (!IsUtf8(text)) return absl::StrCat("\"", absl::CHexEscape(shown), "\"");
  // A character cut in two is left out by the dump.
  return nlohmann::json(shown).dump(-1, ' ', false, nlohmann::json::error_handler_t::ignore);
}

std::string Display(const DocumentNode& node) {
  switch (node.kind) {
    case Kind::kMap:
      return "a map";
    case Kind::kList:
      return "a list";
    case Kind::kNull:
      return "null";
    case Kind::kString:
      return Quote(node.text);
    case Kind::kBoolean:
    case Kind::kNumber:
      break;
  }
  return node.text.size() <= 64 ? node.text : absl::StrCat(node.text.substr(0, 64), "...");
}

}  // namespace downpour::api
