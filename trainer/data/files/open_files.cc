#include "trainer/data/files/open_files.h"

#include "absl/strings/str_format.h"

namespace downpour::data {

OpenFiles::OpenFiles(const Files& files, std::vector<FileInfo> infos, std::size_t most)
    : files_(files), infos_(std::move(infos)), most_(most) {}

absl::StatusOr<std::shared_ptr<const RandomAccessFile>> OpenFiles::Open(std::size_t number) const {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (const auto found = by_number_.find(number); found != by_number_.end()) {
      newest_.splice(newest_.begin(), newest_, found->second);
      return newest_.front().second;
    }
  }
  // Without the lock: opening may take its time.
  const FileInfo& expected = infos_[number];
  absl::StatusOr<std::shared_ptr<const RandomAccessFile>> file = files_.Open(expected.path);
  if (!file.ok()) return file;
  const FileInfo& found = (*file)->info();
  if (found.bytes != expected.bytes || found.modified != expected.modified) {
    return absl::DataLossError(
        absl::StrFormat("%s: found %d bytes, modified at %d, expected the file of %d bytes, modified at %d, that was "
                        "there before",
                        expected.path, found.bytes, found.modified, expected.bytes, expected.modified));
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  if (by_number_.contains(number)) return file;  // another thread was faster
  newest_.emplace_front(number, *file);
  by_number_[number] = newest_.begin();
  if (newest_.size() > most_) {
    by_number_.erase(newest_.back().first);
    newest_.pop_back();
  }
  return file;
}

}  // namespace downpour::data
