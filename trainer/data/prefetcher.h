#ifndef DOWNPOUR_TRAINER_DATA_PREFETCHER_H_
#define DOWNPOUR_TRAINER_DATA_PREFETCHER_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "trainer/data/dataset.h"

namespace downpour::data {

// A minibatch: the arguments of Dataset::Read, and so all that its bytes are a function of.
struct BatchRequest {
  std::vector<std::int64_t> indices;
  std::optional<std::uint64_t> seed;
  friend bool operator==(const BatchRequest&, const BatchRequest&) = default;
};

struct PrefetchOptions {
  std::size_t batches = 2;  // that are read ahead; 0: none, Take reads
  // What is read ahead has so many bytes at most, if none is larger than the largest so far. The first one is read
  // whatever its size.
  std::uint64_t most_bytes = std::uint64_t{256} << 20;
};

// How long Take waited.
struct WaitTimes {
  double waited = 0;  // seconds
  double busy = 0;    // of all threads of the data set in the meantime, together
};

// Reads minibatches ahead on a thread of its own, with the help of the data set's threads, in the order in which they
// are wanted. Want and Take are called from one thread, times from any.
class Prefetcher {
 public:
  // `dataset` outlives it.
  Prefetcher(const Dataset* dataset, PrefetchOptions options);
  // Stops the data set: what is being read ends after the samples under way.
  ~Prefetcher();
  Prefetcher(const Prefetcher&) = delete;
  Prefetcher& operator=(const Prefetcher&) = delete;

  // What will be taken next, in this order; more than options.batches are left for later. What was read ahead and is
  // not among it is dropped.
  void Want(std::vector<BatchRequest> next);
  // The minibatch, read ahead or now; errors are those of Dataset::Read. After an error it can be asked for again. The
  // broken samples of what is taken are counted, and not those of what is dropped.
  absl::StatusOr<std::shared_ptr<const Batch>> Take(const BatchRequest& request);
  // The first of what will be taken, if it has been read; else null. It stays what Take returns, and is not counted
  // yet.
  std::shared_ptr<const Batch> Ahead() const;

  WaitTimes times() const;

 private:
  // Of a minibatch that is wanted.
  struct Entry {
    BatchRequest request;
    bool begun = false;
    std::optional<absl::StatusOr<std::shared_ptr<const Batch>>> batch;  // once it is read
    std::uint64_t bytes = 0;                                            // likewise
  };
  void Run();
  std::deque<Entry>::iterator Find(const BatchRequest& request) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  absl::StatusOr<std::shared_ptr<const Batch>> Read(const BatchRequest& request) const;
  // The next to be read; null: there is none, or no room.
  Entry* Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const Dataset* const dataset_;
  const PrefetchOptions options_;
  mutable absl::Mutex mutex_;
  std::deque<Entry> entries_ ABSL_GUARDED_BY(mutex_);
  std::optional<BatchRequest> reading_ ABSL_GUARDED_BY(mutex_);
  std::uint64_t largest_ ABSL_GUARDED_BY(mutex_) = 0;  // minibatch so far, in bytes
  WaitTimes times_ ABSL_GUARDED_BY(mutex_);
  bool stopped_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_PREFETCHER_H_
