#ifndef DOWNPOUR_TESTS_FUZZ_SAMPLE_SOURCE_H_
#define DOWNPOUR_TESTS_FUZZ_SAMPLE_SOURCE_H_

#include <algorithm>
#include <cstring>
#include <memory>

#include "absl/status/statusor.h"
#include "tests/fuzz/fuzz_target.h"
#include "trainer/data/sample_source.h"

namespace downpour::fuzz {

// What was opened keeps the promises of sample_source.h; what was not is an error of what is read.
inline void RequireSound(const absl::StatusOr<std::unique_ptr<data::SampleSource>>& opened) {
  if (!opened.ok()) {
    Require(!absl::IsInternal(opened.status()), "bytes are no errors of the program");
    return;
  }
  const data::SampleSource& source = **opened;
  for (std::int64_t i = 0; i < std::min<std::int64_t>(source.size(), 50); ++i) {
    const absl::StatusOr<data::Sample> sample = source.Read(i);
    if (!sample.ok()) {
      Require(absl::IsDataLoss(sample.status()), "a broken sample is kDataLoss");
      continue;
    }
    Require(sample->size() == source.columns().size(), "a value for each column");
    for (std::size_t j = 0; j < sample->size(); ++j) {
      const data::Column& column = source.columns()[j];
      const data::Value& value = (*sample)[j];
      Require(value.shape.size() == column.shape.size(), "the dimensions of the column");
      std::uint64_t bytes = data::BytesOf(column.type);
      for (std::size_t k = 0; k < value.shape.size(); ++k) {
        Require(column.shape[k] == data::kAnyExtent || column.shape[k] == value.shape[k], "the shape of the column");
        bytes *= static_cast<std::uint64_t>(value.shape[k]);
      }
      Require(value.bytes.size() == bytes, "the shape holds the values");
      if (column.type == data::ElementType::kI64 && column.classes > 0) {
        std::int64_t number = 0;
        std::memcpy(&number, value.bytes.data(), sizeof(number));
        Require(number >= 0 && number < column.classes, "a number of a class");
      }
    }
  }
}

}  // namespace downpour::fuzz

#endif  // DOWNPOUR_TESTS_FUZZ_SAMPLE_SOURCE_H_
