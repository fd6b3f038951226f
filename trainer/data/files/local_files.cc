#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/data/files/files.h"
#include "trainer/data/files/posix.h"

namespace downpour::data {
namespace {

FileInfo InfoOf(const std::string& path, const struct stat& found) {
  return {path, static_cast<std::uint64_t>(found.st_size),
          found.st_mtim.tv_sec * std::int64_t{1'000'000'000} + found.st_mtim.tv_nsec};
}

class LocalFile final : public RandomAccessFile {
 public:
  LocalFile(FileInfo info, int descriptor) : info_(std::move(info)), descriptor_(descriptor) {}
  ~LocalFile() override { ::close(descriptor_); }
  LocalFile(const LocalFile&) = delete;
  LocalFile& operator=(const LocalFile&) = delete;

  const FileInfo& info() const override { return info_; }

  absl::Status ReadAt(std::uint64_t offset, absl::Span<std::uint8_t> bytes) const override {
    return ReadFully(info_.path, descriptor_, offset, bytes);
  }

 private:
  const FileInfo info_;
  const int descriptor_;
};

class LocalFilesImpl final : public Files {
 public:
  absl::StatusOr<std::vector<FileInfo>> List(const std::string& path) const override {
    std::vector<FileInfo> files;
    if (absl::Status status = Visit(path, &files); !status.ok()) return status;
    std::sort(files.begin(), files.end(), [](const FileInfo& a, const FileInfo& b) { return a.path < b.path; });
    return files;
  }

  absl::StatusOr<std::unique_ptr<RandomAccessFile>> Open(const std::string& path) const override {
    const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (descriptor < 0) return SystemError(path, "cannot be opened", errno);
    struct stat found {};
    if (::fstat(descriptor, &found) != 0) {
      const int error = errno;
      ::close(descriptor);
      return SystemError(path, "cannot be looked at", error);
    }
    if (!S_ISREG(found.st_mode)) {
      ::close(descriptor);
      return absl::NotFoundError(absl::StrCat(path, ": is no regular file"));
    }
    return std::make_unique<LocalFile>(InfoOf(path, found), descriptor);
  }

 private:
  static absl::Status Visit(const std::string& path, std::vector<FileInfo>* files) {
    struct stat found {};
    if (::stat(path.c_str(), &found) != 0) return SystemError(path, "cannot be looked at", errno);
    if (S_ISREG(found.st_mode)) {
      files->push_back(InfoOf(path, found));
      return absl::OkStatus();
    }
    if (!S_ISDIR(found.st_mode)) return absl::OkStatus();
    std::error_code error;
    std::filesystem::directory_iterator entry(path, error);
    for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
      const std::string name = entry->path().filename().string();
      if (name[0] == '.') continue;
      if (absl::Status status = Visit(entry->path().string(), files); !status.ok()) return status;
    }
    return error ? SystemError(path, "cannot be listed", error.value()) : absl::OkStatus();
  }
};

}  // namespace

const Files& LocalFiles() {
  static const auto* const files = new LocalFilesImpl;
  return *files;
}

absl::StatusOr<std::vector<std::uint8_t>> ReadWhole(const RandomAccessFile& file, std::uint64_t most) {
  const FileInfo& info = file.info();
  if (info.bytes > most) {
    return absl::DataLossError(absl::StrFormat("%s: %d bytes, expected no more than %d", info.path, info.bytes, most));
  }
  std::vector<std::uint8_t> bytes(info.bytes);
  if (absl::Status status = file.ReadAt(0, absl::MakeSpan(bytes)); !status.ok()) return status;
  return bytes;
}

}  // namespace downpour::data
