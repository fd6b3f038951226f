#include "trainer/data/formats/tar.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "trainer/data/encoding.h"
#include "trainer/data/formats/text_value.h"

namespace downpour::data {
namespace {

constexpr std::uint64_t kBlock = 512;
constexpr std::uint64_t kMostExtensionBytes = std::uint64_t{1} << 20;  // of a long name or a pax header

// Fields of a header: first byte, length.
constexpr std::pair<std::size_t, std::size_t> kName = {0, 100};
constexpr std::pair<std::size_t, std::size_t> kSize = {124, 12};
constexpr std::pair<std::size_t, std::size_t> kChecksum = {148, 8};
constexpr std::size_t kType = 156;
constexpr std::pair<std::size_t, std::size_t> kMagic = {257, 6};
constexpr std::pair<std::size_t, std::size_t> kPrefix = {345, 155};

absl::string_view FieldOf(absl::string_view header, std::pair<std::size_t, std::size_t> field) {
  return header.substr(field.first, field.second);
}

absl::string_view UntilZero(absl::string_view text) { return text.substr(0, text.find('\0')); }

// Octal digits, or as GNU writes what has too many of them, a big-endian number behind a byte 0x80.
std::optional<std::uint64_t> Number(absl::string_view field) {
  const bool binary = static_cast<std::uint8_t>(field[0]) == 0x80;
  std::uint64_t number = 0;
  if (!binary) {
    field = UntilZero(field);
    field = absl::StripAsciiWhitespace(field);
  } else {
    field.remove_prefix(1);
  }
  for (const char c : field) {
    if (number >> 55U != 0 || (!binary && (c < '0' || c > '7'))) return std::nullopt;
    number = binary ? number << 8U | static_cast<std::uint8_t>(c) : number << 3U | static_cast<std::uint64_t>(c - '0');
  }
  return number;
}

std::uint64_t Checksum(absl::string_view header) {
  std::uint64_t sum = 0;
  for (std::size_t i = 0; i < header.size(); ++i) {
    const bool itself = i - kChecksum.first < kChecksum.second;  // counts as spaces
    sum += itself ? std::uint8_t{' '} : static_cast<std::uint8_t>(header[i]);
  }
  return sum;
}

const char* TypeName(char type) {
  switch (type) {
    case '1':
      return "a hard link";
    case '2':
      return "a symbolic link";
    case '3':
    case '4':
      return "a device";
    case '6':
      return "a pipe";
    case 'S':
      return "a sparse file";
    default:
      return "of a kind that is not known";
  }
}

// What headers before that of an entry say of it.
struct Extension {
  std::optional<std::string> name;
  std::optional<std::uint64_t> bytes;
};

// Records "LENGTH KEY=VALUE\n" of a pax header. Empty: they are sound.
std::string ParsePax(absl::string_view records, Extension* extension) {
  while (!records.empty()) {
    const std::size_t space = records.find(' ');
    std::uint64_t length = 0;
    if (space == absl::string_view::npos || !absl::SimpleAtoi(records.substr(0, space), &length) ||
        length > records.size() || length < space + 2 || records[length - 1] != '\n') {
      return "a pax header with a record that is none, expected LENGTH KEY=VALUE";
    }
    const absl::string_view record = records.substr(space + 1, length - space - 2);
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(record, absl::MaxSplits('=', 1));
    records.remove_prefix(length);
    if (parts.first == "path") extension->name = std::string(parts.second);
    if (parts.first == "size") {
      extension->bytes.emplace();
      if (!absl::SimpleAtoi(parts.second, &*extension->bytes))
        return "a pax header with a size that is none, expected a number";
    }
    if (absl::StartsWith(parts.first, "GNU.sparse.")) return "a sparse file, expected a regular one";
  }
  return "";
}

bool LeavesItsFolder(absl::string_view name) {
  const std::vector<absl::string_view> parts = absl::StrSplit(name, '/');
  return std::find(parts.begin(), parts.end(), "..") != parts.end();
}

}  // namespace

absl::Status TarReader::Error(std::uint64_t offset, const std::string& what) const {
  return absl::DataLossError(absl::StrFormat("%s: byte %d: %s", ahead_.path(), offset, what));
}

// Archives that were put behind each other would otherwise be read as the first of them.
absl::Status TarReader::ExpectZeros() {
  while (offset_ < ahead_.end()) {
    const auto bytes = ahead_.Read(offset_, std::min(kBlock, ahead_.end() - offset_));
    if (!bytes.ok()) return bytes.status();
    if (AsText(*bytes).find_first_not_of('\0') != absl::string_view::npos) {
      return Error(offset_, "something behind the end of the archive, expected zeros");
    }
    offset_ += bytes->size();
  }
  return absl::OkStatus();
}

absl::StatusOr<std::optional<TarEntry>> TarReader::Next() {
  TarEntry entry;
  entry.begin = offset_;
  Extension extension;
  while (offset_ < ahead_.end()) {
    const std::uint64_t at = offset_;
    if (ahead_.end() - at < kBlock) {
      return Error(at, absl::StrFormat("%d bytes are left, expected a header of %d", ahead_.end() - at, kBlock));
    }
    auto bytes = ahead_.Read(at, kBlock);
    if (!bytes.ok()) return bytes.status();
    const std::string block(AsText(*bytes));
    if (block.find_first_not_of('\0') == std::string::npos) {
      if (at != entry.begin) return Error(at, "the archive ends, expected the entry that the headers before are of");
      if (absl::Status status = ExpectZeros(); !status.ok()) return status;
      return std::nullopt;
    }
    const std::optional<std::uint64_t> checksum = Number(FieldOf(block, kChecksum));
    if (!checksum.has_value() || *checksum != Checksum(block)) {
      return Error(at,
                   absl::StrFormat("is no tar header: checksum %s, expected %d",
                                   checksum.has_value() ? absl::StrCat(*checksum) : "without digits", Checksum(block)));
    }
    const char type = block[kType];
    const bool extends = type == 'x' || type == 'g' || type == 'L' || type == 'K';

    std::string name(UntilZero(FieldOf(block, kName)));
    if (FieldOf(block, kMagic) == absl::string_view("ustar\0", 6) && block[kPrefix.first] != 0) {
      name = absl::StrCat(UntilZero(FieldOf(block, kPrefix)), "/", name);
    }
    if (!extends && extension.name.has_value()) name = *extension.name;
    std::optional<std::uint64_t> size = Number(FieldOf(block, kSize));
    if (!extends && extension.bytes.has_value()) size = extension.bytes;
    if (!size.has_value())
      return Error(at, absl::StrCat("entry ", Excerpt(name), " has a size that is no number, expected octal digits"));

    const std::uint64_t data = at + kBlock;
    if (*size > ahead_.end() - data) {
      return Error(at, absl::StrFormat("entry %s has %d bytes, but the file ends after %d", Excerpt(name), *size,
                                       ahead_.end() - data));
    }
    offset_ = std::min(data + (*size + kBlock - 1) / kBlock * kBlock, ahead_.end());

    if (extends) {
      if (type == 'g' || type == 'K') continue;
      if (*size > kMostExtensionBytes) {
        return Error(at, absl::StrFormat("a header of %d bytes, expected %d at most", *size, kMostExtensionBytes));
      }
      bytes = ahead_.Read(data, *size);
      if (!bytes.ok()) return bytes.status();
      if (type == 'L') {
        extension.name = std::string(UntilZero(AsText(*bytes)));
      } else if (const std::string wrong = ParsePax(AsText(*bytes), &extension); !wrong.empty()) {
        return Error(at, wrong);
      }
      continue;
    }
    if (type == '5' || (type == '\0' && absl::EndsWith(name, "/"))) {
      entry.begin = offset_;
      extension = Extension();
      continue;
    }
    if (type != '0' && type != '\0' && type != '7') {
      return Error(at, absl::StrCat("entry ", Excerpt(name), " is ", TypeName(type), ", expected a regular file"));
    }
    absl::string_view rest = name;
    while (absl::ConsumePrefix(&rest, "./")) {
    }
    if (rest.empty()) return Error(at, "an entry without a name, expected one");
    if (rest[0] == '/')
      return Error(
          at, absl::StrCat("entry ", Excerpt(name), " has an absolute name, expected one that begins without a slash"));
    if (LeavesItsFolder(rest))
      return Error(
          at, absl::StrCat("entry ", Excerpt(name), " has \"..\" in its name, expected one that stays in its folder"));
    entry.name = std::string(rest);
    entry.data = data;
    entry.bytes = *size;
    entry.end = offset_;
    return entry;
  }
  if (offset_ != entry.begin) {
    return Error(offset_, "the file ends, expected the entry that the headers before are of");
  }
  return std::nullopt;
}

}  // namespace downpour::data
