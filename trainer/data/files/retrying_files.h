#ifndef DOWNPOUR_TRAINER_DATA_FILES_RETRYING_FILES_H_
#define DOWNPOUR_TRAINER_DATA_FILES_RETRYING_FILES_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/data/files/files.h"
#include "trainer/data/files/retry_policy.h"

namespace downpour::data {

// Thread-safe.
class RetryClock {
 public:
  virtual ~RetryClock() = default;
  virtual absl::Duration Now() = 0;  // from any origin; does not go back
  virtual void Sleep(absl::Duration duration) = 0;
  virtual double Random() = 0;  // in [0, 1)
};

// The monotonic clock of this machine.
RetryClock& RealRetryClock();

// Files of a store that may be away for a while. A call that it answers kUnavailable is made again, with exponential
// back-off and jitter; every other answer is handed on at once. All calls have one clock: after
// `patience` of nothing but failures each one that waits ends, and each new one fails without asking, with kUnavailable
// and a message that names the file, what was found and for how long. An answer to a call that is still under way
// resets the clock. An attempt that is under way is not ended: the store bounds its own calls. Thread-safe.
//
// `tell` hears, for people, that the store has not answered for five seconds, and that it does again: once each outage,
// by whatever thread notices it.
class RetryingFiles final : public Files {
 public:
  using OpenStore = std::function<absl::StatusOr<std::unique_ptr<Files>>()>;
  using Tell = std::function<void(const std::string&)>;

  // Opens the store with `open`, likewise again. `shown` names it in messages. `clock` must outlive it.
  static absl::StatusOr<std::unique_ptr<RetryingFiles>> Open(const std::string& shown, const OpenStore& open,
                                                             Tell tell = nullptr, const RetryOptions& options = {},
                                                             RetryClock& clock = RealRetryClock());
  ~RetryingFiles() override;
  RetryingFiles(const RetryingFiles&) = delete;
  RetryingFiles& operator=(const RetryingFiles&) = delete;

  absl::StatusOr<std::vector<FileInfo>> List(const std::string& path) const override;
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& path) const override;

  // Attempts that were made again.
  std::uint64_t retries() const;

 private:
  class File;
  class Retrier;
  RetryingFiles(std::unique_ptr<Retrier> retrier, std::unique_ptr<Files> store);

  const std::unique_ptr<Retrier> retrier_;
  const std::unique_ptr<Files> store_;
};

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FILES_RETRYING_FILES_H_
