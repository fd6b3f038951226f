#include "trainer/data/formats/zip.h"

#define ZLIB_CONST  // input pointers are const
#include <zlib.h>

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/status/status.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "trainer/data/encoding.h"

namespace downpour::data {
namespace {

constexpr std::uint32_t kEndSignature = 0x06054b50;
constexpr std::uint32_t kWideEndSignature = 0x06064b50;
constexpr std::uint32_t kWideLocatorSignature = 0x07064b50;
constexpr std::uint32_t kEntrySignature = 0x02014b50;
constexpr std::uint32_t kLocalSignature = 0x04034b50;
constexpr std::uint64_t kEndBytes = 22;
constexpr std::uint64_t kWideEndBytes = 56;
constexpr std::uint64_t kWideLocatorBytes = 20;
constexpr std::uint64_t kEntryBytes = 46;
constexpr std::uint64_t kLocalBytes = 30;
constexpr std::uint64_t kMostCommentBytes = 0xffff;
constexpr std::uint64_t kMostDirectoryBytes = std::uint64_t{64} << 20;
// Deflate packs no better than this.
constexpr std::uint64_t kMostRatio = 1032;

absl::Status Broken(const RandomAccessFile& file, absl::string_view what) {
  return absl::DataLossError(absl::StrCat(file.info().path, ": broken zip archive: ", what));
}

absl::StatusOr<std::string> Read(const RandomAccessFile& file, std::uint64_t offset, std::uint64_t bytes) {
  std::string text(bytes, '\0');
  const absl::Status read = file.ReadAt(offset, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
  if (!read.ok()) return read;
  return text;
}

template <typename Number>
Number At(absl::string_view bytes, std::size_t offset) {
  Number number{};
  Decoder(bytes.substr(offset)).Take(&number);
  return number;
}

struct Directory {
  std::uint64_t begin = 0;
  std::uint64_t bytes = 0;
  std::uint64_t entries = 0;
  std::uint64_t volumes = 0;  // 0: one
};

// A field of the old end record that is either full, or what the wide one has.
template <typename Number>
bool Agrees(Number narrow, std::uint64_t wide) {
  return narrow == std::numeric_limits<Number>::max() || narrow == wide;
}

absl::StatusOr<Directory> FindDirectory(const RandomAccessFile& file) {
  const std::uint64_t size = file.info().bytes;
  const std::uint64_t tail_bytes = std::min(size, kEndBytes + kMostCommentBytes + kWideLocatorBytes);
  const absl::StatusOr<std::string> tail = Read(file, size - tail_bytes, tail_bytes);
  if (!tail.ok()) return tail.status();
  std::uint64_t at = tail_bytes < kEndBytes ? 0 : tail_bytes - kEndBytes + 1;
  bool found = false;
  while (!found && at > 0) {
    --at;
    found = At<std::uint32_t>(*tail, at) == kEndSignature &&
            at + kEndBytes + At<std::uint16_t>(*tail, at + 20) == tail_bytes;
  }
  if (!found) return Broken(file, "found no end of a directory, expected one at the end of the file");
  const absl::string_view end = absl::string_view(*tail).substr(at);
  Directory directory{At<std::uint32_t>(end, 16), At<std::uint32_t>(end, 12), At<std::uint16_t>(end, 10),
                      std::uint64_t{At<std::uint16_t>(end, 4)} | At<std::uint16_t>(end, 6)};
  std::uint64_t entries_here = At<std::uint16_t>(end, 8);
  std::uint64_t directory_end = size - tail_bytes + at;
  if (at >= kWideLocatorBytes && At<std::uint32_t>(*tail, at - kWideLocatorBytes) == kWideLocatorSignature) {
    const absl::string_view locator = absl::string_view(*tail).substr(at - kWideLocatorBytes);
    const std::uint64_t locator_begin = directory_end - kWideLocatorBytes;
    directory_end = At<std::uint64_t>(locator, 8);
    if (locator_begin < kWideEndBytes || directory_end > locator_begin - kWideEndBytes) {
      return Broken(
          file, absl::StrFormat("the zip64 end is at byte %d, expected before byte %d", directory_end, locator_begin));
    }
    const absl::StatusOr<std::string> wide = Read(file, directory_end, kWideEndBytes);
    if (!wide.ok()) return wide.status();
    const Directory narrow = std::exchange(
        directory, Directory{At<std::uint64_t>(*wide, 48), At<std::uint64_t>(*wide, 40), At<std::uint64_t>(*wide, 32),
                             std::uint64_t{At<std::uint32_t>(*wide, 16)} | At<std::uint32_t>(*wide, 20) |
                                 At<std::uint32_t>(locator, 4)});
    entries_here = At<std::uint64_t>(*wide, 24);
    if (At<std::uint32_t>(*wide, 0) != kWideEndSignature ||
        At<std::uint64_t>(*wide, 4) != locator_begin - directory_end - 12 ||
        !Agrees(static_cast<std::uint32_t>(narrow.begin), directory.begin) ||
        !Agrees(static_cast<std::uint32_t>(narrow.bytes), directory.bytes) ||
        !Agrees(static_cast<std::uint16_t>(narrow.entries), directory.entries)) {
      return Broken(file, "its zip64 end and its end do not agree, expected the same numbers");
    }
  }
  if (directory.volumes != 0 || entries_here != directory.entries) {
    return absl::UnimplementedError(
        absl::StrCat(file.info().path, ": found an archive of several volumes, expected one"));
  }
  if (directory.begin > directory_end || directory.bytes != directory_end - directory.begin) {
    return Broken(file, absl::StrFormat("a directory of %d bytes at byte %d, expected it to end at byte %d",
                                        directory.bytes, directory.begin, directory_end));
  }
  if (directory.bytes > kMostDirectoryBytes) {
    return absl::UnimplementedError(absl::StrFormat("%s: found a directory of %d bytes, expected no more than %d",
                                                    file.info().path, directory.bytes, kMostDirectoryBytes));
  }
  return directory;
}

// The fields that are full in the entry are in its extra field, in this order.
bool TakeWideFields(absl::string_view extra, std::uint64_t* bytes, std::uint64_t* packed_bytes, std::uint64_t* begin) {
  constexpr std::uint64_t kFull = 0xffffffff;
  if (*bytes != kFull && *packed_bytes != kFull && *begin != kFull) return true;
  Decoder decoder(extra);
  std::uint16_t id = 0;
  std::uint16_t length = 0;
  absl::string_view content;
  while (decoder.Take(&id) && decoder.Take(&length) && decoder.TakeBytes(length, &content)) {
    if (id != 1) continue;
    Decoder wide(content);
    for (std::uint64_t* field : {bytes, packed_bytes, begin}) {
      if (*field == kFull && !wide.Take(field)) return false;
    }
    return true;
  }
  return false;
}

struct Place {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

// Sets data_begin from the header before the data.
absl::StatusOr<Place> Locate(const RandomAccessFile& file, std::uint64_t begin, std::uint16_t method,
                             const Directory& directory, ZipEntry* entry) {
  const std::uint64_t least = kLocalBytes + entry->name.size();
  const std::string name = absl::CHexEscape(entry->name);
  if (begin > directory.begin || directory.begin - begin < least) {
    return Broken(file, absl::StrFormat("\"%s\" begins at byte %d, expected before the directory at byte %d", name,
                                        begin, directory.begin));
  }
  const absl::StatusOr<std::string> local = Read(file, begin, least);
  if (!local.ok()) return local.status();
  if (At<std::uint32_t>(*local, 0) != kLocalSignature || At<std::uint16_t>(*local, 8) != method ||
      At<std::uint16_t>(*local, 26) != entry->name.size() || local->substr(kLocalBytes) != entry->name) {
    return Broken(file, absl::StrFormat("what is at byte %d is not the header of \"%s\" that the directory promises",
                                        begin, name));
  }
  entry->data_begin = begin + least + At<std::uint16_t>(*local, 28);
  if (entry->data_begin > directory.begin || entry->packed_bytes > directory.begin - entry->data_begin) {
    return Broken(file, absl::StrFormat("the %d bytes of \"%s\" at byte %d end behind the directory's begin at byte %d",
                                        entry->packed_bytes, name, entry->data_begin, directory.begin));
  }
  return Place{begin, entry->data_begin + entry->packed_bytes};
}

}  // namespace

absl::StatusOr<std::vector<ZipEntry>> ReadZipDirectory(const RandomAccessFile& file) {
  const absl::StatusOr<Directory> directory = FindDirectory(file);
  if (!directory.ok()) return directory.status();
  const absl::StatusOr<std::string> text = Read(file, directory->begin, directory->bytes);
  if (!text.ok()) return text.status();
  absl::string_view rest = *text;
  std::vector<ZipEntry> entries;
  std::vector<Place> places;
  while (!rest.empty()) {
    if (rest.size() < kEntryBytes || At<std::uint32_t>(rest, 0) != kEntrySignature) {
      return Broken(file, absl::StrFormat("entry %d of the directory is none, expected one", entries.size()));
    }
    const std::uint16_t flags = At<std::uint16_t>(rest, 8);
    const std::uint16_t method = At<std::uint16_t>(rest, 10);
    const std::uint64_t name_bytes = At<std::uint16_t>(rest, 28);
    const std::uint64_t extra_bytes = At<std::uint16_t>(rest, 30);
    const std::uint64_t comment_bytes = At<std::uint16_t>(rest, 32);
    if (rest.size() < kEntryBytes + name_bytes + extra_bytes + comment_bytes) {
      return Broken(file, absl::StrFormat("entry %d ends behind the directory, expected within it", entries.size()));
    }
    ZipEntry entry;
    entry.name = std::string(rest.substr(kEntryBytes, name_bytes));
    entry.checksum = At<std::uint32_t>(rest, 16);
    entry.packed_bytes = At<std::uint32_t>(rest, 20);
    entry.bytes = At<std::uint32_t>(rest, 24);
    std::uint64_t begin = At<std::uint32_t>(rest, 42);
    const std::string name = absl::CHexEscape(entry.name);
    if (!TakeWideFields(rest.substr(kEntryBytes + name_bytes, extra_bytes), &entry.bytes, &entry.packed_bytes,
                        &begin)) {
      return Broken(file, absl::StrFormat("\"%s\" has no sound zip64 field, expected one with its sizes", name));
    }
    rest.remove_prefix(kEntryBytes + name_bytes + extra_bytes + comment_bytes);
    constexpr std::uint16_t kEncrypted = 1;
    if ((flags & kEncrypted) != 0) {
      return absl::UnimplementedError(
          absl::StrFormat("%s: \"%s\" is encrypted, expected one that is not", file.info().path, name));
    }
    constexpr std::uint16_t kDeflated = 8;
    if (method != 0 && method != kDeflated) {
      return absl::UnimplementedError(
          absl::StrFormat("%s: \"%s\": found the method %d, expected 0 (stored) or 8 "
                          "(deflated)",
                          file.info().path, name, method));
    }
    entry.deflated = method == kDeflated;
    if (!entry.deflated && entry.packed_bytes != entry.bytes) {
      return Broken(file, absl::StrFormat("\"%s\" is stored and has %d bytes, but %d packed ones", name, entry.bytes,
                                          entry.packed_bytes));
    }
    absl::StatusOr<Place> place = Locate(file, begin, method, *directory, &entry);
    if (!place.ok()) return place.status();
    if (entry.deflated && entry.bytes / kMostRatio > entry.packed_bytes) {
      return Broken(
          file, absl::StrFormat("\"%s\" has %d bytes in %d packed ones, expected no more than deflate can pack", name,
                                entry.bytes, entry.packed_bytes));
    }
    places.push_back(*place);
    entries.push_back(std::move(entry));
  }
  if (entries.size() != directory->entries) {
    return Broken(file,
                  absl::StrFormat("the directory has %d entries, expected %d", entries.size(), directory->entries));
  }
  std::sort(places.begin(), places.end(), [](const Place& a, const Place& b) { return a.begin < b.begin; });
  for (std::size_t i = 1; i < places.size(); ++i) {
    if (places[i].begin < places[i - 1].end) {
      return Broken(file, absl::StrFormat("the entries at bytes %d and %d overlap, expected each for itself",
                                          places[i - 1].begin, places[i].begin));
    }
  }
  return entries;
}

absl::StatusOr<std::vector<std::uint8_t>> InflateZipEntry(const RandomAccessFile& file, const ZipEntry& entry) {
  const std::string name = absl::CHexEscape(entry.name);
  z_stream stream{};
  if (inflateInit2(&stream, -MAX_WBITS) != Z_OK) return absl::ResourceExhaustedError("zlib could not start");
  const absl::Cleanup end = [&stream] { inflateEnd(&stream); };
  std::vector<std::uint8_t> bytes(entry.bytes);
  std::vector<std::uint8_t> packed;
  std::uint64_t taken = 0;
  std::uint64_t filled = 0;
  std::uint32_t checksum = 0;
  int code = Z_OK;
  std::uint8_t beyond = 0;  // what comes behind the last byte shows here
  while (code != Z_STREAM_END) {
    constexpr std::uint64_t kPiece = std::uint64_t{1} << 20;
    if (stream.avail_in == 0 && taken < entry.packed_bytes) {
      packed.resize(std::min(kPiece, entry.packed_bytes - taken));
      if (absl::Status read = file.ReadAt(entry.data_begin + taken, absl::MakeSpan(packed)); !read.ok()) return read;
      taken += packed.size();
      stream.next_in = packed.data();
      stream.avail_in = static_cast<uInt>(packed.size());
    }
    const std::uint64_t want = std::min(kPiece, entry.bytes - filled);
    std::uint8_t* const to = want == 0 ? &beyond : bytes.data() + filled;
    stream.next_out = to;
    stream.avail_out = want == 0 ? 1 : static_cast<uInt>(want);
    code = inflate(&stream, Z_NO_FLUSH);
    const auto count = static_cast<std::uint64_t>(stream.next_out - to);
    if (want == 0 && count != 0) {
      return Broken(file, absl::StrFormat("\"%s\" inflates to more than the %d bytes that the directory promises", name,
                                          entry.bytes));
    }
    checksum = static_cast<std::uint32_t>(crc32(checksum, to, static_cast<uInt>(count)));
    filled += count;
    if (code == Z_BUF_ERROR && stream.avail_in == 0 && taken < entry.packed_bytes) continue;
    if (code != Z_OK && code != Z_STREAM_END) {
      return Broken(file, absl::StrFormat("\"%s\" cannot be inflated, expected sound data: %s", name,
                                          stream.msg != nullptr ? stream.msg : "it is cut off"));
    }
  }
  if (filled != entry.bytes || taken - stream.avail_in != entry.packed_bytes) {
    return Broken(file, absl::StrFormat("\"%s\" inflates from %d bytes to %d, expected from %d to %d", name,
                                        taken - stream.avail_in, filled, entry.packed_bytes, entry.bytes));
  }
  if (checksum != entry.checksum) {
    return Broken(file,
                  absl::StrFormat("\"%s\" has the checksum 0x%08x, expected 0x%08x", name, checksum, entry.checksum));
  }
  return bytes;
}

}  // namespace downpour::data
