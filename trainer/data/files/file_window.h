#ifndef DOWNPOUR_TRAINER_DATA_FILES_FILE_WINDOW_H_
#define DOWNPOUR_TRAINER_DATA_FILES_FILE_WINDOW_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "trainer/data/files/files.h"

namespace downpour::data {

// `path` if it is a file, else the files below it whose names end in `suffix`. kNotFound: there is none.
absl::StatusOr<std::vector<FileInfo>> ListFiles(const Files& files, const std::string& path, const std::string& suffix);

// What of a file lies before a reader that goes from its beginning to its end. Not thread-safe.
class FileWindow {
 public:
  explicit FileWindow(const RandomAccessFile& file) : file_(file) {}

  // What was read and not consumed; until More or Consume.
  absl::string_view text() const { return absl::string_view(buffer_).substr(begin_); }
  // Of text() in the file.
  std::uint64_t offset() const { return end_ - (buffer_.size() - begin_); }
  // Nothing follows text().
  bool at_end() const { return end_ == file_.info().bytes; }
  // Makes text() longer: by a block, and at least twice as long if it is longer than that.
  absl::Status More();
  void Consume(std::size_t bytes) { begin_ += bytes; }

 private:
  const RandomAccessFile& file_;
  std::string buffer_;
  std::size_t begin_ = 0;
  std::uint64_t end_ = 0;  // of buffer_ in the file
};

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FILES_FILE_WINDOW_H_
