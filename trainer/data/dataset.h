#ifndef DOWNPOUR_TRAINER_DATA_DATASET_H_
#define DOWNPOUR_TRAINER_DATA_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/data/fields.h"

namespace downpour::data {

// Samples, addressed by index. Immutable after opening: Read may be called from several threads.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  virtual const SampleFields& fields() const = 0;
  // The samples in the order of `indices`, which must be in [0, size()).
  virtual Batch Read(absl::Span<const std::int64_t> indices) const = 0;
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
