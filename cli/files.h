#ifndef DOWNPOUR_CLI_FILES_H_
#define DOWNPOUR_CLI_FILES_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

// Files of a run folder. Every error names the file and says what the system said.
namespace downpour::cli {

// kNotFound, kPermissionDenied, kResourceExhausted (no space, quota, size limit, no memory, no thread or process) or
// kUnknown: "PATH: what: reason".
absl::Status SystemError(int error_number, const std::string& path, const std::string& what);

// The whole file. Refuses (kResourceExhausted) what is larger than `limit` bytes.
absl::StatusOr<std::string> ReadFile(const std::string& path, std::uint64_t limit = 256ULL << 20);

// Replaces the file so that a crash at any moment leaves the old or the new content: temporary name, fsync, rename,
// fsync of the directory. On an error the temporary file is removed and the old content stays.
absl::Status WriteFileDurably(const std::string& path, absl::string_view content);

// The path is valid UTF-8, as it has to be in JSON. kInvalidArgument shows it escaped.
absl::Status CheckUtf8Path(const std::string& path);

// mkdir -p. An existing directory is fine.
absl::Status MakeDirectories(const std::string& path);

// OK if a file can be made in the directory; makes one and removes it.
absl::Status CheckWritable(const std::string& directory);

// Bytes that an ordinary user may still write to the file system of `path`.
absl::StatusOr<std::uint64_t> FreeBytes(const std::string& path);

// Lines appended to a new file. Each Append hands its line to the system at once, so what was written survives the
// end of this process.
class LineFile {
 public:
  static absl::StatusOr<LineFile> Create(const std::string& path);
  LineFile(LineFile&& other) noexcept;
  LineFile& operator=(LineFile&& other) noexcept;
  ~LineFile();

  absl::Status Append(absl::string_view line);  // without the line end

 private:
  LineFile(std::string path, int descriptor) : path_(std::move(path)), descriptor_(descriptor) {}

  std::string path_;
  int descriptor_ = -1;
};

// Closes a descriptor at the end of a scope.
class FileDescriptor {
 public:
  FileDescriptor() = default;
  explicit FileDescriptor(int descriptor) : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor&& other) noexcept : descriptor_(other.Release()) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept;
  ~FileDescriptor();

  int get() const { return descriptor_; }
  bool valid() const { return descriptor_ >= 0; }
  int Release();

 private:
  int descriptor_ = -1;
};

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_FILES_H_
