#include "trainer/data/files/block_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/checkpoint/block.h"
#include "trainer/data/encoding.h"
#include "trainer/data/files/posix.h"
#include "trainer/wire/crc32c.h"

namespace downpour::data {
namespace {

constexpr absl::string_view kMagic = "DPBK";
constexpr std::uint16_t kVersion = 1;
constexpr std::size_t kHeaderBytes = 48;
// What has a checksum of its own: a small read does not read the whole block.
constexpr std::uint64_t kChunkBytes = 65536;

using Header = checkpoint::Block<kHeaderBytes>;

std::size_t Chunks(const Block& block) { return (block.bytes + kChunkBytes - 1) / kChunkBytes; }

// What is between the header and the data: the path, and the checksum of each chunk.
std::size_t TableOffset(const Block& block) { return block.file.path.size(); }
std::size_t FrontBytes(const Block& block) { return TableOffset(block) + Chunks(block) * sizeof(std::uint32_t); }

Header MakeHeader(const Block& block, absl::Span<const std::uint8_t> front) {
  Header header;
  header.PutMagic(kMagic);
  header.Put(4, kVersion);
  header.Put(6, static_cast<std::uint16_t>(kHeaderBytes));
  header.Put(8, block.file.bytes);
  header.Put(16, block.file.modified);
  header.Put(24, block.offset);
  header.Put(32, block.bytes);
  header.Put(36, static_cast<std::uint32_t>(block.file.path.size()));
  header.Put(40, wire::Crc32c(front));
  header.Seal();
  return header;
}

class Descriptor {
 public:
  explicit Descriptor(int number) : number_(number) {}
  ~Descriptor() {
    if (number_ >= 0) ::close(number_);
  }
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  int get() const { return number_; }
  int Close() { return ::close(std::exchange(number_, -1)); }

 private:
  int number_;
};

absl::Status NotTheBlock(const std::string& path, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(path, ": ", what));
}

// 0, or the error.
int WriteAll(int descriptor, absl::Span<const std::uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t count = ::write(descriptor, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    bytes.remove_prefix(static_cast<std::size_t>(count));
  }
  return 0;
}

std::uint64_t Hash(const FileInfo& file) {
  Encoder encoder;
  encoder.Put<std::uint64_t>(file.bytes);
  encoder.Put<std::int64_t>(file.modified);
  return Fnv1a(encoder.bytes() + file.path);
}

}  // namespace

std::string BlockFileName(const Block& block) {
  return absl::StrFormat("%016x-%x-%x%s", Hash(block.file), block.offset, block.bytes, kBlockSuffix);
}

std::uint64_t BlockFileBytes(const Block& block) { return kHeaderBytes + FrontBytes(block) + block.bytes; }

absl::Status WriteBlockFile(const std::string& path, const Block& block, absl::Span<const std::uint8_t> data) {
  std::vector<std::uint8_t> front(FrontBytes(block));
  std::copy(block.file.path.begin(), block.file.path.end(), front.begin());
  for (std::size_t i = 0; i < Chunks(block); ++i) {
    const std::uint32_t checksum = wire::Crc32c(data.subspan(i * kChunkBytes, kChunkBytes));
    std::memcpy(front.data() + TableOffset(block) + i * sizeof(checksum), &checksum, sizeof(checksum));
  }
  const Header header = MakeHeader(block, front);

  const std::string unfinished = absl::StrCat(path, ".tmp");
  int error = 0;
  {
    Descriptor file(::open(unfinished.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
    if (file.get() < 0) return SystemError(unfinished, "cannot be created", errno);
    error = WriteAll(file.get(), header.bytes());
    if (error == 0) error = WriteAll(file.get(), front);
    if (error == 0) error = WriteAll(file.get(), data);
    // Some file systems say only now that there was no room.
    if (file.Close() != 0 && error == 0) error = errno;
  }
  if (error == 0 && std::rename(unfinished.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) return absl::OkStatus();
  ::unlink(unfinished.c_str());
  return SystemError(path, "cannot be written", error);
}

absl::Status ReadBlockFile(const std::string& path, const Block& block, std::uint64_t from,
                           absl::Span<std::uint8_t> bytes) {
  const Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (file.get() < 0) return SystemError(path, "cannot be opened", errno);
  std::vector<std::uint8_t> begin(kHeaderBytes + FrontBytes(block));
  if (absl::Status status = ReadFully(path, file.get(), 0, absl::MakeSpan(begin)); !status.ok()) return status;
  const auto front = absl::MakeConstSpan(begin).subspan(kHeaderBytes);
  // All of the header follows from the block and from what is behind it, so that no field has to be trusted.
  if (absl::MakeConstSpan(begin).first(kHeaderBytes) != MakeHeader(block, front).bytes() ||
      !std::equal(block.file.path.begin(), block.file.path.end(), front.begin(),
                  [](char a, std::uint8_t b) { return static_cast<std::uint8_t>(a) == b; })) {
    return NotTheBlock(path, "its header is not that of this block");
  }
  if (bytes.empty()) return absl::OkStatus();

  const std::uint64_t first = from / kChunkBytes;
  const std::uint64_t end =
      std::min<std::uint64_t>((from + bytes.size() + kChunkBytes - 1) / kChunkBytes * kChunkBytes, block.bytes);
  std::vector<std::uint8_t> chunks(end - first * kChunkBytes);
  if (absl::Status status = ReadFully(path, file.get(), begin.size() + first * kChunkBytes, absl::MakeSpan(chunks));
      !status.ok()) {
    return status;
  }
  for (std::uint64_t i = first; i * kChunkBytes < end; ++i) {
    std::uint32_t checksum = 0;
    std::memcpy(&checksum, front.data() + TableOffset(block) + i * sizeof(checksum), sizeof(checksum));
    if (wire::Crc32c(absl::MakeConstSpan(chunks).subspan((i - first) * kChunkBytes, kChunkBytes)) != checksum) {
      return NotTheBlock(path, absl::StrFormat("bytes from %d of the block have another checksum", i * kChunkBytes));
    }
  }
  std::copy_n(chunks.begin() + static_cast<std::ptrdiff_t>(from - first * kChunkBytes), bytes.size(), bytes.begin());
  return absl::OkStatus();
}

}  // namespace downpour::data
