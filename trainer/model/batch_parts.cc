#include "trainer/model/batch_parts.h"

#include <algorithm>
#include <cstddef>

namespace downpour::model {
namespace {

bool HasSamples(const std::vector<data::Array>& arrays, std::int64_t samples) {
  return std::all_of(arrays.begin(), arrays.end(), [samples](const data::Array& array) {
    const auto count = static_cast<std::size_t>(samples);
    return !array.shape.empty() && array.shape.front() == samples && array.bytes.size() % count == 0 &&
           (array.lengths.empty() || array.lengths.size() == count);
  });
}

std::int64_t SamplesOf(const data::Batch& batch) {
  const std::vector<data::Array>& some = batch.inputs.empty() ? batch.targets : batch.inputs;
  return some.empty() || some.front().shape.empty() ? 0 : some.front().shape.front();
}

std::vector<data::Array> CopyPart(const std::vector<data::Array>& arrays, std::int64_t samples, const BatchPart& part) {
  std::vector<data::Array> copies;
  copies.reserve(arrays.size());
  for (const data::Array& array : arrays) {
    const std::int64_t bytes = static_cast<std::int64_t>(array.bytes.size()) / samples;
    data::Array copy{array.type, array.shape, {}, {}};
    copy.shape.front() = part.samples;
    const auto first = array.bytes.begin() + part.first * bytes;
    copy.bytes.assign(first, first + part.samples * bytes);
    if (!array.lengths.empty()) {
      const auto length = array.lengths.begin() + part.first;
      copy.lengths.assign(length, length + part.samples);
    }
    copies.push_back(std::move(copy));
  }
  return copies;
}

}  // namespace

std::vector<BatchPart> PartsOf(const data::Batch& batch, int parts) {
  const std::int64_t samples = SamplesOf(batch);
  std::vector<BatchPart> all(static_cast<std::size_t>(parts));
  if (samples <= 0 || !HasSamples(batch.inputs, samples) || !HasSamples(batch.targets, samples)) {
    all.front() = {0, std::max<std::int64_t>(samples, 1)};
    return all;
  }
  const std::int64_t share = (samples + parts - 1) / parts;
  std::int64_t first = 0;
  for (BatchPart& part : all) {
    std::int64_t count = std::min(share, samples - first);
    if (share > 1 && samples - first - count == 1) ++count;
    part = {first, count};
    first += count;
  }
  return all;
}

data::Batch CopyPart(const data::Batch& batch, const BatchPart& part) {
  const std::int64_t samples = SamplesOf(batch);
  return {CopyPart(batch.inputs, samples, part), CopyPart(batch.targets, samples, part)};
}

}  // namespace downpour::model
