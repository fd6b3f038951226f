#ifndef DOWNPOUR_TRAINER_DATA_TESTING_MEMORY_SOURCE_H_
#define DOWNPOUR_TRAINER_DATA_TESTING_MEMORY_SOURCE_H_

#include <cstring>
#include <utility>
#include <vector>

#include "trainer/data/sample_source.h"

namespace downpour::data::testing {

template <typename T>
Value ValueOf(std::vector<std::int64_t> shape, const std::vector<T>& elements) {
  Value value{std::move(shape), std::vector<std::byte>(elements.size() * sizeof(T))};
  if (!elements.empty()) std::memcpy(value.bytes.data(), elements.data(), value.bytes.size());
  return value;
}

template <typename T>
std::vector<T> ElementsOf(const Value& value) {
  std::vector<T> elements(value.bytes.size() / sizeof(T));
  if (!elements.empty()) std::memcpy(elements.data(), value.bytes.data(), value.bytes.size());
  return elements;
}

// Samples in memory; one may be an error instead.
class MemorySource final : public SampleSource {
 public:
  MemorySource(std::vector<Column> columns, std::vector<absl::StatusOr<Sample>> samples)
      : columns_(std::move(columns)), samples_(std::move(samples)) {}
  std::int64_t size() const override { return static_cast<std::int64_t>(samples_.size()); }
  const std::vector<Column>& columns() const override { return columns_; }
  absl::StatusOr<Sample> Read(std::int64_t index) const override { return samples_[static_cast<std::size_t>(index)]; }

 private:
  const std::vector<Column> columns_;
  const std::vector<absl::StatusOr<Sample>> samples_;
};

}  // namespace downpour::data::testing

#endif  // DOWNPOUR_TRAINER_DATA_TESTING_MEMORY_SOURCE_H_
