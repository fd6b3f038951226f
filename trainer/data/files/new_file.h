#ifndef DOWNPOUR_TRAINER_DATA_FILES_NEW_FILE_H_
#define DOWNPOUR_TRAINER_DATA_FILES_NEW_FILE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace downpour::data {

// A file of this machine while it is written: under its name only when it is whole. Errors name the file and what the
// system said. Not thread-safe.
class NewFile {
 public:
  // `path` will be written as `path`.tmp-RANDOM; what is there stays until Commit takes its place. The directory
  // exists.
  static absl::StatusOr<std::unique_ptr<NewFile>> Create(const std::string& path);
  // A file without a name, in the directory for temporary files or, where none can be written, in memory: it is gone
  // with its last descriptor.
  static absl::StatusOr<std::unique_ptr<NewFile>> CreateAnonymous();
  // Without Commit nothing remains of it.
  ~NewFile();
  NewFile(const NewFile&) = delete;
  NewFile& operator=(const NewFile&) = delete;

  absl::Status WriteAt(std::uint64_t offset, absl::Span<const std::uint8_t> bytes);
  // fsync, rename, fsync of the directory; of an anonymous file: nothing.
  absl::Status Commit();
  // For reading as well; belongs to this object.
  int descriptor() const { return descriptor_; }

 private:
  NewFile(std::string path, std::string temporary, int descriptor);

  const std::string path_;
  std::string temporary_;  // empty: there is none, or no longer
  const int descriptor_;
};

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FILES_NEW_FILE_H_
