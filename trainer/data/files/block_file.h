#ifndef DOWNPOUR_TRAINER_DATA_FILES_BLOCK_FILE_H_
#define DOWNPOUR_TRAINER_DATA_FILES_BLOCK_FILE_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "trainer/data/files/files.h"

// A part of a remote file that is kept on a local disk, in a file of its own: docs/formats.md.
namespace downpour::data {

inline constexpr char kBlockSuffix[] = ".block";
// What is not whole yet, or was left so by a process that ended.
inline constexpr char kUnfinishedBlockSuffix[] = ".block.tmp";

// Which part of which file.
struct Block {
  FileInfo file;
  std::uint64_t offset = 0;
  std::uint32_t bytes = 0;
};

// Names of different blocks differ but for one in 2^64 files, and then what is in the file tells them apart.
std::string BlockFileName(const Block& block);
// The length of the file.
std::uint64_t BlockFileBytes(const Block& block);

// Replaces what is at `path`. After an error there is nothing new, under no name. Does not wait for the disk: a file
// that a crash of the machine cut or blanked is not read as whole.
absl::Status WriteBlockFile(const std::string& path, const Block& block, absl::Span<const std::uint8_t> data);

// Bytes of the block from `from`, which is counted from its beginning. kNotFound: no such file. kDataLoss: it is not
// what was written for this block; `bytes` may have been written to. kUnavailable: the disk cannot read it.
absl::Status ReadBlockFile(const std::string& path, const Block& block, std::uint64_t from,
                           absl::Span<std::uint8_t> bytes);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FILES_BLOCK_FILE_H_
