#ifndef DOWNPOUR_TRAINER_DATA_FILES_FILES_H_
#define DOWNPOUR_TRAINER_DATA_FILES_FILES_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

// Where data lie: files that are there and do not change while a job trains. Errors name the file and what the system
// or the server said: kNotFound, kPermissionDenied, kUnavailable (it may be well later, and was tried again already
// where that makes sense), kDataLoss (the file is another one than it was, or ends before it should). All of it is
// bounded in time.
namespace downpour::data {

struct FileInfo {
  std::string path;  // as Open takes it
  std::uint64_t bytes = 0;
  std::int64_t modified = 0;  // nanoseconds since 1970; 0: the store does not say
  friend bool operator==(const FileInfo&, const FileInfo&) = default;
};

// Thread-safe. Must not outlive its Files.
class RandomAccessFile {
 public:
  virtual ~RandomAccessFile() = default;
  virtual const FileInfo& info() const = 0;
  // Exactly bytes.size() bytes from `offset`. kDataLoss: the file ends before.
  virtual absl::Status ReadAt(std::uint64_t offset, absl::Span<std::uint8_t> bytes) const = 0;
};

// Thread-safe.
class Files {
 public:
  virtual ~Files() = default;
  // All files below the directory `path`, at any depth, sorted by path; of a path that is a file, that file alone.
  // Names that begin with a dot are left out, and so is what is below them. kNotFound: nothing is there.
  virtual absl::StatusOr<std::vector<FileInfo>> List(const std::string& path) const = 0;
  virtual absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& path) const = 0;
};

// Those of this machine. A path is absolute or relative.
const Files& LocalFiles();

// The whole file, if it has no more than `most` bytes; else kDataLoss.
absl::StatusOr<std::vector<std::uint8_t>> ReadWhole(const RandomAccessFile& file, std::uint64_t most);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FILES_FILES_H_
