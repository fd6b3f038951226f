#include "trainer/data/idx.h"

#define ZLIB_CONST  // input pointers are const
#include <zlib.h>

#include <algorithm>
#include <cstddef>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace downpour::data {
namespace {

constexpr std::uint32_t kUnsignedBytes = 0x00000800;

// The decoded bytes of a file, in order.
class ByteSource {
 public:
  virtual ~ByteSource() = default;
  // Fills at most `count` bytes; fewer only at the end.
  virtual absl::StatusOr<std::size_t> Read(std::uint8_t* to, std::size_t count) = 0;
};

class PlainSource final : public ByteSource {
 public:
  explicit PlainSource(absl::Span<const std::uint8_t> bytes) : rest_(bytes) {}
  absl::StatusOr<std::size_t> Read(std::uint8_t* to, std::size_t count) override {
    const auto part = rest_.subspan(0, count);
    std::copy(part.begin(), part.end(), to);
    rest_.remove_prefix(part.size());
    return part.size();
  }

 private:
  absl::Span<const std::uint8_t> rest_;
};

class GzipSource final : public ByteSource {
 public:
  explicit GzipSource(absl::Span<const std::uint8_t> bytes) : rest_(bytes) {
    constexpr int kGzipOnly = 16;
    ready_ = inflateInit2(&stream_, kGzipOnly + MAX_WBITS) == Z_OK;
  }
  ~GzipSource() override {
    if (ready_) inflateEnd(&stream_);
  }
  GzipSource(const GzipSource&) = delete;
  GzipSource& operator=(const GzipSource&) = delete;

  absl::StatusOr<std::size_t> Read(std::uint8_t* to, std::size_t count) override {
    if (!ready_) return absl::ResourceExhaustedError("zlib could not start");
    std::size_t filled = 0;
    while (filled < count && !(ended_ && rest_.empty())) {
      if (ended_) {  // another member follows: gzip files may be concatenated
        inflateReset(&stream_);
        ended_ = false;
      }
      constexpr std::size_t kPiece = std::size_t{1} << 30;  // zlib counts in 32 bits
      const std::size_t input = std::min(rest_.size(), kPiece);
      const std::size_t output = std::min(count - filled, kPiece);
      stream_.next_in = rest_.data();
      stream_.avail_in = static_cast<uInt>(input);
      stream_.next_out = to + filled;
      stream_.avail_out = static_cast<uInt>(output);
      const int code = inflate(&stream_, Z_NO_FLUSH);
      rest_.remove_prefix(input - stream_.avail_in);
      filled += output - stream_.avail_out;
      if (code == Z_STREAM_END) {
        ended_ = true;
      } else if (code == Z_BUF_ERROR || (code == Z_OK && rest_.empty() && stream_.avail_out != 0)) {
        return absl::DataLossError("truncated gzip stream, expected its end");
      } else if (code != Z_OK) {
        return absl::DataLossError(absl::StrCat("bad gzip data, expected sound ones",
                                                stream_.msg != nullptr ? ": " : "",
                                                stream_.msg != nullptr ? stream_.msg : ""));
      }
    }
    return filled;
  }

 private:
  absl::Span<const std::uint8_t> rest_;
  z_stream stream_{};
  bool ready_ = false;
  bool ended_ = false;
};

std::uint32_t BigEndian(const std::uint8_t* bytes) {
  return std::uint32_t{bytes[0]} << 24 | std::uint32_t{bytes[1]} << 16 | std::uint32_t{bytes[2]} << 8 | bytes[3];
}

std::unique_ptr<ByteSource> SourceOf(absl::Span<const std::uint8_t> file) {
  if (file.size() >= 2 && file[0] == 0x1f && file[1] == 0x8b) return std::make_unique<GzipSource>(file);
  return std::make_unique<PlainSource>(file);
}

// Of an array that has values, and not too many.
absl::StatusOr<std::vector<std::int64_t>> ReadShape(ByteSource& source, int dimensions) {
  const std::size_t header_size = 4 + 4 * static_cast<std::size_t>(dimensions);
  std::vector<std::uint8_t> header(header_size);
  const absl::StatusOr<std::size_t> header_read = source.Read(header.data(), header_size);
  if (!header_read.ok()) return header_read.status();
  const std::uint32_t expected_magic = kUnsignedBytes + static_cast<std::uint32_t>(dimensions);
  if (*header_read >= 4 && BigEndian(header.data()) != expected_magic) {
    return absl::DataLossError(
        absl::StrFormat("bad magic 0x%08x, expected 0x%08x (idx, unsigned bytes, %d dimension%s)",
                        BigEndian(header.data()), expected_magic, dimensions, dimensions == 1 ? "" : "s"));
  }
  if (*header_read < header_size) {
    return absl::DataLossError(
        absl::StrFormat("truncated: %d bytes, expected a header of %d", *header_read, header_size));
  }
  std::vector<std::int64_t> shape;
  std::uint64_t expected = 1;
  bool fits = true;
  for (int dimension = 0; dimension < dimensions; ++dimension) {
    const std::uint32_t extent = BigEndian(header.data() + 4 + std::ptrdiff_t{4} * dimension);
    shape.push_back(extent);
    fits = fits && (extent == 0 || expected <= kMaxIdxBytes / extent);
    if (fits) expected *= extent;
  }
  const std::string text = absl::StrJoin(shape, "x");
  if (!fits) {
    return absl::DataLossError(
        absl::StrFormat("the header announces %s values, more than the limit of %d", text, kMaxIdxBytes));
  }
  if (expected == 0)
    return absl::DataLossError(absl::StrFormat("the header announces no values (%s), expected one or more", text));
  return shape;
}

}  // namespace

absl::StatusOr<std::vector<std::int64_t>> ParseIdxShape(absl::Span<const std::uint8_t> beginning, int dimensions) {
  return ReadShape(*SourceOf(beginning), dimensions);
}

absl::StatusOr<IdxArray> ParseIdx(absl::Span<const std::uint8_t> file, int dimensions) {
  const std::unique_ptr<ByteSource> source = SourceOf(file);
  absl::StatusOr<std::vector<std::int64_t>> read_shape = ReadShape(*source, dimensions);
  if (!read_shape.ok()) return read_shape.status();
  IdxArray array{*std::move(read_shape), {}};
  std::uint64_t expected = 1;
  for (const std::int64_t extent : array.shape) expected *= static_cast<std::uint64_t>(extent);
  const std::string shape = absl::StrJoin(array.shape, "x");

  // In pieces: a header that lies must not make us allocate.
  constexpr std::size_t kPiece = std::size_t{4} << 20;
  while (array.values.size() < expected) {
    const std::size_t have = array.values.size();
    const std::size_t want = std::min<std::size_t>(kPiece, expected - have);
    if (array.values.capacity() < have + want) {
      array.values.reserve(std::min<std::size_t>(expected, std::max(2 * have, kPiece)));
    }
    array.values.resize(have + want);
    const absl::StatusOr<std::size_t> read = source->Read(array.values.data() + have, want);
    if (!read.ok()) return read.status();
    if (*read < want) {
      return absl::DataLossError(
          absl::StrFormat("truncated: %d values, expected %d (%s)", have + *read, expected, shape));
    }
  }
  // Reading on also makes gzip check the checksum that follows the last byte.
  std::uint8_t extra = 0;
  const absl::StatusOr<std::size_t> read = source->Read(&extra, 1);
  if (!read.ok()) return read.status();
  if (*read != 0) {
    return absl::DataLossError(absl::StrFormat("trailing bytes after the %d expected values (%s)", expected, shape));
  }
  return array;
}

}  // namespace downpour::data
