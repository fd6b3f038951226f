#include "operator/api/document.h"

#include <algorithm>
#include <exception>
#include <sstream>
#include <unordered_set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "yaml-cpp/eventhandler.h"
#include "yaml-cpp/exceptions.h"
#include "yaml-cpp/parser.h"

namespace downpour::api {
namespace {

using Kind = DocumentNode::Kind;

// Ends the parse from inside a handler; caught in Parse.
struct Refused {
  FieldError error;
};

// Puts the tree together from the events of either parser.
class TreeBuilder {
 public:
  explicit TreeBuilder(Document& document) : document_(document) {}

  bool ExpectsKey() const { return !open_.empty() && open_.back().node.kind == Kind::kMap && !open_.back().has_key; }

  void Key(std::string key) {
    Frame& frame = open_.back();
    frame.key = std::move(key);
    frame.has_key = true;
    frame.duplicate = !frame.seen.insert(frame.key).second;
    if (frame.duplicate) document_.errors.push_back({document_.next_position, {Path(), "duplicate field"}});
  }

  void Scalar(Kind kind, std::string text) {
    DocumentNode node;
    node.kind = kind;
    node.position = document_.next_position++;
    node.text = std::move(text);
    Attach(std::move(node));
  }

  void Open(Kind kind) {
    if (open_.size() == kMaxManifestDepth) {
      throw Refused{{"", absl::StrCat("the document is nested deeper than ", kMaxManifestDepth, " levels")}};
    }
    if (ExpectsKey()) throw Refused{{Path(), "a key must be a string, got a map or a list"}};
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

// [-] digits without a leading zero [. digits] [exponent]; one side of the point may be empty.
bool IsNumber(std::string_view text) {
  std::size_t at = text.starts_with('-') ? 1 : 0;
  const auto digits = [&] {
    const std::size_t begin = at;
    while (at < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[at]))) ++at;
    return at - begin;
  };
  const std::size_t first = at;
  const std::size_t whole = digits();
  if (whole > 1 && text[first] == '0') return false;
  std::size_t fraction = 0;
  if (at < text.size() && text[at] == '.') {
    ++at;
    fraction = digits();
  }
  if (whole + fraction == 0) return false;
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (digits() == 0) return false;
  }
  return at == text.size();
}

bool IsAmbiguous(const std::string& text) {
  const std::string lower = absl::AsciiStrToLower(text);
  for (const std::string_view word : {"y", "n", "yes", "no", "on", "off"}) {
    if (lower == word) return true;
  }
  std::string_view rest = lower;
  if (rest.starts_with('+') || rest.starts_with('-')) rest.remove_prefix(1);
  if (rest == ".inf" || rest == ".nan") return true;
  if (rest.starts_with("0x") || rest.starts_with("0o") || rest.starts_with("0b")) {
    return rest.size() > 2 && rest.find_first_not_of("0123456789abcdef_", 2) == std::string_view::npos;
  }
  // A plus sign, leading zeros or underscores: what is a number without them is a number to some readers only.
  std::string plain(rest);
  std::erase(plain, '_');
  plain.erase(0, std::min(plain.find_first_not_of('0'), plain.size() - std::min<std::size_t>(plain.size(), 1)));
  return IsNumber(plain);
}

Kind ResolvePlain(const std::string& text) {
  if (text.empty() || text == "~" || text == "null" || text == "Null" || text == "NULL") return Kind::kNull;
  for (const std::string_view word : {"true", "True", "TRUE", "false", "False", "FALSE"}) {
    if (text == word) return Kind::kBoolean;
  }
  if (IsNumber(text)) return Kind::kNumber;
  return IsAmbiguous(text) ? Kind::kAmbiguous : Kind::kString;
}

class YamlHandler : public YAML::EventHandler {
 public:
  YamlHandler(std::string_view text, TreeBuilder& builder) : text_(text), builder_(builder) {}

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}

  void OnNull(const YAML::Mark&, YAML::anchor_t anchor) override { Scalar(anchor, Kind::kNull, "null"); }

  void OnAlias(const YAML::Mark&, YAML::anchor_t) override { Refuse("aliases are not allowed"); }

  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    CheckMark(mark);
    const bool plain = tag.empty() || tag == "?";
    if (!plain) {
      // Quoted and block scalars have the tag "!"; so has what is written behind a "!".
      const char first = static_cast<std::size_t>(mark.pos) < text_.size() ? text_[mark.pos] : '\0';
      if (tag != "!" || first == '!') Refuse("tags are not allowed");
      if (first == '"' || first == '\'') FindClosingQuote(mark, first);
    }
    Scalar(anchor, plain ? ResolvePlain(value) : Kind::kString, value);
  }

  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    CheckMark(mark);
    Open(tag, anchor, Kind::kList);
  }
  void OnSequenceEnd() override { builder_.Close(); }

  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    CheckMark(mark);
    Open(tag, anchor, Kind::kMap);
  }
  void OnMapEnd() override { builder_.Close(); }

 private:
  void Scalar(YAML::anchor_t anchor, Kind kind, const std::string& text) {
    CheckAnchor(anchor);
    if (!builder_.ExpectsKey()) return builder_.Scalar(kind, text);
    if (kind == Kind::kNull) Refuse("a key must be a string, got null");
    builder_.Key(text);
  }
  void Open(const std::string& tag, YAML::anchor_t anchor, Kind kind) {
    CheckTag(tag);
    CheckAnchor(anchor);
    builder_.Open(kind);
  }
  void CheckTag(const std::string& tag) const {
    if (!tag.empty() && tag != "?") Refuse("tags are not allowed");
  }
  void CheckAnchor(YAML::anchor_t anchor) const {
    if (anchor != 0) Refuse("anchors are not allowed");
  }
  // yaml-cpp ends a quoted scalar without its closing quote where the indentation ends, and goes on: what comes next
  // then begins before the quote that would close the scalar.
  void FindClosingQuote(const YAML::Mark& mark, char quote) {
    quoted_ = mark;
    for (std::size_t at = static_cast<std::size_t>(mark.pos) + 1; at < text_.size(); ++at) {
      if (quote == '"' && text_[at] == '\\') {
        ++at;
      } else if (text_[at] == quote) {
        const bool doubled = quote == '\'' && at + 1 < text_.size() && text_[at + 1] == quote;
        if (!doubled) {
          quote_closed_ = at;
          return;
        }
        ++at;
      }
    }
    RefuseOpenQuote();
  }
  void CheckMark(const YAML::Mark& mark) const {
    if (static_cast<std::size_t>(mark.pos) < quote_closed_) RefuseOpenQuote();
  }
  [[noreturn]] void RefuseOpenQuote() const {
    throw YAML::ParserException(quoted_, "the quote that opens here is not closed");
  }
  [[noreturn]] void Refuse(const std::string& message) const { throw Refused{{builder_.Path(), message}}; }

  std::string_view text_;
  TreeBuilder& builder_;
  YAML::Mark quoted_;             // of the last quoted scalar
  std::size_t quote_closed_ = 0;  // where in the text it ends
};

class JsonHandler : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit JsonHandler(TreeBuilder& builder) : builder_(builder) {}

  bool null() override { return Scalar(Kind::kNull, "null"); }
  bool boolean(bool value) override { return Scalar(Kind::kBoolean, value ? "true" : "false"); }
  bool number_integer(number_integer_t value) override { return Scalar(Kind::kNumber, absl::StrCat(value)); }
  bool number_unsigned(number_unsigned_t value) override { return Scalar(Kind::kNumber, absl::StrCat(value)); }
  bool number_float(number_float_t, const string_t& text) override { return Scalar(Kind::kNumber, text); }
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
    throw Refused{{"", absl::StrCat("not valid JSON: ", message)}};
  }

 private:
  bool Scalar(Kind kind, std::string text) {
    builder_.Scalar(kind, std::move(text));
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

void ParseYaml(std::string_view text, TreeBuilder& builder) {
  std::istringstream stream{std::string(text)};
  YAML::Parser parser(stream);
  YamlHandler handler(text, builder);
  if (!parser.HandleNextDocument(handler)) throw Refused{{"", "the document is empty"}};
  Document rest;
  TreeBuilder rest_builder(rest);
  YamlHandler rest_handler(text, rest_builder);
  if (parser.HandleNextDocument(rest_handler)) {
    throw Refused{{"", "must be a single document, got several"}};
  }
}

// yaml-cpp takes the byte 4 for the end of the file, and neither format allows control characters outside escapes.
void CheckCharacters(std::string_view text) {
  std::size_t line = 1;
  std::size_t line_begin = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if ((c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f) {
      throw Refused{{"", absl::StrCat("line ", line, ", column ", i - line_begin + 1, ": control character 0x",
                                      absl::Hex(c, absl::kZeroPad2))}};
    }
    if (c == '\n') {
      ++line;
      line_begin = i + 1;
    }
  }
  try {
    (void)nlohmann::json(std::string(text)).dump();
  } catch (const nlohmann::json::exception&) {
    throw Refused{{"", "not valid UTF-8"}};
  }
}

Document Parse(std::string_view text, bool json, std::size_t max_bytes, std::size_t first_position) {
  Document document;
  document.next_position = first_position;
  try {
    if (text.size() > max_bytes) {
      throw Refused{{"", absl::StrCat("must be at most ", max_bytes, " bytes, got ", text.size())}};
    }
    CheckCharacters(text);
    TreeBuilder builder(document);
    if (json) {
      JsonHandler handler(builder);
      nlohmann::json::sax_parse(text, &handler);
    } else {
      ParseYaml(text, builder);
    }
    document.readable = true;
  } catch (const Refused& refused) {
    document.errors.push_back({document.next_position, refused.error});
  } catch (const YAML::Exception& error) {
    const std::string where =
        error.mark.is_null() ? ""
                             : absl::StrCat("line ", error.mark.line + 1, ", column ", error.mark.column + 1, ": ");
    document.errors.push_back({document.next_position, {"", absl::StrCat("not valid YAML: ", where, error.msg)}});
  } catch (const std::exception& error) {
    document.errors.push_back({document.next_position, {"", absl::StrCat("cannot be parsed: ", error.what())}});
  }
  return document;
}

std::string_view WithoutByteOrderMark(std::string_view text) {
  constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
  return text.starts_with(kByteOrderMark) ? text.substr(kByteOrderMark.size()) : text;
}

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

Document ParseDocument(std::string_view text, std::size_t max_bytes) {
  text = WithoutByteOrderMark(text);
  const std::size_t first = text.find_first_not_of(" \t\r\n");
  const bool json = first != std::string_view::npos && text[first] == '{';
  return Parse(text, json, max_bytes, 0);
}

Document ParseYamlValue(std::string_view text, std::size_t first_position) {
  return Parse(WithoutByteOrderMark(text), false, kMaxManifestBytes, first_position);
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
  // A character cut in two is left out by the dump.
  std::string shown(text.substr(0, kLongest));
  if (text.size() > kLongest) shown += "...";
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
    case Kind::kAmbiguous:
      break;
  }
  return node.text.size() <= 64 ? node.text : absl::StrCat(node.text.substr(0, 64), "...");
}

}  // namespace downpour::api
