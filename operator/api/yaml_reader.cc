#include "operator/api/yaml_reader.h"

#include <yaml.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "operator/api/yaml_scalar.h"

namespace downpour::api {
namespace {

using Kind = DocumentNode::Kind;

constexpr std::string_view kMergeTag = "tag:yaml.org,2002:merge";

// Ends the reading; caught in ReadYaml.
struct Refused {
  FieldError error;
};

// A node as it is written.
struct Written {
  enum class Kind { kScalar, kAlias, kMap, kList };

  Kind kind = Kind::kScalar;
  std::string text;  // of a scalar
  std::string tag;
  bool plain = false;                 // without quotes and tag
  std::vector<const Written*> items;  // of a map: key, value, key, value
  const Written* target = nullptr;    // of an alias
};

std::string Text(const yaml_char_t* text) { return text == nullptr ? "" : reinterpret_cast<const char*>(text); }

// The events of libyaml, owned one at a time.
class Events {
 public:
  Events(std::string_view text, std::size_t first_line) : text_(text), first_line_(first_line) {
    if (yaml_parser_initialize(&parser_) == 0) throw Refused{{"", "cannot be parsed: no memory"}};
    yaml_parser_set_encoding(&parser_, YAML_UTF8_ENCODING);
    yaml_parser_set_input_string(&parser_, reinterpret_cast<const unsigned char*>(text.data()), text.size());
  }
  ~Events() {
    yaml_event_delete(&event_);
    yaml_parser_delete(&parser_);
  }
  Events(const Events&) = delete;
  Events& operator=(const Events&) = delete;

  // Valid until the next call.
  const yaml_event_t& Next() {
    yaml_event_delete(&event_);
    if (yaml_parser_parse(&parser_, &event_) == 0) Fail();
    return event_;
  }

  // Whether the text goes on, be it with what is no YAML.
  bool More() {
    yaml_event_delete(&event_);
    return yaml_parser_parse(&parser_, &event_) == 0 || event_.type != YAML_STREAM_END_EVENT;
  }

 private:
  [[noreturn]] void Fail() const {
    std::size_t line = parser_.problem_mark.line;
    std::size_t column = parser_.problem_mark.column;
    if (parser_.error == YAML_READER_ERROR) {
      const std::string_view before = text_.substr(0, std::min<std::size_t>(parser_.problem_offset, text_.size()));
      line = std::count(before.begin(), before.end(), '\n');
      column = before.size() - (before.rfind('\n') + 1);
    }
    throw Refused{{"", absl::StrCat("not valid YAML: line ", first_line_ + line, ", column ", column + 1, ": ",
                                    parser_.problem == nullptr ? "cannot be parsed" : parser_.problem)}};
  }

  std::string_view text_;
  std::size_t first_line_;
  yaml_parser_t parser_;
  yaml_event_t event_ = {};
};

// Puts the written nodes together from the events of one document.
class Composer {
 public:
  explicit Composer(Events& events) : events_(events) {}

  // Null if the text holds no document.
  const Written* Compose() {
    events_.Next();  // the start of the stream
    const yaml_event_t& start = events_.Next();
    if (start.type == YAML_STREAM_END_EVENT) return nullptr;
    const yaml_version_directive_t* const version = start.data.document_start.version_directive;
    if (version != nullptr && (version->major != 1 || version->minor != 1)) {
      throw Refused{{"", absl::StrCat("not valid YAML: must be of version 1.1, which kubectl reads, got ",
                                      version->major, ".", version->minor)}};
    }
    const Written* const root = Node(events_.Next(), 0);
    events_.Next();  // the end of the document
    return root;
  }

 private:
  const Written* Node(const yaml_event_t& event, std::size_t depth) {
    switch (event.type) {
      case YAML_ALIAS_EVENT: {
        const std::string name = Text(event.data.alias.anchor);
        const auto found = anchors_.find(name);
        if (found == anchors_.end())
          throw Refused{{"", absl::StrCat("the anchor of the alias *", name, " is missing")}};
        Written& node = Make(Written::Kind::kAlias, nullptr, nullptr);
        node.target = found->second;
        return &node;
      }
      case YAML_SCALAR_EVENT: {
        const auto& scalar = event.data.scalar;
        Written& node = Make(Written::Kind::kScalar, scalar.anchor, scalar.tag);
        node.text.assign(reinterpret_cast<const char*>(scalar.value), scalar.length);
        node.plain = scalar.plain_implicit != 0;
        return &node;
      }
      case YAML_SEQUENCE_START_EVENT:
        return Collection(Make(Written::Kind::kList, event.data.sequence_start.anchor, event.data.sequence_start.tag),
                          YAML_SEQUENCE_END_EVENT, depth);
      case YAML_MAPPING_START_EVENT:
        return Collection(Make(Written::Kind::kMap, event.data.mapping_start.anchor, event.data.mapping_start.tag),
                          YAML_MAPPING_END_EVENT, depth);
      default:
        throw Refused{{"", "not valid YAML: a value is missing"}};
    }
  }

  const Written* Collection(Written& node, yaml_event_type_t end, std::size_t depth) {
    if (depth == kMaxManifestDepth) {
      throw Refused{{"", absl::StrCat("the document is nested deeper than ", kMaxManifestDepth, " levels")}};
    }
    while (true) {
      const yaml_event_t& event = events_.Next();
      if (event.type == end) return &node;
      node.items.push_back(Node(event, depth + 1));
    }
  }

  // Later anchors of the same name count from there on.
  Written& Make(Written::Kind kind, const yaml_char_t* anchor, const yaml_char_t* tag) {
    Written& node = *nodes_.emplace_back(std::make_unique<Written>());
    node.kind = kind;
    node.tag = Text(tag);
    if (anchor != nullptr) anchors_[Text(anchor)] = &node;
    return node;
  }

  Events& events_;
  std::vector<std::unique_ptr<Written>> nodes_;
  std::map<std::string, const Written*> anchors_;
};

// Makes a document of the written nodes.
class Expander {
 public:
  explicit Expander(Document& document) : document_(document) {}

  DocumentNode Expand(const Written& written) {
    Count(written);
    DocumentNode node;
    switch (written.kind) {
      case Written::Kind::kAlias: {
        const Through through(*this, written);
        return Expand(*written.target);
      }
      case Written::Kind::kScalar:
        node.position = document_.next_position++;
        SetScalar(written, node);
        return node;
      case Written::Kind::kList: {
        const Level level(*this);
        node.kind = Kind::kList;
        node.position = document_.next_position++;
        for (std::size_t i = 0; i < written.items.size(); ++i) {
          path_.back() = i;
          node.items.push_back(Expand(*written.items[i]));
        }
        return node;
      }
      case Written::Kind::kMap: {
        const Level level(*this);
        node.kind = Kind::kMap;
        node.position = document_.next_position++;
        std::unordered_map<std::string, std::size_t> places;
        AddFields(written, node, places);
        return node;
      }
    }
    return node;
  }

 private:
  // A step of the path to the value that is read: a key, an index, or nothing yet.
  using Step = std::variant<std::monostate, const std::string*, std::size_t>;

  class Level {
   public:
    explicit Level(Expander& of) : of_(of) {
      if (of.path_.size() == kMaxManifestDepth) {
        throw Refused{{"", absl::StrCat("the document is nested deeper than ", kMaxManifestDepth, " levels")}};
      }
      of.path_.emplace_back();
    }
    ~Level() { of_.path_.pop_back(); }
    Level(const Level&) = delete;
    Level& operator=(const Level&) = delete;

   private:
    Expander& of_;
  };

  class Through {
   public:
    Through(Expander& of, const Written& alias) : of_(of), alias_(alias) {
      if (!of.open_aliases_.insert(&alias).second) of.Refuse("an alias stands for a value that contains it");
    }
    ~Through() { of_.open_aliases_.erase(&alias_); }
    Through(const Through&) = delete;
    Through& operator=(const Through&) = delete;

   private:
    Expander& of_;
    const Written& alias_;
  };

  // kubectl refuses a document of which so large a part comes from aliases. Ours may not be larger than it might be
  // without them either.
  void Count(const Written& written) {
    constexpr double kFew = 400'000;
    constexpr double kMany = 4'000'000;
    ++count_;
    if (open_aliases_.empty()) return;
    ++aliased_;
    aliased_bytes_ += written.text.size() + 1;
    const double many = std::clamp((static_cast<double>(count_) - kFew) / (kMany - kFew), 0.0, 1.0);
    const bool nearly_all = static_cast<double>(aliased_) / static_cast<double>(count_) > 0.99 - 0.89 * many;
    if ((aliased_ > 100 && count_ > 1000 && nearly_all) || aliased_bytes_ > kMaxManifestBytes) {
      Refuse("too much of the document comes from aliases");
    }
  }

  YamlScalar Resolve(const Written& written) const {
    if (written.tag.empty() && !written.plain) return written.text;
    absl::StatusOr<YamlScalar> scalar = ResolveYamlScalar(written.tag, written.text);
    if (!scalar.ok()) Refuse(absl::StrCat(Quote(written.text), ": ", scalar.status().message()));
    return *std::move(scalar);
  }

  void SetScalar(const Written& written, DocumentNode& node) const {
    YamlScalar scalar = Resolve(written);
    node.text = written.text;
    if (const bool* const flag = std::get_if<bool>(&scalar)) {
      node.kind = Kind::kBoolean;
      node.value = *flag ? "true" : "false";
    } else if (const std::int64_t* const integer = std::get_if<std::int64_t>(&scalar)) {
      node.kind = Kind::kNumber;
      node.value = absl::StrCat(*integer);
    } else if (const std::uint64_t* const large = std::get_if<std::uint64_t>(&scalar)) {
      node.kind = Kind::kNumber;
      node.value = JsonNumber(static_cast<double>(*large));
    } else if (const double* const number = std::get_if<double>(&scalar)) {
      if (!std::isfinite(*number)) Refuse(absl::StrCat("must be a finite number, got ", written.text));
      node.kind = Kind::kNumber;
      node.value = JsonNumber(*number);
    } else if (std::string* const text = std::get_if<std::string>(&scalar)) {
      if (!IsUtf8(*text)) Refuse("not valid UTF-8");
      node.kind = Kind::kString;
      node.text = std::move(*text);
    }
  }

  static bool IsMerge(const Written& key) {
    return key.kind == Written::Kind::kScalar && key.text == "<<" && (key.plain || key.tag == kMergeTag);
  }

  std::string Key(const Written& written) {
    Count(written);
    if (written.kind == Written::Kind::kAlias) {
      const Through through(*this, written);
      return Key(*written.target);
    }
    if (written.kind != Written::Kind::kScalar) Refuse("a key must be a string, got a map or a list");
    const YamlScalar scalar = Resolve(written);
    std::optional<std::string> key = YamlKey(scalar);
    if (!key.has_value()) {
      const bool null = std::holds_alternative<std::monostate>(scalar);
      Refuse(absl::StrCat("a key must be a string, got ", null ? "null" : written.text));
    }
    if (!IsUtf8(*key)) Refuse("not valid UTF-8");
    return *std::move(key);
  }

  // What comes later counts, be it a field or a merged one.
  void AddFields(const Written& map, DocumentNode& node, std::unordered_map<std::string, std::size_t>& places) {
    std::set<std::string> own;
    for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
      path_.back() = std::monostate();
      if (IsMerge(*map.items[i])) {
        Merge(*map.items[i + 1], node, places);
        continue;
      }
      const std::string key = Key(*map.items[i]);
      path_.back() = &key;
      if (!own.insert(key).second) {
        document_.errors.push_back({document_.next_position, {Path(), "duplicate field"}});
      }
      DocumentNode value = Expand(*map.items[i + 1]);
      value.key = key;
      const auto [place, added] = places.emplace(key, node.items.size());
      if (added) {
        node.items.push_back(std::move(value));
      } else {
        node.items[place->second] = std::move(value);
      }
    }
    path_.back() = std::monostate();
  }

  void Merge(const Written& written, DocumentNode& node, std::unordered_map<std::string, std::size_t>& places) {
    const auto is_map = [](const Written& item) {
      const Written& shown = item.kind == Written::Kind::kAlias ? *item.target : item;
      return shown.kind == Written::Kind::kMap;
    };
    const bool list = written.kind == Written::Kind::kList;
    if (list ? !std::all_of(written.items.begin(), written.items.end(), [&](const Written* i) { return is_map(*i); })
             : !is_map(written)) {
      Refuse("<< needs a map, or a list of maps");
    }
    // The first of a list counts, so it comes last.
    for (std::size_t i = list ? written.items.size() : 1; i > 0; --i) {
      MergeOne(list ? *written.items[i - 1] : written, node, places);
    }
  }

  void MergeOne(const Written& written, DocumentNode& node, std::unordered_map<std::string, std::size_t>& places) {
    Count(written);
    if (written.kind == Written::Kind::kAlias) {
      const Through through(*this, written);
      return MergeOne(*written.target, node, places);
    }
    // Maps that are merged into merged maps are no deeper in the document, but as deep on the stack.
    if (++merges_ > kMaxManifestDepth) Refuse("maps are merged into each other too often");
    AddFields(written, node, places);
    --merges_;
  }

  std::string Path() const {
    std::string path;
    for (const Step& step : path_) {
      if (const auto* const key = std::get_if<const std::string*>(&step)) path = JoinPath(path, **key);
      if (const auto* const index = std::get_if<std::size_t>(&step)) path = JoinPath(path, *index);
    }
    return path;
  }

  [[noreturn]] void Refuse(std::string message) const { throw Refused{{Path(), std::move(message)}}; }

  Document& document_;
  std::vector<Step> path_;
  std::set<const Written*> open_aliases_;
  std::size_t merges_ = 0;
  std::size_t count_ = 1;  // the document itself
  std::size_t aliased_ = 0;
  std::size_t aliased_bytes_ = 0;
};

}  // namespace

YamlRest ReadYaml(std::string_view text, std::size_t first_line, Document& document) {
  try {
    Events events(text, first_line);
    Composer composer(events);
    const Written* const root = composer.Compose();
    if (root != nullptr) document.root = Expander(document).Expand(*root);
    document.readable = true;
    return root != nullptr && events.More() ? YamlRest::kMore : YamlRest::kNothing;
  } catch (const Refused& refused) {
    document.errors.push_back({document.next_position, refused.error});
  }
  return YamlRest::kNothing;
}

}  // namespace downpour::api
