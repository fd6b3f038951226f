#include "trainer/checkpoint/file_system.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <random>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace downpour::checkpoint {
namespace {

absl::StatusCode CodeOf(int error) {
  switch (error) {
    case ENOENT:
      return absl::StatusCode::kNotFound;
    case EEXIST:
      return absl::StatusCode::kAlreadyExists;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return absl::StatusCode::kResourceExhausted;
    case EACCES:
    case EPERM:
    case EROFS:
      return absl::StatusCode::kPermissionDenied;
    case ENOTEMPTY:
    case ENOTDIR:
    case EISDIR:
    case ELOOP:
    case ENAMETOOLONG:
      return absl::StatusCode::kFailedPrecondition;
    case EINVAL:
    case ENOSYS:
    case ENOTSUP:
      return absl::StatusCode::kUnimplemented;
    default:
      return absl::StatusCode::kUnavailable;
  }
}

// The file system does not have this at all: nothing was lost by asking.
bool IsAbsent(int error) { return error == EINVAL || error == ENOTSUP || error == EOPNOTSUPP || error == ENOSYS; }

class PosixWriter final : public FileWriter {
 public:
  explicit PosixWriter(int descriptor) : descriptor_(descriptor) {}
  ~PosixWriter() override {
    if (descriptor_ >= 0) ::close(descriptor_);
  }

  absl::Status Append(absl::Span<const std::uint8_t> bytes) override {
    while (!bytes.empty()) {
      const ssize_t written = ::write(descriptor_, bytes.data(), bytes.size());
      if (written < 0 && errno == EINTR) continue;
      if (written < 0) return SystemError("cannot write", errno);
      bytes.remove_prefix(static_cast<std::size_t>(written));
    }
    return absl::OkStatus();
  }

  absl::Status Sync() override {
    if (::fsync(descriptor_) != 0 && !IsAbsent(errno)) return SystemError("cannot sync", errno);
    return absl::OkStatus();
  }

  absl::Status Close() override {
    if (::close(std::exchange(descriptor_, -1)) != 0) return SystemError("cannot close", errno);
    return absl::OkStatus();
  }

 private:
  int descriptor_;
};

class PosixReader final : public StoreReader {
 public:
  PosixReader(int descriptor, std::uint64_t size) : descriptor_(descriptor), size_(size) {}
  ~PosixReader() override { ::close(descriptor_); }

  std::uint64_t size() const override { return size_; }

  absl::Status ReadAt(std::uint64_t offset, absl::Span<std::uint8_t> bytes) override {
    if (offset > size_ || bytes.size() > size_ - offset) {
      return absl::OutOfRangeError(
          absl::StrFormat("cannot read %d bytes from %d: the file has %d", bytes.size(), offset, size_));
    }
    while (!bytes.empty()) {
      const ssize_t read = ::pread(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
      if (read < 0 && errno == EINTR) continue;
      if (read < 0) return SystemError("cannot read", errno);
      if (read == 0) return absl::DataLossError(absl::StrFormat("ends at %d, expected %d bytes", offset, size_));
      offset += static_cast<std::uint64_t>(read);
      bytes.remove_prefix(static_cast<std::size_t>(read));
    }
    return absl::OkStatus();
  }

 private:
  const int descriptor_;
  const std::uint64_t size_;
};

class Posix final : public FileSystem {
 public:
  absl::StatusOr<std::unique_ptr<FileWriter>> Create(const std::string& path) override {
    // With the mode that the umask leaves to any new file.
    const int descriptor = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor < 0) return SystemError("cannot create", errno);
    return std::make_unique<PosixWriter>(descriptor);
  }

  absl::StatusOr<std::unique_ptr<StoreReader>> Open(const std::string& path) override {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);  // does not wait on a pipe
    if (descriptor < 0) return SystemError("cannot open", errno);
    struct stat status {};
    const int error = ::fstat(descriptor, &status) == 0 ? 0 : errno;
    if (error == 0 && S_ISREG(status.st_mode)) {
      return std::make_unique<PosixReader>(descriptor, static_cast<std::uint64_t>(status.st_size));
    }
    ::close(descriptor);
    if (error != 0) return SystemError("cannot open", error);
    return absl::FailedPreconditionError("cannot open: not a file");
  }

  absl::Status RenameExclusive(const std::string& from, const std::string& to) override {
    if (::renameat2(AT_FDCWD, from.c_str(), AT_FDCWD, to.c_str(), RENAME_NOREPLACE) == 0) return absl::OkStatus();
    if (!IsAbsent(errno)) return SystemError("cannot rename", errno);
    // A link is exclusive too. Over a network its answer may be lost and the question repeated: then the count tells.
    if (::link(from.c_str(), to.c_str()) != 0) {
      const int error = errno;
      struct stat status {};
      if (error != EEXIST || ::stat(from.c_str(), &status) != 0 || status.st_nlink != 2) {
        return SystemError("cannot link", error);
      }
    }
    // The file is there: its second name is one more leftover, should it stay.
    ::unlink(from.c_str());
    return absl::OkStatus();
  }

  absl::Status Remove(const std::string& path) override {
    return ::unlink(path.c_str()) == 0 ? absl::OkStatus() : SystemError("cannot remove", errno);
  }

  absl::Status SyncDirectory(const std::string& path) override {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (descriptor < 0) {
      return errno == EACCES ? absl::OkStatus() : SystemError("cannot open the directory to sync it", errno);
    }
    const int error = ::fsync(descriptor) == 0 ? 0 : errno;
    ::close(descriptor);
    if (error == 0 || IsAbsent(error) || error == EPERM || error == EROFS) return absl::OkStatus();
    return SystemError("cannot sync the directory", error);
  }

  absl::Status MakeDirectory(const std::string& path) override {
    return ::mkdir(path.c_str(), 0777) == 0 ? absl::OkStatus() : SystemError("cannot make the directory", errno);
  }

  absl::Status RemoveDirectory(const std::string& path) override {
    return ::rmdir(path.c_str()) == 0 ? absl::OkStatus() : SystemError("cannot remove the directory", errno);
  }

  absl::StatusOr<std::vector<DirectoryEntry>> List(const std::string& path) override {
    DIR* const directory = ::opendir(path.c_str());
    if (directory == nullptr) return SystemError("cannot list", errno);
    const auto close = absl::MakeCleanup([directory] { ::closedir(directory); });
    std::vector<DirectoryEntry> entries;
    while (true) {
      errno = 0;
      const dirent* const entry = ::readdir(directory);
      if (entry == nullptr && errno != 0) return SystemError("cannot list", errno);
      if (entry == nullptr) return entries;
      const std::string name = entry->d_name;
      if (name == "." || name == "..") continue;
      struct stat status {};
      if (::fstatat(::dirfd(directory), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0) {
        if (errno == ENOENT) continue;  // removed meanwhile
        return SystemError("cannot list", errno);
      }
      if (S_ISDIR(status.st_mode)) entries.push_back({name, true, 0});
      if (S_ISREG(status.st_mode)) entries.push_back({name, false, static_cast<std::uint64_t>(status.st_size)});
    }
  }

  std::string UniqueSuffix() override {
    std::random_device random;
    return absl::StrFormat("%08x%08x", random(), random());
  }
};

}  // namespace

FileSystem& PosixFileSystem() {
  static Posix file_system;
  return file_system;
}

absl::Status SystemError(absl::string_view what, int error) {
  return absl::Status(CodeOf(error), absl::StrCat(what, ": ", std::strerror(error)));
}

}  // namespace downpour::checkpoint
