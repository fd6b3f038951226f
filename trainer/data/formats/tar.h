#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_TAR_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_TAR_H_

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/data/files/files.h"
#include "trainer/data/formats/read_ahead.h"

namespace downpour::data {

// A regular file in a tar archive.
struct TarEntry {
  std::string name;         // without "./" before it
  std::uint64_t begin = 0;  // of its first header, from where a reader finds it again
  std::uint64_t data = 0;
  std::uint64_t bytes = 0;
  std::uint64_t end = 0;  // where the next entry begins
};

// The entries of a tar archive (ustar, pax, GNU) one by one. Directories are passed over. Errors, kDataLoss or those of
// the file, name the file and the byte: no tar header, an entry that ends behind the file or is no regular file, a name
// that is absolute or has "..", something behind the end. Not thread-safe.
class TarReader {
 public:
  // The whole archive.
  explicit TarReader(const RandomAccessFile& file) : ahead_(file, file.info().bytes) {}
  // Whole entries from one's `begin` to one's `end`, read in one piece.
  TarReader(const RandomAccessFile& file, std::uint64_t begin, std::uint64_t end)
      : ahead_(file, end, end - begin), offset_(begin) {}

  // Nothing: that was all.
  absl::StatusOr<std::optional<TarEntry>> Next();
  // What `entry` holds; valid until the next call.
  absl::StatusOr<absl::Span<const std::uint8_t>> Read(const TarEntry& entry) {
    return ahead_.Read(entry.data, entry.bytes);
  }

 private:
  absl::Status Error(std::uint64_t offset, const std::string& what) const;
  absl::Status ExpectZeros();

  ReadAhead ahead_;
  std::uint64_t offset_ = 0;
};

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_TAR_H_
