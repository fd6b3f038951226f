#include "trainer/data/files/testing/memory_files.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace downpour::data {

class MemoryFiles::File final : public RandomAccessFile {
 public:
  File(const MemoryFiles& files, std::shared_ptr<const Content> content)
      : files_(files), content_(std::move(content)), info_(content_->info) {}

  const FileInfo& info() const override { return info_; }

  absl::Status ReadAt(std::uint64_t offset, absl::Span<std::uint8_t> bytes) const override {
    const std::lock_guard<std::mutex> lock(files_.mutex_);
    if (absl::Status status = files_.CountRead(info_.path, bytes.size()); !status.ok()) return status;
    const std::uint64_t there = content_->bytes.size();
    if (offset > there || bytes.size() > there - offset) {
      return absl::DataLossError(
          absl::StrFormat("%s: ends at byte %d, expected %d more", info_.path, there, offset + bytes.size() - there));
    }
    std::copy_n(content_->bytes.begin() + static_cast<std::ptrdiff_t>(offset), bytes.size(), bytes.begin());
    return absl::OkStatus();
  }

 private:
  const MemoryFiles& files_;
  const std::shared_ptr<const Content> content_;
  const FileInfo info_;
};

MemoryFiles::MemoryFiles() = default;
MemoryFiles::~MemoryFiles() = default;

void MemoryFiles::Put(const std::string& path, std::string content, std::int64_t modified) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const FileInfo info{path, content.size(), modified};
  contents_[path] = std::make_shared<Content>(Content{info, std::move(content)});
}

void MemoryFiles::Remove(const std::string& path) {
  const std::lock_guard<std::mutex> lock(mutex_);
  contents_.erase(path);
}

void MemoryFiles::Cut(const std::string& path, std::uint64_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::string& content = contents_.at(path)->bytes;
  content.resize(std::min<std::size_t>(content.size(), bytes));
}

void MemoryFiles::FailReads(std::int64_t read, absl::Status error, std::int64_t times) {
  const std::lock_guard<std::mutex> lock(mutex_);
  first_failure_ = reads_ + read;
  end_of_failures_ = first_failure_ + times;
  failure_ = std::move(error);
}

void MemoryFiles::FailOpen(const std::string& path, absl::Status error) {
  const std::lock_guard<std::mutex> lock(mutex_);
  open_errors_[path] = std::move(error);
}

std::int64_t MemoryFiles::reads() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return reads_;
}

std::uint64_t MemoryFiles::bytes_read() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return bytes_read_;
}

absl::Status MemoryFiles::CountRead(const std::string& path, std::uint64_t bytes) const {
  ++reads_;
  bytes_read_ += bytes;
  if (first_failure_ == 0 || reads_ < first_failure_ || reads_ >= end_of_failures_) return absl::OkStatus();
  return absl::Status(failure_.code(), absl::StrCat(path, ": ", failure_.message()));
}

absl::StatusOr<std::vector<FileInfo>> MemoryFiles::List(const std::string& path) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto file = contents_.find(path); file != contents_.end()) return std::vector<FileInfo>{file->second->info};
  const std::string directory = absl::EndsWith(path, "/") ? path : absl::StrCat(path, "/");
  bool there = false;
  std::vector<FileInfo> files;
  for (const auto& [name, content] : contents_) {
    if (!absl::StartsWith(name, directory)) continue;
    there = true;
    if (name[directory.size()] != '.' && name.find("/.", directory.size()) == std::string::npos) {
      files.push_back(content->info);
    }
  }
  if (!there) return absl::NotFoundError(absl::StrCat(path, ": cannot be looked at: No such file or directory"));
  return files;
}

absl::StatusOr<std::unique_ptr<RandomAccessFile>> MemoryFiles::Open(const std::string& path) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (const auto error = open_errors_.find(path); error != open_errors_.end() && !error->second.ok()) {
    return error->second;
  }
  const auto file = contents_.find(path);
  if (file == contents_.end()) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be opened: No such file or directory"));
  }
  return std::make_unique<File>(*this, file->second);
}

}  // namespace downpour::data
