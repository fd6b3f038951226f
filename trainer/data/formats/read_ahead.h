#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_READ_AHEAD_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_READ_AHEAD_H_

#include <algorithm>
#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/data/files/files.h"

namespace downpour::data {

// Reads a file from front to back in pieces that are worth a request. Not thread-safe.
class ReadAhead {
 public:
  // Nothing behind the byte `end`, which the file has. `file` must outlive it.
  ReadAhead(const RandomAccessFile& file, std::uint64_t end, std::uint64_t piece = std::uint64_t{1} << 20)
      : file_(file), end_(end), piece_(piece) {}

  std::uint64_t end() const { return end_; }
  const std::string& path() const { return file_.info().path; }

  // `count` bytes from `offset`, which end at end() at most; valid until the next call.
  absl::StatusOr<absl::Span<const std::uint8_t>> Read(std::uint64_t offset, std::uint64_t count) {
    if (offset < begin_ || offset + count > begin_ + bytes_.size()) {
      bytes_.resize(std::min(std::max(count, piece_), end_ - offset));
      begin_ = offset;
      if (absl::Status status = file_.ReadAt(offset, absl::MakeSpan(bytes_)); !status.ok()) {
        bytes_.clear();
        return status;
      }
    }
    return absl::MakeConstSpan(bytes_).subspan(offset - begin_, count);
  }

 private:
  const RandomAccessFile& file_;
  const std::uint64_t end_;
  const std::uint64_t piece_;
  std::uint64_t begin_ = 0;
  std::vector<std::uint8_t> bytes_;
};

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_READ_AHEAD_H_
