#include "trainer/data/files/file_window.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "absl/strings/str_format.h"

namespace downpour::data {

absl::StatusOr<std::vector<FileInfo>> ListFiles(const Files& files, const std::string& path,
                                                const std::string& suffix) {
  absl::StatusOr<std::vector<FileInfo>> found = files.List(path);
  if (!found.ok() || (found->size() == 1 && found->front().path == path)) return found;
  found->erase(std::remove_if(found->begin(), found->end(),
                              [&suffix](const FileInfo& info) { return !absl::EndsWith(info.path, suffix); }),
               found->end());
  if (found->empty()) {
    return absl::NotFoundError(
        absl::StrFormat("%s: found no file whose name ends in \"%s\", expected one or more", path, suffix));
  }
  return found;
}

absl::Status FileWindow::More() {
  constexpr std::uint64_t kBlock = std::uint64_t{1} << 20;
  buffer_.erase(0, begin_);
  begin_ = 0;
  const std::size_t before = buffer_.size();
  const std::uint64_t count =
      std::min<std::uint64_t>(std::max<std::uint64_t>(kBlock, before), file_.info().bytes - end_);
  buffer_.resize(before + count);
  absl::Status read = file_.ReadAt(end_, {reinterpret_cast<std::uint8_t*>(buffer_.data()) + before, count});
  if (!read.ok()) {
    buffer_.resize(before);
    return read;
  }
  end_ += count;
  return absl::OkStatus();
}

}  // namespace downpour::data
