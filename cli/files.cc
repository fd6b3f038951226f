#include "cli/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "operator/api/document.h"

namespace downpour::cli {
namespace {

// OK, or the errno of the first write that failed.
int WriteAll(int descriptor, absl::string_view content) {
  while (!content.empty()) {
    const ssize_t written = write(descriptor, content.data(), content.size());
    if (written < 0) {
      if (errno == EINTR) continue;
      return errno;
    }
    content.remove_prefix(static_cast<std::size_t>(written));
  }
  return 0;
}

// The file system does not have this at all: nothing was lost by asking.
bool IsAbsent(int error) { return error == EINVAL || error == ENOTSUP || error == ENOSYS; }

}  // namespace

absl::Status SystemError(int error_number, const std::string& path, const std::string& what) {
  const std::string message = absl::StrCat(path, ": ", what, ": ", std::generic_category().message(error_number));
  switch (error_number) {
    case ENOENT:
    case ENOTDIR:
      return absl::NotFoundError(message);
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::PermissionDeniedError(message);
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
    case EMFILE:
    case ENFILE:
    case EAGAIN:
    case ENOMEM:
      return absl::ResourceExhaustedError(message);
    case EEXIST:
    case ENOTEMPTY:
      return absl::AlreadyExistsError(message);
    default:
      return absl::UnknownError(message);
  }
}

FileDescriptor& FileDescriptor::operator=(FileDescriptor&& other) noexcept {
  if (this != &other) {
    if (descriptor_ >= 0) close(descriptor_);
    descriptor_ = other.Release();
  }
  return *this;
}

FileDescriptor::~FileDescriptor() {
  if (descriptor_ >= 0) close(descriptor_);
}

int FileDescriptor::Release() { return std::exchange(descriptor_, -1); }

absl::StatusOr<std::string> ReadFile(const std::string& path, std::uint64_t limit) {
  const FileDescriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return SystemError(errno, path, "cannot be opened");
  std::string content;
  char buffer[65536];
  while (true) {
    const ssize_t count = read(file.get(), buffer, sizeof buffer);
    if (count < 0) {
      if (errno == EINTR) continue;
      return SystemError(errno, path, "cannot be read");
    }
    if (count == 0) return content;
    content.append(buffer, static_cast<std::size_t>(count));
    if (content.size() > limit) {
      return absl::ResourceExhaustedError(absl::StrCat(path, ": is larger than ", limit, " bytes"));
    }
  }
}

absl::Status WriteFileDurably(const std::string& path, absl::string_view content) {
  const std::string temporary = path + ".tmp";
  FileDescriptor file(open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0666));
  if (!file.valid()) return SystemError(errno, temporary, "cannot be created");
  int error = WriteAll(file.get(), content);
  if (error == 0 && fsync(file.get()) != 0 && !IsAbsent(errno)) error = errno;
  // Some file systems report a failed write only here.
  if (error == 0 && close(file.Release()) != 0) error = errno;
  if (error == 0 && rename(temporary.c_str(), path.c_str()) != 0) error = errno;
  if (error != 0) {
    unlink(temporary.c_str());
    return SystemError(error, path, "cannot be written");
  }
  const std::string parent = std::filesystem::path(path).parent_path().string();
  const FileDescriptor directory(open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (directory.valid() ? fsync(directory.get()) != 0 && !IsAbsent(errno) && errno != EPERM : errno != EACCES) {
    return SystemError(errno, parent, "cannot be synchronised");
  }
  return absl::OkStatus();
}

absl::Status CheckUtf8Path(const std::string& path) {
  if (api::IsUtf8(path)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("\"", absl::CHexEscape(path), "\": must be valid UTF-8, the folders it is in included"));
}

absl::Status MakeDirectories(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) return SystemError(error.value(), path, "cannot be created");
  if (!std::filesystem::is_directory(path, error)) return SystemError(ENOTDIR, path, "cannot be used");
  return absl::OkStatus();
}

absl::Status CheckWritable(const std::string& directory) {
  std::string probe = directory + "/.downpour-XXXXXX";
  const FileDescriptor file(mkostemp(probe.data(), O_CLOEXEC));
  if (!file.valid()) return SystemError(errno, directory, "cannot be written to");
  absl::Status status = WriteFileDurably(probe, "can this be written?\n");
  unlink(probe.c_str());
  return status;
}

absl::StatusOr<std::uint64_t> FreeBytes(const std::string& path) {
  struct statvfs information {};
  if (statvfs(path.c_str(), &information) != 0) return SystemError(errno, path, "cannot be examined");
  return std::uint64_t{information.f_bavail} * information.f_frsize;
}

absl::StatusOr<LineFile> LineFile::Create(const std::string& path) {
  const int descriptor = open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0666);
  if (descriptor < 0) return SystemError(errno, path, "cannot be created");
  return LineFile(path, descriptor);
}

LineFile::LineFile(LineFile&& other) noexcept
    : path_(std::move(other.path_)), descriptor_(std::exchange(other.descriptor_, -1)) {}

LineFile& LineFile::operator=(LineFile&& other) noexcept {
  if (this != &other) {
    if (descriptor_ >= 0) close(descriptor_);
    path_ = std::move(other.path_);
    descriptor_ = std::exchange(other.descriptor_, -1);
  }
  return *this;
}

LineFile::~LineFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status LineFile::Append(absl::string_view line) {
  const int error = WriteAll(descriptor_, absl::StrCat(line, "\n"));
  return error == 0 ? absl::OkStatus() : SystemError(error, path_, "cannot be written");
}

}  // namespace downpour::cli
