#ifndef DOWNPOUR_TRAINER_DATA_DATASET_H_
#define DOWNPOUR_TRAINER_DATA_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace downpour::data {

// Labelled samples, addressed by index. Immutable after opening: Read may be called from several threads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  virtual const std::vector<std::int64_t>& sample_shape() const = 0;  // {1, 28, 28}
  virtual int classes() const = 0;
  // Writes samples scaled to [0, 1] row-major, and labels. The spans' sizes must fit: samples.size() ==
  // indices.size() * product(sample_shape). Indices must be in [0, size()).
  virtual void Read(absl::Span<const std::int64_t> indices, absl::Span<float> samples,
                    absl::Span<std::int64_t> labels) const = 0;
};

enum class Split { kTrain, kTest };

// `format` is "IDX": train-images-idx3-ubyte, train-labels-idx1-ubyte, t10k-images-idx3-ubyte, t10k-labels-idx1-ubyte
// in `directory`, each gzipped (".gz") or plain. Errors name the file, what was found and what was expected:
// kNotFound (missing), kDataLoss (bad magic, truncated, wrong count, trailing bytes, bad gzip, labels out of range,
// images and labels that disagree), kUnimplemented (another format).
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const std::string& format, const std::string& directory,
                                                     Split split);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_DATASET_H_
