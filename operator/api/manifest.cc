#include "operator/api/manifest.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <memory>
#include <optional>
#include <set>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "operator/api/document.h"
#include "operator/api/edit_distance.h"
#include "operator/api/fields.h"
#include "operator/api/rfc3339.h"

namespace downpour::api {
namespace schema {
namespace {

bool IsLower(char c) { return c >= 'a' && c <= 'z'; }
bool IsDigit(char c) { return c >= '0' && c <= '9'; }
bool IsAlphanumeric(char c) { return IsLower(c) || IsDigit(c) || (c >= 'A' && c <= 'Z'); }

// RFC 1123: lower-case letters, digits and '-', which does not come first or last.
bool IsDnsLabel(std::string_view text) {
  return !text.empty() && text.size() <= 63 && text.front() != '-' && text.back() != '-' &&
         std::all_of(text.begin(), text.end(), [](char c) { return IsLower(c) || IsDigit(c) || c == '-'; });
}

bool IsDnsSubdomain(std::string_view text) {
  if (text.size() > 253) return false;
  for (std::size_t begin = 0; begin <= text.size();) {
    const std::size_t end = std::min(text.find('.', begin), text.size());
    if (!IsDnsLabel(text.substr(begin, end - begin))) return false;
    begin = end + 1;
  }
  return true;
}

// Letters, digits, '-', '_' and '.', the first and the last a letter or digit.
bool IsName(std::string_view text) {
  return !text.empty() && text.size() <= 63 && IsAlphanumeric(text.front()) && IsAlphanumeric(text.back()) &&
         std::all_of(text.begin(), text.end(),
                     [](char c) { return IsAlphanumeric(c) || c == '-' || c == '_' || c == '.'; });
}

bool HasControlCharacter(std::string_view text) {
  return std::any_of(text.begin(), text.end(), [](unsigned char c) { return c < 0x20 || c == 0x7f; });
}

constexpr std::string_view kRfc1035 =
    "must be a lower-case RFC 1035 label: letters, digits and '-', first a letter, last a letter or digit";

}  // namespace

std::string_view AnyText(std::string_view) { return {}; }
std::string_view IsShortText(std::string_view text) { return text.size() <= 253 ? "" : "must be at most 253 bytes"; }
std::string_view IsApiVersion(std::string_view text) {
  return text == kApiVersion ? "" : "must be training.downpour.dev/v1alpha1";
}
std::string_view IsKind(std::string_view text) { return text == kKind ? "" : "must be TrainingJob"; }
std::string_view IsJobName(std::string_view text) {
  // The name of a pod, <job>-worker-9999, must fit in a DNS label of 63.
  if (text.size() > 40) return "must be at most 40 characters";
  return IsDnsLabel(text) && IsLower(text.front()) ? "" : kRfc1035;
}
std::string_view IsNamespace(std::string_view text) {
  return IsDnsLabel(text) ? "" : "must be an RFC 1123 label: at most 63 lower-case letters, digits and '-'";
}
std::string_view IsRuleName(std::string_view text) {
  if (text.size() > 63) return "must be at most 63 characters";
  return IsDnsLabel(text) && IsLower(text.front()) ? "" : kRfc1035;
}
std::string_view IsQualifiedName(std::string_view text) {
  const std::size_t slash = text.find('/');
  const bool good = slash == std::string_view::npos
                        ? IsName(text)
                        : IsDnsSubdomain(text.substr(0, slash)) && IsName(text.substr(slash + 1));
  return good ? "" : "must be a qualified name, as \"app\" or \"example.com/app\"";
}
std::string_view IsLabelValue(std::string_view text) {
  return text.empty() || IsName(text)
             ? ""
             : "must be a label value: at most 63 letters, digits, '-', '_' and '.', first and last a letter or digit";
}
std::string_view IsReason(std::string_view text) {
  return !text.empty() && text.size() <= 128 && std::all_of(text.begin(), text.end(), IsAlphanumeric)
             ? ""
             : "must be a reason in CamelCase, as OOMKilled";
}
std::string_view IsManagedBy(std::string_view text) {
  const std::size_t slash = text.find('/');
  const bool good = text.size() <= 63 && slash != std::string_view::npos && IsDnsSubdomain(text.substr(0, slash)) &&
                    IsName(text.substr(slash + 1));
  return good ? "" : "must be a domain-prefixed name, as example.com/controller";
}
std::string_view IsPath(std::string_view text) { return text.empty() ? "must not be empty" : IsPathOrEmpty(text); }
std::string_view IsPathOrEmpty(std::string_view text) {
  if (HasControlCharacter(text)) return "must not contain control characters";
  return text.size() <= 4096 ? "" : "must be at most 4096 bytes";
}

}  // namespace schema

namespace {

using Kind = DocumentNode::Kind;
using Json = nlohmann::ordered_json;
using schema::Presence;

// A manifest with more errors than this is not a manifest with typing errors.
constexpr std::size_t kMaxErrors = 100;

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
  Reader(bool refuse_unknown, TimeFormat times, std::vector<LocatedError> errors)
      : refuse_unknown_(refuse_unknown), times_(times), errors_(std::move(errors)) {}

  // The place in the text is that of `path`, or of the nearest of its parents that is there.
  void AddError(const std::string& path, std::string message) {
    if (full()) return;
    std::string_view at = path;
    auto found = positions_.find(at);
    while (found == positions_.end() && !at.empty()) {
      const std::size_t cut = at.find_last_of(".[");
      at = at.substr(0, cut == std::string_view::npos ? 0 : cut);
      found = positions_.find(at);
    }
    errors_.push_back({found == positions_.end() ? 0 : found->second, {path, std::move(message)}});
  }

  // True if nothing is wrong at the path or below it.
  bool IsClean(const std::string& path) const {
    return std::none_of(errors_.begin(), errors_.end(), [&](const LocatedError& error) {
      const std::string& other = error.error.path;
      return other.starts_with(path) &&
             (other.size() == path.size() || other[path.size()] == '.' || other[path.size()] == '[' || path.empty());
    });
  }

  std::vector<FieldError> TakeErrors() {
    std::stable_sort(errors_.begin(), errors_.end(),
                     [](const LocatedError& a, const LocatedError& b) { return a.position < b.position; });
    std::vector<FieldError> errors;
    for (LocatedError& error : errors_) {
      if (errors.size() == kMaxErrors) {
        errors.push_back({"", "too many errors"});
        break;
      }
      errors.push_back(std::move(error.error));
    }
    return errors;
  }

  template <class Value>
  void Read(const DocumentNode& node, const std::string& path, Value& value, const schema::Object&) {
    Visit(node, path);
    if (node.kind != Kind::kMap) {
      AddError(path, absl::StrCat(path.empty() ? "the document " : "", "must be a map, got ", Display(node)));
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
    Visit(node, path);
    std::int64_t number = 0;
    const char* const end = node.text.data() + node.text.size();
    const auto [stop, error] = std::from_chars(node.text.data(), end, number);
    if (node.kind != Kind::kNumber || stop != end) {
      AddError(path, absl::StrCat("must be an integer, got ", Display(node)));
      return;
    }
    const bool overflow = error == std::errc::result_out_of_range;
    const bool negative = node.text.starts_with('-');
    if (overflow ? negative : number < rule.min) {
      AddError(path, absl::StrCat("must be at least ", rule.min, ", got ", Display(node)));
    } else if (overflow || number > rule.max) {
      AddError(path, absl::StrCat("must be at most ", rule.max, ", got ", Display(node)));
    } else if (number > rule.supported_max) {
      AddError(path, absl::StrCat(number, " is not supported yet"));
    } else {
      value = static_cast<Value>(number);
    }
  }

  void Read(const DocumentNode& node, const std::string& path, double& value, const schema::Number& rule) {
    Visit(node, path);
    double number = 0;
    if (node.kind != Kind::kNumber || !absl::SimpleAtod(node.text, &number)) {
      AddError(path, absl::StrCat("must be a number, got ", Display(node)));
    } else if (!std::isfinite(number)) {
      AddError(path, absl::StrCat("must be a finite number, got ", Display(node)));
    } else if (rule.positive && number <= 0) {
      AddError(path, absl::StrCat("must be greater than 0, got ", Display(node)));
    } else {
      value = number;
    }
  }

  void Read(const DocumentNode& node, const std::string& path, bool& value, const schema::Flag&) {
    Visit(node, path);
    if (node.kind != Kind::kBoolean) {
      AddError(path, absl::StrCat("must be true or false, got ", Display(node)));
      return;
    }
    value = node.text.starts_with('t') || node.text.starts_with('T');
  }

  void Read(const DocumentNode& node, const std::string& path, std::string& value, const schema::Text& rule) {
    Visit(node, path);
    if (node.kind != Kind::kString) {
      const bool scalar = node.kind != Kind::kMap && node.kind != Kind::kList && node.kind != Kind::kNull;
      AddError(path, absl::StrCat("must be a string, got ", Display(node), scalar ? "; put it in quotes" : ""));
      return;
    }
    if (const std::string message(rule.check(node.text)); !message.empty()) {
      AddError(path, node.text.empty() ? message : absl::StrCat(message, ", got ", Display(node)));
    } else if (!rule.supported.empty() && node.text != rule.supported) {
      AddError(path, absl::StrCat(node.text, " is not supported yet"));
    } else {
      value = node.text;
    }
  }

  template <class Value, class Choice>
  void Read(const DocumentNode& node, const std::string& path, Value& value, const schema::Choice<Choice>& rule) {
    Visit(node, path);
    std::string names;
    for (const schema::Name<Choice>& entry : rule.names) {
      if (node.text == entry.name && node.kind == Kind::kString) {
        if (!entry.supported) AddError(path, absl::StrCat(node.text, " is not supported yet"));
        value = entry.value;
        return;
      }
      names += (names.empty() ? "" : ", ") + std::string(entry.name);
    }
    const bool unquoted = node.kind != Kind::kString && std::any_of(rule.names.begin(), rule.names.end(),
                                                                    [&](const auto& e) { return e.name == node.text; });
    AddError(path, absl::StrCat("must be ", rule.names.size() > 1 ? "one of " : "", names, "; got ", Display(node),
                                unquoted ? ", which is no string; put it in quotes" : ""));
  }

  template <class Value, class Item>
  void Read(const DocumentNode& node, const std::string& path, std::vector<Value>& value,
            const schema::ListOf<Item>& rule) {
    Visit(node, path);
    if (node.kind != Kind::kList) {
      AddError(path, absl::StrCat("must be a list, got ", Display(node)));
      return;
    }
    const std::size_t size = node.items.size();
    if (size < rule.min_size) {
      AddError(path, absl::StrCat("must have at least ", rule.min_size, " items, got ", size));
    } else if (size > rule.max_size) {
      AddError(path, absl::StrCat("must have at most ", rule.max_size, " items, got ", size));
      return;
    }
    value.assign(size, Value());
    for (std::size_t i = 0; i < size; ++i) Read(node.items[i], JoinPath(path, i), value[i], rule.item);
  }

  template <class Value, class Item>
  void Read(const DocumentNode& node, const std::string& path, std::map<std::string, Value>& value,
            const schema::MapOf<Item>& rule) {
    Visit(node, path);
    if (node.kind != Kind::kMap) {
      AddError(path, absl::StrCat("must be a map, got ", Display(node)));
      return;
    }
    value.clear();
    for (const DocumentNode& item : node.items) {
      const std::string at = JoinPath(path, item.key);
      if (const std::string message(rule.key(item.key)); !message.empty()) {
        Visit(item, at);
        AddError(at, absl::StrCat("the key ", message));
      }
      Read(item, at, value[item.key], rule.item);
    }
  }

  void Read(const DocumentNode& node, const std::string& path, double& value, const schema::Time&) {
    if (times_ == TimeFormat::kSeconds) return Read(node, path, value, schema::Number{});
    Visit(node, path);
    const std::optional<double> time = node.kind == Kind::kString ? ParseTime(node.text) : std::nullopt;
    if (!time.has_value()) {
      AddError(path, absl::StrCat("must be a time, as \"2026-01-02T03:04:05.123456Z\", got ", Display(node)));
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

  void Read(const DocumentNode& node, const std::string& path, ResumeFrom& value, const schema::ResumePoint&) {
    if (node.kind != Kind::kMap) {
      Read(node, path, value.mode, schema::Choice(schema::kResumeModes));
      return;
    }
    Visit(node, path);
    ObjectReader object(*this, node, path);
    object.Field("trainingJob", value.training_job, schema::Text{schema::IsJobName});
    object.Field("uri", value.uri, schema::Text{schema::IsPath});
    object.RefuseUnknown();
    if (value.training_job.empty() == value.uri.empty() && IsClean(path)) {
      AddError(path, "must have either trainingJob or uri");
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
      if (child == nullptr) {
        if (presence == Presence::kRequired) reader_.AddError(path, "is required");
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
        reader_.AddError(path, scalar ? Display(*child) + " is not supported yet" : "is not supported yet");
      }
    }

    void Dropped(std::string_view name) { known_.push_back(name); }

    void RefuseUnknown() {
      for (const DocumentNode& child : node_.items) {
        if (reader_.full()) return;
        if (std::find(known_.begin(), known_.end(), child.key) != known_.end()) continue;
        const std::string path = JoinPath(path_, child.key);
        reader_.Visit(child, path);
        const std::string nearest(Nearest(child.key, known_));
        reader_.AddError(path, nearest.empty() ? "unknown field" : "unknown field; did you mean \"" + nearest + "\"?");
      }
    }

   private:
    Reader& reader_;
    const DocumentNode& node_;
    std::string path_;
    std::vector<std::string_view> known_;
  };

  // What may be anything. Its maps are sorted, so that two texts of one meaning are equal. `path` is lengthened and cut
  // again, not copied: there may be many nodes and long paths.
  nlohmann::json ReadAny(const DocumentNode& node, std::string& path) {
    switch (node.kind) {
      case Kind::kNull:
        return nullptr;
      case Kind::kBoolean:
        return node.text.starts_with('t') || node.text.starts_with('T');
      case Kind::kString:
        return node.text;
      case Kind::kNumber: {
        std::int64_t integer = 0;
        const char* const end = node.text.data() + node.text.size();
        const auto [stop, error] = std::from_chars(node.text.data(), end, integer);
        if (error == std::errc() && stop == end) return integer;
        double number = 0;
        if (absl::SimpleAtod(node.text, &number) && std::isfinite(number)) return number;
        RefuseInAny(node, path, absl::StrCat("must be a finite number, got ", Display(node)));
        return nullptr;
      }
      case Kind::kAmbiguous:
        RefuseInAny(node, path,
                    absl::StrCat("means different things to readers of YAML, got ", Display(node),
                                 "; put a string in quotes, write a number in decimal"));
        return nullptr;
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
    if (full() || !IsClean(path)) return;
    Visit(node, path);
    AddError(path, std::move(message));
  }

  void Visit(const DocumentNode& node, const std::string& path) { positions_.emplace(path, node.position); }
  // One more than is shown, so that the reader knows that some were left out.
  bool full() const { return errors_.size() > kMaxErrors; }

  const bool refuse_unknown_;
  bool in_template_ = false;  // whose objects may have any field
  TimeFormat times_;
  std::vector<LocatedError> errors_;
  std::map<std::string, std::size_t, std::less<>> positions_;
};

// What ties several fields together. Speaks only of fields that are right by themselves.
void CheckRelations(const TrainingJobSpec& spec, Reader& reader) {
  if (reader.IsClean("spec.strategy")) {
    if (!spec.parameter_server.has_value()) {
      reader.AddError("spec.parameterServer", "is required for the strategy ParameterServer");
    }
  }
  if (reader.IsClean("spec.elastic") && spec.elastic.has_value() &&
      spec.elastic->min_replicas > spec.elastic->max_replicas) {
    reader.AddError("spec.elastic.minReplicas",
                    absl::StrCat("must be at most maxReplicas, ", spec.elastic->max_replicas, ", got ",
                                 spec.elastic->min_replicas));
  }
  const std::string policy = "spec.failurePolicy";
  const Backoff& backoff = spec.failure_policy.backoff;
  if (reader.IsClean(policy + ".backoff") && backoff.initial_seconds > backoff.max_seconds) {
    reader.AddError(
        policy + ".backoff.initialSeconds",
        absl::StrCat("must be at most maxSeconds, ", backoff.max_seconds, ", got ", backoff.initial_seconds));
  }
  const auto check_unique = [&](const auto& values, const std::string& path) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      const auto first = std::find(values.begin(), values.end(), values[i]);
      const auto index = static_cast<std::size_t>(first - values.begin());
      const std::string at = JoinPath(path, i);
      if (index < i && reader.IsClean(at))
        reader.AddError(at, absl::StrCat("must be unique, is the same as [", index, "]"));
    }
  };
  std::set<std::string> names;
  const std::vector<FailureRule>& rules = spec.failure_policy.rules;
  for (std::size_t i = 0; i < rules.size(); ++i) {
    const FailureRule& rule = rules[i];
    const std::string path = JoinPath(policy + ".rules", i);
    if (reader.IsClean(path + ".name") && !names.insert(rule.name).second) {
      reader.AddError(path + ".name", absl::StrCat("must be unique, got ", Quote(rule.name), " again"));
    }
    if (reader.IsClean(path) && rule.roles.empty() && rule.on_pod_conditions.empty() &&
        rule.on_container_reasons.empty() && !rule.on_exit_codes.has_value()) {
      reader.AddError(path, "must have at least one of roles, onPodConditions, onContainerReasons, onExitCodes");
    }
    check_unique(rule.roles, path + ".roles");
    check_unique(rule.on_pod_conditions, path + ".onPodConditions");
    check_unique(rule.on_container_reasons, path + ".onContainerReasons");
    if (rule.on_exit_codes.has_value()) check_unique(rule.on_exit_codes->values, path + ".onExitCodes.values");
  }
}

// "a.b[0][\"c.d\"]" as keys and indices; nothing if it is no path.
struct Step {
  std::string key;
  std::optional<std::size_t> index;
};
std::optional<std::vector<Step>> SplitPath(std::string_view path) {
  std::vector<Step> steps;
  while (!path.empty() || steps.empty()) {
    if (path.starts_with("[\"")) {
      const std::size_t end = path.find("\"]");
      if (end == std::string_view::npos || end < 2) return std::nullopt;
      steps.push_back({std::string(path.substr(2, end - 2)), std::nullopt});
      path.remove_prefix(end + 2);
    } else if (path.starts_with('[')) {
      const std::size_t end = std::min(path.find(']'), path.size());
      std::size_t index = 0;
      const auto [stop, error] = std::from_chars(path.data() + 1, path.data() + end, index);
      if (error != std::errc() || end == path.size() || stop != path.data() + end) return std::nullopt;
      steps.push_back({"", index});
      path.remove_prefix(end + 1);
    } else {
      const std::size_t end = std::min(path.find_first_of(".["), path.size());
      if (end == 0) return std::nullopt;
      steps.push_back({std::string(path.substr(0, end)), std::nullopt});
      path.remove_prefix(end);
    }
    if (path.starts_with('.')) {
      path.remove_prefix(1);
      if (path.empty() || path.front() == '.' || path.front() == '[') return std::nullopt;
    } else if (!path.empty() && !path.starts_with('[')) {
      return std::nullopt;
    }
    if (steps.size() > kMaxManifestDepth) return std::nullopt;
  }
  return steps;
}

// Puts the value of one --set in its place; makes the maps on the way, but no list items.
void Override(Document& document, const std::string& name, const std::string& text) {
  const auto fail = [&](const std::string& path, const std::string& message) {
    document.errors.push_back({document.next_position++, {path, message}});
  };
  std::optional<std::vector<Step>> steps = SplitPath(name);
  if (!steps.has_value()) return fail("", absl::StrCat(Quote(name), " is not a path, as worker.replicas"));
  constexpr std::string_view kTop[] = {"apiVersion", "kind", "metadata", "spec", "status"};
  if (std::find(std::begin(kTop), std::end(kTop), steps->front().key) == std::end(kTop)) {
    steps->insert(steps->begin(), Step{"spec", std::nullopt});
  }

  std::string whole;
  for (const Step& step : *steps) whole = step.index ? JoinPath(whole, *step.index) : JoinPath(whole, step.key);
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) return fail(whole, "needs a value");
  Document value = ParseYamlValue(text, document.next_position);
  document.next_position = value.next_position;
  for (LocatedError& error : value.errors) {
    error.error.path = whole;
    document.errors.push_back(std::move(error));
  }
  if (!value.readable) return;

  DocumentNode* node = &document.root;
  std::string path;
  for (const Step& step : *steps) {
    if (node->kind == Kind::kNull) {
      node->kind = Kind::kMap;
      node->text.clear();
    }
    const std::string at = step.index ? JoinPath(path, *step.index) : JoinPath(path, step.key);
    if (step.index.has_value()) {
      if (node->kind != Kind::kList) return fail(path, absl::StrCat("is not a list, so ", at, " cannot be set"));
      if (*step.index >= node->items.size()) {
        return fail(at, absl::StrCat("cannot be set: the list has ", node->items.size(), " items"));
      }
      node = &node->items[*step.index];
    } else {
      if (node->kind != Kind::kMap) return fail(path, absl::StrCat("is not a map, so ", at, " cannot be set"));
      DocumentNode* child = node->Find(step.key);
      if (child == nullptr) {
        DocumentNode made;
        made.position = document.next_position++;
        made.key = step.key;
        child = &node->items.emplace_back(std::move(made));
      }
      node = child;
    }
    path = at;
  }
  value.root.key = std::move(node->key);
  *node = std::move(value.root);
}

class Writer {
 public:
  // `empty`: whether lists and maps in which nothing is are written.
  Writer(TimeFormat times, bool empty) : times_(times), empty_(empty) {}

  template <class Value>
  Json Write(Value& value, const schema::Object&) {
    ObjectWriter object(*this);
    schema::Fields(object, value);
    return std::move(object.json);
  }

 private:
  struct ObjectWriter {
    explicit ObjectWriter(Writer& of) : writer(of) {}

    template <class Value, class Rule>
    void Field(std::string_view name, Value& value, const Rule& rule, Presence presence = Presence::kOptional) {
      if constexpr (requires { value == Value(); }) {
        if (presence == Presence::kUnsupported && value == Value()) return;
      }
      if constexpr (std::is_same_v<Rule, schema::Template>) {
        if (value.empty()) return;
      } else if constexpr (requires { value.empty(); } && !std::is_same_v<Value, std::string>) {
        if (value.empty() && !writer.empty_) return;
      }
      if constexpr (kIsOptional<Value>) {
        if (value.has_value()) json[std::string(name)] = writer.Write(*value, rule);
      } else {
        json[std::string(name)] = writer.Write(value, rule);
      }
    }
    void Dropped(std::string_view) {}

    Writer& writer;
    Json json = Json::object();
  };

  template <class Value>
  static Json Write(const Value& value, const schema::Integer&) {
    return value;
  }
  static Json Write(double value, const schema::Number&) { return value; }
  static Json Write(bool value, const schema::Flag&) { return value; }
  static Json Write(const std::string& value, const schema::Text&) { return value; }
  static Json Write(const std::string& value, const schema::Template&) { return Json::parse(value, nullptr, false); }
  Json Write(double value, const schema::Time&) const {
    return times_ == TimeFormat::kSeconds ? Json(value) : Json(FormatMicroTime(value));
  }

  template <class Value, class Choice>
  static Json Write(const Value& value, const schema::Choice<Choice>& rule) {
    if constexpr (std::is_same_v<Value, std::string>) {
      return value;
    } else {
      const auto found =
          std::find_if(rule.names.begin(), rule.names.end(), [&](const auto& entry) { return entry.value == value; });
      return found == rule.names.end() ? Json() : Json(std::string(found->name));
    }
  }

  template <class Value, class Item>
  Json Write(std::vector<Value>& value, const schema::ListOf<Item>& rule) {
    Json json = Json::array();
    for (Value& item : value) json.push_back(Write(item, rule.item));
    return json;
  }

  template <class Value, class Item>
  Json Write(std::map<std::string, Value>& value, const schema::MapOf<Item>& rule) {
    Json json = Json::object();
    // Not operator[], which searches all keys each time.
    auto& fields = json.get_ref<Json::object_t&>();
    for (auto& [key, item] : value) fields.emplace_back(key, Write(item, rule.item));
    return json;
  }

  static Json Write(const ResumeFrom& value, const schema::ResumePoint&) {
    if (value.mode == ResumeMode::kTrainingJob) return {{"trainingJob", value.training_job}};
    if (value.mode == ResumeMode::kUri) return {{"uri", value.uri}};
    return Write(value.mode, schema::Choice(schema::kResumeModes));
  }

  TimeFormat times_;
  bool empty_;
};

template <class Value>
std::string WriteText(Value value, TimeFormat times, bool empty, int indent) {
  return Writer(times, empty).Write(value, schema::Object{}).dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

ParsedManifest ParseManifest(std::string_view text, const std::vector<std::pair<std::string, std::string>>& overrides) {
  ParsedManifest parsed;
  Document document = ParseDocument(text);
  if (!document.readable) {
    for (LocatedError& error : document.errors) parsed.errors.push_back(std::move(error.error));
    return parsed;
  }
  if (document.root.kind == Kind::kMap) {
    for (const auto& [path, value] : overrides) Override(document, path, value);
  }
  Reader reader(/*refuse_unknown=*/true, TimeFormat::kSeconds, std::move(document.errors));
  reader.Read(document.root, "", parsed.job, schema::Object{});
  if (document.root.Find("spec") != nullptr && document.root.Find("spec")->kind == Kind::kMap) {
    CheckRelations(parsed.job.spec, reader);
  }
  parsed.errors = reader.TakeErrors();
  return parsed;
}

absl::StatusOr<ParsedManifest> ReadManifest(const std::string& path,
                                            const std::vector<std::pair<std::string, std::string>>& overrides) {
  const auto fail = [&path](int error) { return absl::ErrnoToStatus(error, absl::StrCat("cannot read ", path)); };
  const std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "rb"), &std::fclose);
  if (file == nullptr) return fail(errno);
  // One byte more than is allowed, so that the parser sees that there is too much.
  std::string text(kMaxManifestBytes + 1, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return fail(errno);
  return ParseManifest(text, overrides);
}

std::string ToJson(const TrainingJob& job) { return WriteText(job, TimeFormat::kSeconds, /*empty=*/true, 2); }

std::string StatusToJson(const TrainingJobStatus& status, TimeFormat times) {
  return WriteText(status, times, /*empty=*/false, -1);
}

absl::StatusOr<TrainingJobStatus> StatusFromJson(std::string_view text, TimeFormat times) {
  // Longer than a manifest may be: a job of many roles has a long status. Fields of a later version are passed over.
  Document document = ParseDocument(text, /*max_bytes=*/schema::kUnlimited);
  TrainingJobStatus status;
  Reader reader(/*refuse_unknown=*/false, times, std::move(document.errors));
  if (document.readable) reader.Read(document.root, "", status, schema::Object{});
  const std::vector<FieldError> errors = reader.TakeErrors();
  if (!errors.empty()) return absl::InvalidArgumentError(absl::StrCat("status: ", errors.front().ToString()));
  return status;
}

std::string_view ToString(Role role) {
  switch (role) {
    case Role::kCoordinator:
      return "coordinator";
    case Role::kParameterServer:
      return "ps";
    case Role::kWorker:
      return "worker";
  }
  return "unknown";
}

}  // namespace downpour::api
