#include "operator/api/field_reader.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "operator/api/edit_distance.h"
#include "operator/api/fields.h"
#include "operator/api/rfc3339.h"

namespace downpour::api {
namespace {

using Kind = DocumentNode::Kind;
using schema::Presence;

template <class T>
inline constexpr bool kIsOptional = false;
template <class T>
inline constexpr bool kIsOptional<std::optional<T>> = true;

// The known name that was probably meant, or nothing. batch_size and BatchSize are no distance from batchSize.
std::string_view Nearest(std::string_view name, const std::vector<std::string_view>& known) {
  if (name.size() > 64) return {};
  const auto plain = [](std::string_view text) {
    std::string lower = absl::AsciiStrToLower(std::string(text));
    std::erase_if(lower, [](char c) { return c == '_' || c == '-'; });
    return lower;
  };
  std::string_view nearest;
  std::size_t least = 3;
  for (const std::string_view candidate : known) {
    const std::size_t distance = EditDistance(plain(name), plain(candidate));
    if (distance < least && distance * 2 < candidate.size()) {
      least = distance;
      nearest = candidate;
    }
  }
  return nearest;
}

// Moves a tree into the structs, field by field as fields.h describes them, and notes what is wrong.
class Reader {
 public:
  Reader(bool refuse_unknown, TimeFormat times, FieldErrors& errors)
      : refuse_unknown_(refuse_unknown), times_(times), errors_(errors) {}

  template <class Value>
  void Read(const DocumentNode& node, const std::string& path, Value& value, const schema::Object&) {
    errors_.Visit(node, path);
    if (node.kind != Kind::kMap) {
      errors_.Add(path, absl::StrCat(path.empty() ? "the document " : "", "must be a map, got ", Display(node)));
      return;
    }
    ObjectReader object(*this, node, path);
    schema::Fields(object, value);
    if (refuse_unknown_ && !in_template_) object.RefuseUnknown();
  }

  template <class Value>
  void Read(const DocumentNode& node, const std::string& path, Value& value, const schema::ClosedObject&) {
    const bool in_template = std::exchange(in_template_, false);
    Read(node, path, value, schema::Object{});
    in_template_ = in_template;
  }

  template <class Value>
  void Read(const DocumentNode& node, const std::string& path, Value& value, const schema::Integer& rule) {
    errors_.Visit(node, path);
    std::int64_t number = 0;
    const char* const end = node.value.data() + node.value.size();
    const auto [stop, error] = std::from_chars(node.value.data(), end, number);
    if (node.kind != Kind::kNumber || stop != end) {
      errors_.Add(path, absl::StrCat("must be an integer, got ", Display(node)));
      return;
    }
    const bool overflow = error == std::errc::result_out_of_range;
    const bool negative = node.value.starts_with('-');
    if (overflow ? negative : number < rule.min) {
      errors_.Add(path, absl::StrCat("must be at least ", rule.min, ", got ", Display(node)));
    } else if (overflow || number > rule.max) {
      errors_.Add(path, absl::StrCat("must be at most ", rule.max, ", got ", Display(node)));
    } else if (number > rule.supported_max) {
      errors_.Add(path, absl::StrCat(number, " is not supported yet"));
    } else {
      value = static_cast<Value>(number);
    }
  }

  void Read(const DocumentNode& node, const std::string& path, double& value, const schema::Number&) {
    errors_.Visit(node, path);
    double number = 0;
    if (node.kind != Kind::kNumber || !absl::SimpleAtod(node.value, &number)) {
      errors_.Add(path, absl::StrCat("must be a number, got ", Display(node)));
    } else if (!std::isfinite(number)) {
      errors_.Add(path, absl::StrCat("must be a finite number, got ", Display(node)));
    } else {
      value = number;
    }
  }

  void Read(const DocumentNode& node, const std::string& path, double& value, const schema::PositiveFloat&) {
    double number = 0;
    const std::size_t errors = errors_.size();
    Read(node, path, number, schema::Number{});
    if (errors_.size() != errors) return;
    if (number <= 0) {
      errors_.Add(path, absl::StrCat("must be greater than 0, got ", Display(node)));
    } else if (number < schema::PositiveFloat::kMin || number > schema::PositiveFloat::kMax) {
      errors_.Add(path, absl::StrCat("must be between ", schema::PositiveFloat::kMin, " and ",
                                     schema::PositiveFloat::kMax, ", the range of a float32, got ", Display(node)));
    } else {
      value = number;
    }
  }

  void Read(const DocumentNode& node, const std::string& path, double& value, const schema::Share&) {
    double number = 0;
    const std::size_t errors = errors_.size();
    Read(node, path, number, schema::Number{});
    if (errors_.size() != errors) return;
    if (number <= 0 || number > 1) {
      errors_.Add(path, absl::StrCat("must be greater than 0 and at most 1, got ", Display(node)));
    } else {
      value = number;
    }
  }

  void Read(const DocumentNode& node, const std::string& path, double& value, const schema::Fraction& rule) {
    double number = 0;
    const std::size_t errors = errors_.size();
    Read(node, path, number, schema::Number{});
    if (errors_.size() != errors) return;
    if (number < rule.least || number >= rule.below) {
      errors_.Add(path,
                  absl::StrCat("must be at least ", rule.least, " and below ", rule.below, ", got ", Display(node)));
    } else {
      value = number;
    }
  }

  void Read(const DocumentNode& node, const std::string& path, bool& value, const schema::Flag&) {
    errors_.Visit(node, path);
    if (node.kind != Kind::kBoolean) {
      errors_.Add(path, absl::StrCat("must be true or false, got ", Display(node)));
      return;
    }
    value = node.value == "true";
  }

  void Read(const DocumentNode& node, const std::string& path, std::string& value, const schema::Text& rule) {
    errors_.Visit(node, path);
    if (node.kind != Kind::kString) {
      const bool scalar = node.kind != Kind::kMap && node.kind != Kind::kList && node.kind != Kind::kNull;
      errors_.Add(path, absl::StrCat("must be a string, got ", Display(node), scalar ? "; put it in quotes" : ""));
      return;
    }
    if (const std::string message(rule.check(node.text)); !message.empty()) {
      errors_.Add(path, node.text.empty() ? message : absl::StrCat(message, ", got ", Display(node)));
    } else if (!rule.supported.empty() && node.text != rule.supported) {
      errors_.Add(path, absl::StrCat(node.text, " is not supported yet"));
    } else {
      value = node.text;
    }
  }

  template <class Value, class Choice>
  void Read(const DocumentNode& node, const std::string& path, Value& value, const schema::Choice<Choice>& rule) {
    errors_.Visit(node, path);
    std::string names;
    for (const schema::Name<Choice>& entry : rule.names) {
      if (node.text == entry.name && node.kind == Kind::kString) {
        if (!entry.supported) errors_.Add(path, absl::StrCat(node.text, " is not supported yet"));
        value = entry.value;
        return;
      }
      names += (names.empty() ? "" : ", ") + std::string(entry.name);
    }
    const bool unquoted = node.kind != Kind::kString && std::any_of(rule.names.begin(), rule.names.end(),
                                                                    [&](const auto& e) { return e.name == node.text; });
    errors_.Add(path, absl::StrCat("must be ", rule.names.size() > 1 ? "one of " : "", names, "; got ", Display(node),
                                   unquoted ? ", which is no string; put it in quotes" : ""));
  }

  template <class Value, class Item>
  void Read(const DocumentNode& node, const std::string& path, std::vector<Value>& value,
            const schema::ListOf<Item>& rule) {
    errors_.Visit(node, path);
    if (node.kind != Kind::kList) {
      errors_.Add(path, absl::StrCat("must be a list, got ", Display(node)));
      return;
    }
    const std::size_t size = node.items.size();
    if (size < rule.min_size) {
      errors_.Add(path, absl::StrCat("must have at least ", rule.min_size, " items, got ", size));
    } else if (size > rule.max_size) {
      errors_.Add(path, absl::StrCat("must have at most ", rule.max_size, " items, got ", size));
      return;
    }
    value.assign(size, Value());
    for (std::size_t i = 0; i < size; ++i) Read(node.items[i], JoinPath(path, i), value[i], rule.item);
  }

  template <class Value, class Item>
  void Read(const DocumentNode& node, const std::string& path, std::map<std::string, Value>& value,
            const schema::MapOf<Item>& rule) {
    errors_.Visit(node, path);
    if (node.kind != Kind::kMap) {
      errors_.Add(path, absl::StrCat("must be a map, got ", Display(node)));
      return;
    }
    value.clear();
    for (const DocumentNode& item : node.items) {
      const std::string at = JoinPath(path, item.key);
      if (const std::string message(rule.key(item.key)); !message.empty()) {
        errors_.Visit(item, at);
        errors_.Add(at, absl::StrCat("the key ", message));
      }
      Read(item, at, value[item.key], rule.item);
    }
  }

  void Read(const DocumentNode& node, const std::string& path, double& value, const schema::Time&) {
    if (times_ == TimeFormat::kSeconds) return Read(node, path, value, schema::Number{});
    errors_.Visit(node, path);
    const std::optional<double> time = node.kind == Kind::kString ? ParseTime(node.text) : std::nullopt;
    if (!time.has_value()) {
      errors_.Add(path, absl::StrCat("must be a time, as \"2026-01-02T03:04:05.123456Z\", got ", Display(node)));
      return;
    }
    value = *time;
  }

  void Read(const DocumentNode&, const std::string&, schema::OpaqueValue&, const schema::Opaque&) {}

  void Read(const DocumentNode& node, const std::string& path, std::string& value, const schema::Template&) {
    schema::PodTemplate looked_at;
    in_template_ = true;
    Read(node, path, looked_at, schema::Object{});
    in_template_ = false;
    std::string at = path;
    const nlohmann::json json = ReadAny(node, at);
    if (json.is_object()) value = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  void Read(const DocumentNode& node, const std::string& path, std::string& value, const schema::FreeMap&) {
    ReadFree(node, path, Kind::kMap, value);
  }

  void Read(const DocumentNode& node, const std::string& path, std::string& value, const schema::FreeList& rule) {
    ReadFree(node, path, Kind::kList, value);
    if (node.kind != Kind::kList) return;
    if (node.items.empty() || node.items.size() > rule.max_size) {
      errors_.Add(path, absl::StrCat("must have 1 to ", rule.max_size, " items, got ", node.items.size()));
    }
    for (std::size_t i = 0; i < node.items.size() && !errors_.IsFull(); ++i) {
      if (node.items[i].kind == Kind::kMap) continue;
      const std::string at = JoinPath(path, i);
      errors_.Visit(node.items[i], at);
      errors_.Add(at, absl::StrCat("must be a map, got ", Display(node.items[i])));
    }
  }

  void Read(const DocumentNode& node, const std::string& path, ResumeFrom& value, const schema::ResumePoint&) {
    if (node.kind != Kind::kMap) {
      Read(node, path, value.mode, schema::Choice(schema::kResumeModes));
      return;
    }
    errors_.Visit(node, path);
    ObjectReader object(*this, node, path);
    object.Field("trainingJob", value.training_job, schema::Text{schema::IsJobName});
    object.Field("uri", value.uri, schema::Text{schema::IsCheckpointUri});
    object.RefuseUnknown();
    if (value.training_job.empty() == value.uri.empty() && errors_.IsClean(path)) {
      errors_.Add(path, "must have either trainingJob or uri");
    }
    value.mode = value.uri.empty() ? ResumeMode::kTrainingJob : ResumeMode::kUri;
  }

 private:
  // Visits the fields of one map.
  class ObjectReader {
   public:
    ObjectReader(Reader& reader, const DocumentNode& node, const std::string& path)
        : reader_(reader), node_(node), path_(path) {}

    template <class Value, class Rule>
    void Field(std::string_view name, Value& value, const Rule& rule, Presence presence = Presence::kOptional) {
      known_.push_back(name);
      const std::string path = JoinPath(path_, name);
      const DocumentNode* const child = node_.Find(name);
      // Null is as good as absent, as for the API server; in a template it is passed on.
      constexpr bool kAnything = std::is_same_v<Rule, schema::Opaque>;
      if (child == nullptr || (child->kind == Kind::kNull && !kAnything)) {
        if (presence == Presence::kRequired) reader_.errors_.Add(path, "is required");
        return;
      }
      const std::size_t errors = reader_.errors_.size();
      if constexpr (kIsOptional<Value>) {
        reader_.Read(*child, path, value.emplace(), rule);
      } else {
        reader_.Read(*child, path, value, rule);
      }
      if (presence == Presence::kUnsupported && reader_.errors_.size() == errors) {
        const bool scalar = child->kind != Kind::kMap && child->kind != Kind::kList;
        reader_.errors_.Add(path, scalar ? Display(*child) + " is not supported yet" : "is not supported yet");
      }
    }

    void Dropped(std::string_view name) { known_.push_back(name); }

    void RefuseUnknown() {
      for (const DocumentNode& child : node_.items) {
        if (reader_.errors_.IsFull()) return;
        if (std::find(known_.begin(), known_.end(), child.key) != known_.end()) continue;
        const std::string path = JoinPath(path_, child.key);
        reader_.errors_.Visit(child, path);
        const std::string nearest(Nearest(child.key, known_));
        reader_.errors_.Add(path,
                            nearest.empty() ? "unknown field" : "unknown field; did you mean \"" + nearest + "\"?");
      }
    }

   private:
    Reader& reader_;
    const DocumentNode& node_;
    std::string path_;
    std::vector<std::string_view> known_;
  };

  void ReadFree(const DocumentNode& node, const std::string& path, Kind kind, std::string& value) {
    errors_.Visit(node, path);
    if (node.kind != kind) {
      errors_.Add(path, absl::StrCat("must be a ", kind == Kind::kMap ? "map" : "list", ", got ", Display(node)));
      return;
    }
    std::string at = path;
    const nlohmann::json json = ReadAny(node, at);
    value = json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  }

  // What may be anything. Its maps are sorted, so that two texts of one meaning are equal. `path` is lengthened and cut
  // again, not copied: there may be many nodes and long paths.
  nlohmann::json ReadAny(const DocumentNode& node, std::string& path) {
    switch (node.kind) {
      case Kind::kNull:
        return nullptr;
      case Kind::kBoolean:
        return node.value == "true";
      case Kind::kString:
        return node.text;
      case Kind::kNumber: {
        std::int64_t integer = 0;
        const char* const end = node.value.data() + node.value.size();
        const auto [stop, error] = std::from_chars(node.value.data(), end, integer);
        if (error == std::errc() && stop == end) return integer;
        double number = 0;
        if (absl::SimpleAtod(node.value, &number) && std::isfinite(number)) return number;
        RefuseInAny(node, path, absl::StrCat("must be a finite number, got ", Display(node)));
        return nullptr;
      }
      case Kind::kList:
      case Kind::kMap:
        break;
    }
    nlohmann::json json = node.kind == Kind::kList ? nlohmann::json::array() : nlohmann::json::object();
    const std::size_t length = path.size();
    for (std::size_t i = 0; i < node.items.size(); ++i) {
      const DocumentNode& item = node.items[i];
      const std::string step = node.kind == Kind::kList ? JoinPath("", i) : JoinPath("", item.key);
      if (!step.starts_with('[')) path += '.';
      path += step;
      nlohmann::json value = ReadAny(item, path);
      path.resize(length);
      if (node.kind == Kind::kList) {
        json.push_back(std::move(value));
      } else {
        json[item.key] = std::move(value);
      }
    }
    return json;
  }

  void RefuseInAny(const DocumentNode& node, const std::string& path, std::string message) {
    if (errors_.IsFull() || !errors_.IsClean(path)) return;
    errors_.Visit(node, path);
    errors_.Add(path, std::move(message));
  }

  const bool refuse_unknown_;
  bool in_template_ = false;  // whose objects may have any field
  TimeFormat times_;
  FieldErrors& errors_;
};

}  // namespace

void ReadFields(const DocumentNode& root, TrainingJob& job, FieldErrors& errors) {
  Reader(/*refuse_unknown=*/true, TimeFormat::kSeconds, errors).Read(root, "", job, schema::Object{});
}

void ReadFields(const DocumentNode& root, TimeFormat times, TrainingJobStatus& status, FieldErrors& errors) {
  Reader(/*refuse_unknown=*/false, times, errors).Read(root, "", status, schema::Object{});
}

}  // namespace downpour::api
