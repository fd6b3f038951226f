#ifndef DOWNPOUR_TRAINER_DATA_DATASET_H_
#define DOWNPOUR_TRAINER_DATA_DATASET_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

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

// Generated data (synthetic.h). 0 or empty: what is usual for the kind.
struct SyntheticSpec {
  std::string kind = {};  // "Images", "Text", "Speech", "Radar"
  std::uint64_t samples = 0;
  std::uint64_t test_samples = 0;
  std::uint64_t seed = 0;
  std::vector<std::int64_t> shape = {};  // of an input, but for Text
  std::uint64_t classes = 0;             // but for Radar
  std::uint64_t vocabulary = 0;          // of Text, as are the lengths, in words
  std::uint64_t min_length = 0;
  std::uint64_t max_length = 0;
};

// Which data set.
struct DatasetSpec {
  std::string format = {};     // "IDX", "Synthetic"
  std::string directory = {};  // of IDX
  SyntheticSpec synthetic = {};
};

// The data set of a known format (idx_dataset.h, synthetic.h), with its errors. kUnimplemented: another format.
absl::StatusOr<std::unique_ptr<Dataset>> OpenDataset(const DatasetSpec& spec, Split split);

// The fields alone, of the training set, without reading what they hold.
absl::StatusOr<SampleFields> ReadFields(const DatasetSpec& spec);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_DATASET_H_
