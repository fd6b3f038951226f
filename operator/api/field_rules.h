#ifndef DOWNPOUR_OPERATOR_API_FIELD_RULES_H_
#define DOWNPOUR_OPERATOR_API_FIELD_RULES_H_

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>

// What a field may hold, as fields.h says it of each.
namespace downpour::api::schema {

// kUnsupported: checked as any other field, then refused, because nothing carries it out yet.
enum class Presence { kOptional, kRequired, kUnsupported };

struct Integer {
  std::int64_t min = 0;
  std::int64_t max = std::numeric_limits<std::int64_t>::max();
  std::int64_t supported_max = std::numeric_limits<std::int64_t>::max();
};

// Finite.
struct Number {};
// Used as a float32: greater than 0 and finite as such, in full precision.
struct PositiveFloat {
  static constexpr double kMin = std::numeric_limits<float>::min();
  static constexpr double kMax = std::numeric_limits<float>::max();
};

// From least on, below `below`.
struct Fraction {
  double least;
  double below;
};

// A fraction of a whole that is not empty: above 0, at most 1.
struct Share {};

struct Flag {};

// `check` returns what is asked for ("must ..."), or nothing if the text is right.
using TextCheck = std::string_view (*)(std::string_view text);
struct Text {
  TextCheck check;
  std::string_view supported = {};  // the only supported value; empty: all are
};

template <class Value>
struct Name {
  std::string_view name;
  Value value;
  bool supported = true;
};
template <class Value>
struct Choice {
  template <std::size_t n>
  explicit Choice(const Name<Value> (&table)[n]) : names(table) {}
  // Empty: it has none.
  std::string_view NameOf(const Value& value) const {
    for (const Name<Value>& entry : names) {
      if (entry.value == value) return entry.name;
    }
    return {};
  }
  std::span<const Name<Value>> names;
};

struct Object {};
// One that has no other fields, not even in a Template.
struct ClosedObject : Object {};
// A PodTemplateSpec, kept as JSON text. Of its fields only those of PodTemplate (pod_template_fields.h) are looked
// at; a pod that the API server creates from it has all of them checked.
struct Template {};
// A map, or a list of maps, of which only the trainer knows what belongs into it; kept as JSON text, empty where
// absent.
struct FreeMap {};
struct FreeList {
  std::size_t max_size;
};
// Whatever it holds.
struct Opaque {};
struct OpaqueValue {};
// Seconds since the epoch; written as TimeFormat says.
struct Time {};
// "Latest", "Never", {trainingJob: name} or {uri: text}.
struct ResumePoint {};

inline constexpr std::size_t kUnlimited = std::numeric_limits<std::size_t>::max();
template <class Item>
struct ListOf {
  Item item;
  std::size_t min_size = 0;
  std::size_t max_size = kUnlimited;
  bool ordered = false;  // and may have the same item twice; else it is a set
};
template <class Item>
struct MapOf {
  TextCheck key;
  Item item;
};

}  // namespace downpour::api::schema

#endif  // DOWNPOUR_OPERATOR_API_FIELD_RULES_H_
