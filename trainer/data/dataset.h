#ifndef DOWNPOUR_TRAINER_DATA_DATASET_H_
#define DOWNPOUR_TRAINER_DATA_DATASET_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/data/deferred.h"
#include "trainer/data/fields.h"
#include "trainer/data/load_times.h"

namespace downpour::data {

// Samples, addressed by index. Thread-safe.
class Dataset {
 public:
  virtual ~Dataset() = default;
  virtual std::int64_t size() const = 0;
  virtual const SampleFields& fields() const = 0;
  // The samples in the order of `indices`, which must be in [0, size()); without those that are skipped. What is random
  // about them is a function of the seed and of each one's index; none: nothing is random. Errors are those of
  // SampleSource::Read.
  virtual absl::StatusOr<Batch> Read(absl::Span<const std::int64_t> indices,
                                     std::optional<std::uint64_t> seed) const = 0;
  // Read in two: whoever reads ahead what may never be used counts the broken samples of what is. kDataLoss of the
  // second: they are more than may be skipped.
  virtual absl::StatusOr<Batch> ReadUncounted(absl::Span<const std::int64_t> indices,
                                              std::optional<std::uint64_t> seed) const {
    return Read(indices, seed);
  }
  virtual absl::Status CountBroken(const Batch& /*batch*/) const { return absl::OkStatus(); }
  // From now on Read leaves to whoever computes with the samples what can be done for a whole minibatch, and gives them
  // as they are before that, with Batch::indices and Batch::seed. Before the first Read; fields() are those that are to
  // come of it.
  virtual Deferred Defer() { return {}; }
  // How many broken samples were left out and counted so far, each once.
  virtual std::uint64_t skipped() const { return 0; }
  // Where the time of Read went so far, and how many threads share the work of one.
  virtual LoadTimes times() const { return {}; }
  virtual int threads() const { return 1; }
  // Nobody wants more: Read, also one under way, may return kCancelled from now on, and does so soon.
  virtual void Stop() const {}
};

enum class Split { kTrain, kTest };

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_DATASET_H_
