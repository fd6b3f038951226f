#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "operator/api/fields.h"
#include "operator/api/manifest.h"
#include "operator/api/rfc3339.h"

namespace downpour::api {
namespace {

using Json = nlohmann::ordered_json;
using schema::Presence;

template <class Rule>
constexpr bool kIsJsonText = std::is_same_v<Rule, schema::Template> || std::is_same_v<Rule, schema::FreeMap> ||
                             std::is_same_v<Rule, schema::FreeList>;

// Moves the structs into JSON, field by field as fields.h describes them.
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
      if constexpr (std::is_same_v<Rule, schema::Text> && std::is_same_v<Value, std::string>) {
        // Empty is what an absent one is where it may not be written.
        if (presence == Presence::kOptional && value.empty() && !rule.check("").empty()) return;
      }
      constexpr bool kIsChoiceOfText = std::is_same_v<Rule, schema::Choice<std::string_view>>;
      if constexpr (kIsJsonText<Rule> || (kIsChoiceOfText && std::is_same_v<Value, std::string>)) {
        if (value.empty()) return;
      } else if constexpr (requires { value.empty(); }) {
        const bool needed = std::is_same_v<Value, std::string> && presence == Presence::kRequired;
        if (value.empty() && !writer.empty_ && !needed) return;
      }
      if constexpr (requires { value.has_value(); }) {
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
  static Json Write(double value, const schema::PositiveFloat&) { return value; }
  static Json Write(bool value, const schema::Flag&) { return value; }
  static Json Write(const std::string& value, const schema::Text&) { return value; }
  template <class Rule>
  requires kIsJsonText<Rule>
  static Json Write(const std::string& value, const Rule&) { return Json::parse(value, nullptr, false); }
  static Json Write(double value, const schema::Fraction&) { return value; }
  static Json Write(double value, const schema::Share&) { return value; }
  Json Write(double value, const schema::Time&) const {
    return times_ == TimeFormat::kSeconds ? Json(value) : Json(FormatMicroTime(value));
  }

  template <class Value, class Choice>
  static Json Write(const Value& value, const schema::Choice<Choice>& rule) {
    if constexpr (std::is_same_v<Value, std::string>) {
      return value;
    } else {
      const std::string_view name = rule.NameOf(value);
      return name.empty() ? Json() : Json(std::string(name));
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

std::string ToJson(const TrainingJob& job) { return WriteText(job, TimeFormat::kSeconds, /*empty=*/true, 2); }

std::string StatusToJson(const TrainingJobStatus& status, TimeFormat times) {
  return WriteText(status, times, /*empty=*/false, -1);
}

}  // namespace downpour::api
