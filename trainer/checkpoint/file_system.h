#ifndef DOWNPOUR_TRAINER_CHECKPOINT_FILE_SYSTEM_H_
#define DOWNPOUR_TRAINER_CHECKPOINT_FILE_SYSTEM_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "trainer/checkpoint/store.h"

// What a store in a directory asks of the system, so narrow that tests can stand in for it and lose what a machine may
// lose (trainer/checkpoint/testing/fake_file_system.h). Errors say what was tried and what the system said, the caller
// which file it was. Codes: kNotFound; kAlreadyExists; kResourceExhausted: no space, over a quota or a size limit;
// kPermissionDenied; kUnimplemented: the file system has not this; kFailedPrecondition: a directory is not empty or is
// none; kUnavailable: anything else.
namespace downpour::checkpoint {

// Belongs to one thread at a time; closed at the end of its life. Must not outlive its file system.
class FileWriter {
 public:
  virtual ~FileWriter() = default;
  // All of it, or an error and an unknown part of it.
  virtual absl::Status Append(absl::Span<const std::uint8_t> bytes) = 0;
  // What was appended outlives the machine's end; its name need not.
  virtual absl::Status Sync() = 0;
  // Some file systems say only here that something was not written.
  virtual absl::Status Close() = 0;
};

struct DirectoryEntry {
  std::string name;
  bool directory = false;
  std::uint64_t bytes = 0;  // of a file
};

// Thread-safe unless an implementation says otherwise.
class FileSystem {
 public:
  virtual ~FileSystem() = default;
  // A new file, empty.
  virtual absl::StatusOr<std::unique_ptr<FileWriter>> Create(const std::string& path) = 0;
  virtual absl::StatusOr<std::unique_ptr<StoreReader>> Open(const std::string& path) = 0;
  // Within a directory, all at once, and never over what is there: kAlreadyExists.
  virtual absl::Status RenameExclusive(const std::string& from, const std::string& to) = 0;
  virtual absl::Status Remove(const std::string& path) = 0;
  // The names in it, as they are now, outlive the machine's end.
  virtual absl::Status SyncDirectory(const std::string& path) = 0;
  virtual absl::Status MakeDirectory(const std::string& path) = 0;
  virtual absl::Status RemoveDirectory(const std::string& path) = 0;
  // Files and directories, in any order; nothing else, and no links.
  virtual absl::StatusOr<std::vector<DirectoryEntry>> List(const std::string& path) = 0;
  // 16 characters for a temporary name that no other writer has, on whatever machine.
  virtual std::string UniqueSuffix() = 0;
};

// That of this machine. A file system without fsync is left to itself, as is a directory that may not be opened to
// synchronise it.
FileSystem& PosixFileSystem();

// "WHAT: " and what errno `error` means, under the code that it has here.
absl::Status SystemError(absl::string_view what, int error);

}  // namespace downpour::checkpoint

#endif  // DOWNPOUR_TRAINER_CHECKPOINT_FILE_SYSTEM_H_
