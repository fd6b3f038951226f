#ifndef DOWNPOUR_TRAINER_DATA_FILES_TESTING_MEMORY_FILES_H_
#define DOWNPOUR_TRAINER_DATA_FILES_TESTING_MEMORY_FILES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trainer/data/files/files.h"

// Files that are held in memory and fail when they are told to.
namespace downpour::data {

// Thread-safe. A file that was opened keeps the content that it had then.
class MemoryFiles final : public Files {
 public:
  MemoryFiles();
  ~MemoryFiles() override;

  // Puts `content` in place of what is under `path`, a path without "." and "..".
  void Put(const std::string& path, std::string content, std::int64_t modified = 1);
  void Remove(const std::string& path);
  // From now on the file has only its first `bytes` bytes, while List and Open go on to tell its old size: it was cut
  // after somebody looked at it. Files that are open are cut as well.
  void Cut(const std::string& path, std::uint64_t bytes);
  // The `read`-th ReadAt from now on, counted from 1 over all files, and `times` - 1 after it, answer `error`.
  void FailReads(std::int64_t read, absl::Status error, std::int64_t times = 1);
  // Every Open of `path` from now on answers `error`; OK: none does.
  void FailOpen(const std::string& path, absl::Status error);

  // ReadAt so far, and the bytes that were asked for.
  std::int64_t reads() const;
  std::uint64_t bytes_read() const;

  absl::StatusOr<std::vector<FileInfo>> List(const std::string& path) const override;
  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& path) const override;

 private:
  class File;
  struct Content {
    FileInfo info;
    std::string bytes;
  };
  absl::Status CountRead(const std::string& path, std::uint64_t bytes) const;

  mutable std::mutex mutex_;
  // All of the below is guarded by mutex_, the bytes of a Content too.
  std::map<std::string, std::shared_ptr<Content>> contents_;
  std::map<std::string, absl::Status> open_errors_;
  mutable std::int64_t reads_ = 0;
  mutable std::uint64_t bytes_read_ = 0;
  std::int64_t first_failure_ = 0;  // 0: none
  std::int64_t end_of_failures_ = 0;
  absl::Status failure_;
};

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FILES_TESTING_MEMORY_FILES_H_
