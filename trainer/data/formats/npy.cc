#include "trainer/data/formats/npy.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "trainer/data/encoding.h"
#include "trainer/data/formats/array_source.h"

namespace downpour::data {
namespace {

constexpr absl::string_view kMagic = "\x93NUMPY";
// Only types that we refuse have longer ones.
constexpr std::uint64_t kMostHeaderBytes = std::uint64_t{1} << 20;

// The literal of a Python dictionary with the members 'descr', 'fortran_order' and 'shape', each once.
class HeaderParser {
 public:
  explicit HeaderParser(absl::string_view text) : rest_(text) {}

  bool Parse() {
    if (!Skip("{")) return false;
    std::set<std::string> found;
    while (!Skip("}")) {
      std::string key;
      if (!ParseText(&key) || !Skip(":") || !found.insert(key).second) return false;
      if (key == "descr") {
        if (!ParseDescription()) return false;
      } else if (key == "fortran_order") {
        fortran_order = Skip("True");
        if (!fortran_order && !Skip("False")) return false;
      } else if (key != "shape" || !ParseShape()) {
        return false;
      }
      if (Skip(",")) continue;
      if (!Skip("}")) return false;
      break;
    }
    return found.size() == 3 && Rest().empty();
  }

  std::string descr;
  bool structured = false;  // descr is a list of fields
  bool fortran_order = false;
  std::vector<std::int64_t> shape;

 private:
  absl::string_view Rest() { return rest_ = absl::StripLeadingAsciiWhitespace(rest_); }

  bool Skip(absl::string_view token) {
    Rest();
    return absl::ConsumePrefix(&rest_, token);
  }

  bool ParseText(std::string* text) {
    if (Rest().empty() || (rest_[0] != '\'' && rest_[0] != '"')) return false;
    const std::size_t end = rest_.find(rest_[0], 1);
    if (end == absl::string_view::npos) return false;
    *text = std::string(rest_.substr(1, end - 1));
    rest_.remove_prefix(end + 1);
    return text->find('\\') == std::string::npos;
  }

  bool ParseDescription() {
    if (ParseText(&descr)) return true;
    // What is in it does not matter, and what follows neither: such an array is refused.
    structured = Skip("[");
    return false;
  }

  bool ParseShape() {
    if (!Skip("(")) return false;
    while (!Skip(")")) {
      Rest();
      const auto end = std::find_if_not(rest_.begin(), rest_.end(), [](char c) { return c >= '0' && c <= '9'; });
      const auto digits = static_cast<std::size_t>(end - rest_.begin());
      std::int64_t extent = 0;
      if (digits == 0 || !absl::SimpleAtoi(rest_.substr(0, digits), &extent)) return false;
      shape.push_back(extent);
      rest_.remove_prefix(digits);
      if (Skip(",")) continue;
      // One number in brackets is no tuple.
      return shape.size() > 1 && Skip(")");
    }
    return true;
  }

  absl::string_view rest_;
};

absl::StatusOr<std::pair<StoredType, bool>> ParseType(const std::string& descr) {
  static constexpr std::pair<const char*, StoredType> kTypes[] = {
      {"b1", StoredType::kBool}, {"i1", StoredType::kI8},  {"u1", StoredType::kU8},  {"i2", StoredType::kI16},
      {"u2", StoredType::kU16},  {"i4", StoredType::kI32}, {"u4", StoredType::kU32}, {"i8", StoredType::kI64},
      {"u8", StoredType::kU64},  {"f2", StoredType::kF16}, {"f4", StoredType::kF32}, {"f8", StoredType::kF64}};
  for (const auto& [name, type] : kTypes) {
    if (descr.size() != 3 || descr.substr(1) != name) continue;
    const bool one_byte = BytesOf(type) == 1;
    // '=': as the machine has it, little-endian.
    if (descr[0] == '<' || descr[0] == '=' || (one_byte && descr[0] == '|')) return std::pair(type, false);
    if (descr[0] == '>') return std::pair(type, !one_byte);
  }
  return absl::UnimplementedError(
      absl::StrFormat("found elements of type '%s', expected bool, i1, u1, i2, u2, i4, u4, i8, u8, f2, f4 or f8, as "
                      "'<f4'",
                      absl::CHexEscape(descr.substr(0, 40))));
}

}  // namespace

absl::StatusOr<NpyHeader> ReadNpyHeader(const RandomAccessFile& file, std::uint64_t begin, std::uint64_t bytes) {
  constexpr std::uint64_t kVersionEnd = 8;  // behind the magic and two bytes for the version
  std::vector<std::uint8_t> start(std::min<std::uint64_t>(bytes, kVersionEnd + 4));
  if (absl::Status read = file.ReadAt(begin, absl::MakeSpan(start)); !read.ok()) return read;
  const absl::string_view magic = AsText(start).substr(0, kMagic.size());
  if (magic != kMagic) {
    return absl::DataLossError(absl::StrFormat("found \"%s\" at the beginning, expected \"%s\": is no array of NumPy",
                                               absl::CHexEscape(magic), absl::CHexEscape(kMagic)));
  }
  const std::uint64_t length_bytes = start.size() > 6 && start[6] == 1 ? 2 : 4;
  if (start.size() < kVersionEnd + length_bytes) {
    return absl::DataLossError(
        absl::StrFormat("found %d bytes, too few for the header of an array, expected more", bytes));
  }
  if (start[6] < 1 || start[6] > 3 || start[7] != 0) {
    return absl::UnimplementedError(
        absl::StrFormat("found format version %d.%d, expected 1.0, 2.0 or 3.0", start[6], start[7]));
  }
  std::uint64_t length = 0;
  for (std::uint64_t i = 0; i < length_bytes; ++i) length |= std::uint64_t{start[kVersionEnd + i]} << 8 * i;
  const std::uint64_t text_begin = kVersionEnd + length_bytes;
  const std::uint64_t most = std::min(kMostHeaderBytes, bytes - text_begin);
  if (length > most) {
    return absl::DataLossError(absl::StrFormat("found a header of %d bytes, expected no more than %d", length, most));
  }
  std::vector<std::uint8_t> text(length);
  if (absl::Status read = file.ReadAt(begin + text_begin, absl::MakeSpan(text)); !read.ok()) return read;

  HeaderParser parser(AsText(text));
  if (!parser.Parse()) {
    if (parser.structured) {
      return absl::UnimplementedError("found elements of several fields, expected plain numbers: save a file a field");
    }
    return absl::DataLossError(
        absl::StrFormat("found the header \"%s\", expected {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4), }",
                        absl::CHexEscape(absl::StripAsciiWhitespace(AsText(text)).substr(0, 200))));
  }
  const absl::StatusOr<std::pair<StoredType, bool>> type = ParseType(parser.descr);
  if (!type.ok()) return type.status();
  if (parser.fortran_order && parser.shape.size() > 1) {
    return absl::UnimplementedError(
        absl::StrFormat("found an array of shape %s in Fortran order, in which a sample does not lie in one piece, "
                        "expected C order: save numpy.ascontiguousarray(array)",
                        ShapeText(parser.shape)));
  }
  NpyHeader header{type->first, type->second, std::move(parser.shape), text_begin + length};
  std::uint64_t expected = 0;
  if (!BytesOfShape(header.shape, BytesOf(header.type), &expected) || expected != bytes - header.data_begin) {
    return absl::DataLossError(absl::StrFormat("found %d bytes of values, expected those of %s elements '%s'",
                                               bytes - header.data_begin, ShapeText(header.shape), parser.descr));
  }
  return header;
}

}  // namespace downpour::data
