#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_ZIP_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_ZIP_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/files/files.h"

// Archives of the zip format, with the extensions for large ones (zip64): what np.savez writes.
namespace downpour::data {

struct ZipEntry {
  std::string name;
  bool deflated = false;       // else stored: as it is
  std::uint32_t checksum = 0;  // CRC-32 of what was packed
  std::uint64_t packed_bytes = 0;
  std::uint64_t bytes = 0;
  std::uint64_t data_begin = 0;  // of what is packed, from the beginning of the file
};

// The entries, in the order of the archive's directory, with all that can be told of them without reading their data:
// they lie before the directory, without overlap, and the header before each agrees. Trusts no length. kDataLoss: the
// archive is broken; kUnimplemented: it is encrypted, has several volumes or other methods. Errors name the file.
absl::StatusOr<std::vector<ZipEntry>> ReadZipDirectory(const RandomAccessFile& file);

// What was packed, of an entry of ReadZipDirectory that is deflated. Allocates entry.bytes. kDataLoss: it is something
// else.
absl::StatusOr<std::vector<std::uint8_t>> InflateZipEntry(const RandomAccessFile& file, const ZipEntry& entry);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_ZIP_H_
