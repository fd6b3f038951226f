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

// Which data set.
struct DatasetSpec {
  std::string format = {};     // "IDX"
  std::string directory = {};  // of IDX
};

// The data set of a known format (idx_dataset.h), with its errors. kUnimplemented: another format.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DatasetSpec& spec, Split split);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_DATASET_H_
