#ifndef DOWNPOUR_TRAINER_DATA_FILES_CACHED_FILES_H_
#define DOWNPOUR_TRAINER_DATA_FILES_CACHED_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/data/files/files.h"

namespace downpour::data {

struct CacheOptions {
  // Where blocks are kept: made where it is missing, and used by one process at a time.
  std::string directory;
  // What is asked of the store at once. The last block of a file is shorter.
  std::uint64_t block_bytes = std::uint64_t{4} << 20;
  // Of all files in the directory.
  std::uint64_t capacity_bytes = std::uint64_t{8} << 30;
};

// Files of a store far away, read in blocks that are kept in a directory of bounded size; what was used longest ago
// makes room for what is new. A block is downloaded once however many threads want it, and compared with its checksum
// whenever it is read from the disk. The disk cannot make a read fail: a block that is damaged or gone, or that there
// is no room for, is read from the store again. The store is asked once for each: one that may be away is to be
// asked through RetryingFiles.
//
// A file is known by its path, its size and the time of its modification, so one that was replaced is read anew, and
// the blocks of an earlier process are of use to the next. One that was listed or opened before is opened without
// asking the store, which is not needed as long as the blocks are there; when it is asked, and has another file by
// then, that is kDataLoss. A new List tells the file that is there now. Thread-safe.
class CachedFiles final : public Files {
 public:
  struct Counters {
    std::uint64_t hits = 0;           // blocks that were there, or were on their way for another thread
    std::uint64_t misses = 0;         // blocks that were asked of the store
    std::uint64_t bytes_fetched = 0;  // from the store
    std::uint64_t damaged = 0;        // blocks on the disk that were not what was written
    std::uint64_t not_kept = 0;       // blocks that the disk did not take
  };

  // `store` must outlive it. kFailedPrecondition: another process uses the directory. kInvalidArgument: an option that
  // cannot be. kUnavailable, kPermissionDenied: the directory cannot be made or read.
  static absl::StatusOr<std::unique_ptr<CachedFiles>> Create(const Files& store, CacheOptions options);
  ~CachedFiles() override;
  CachedFiles(const CachedFiles&) = delete;
  CachedFiles& operator=(const CachedFiles&) = delete;

  absl::StatusOr<std::vector<FileInfo>> List(const std::string& path) const override;
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& path) const override;

  // Whether the byte at `offset` of the file could be read now without the store, as far as is known: whoever gives out
  // work may prefer a worker that has the data. `file` is as List or Open tells it.
  bool Holds(const FileInfo& file, std::uint64_t offset) const;

  Counters counters() const;

 private:
  class File;
  class Impl;
  explicit CachedFiles(std::unique_ptr<Impl> impl);
  const std::unique_ptr<Impl> impl_;
};

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FILES_CACHED_FILES_H_
