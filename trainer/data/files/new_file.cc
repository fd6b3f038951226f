#include "trainer/data/files/new_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/data/files/posix.h"

namespace downpour::data {
namespace {

// Writers may be on several machines.
std::string RandomName() {
  std::random_device random;
  return absl::StrFormat("%08x%08x", random(), random());
}

// What a file system does not have at all is done without.
bool IsAbsent(int error) { return error == EINVAL || error == ENOTSUP || error == ENOSYS; }

}  // namespace

NewFile::NewFile(std::string path, std::string temporary, int descriptor)
    : path_(std::move(path)), temporary_(std::move(temporary)), descriptor_(descriptor) {}

NewFile::~NewFile() {
  ::close(descriptor_);
  if (!temporary_.empty()) ::unlink(temporary_.c_str());
}

absl::StatusOr<std::unique_ptr<NewFile>> NewFile::Create(const std::string& path) {
  std::string temporary = absl::StrCat(path, ".tmp-", RandomName());
  const int descriptor = ::open(temporary.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (descriptor < 0) return SystemError(path, "cannot be created", errno);
  return std::unique_ptr<NewFile>(new NewFile(path, std::move(temporary), descriptor));
}

absl::StatusOr<std::unique_ptr<NewFile>> NewFile::CreateAnonymous() {
  std::error_code error;
  const std::string directory = std::filesystem::temp_directory_path(error).string();
  std::string pattern = absl::StrCat(error ? "/tmp" : directory, "/downpour-XXXXXX");
  int descriptor = ::mkostemp(pattern.data(), O_CLOEXEC);
  if (descriptor >= 0) {
    ::unlink(pattern.c_str());
  } else {
    descriptor = ::memfd_create("downpour", MFD_CLOEXEC);
  }
  if (descriptor < 0) return SystemError("a temporary file", "cannot be created", errno);
  return std::unique_ptr<NewFile>(new NewFile("a temporary file", "", descriptor));
}

absl::Status NewFile::WriteAt(std::uint64_t offset, absl::Span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::pwrite(descriptor_, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return SystemError(path_, "cannot be written", errno);
    offset += static_cast<std::uint64_t>(count);
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return absl::OkStatus();
}

absl::Status NewFile::Commit() {
  if (temporary_.empty()) return absl::OkStatus();
  if (::fsync(descriptor_) != 0 && !IsAbsent(errno)) return SystemError(path_, "cannot be synced", errno);
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) return SystemError(path_, "cannot be renamed", errno);
  temporary_.clear();
  const std::string parent = std::filesystem::path(path_).parent_path().string();
  const int directory = ::open(parent.empty() ? "." : parent.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (directory < 0) return absl::OkStatus();  // one that may be written and not read
  const int error = ::fsync(directory) == 0 ? 0 : errno;
  ::close(directory);
  if (error == 0 || IsAbsent(error) || error == EPERM) return absl::OkStatus();
  return SystemError(path_, "its directory cannot be synced", error);
}

}  // namespace downpour::data
