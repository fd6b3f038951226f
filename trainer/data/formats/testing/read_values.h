#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_TESTING_READ_VALUES_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_TESTING_READ_VALUES_H_

#include <cstring>
#include <string>
#include <vector>

#include "trainer/data/sample_source.h"

namespace downpour::data {

template <typename Number>
std::vector<Number> Numbers(const Value& value) {
  std::vector<Number> numbers(value.bytes.size() / sizeof(Number));
  if (!value.bytes.empty()) std::memcpy(numbers.data(), value.bytes.data(), numbers.size() * sizeof(Number));
  return numbers;
}

inline std::int64_t Integer(const Value& value) { return Numbers<std::int64_t>(value).at(0); }

inline std::string Text(const Value& value) {
  const std::vector<char> characters = Numbers<char>(value);
  return {characters.begin(), characters.end()};
}

// An image as the files of a data set hold it.
inline std::string AsFile(const std::vector<std::uint8_t>& bytes) { return {bytes.begin(), bytes.end()}; }

// One pixel after another, of one colour.
inline Value PlainImage(std::int64_t channels, std::int64_t height, std::int64_t width, int colour) {
  return {{channels, height, width},
          std::vector<std::byte>(static_cast<std::size_t>(channels * height * width), static_cast<std::byte>(colour))};
}

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_TESTING_READ_VALUES_H_
