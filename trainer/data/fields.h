#ifndef DOWNPOUR_TRAINER_DATA_FIELDS_H_
#define DOWNPOUR_TRAINER_DATA_FIELDS_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/types/span.h"

// What a sample consists of, and a batch of samples: the contract between data sets and models, of which neither knows
// the other.
namespace downpour::data {

// Integers and floats as they are stored. kU8 are fractions of 255 (pixels): a model that computes with them divides.
enum class ElementType { kU8, kI32, kI64, kF32 };

std::size_t BytesOf(ElementType type);
const char* Name(ElementType type);  // "u8"

// The extent of a dimension in which every sample has its own: the words of a text.
inline constexpr std::int64_t kRagged = -1;

std::string ShapeText(const std::vector<std::int64_t>& shape);  // "[1, 28, 28]", "[*]"

struct Field {
  std::string name;
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t> shape;  // of one sample; empty: one value. Only the first extent may be kRagged
  std::int64_t classes = 0;         // integers are in [0, classes); 0: no bound is known
  bool ragged() const { return !shape.empty() && shape.front() == kRagged; }
  friend bool operator==(const Field&, const Field&) = default;
};

// "image: u8 [1, 28, 28]", "label: i64 [] below 10", "words: i32 [*] below 10000"
std::string ToString(const Field& field);

// What a model is given, and what it is to answer.
struct SampleFields {
  std::vector<Field> inputs;
  std::vector<Field> targets;
  friend bool operator==(const SampleFields&, const SampleFields&) = default;
};
std::string ToString(const SampleFields& fields);

// One field of a batch, row-major, the samples first. A ragged field is as long as its longest sample here; what is
// behind a shorter one is zero.
struct Array {
  ElementType type = ElementType::kF32;
  std::vector<std::int64_t> shape;    // {samples, ...}
  std::vector<std::byte> bytes;       // exactly the product of `shape` times BytesOf(type)
  std::vector<std::int64_t> lengths;  // of a ragged field, one a sample; else empty

  template <typename T>
  absl::Span<const T> values() const {
    return {reinterpret_cast<const T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
  template <typename T>
  absl::Span<T> mutable_values() {
    return {reinterpret_cast<T*>(bytes.data()), bytes.size() / sizeof(T)};
  }
};

// An array of `samples` values of a field that is not ragged; all zero.
Array MakeArray(const Field& field, std::int64_t samples);
// Likewise of a ragged one: as long as the longest of `lengths`.
Array MakeRaggedArray(const Field& field, std::vector<std::int64_t> lengths);

struct BrokenSample {
  std::int64_t index = 0;
  std::string why;  // names the sample
};

// In the order of SampleFields.
struct Batch {
  std::vector<Array> inputs;
  std::vector<Array> targets;
  std::vector<BrokenSample> broken = {};  // that were left out
  // Of samples of which something is left to be done (Deferred): which they are, and the seed of what is random.
  // Without inputs and targets: whoever computes with them holds them.
  std::vector<std::int64_t> indices = {};
  std::optional<std::uint64_t> seed = {};
  std::int64_t size() const;  // samples
};

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FIELDS_H_
