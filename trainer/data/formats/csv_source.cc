#include "trainer/data/formats/csv_source.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <system_error>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/charconv.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "trainer/data/encoding.h"
#include "trainer/data/files/file_window.h"
#include "trainer/data/files/open_files.h"
#include "trainer/data/formats/csv_row.h"
#include "trainer/data/formats/text_value.h"
#include "trainer/data/index_file.h"

namespace downpour::data {
namespace {

constexpr std::int64_t kGuessedRows = 1000;
constexpr std::size_t kMostRowBytes = std::size_t{64} << 20;
// Of every so manieth row the number of its line is kept, so that those of the others are found soon.
constexpr std::int64_t kRowsBetweenLines = 4096;
constexpr absl::string_view kByteOrderMark = "\xef\xbb\xbf";

bool ParseFloat(absl::string_view text, float* value) {
  text = absl::StripAsciiWhitespace(text);
  if (absl::StartsWith(text, "+") && !absl::StartsWith(text, "+-")) text.remove_prefix(1);
  if (text.empty()) return false;
  const absl::from_chars_result parsed = absl::from_chars(text.data(), text.data() + text.size(), *value);
  if (parsed.ptr != text.data() + text.size()) return false;
  // What is too small is as near to zero as a float can be; what is too large is an error.
  return parsed.ec == std::errc() || (parsed.ec == std::errc::result_out_of_range && std::abs(*value) <= 1);
}

bool ParseInteger(absl::string_view text, std::int64_t* value) { return absl::SimpleAtoi(text, value); }

// What a pass over the files finds besides the places of the rows.
struct Findings {
  std::vector<std::string> names;                                 // of the columns
  std::vector<CsvType> guesses;                                   // one a column
  std::map<std::uint32_t, std::vector<std::string>> class_names;  // by number of the column
  std::vector<std::uint64_t> lines;                               // of every kRowsBetweenLines-th row
};

std::string Encode(const Findings& findings) {
  Encoder encoder;
  encoder.Put<std::uint32_t>(static_cast<std::uint32_t>(findings.names.size()));
  for (std::size_t i = 0; i < findings.names.size(); ++i) {
    encoder.PutText(findings.names[i]);
    encoder.Put<std::uint8_t>(static_cast<std::uint8_t>(findings.guesses[i]));
  }
  encoder.Put<std::uint32_t>(static_cast<std::uint32_t>(findings.class_names.size()));
  for (const auto& [column, names] : findings.class_names) {
    encoder.Put<std::uint32_t>(column);
    encoder.Put<std::uint32_t>(static_cast<std::uint32_t>(names.size()));
    for (const std::string& name : names) encoder.PutText(name);
  }
  for (const std::uint64_t line : findings.lines) encoder.Put<std::uint64_t>(line);
  return encoder.bytes();
}

bool Decode(absl::string_view notes, Findings* findings) {
  Decoder decoder(notes);
  std::uint32_t columns = 0;
  if (!decoder.Take(&columns)) return false;
  for (std::uint32_t i = 0; i < columns; ++i) {
    std::string name;
    std::uint8_t guess = 0;
    if (!decoder.TakeText(&name) || !decoder.Take(&guess) || guess > static_cast<std::uint8_t>(CsvType::kText)) {
      return false;
    }
    findings->names.push_back(std::move(name));
    findings->guesses.push_back(static_cast<CsvType>(guess));
  }
  std::uint32_t categorical = 0;
  if (!decoder.Take(&categorical)) return false;
  for (std::uint32_t i = 0; i < categorical; ++i) {
    std::uint32_t column = 0;
    std::uint32_t classes = 0;
    if (!decoder.Take(&column) || column >= columns || !decoder.Take(&classes)) return false;
    std::vector<std::string>& names = findings->class_names[column];
    for (std::uint32_t j = 0; j < classes; ++j) {
      std::string name;
      if (!decoder.TakeText(&name)) return false;
      names.push_back(std::move(name));
    }
  }
  while (!decoder.rest().empty()) {
    if (std::uint64_t line = 0; decoder.Take(&line)) {
      findings->lines.push_back(line);
    } else {
      return false;
    }
  }
  return decoder.done();
}

// Goes through the files row by row.
class Pass {
 public:
  Pass(const Files& files, const std::vector<FileInfo>& infos, const CsvOptions& options, IndexBuilder* index)
      : files_(files), infos_(infos), options_(options), index_(*index) {}

  absl::Status Run() {
    for (file_ = 0; file_ < infos_.size(); ++file_) {
      if (absl::Status status = RunFile(); !status.ok()) return status;
    }
    if (findings_.names.empty()) {
      return absl::DataLossError(absl::StrCat(infos_[0].path, ": found no row, expected one or more"));
    }
    for (const Guess& guess : guesses_) {
      findings_.guesses.push_back(!guess.seen || !guess.real ? CsvType::kText
                                  : guess.integer            ? CsvType::kI64
                                                             : CsvType::kF32);
    }
    for (const auto& [column, categories] : categories_) findings_.class_names[column] = categories.Sorted();
    index_.SetNotes(Encode(findings_));
    return absl::OkStatus();
  }

 private:
  struct Guess {
    bool seen = false;
    bool integer = true;
    bool real = true;
  };

  absl::Status Broken(std::uint64_t line, absl::string_view what) const {
    return absl::DataLossError(absl::StrFormat("%s: line %d: %s", infos_[file_].path, line, what));
  }

  std::string ColumnText(std::size_t column) const {
    return column < findings_.names.size() ? absl::StrCat("column ", Excerpt(findings_.names[column]))
                                           : absl::StrCat("column ", column + 1);
  }

  absl::Status RunFile() {
    const absl::StatusOr<std::unique_ptr<RandomAccessFile>> file = files_.Open(infos_[file_].path);
    if (!file.ok()) return file.status();
    FileWindow window(**file);
    if (absl::Status status = window.More(); !status.ok()) return status;
    if (absl::StartsWith(window.text(), kByteOrderMark)) window.Consume(kByteOrderMark.size());
    line_ = 1;
    bool header_follows = options_.header;
    CsvRow row;
    while (!window.text().empty() || !window.at_end()) {
      const absl::string_view text = window.text();
      // An empty line; a carriage return at the end of the window may begin one.
      const std::size_t blank = absl::StartsWith(text, "\n") ? 1 : absl::StartsWith(text, "\r\n") ? 2 : 0;
      if (blank > 0) {
        window.Consume(blank);
        ++line_;
        continue;
      }
      ParseCsvRow(text, window.at_end(), options_.delimiter, &row);
      const auto lines = [&text](std::size_t bytes) {
        return static_cast<std::uint64_t>(
            std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(bytes), '\n'));
      };
      if (row.state == CsvRow::State::kBroken) {
        return Broken(line_ + lines(row.bytes), absl::StrCat(ColumnText(row.fields.size()), ": ", row.error));
      }
      const bool cut = row.state == CsvRow::State::kCut;
      if ((cut ? text.size() : row.bytes) > kMostRowBytes) {
        return Broken(line_, absl::StrFormat("found a row of more than %d bytes, expected shorter ones: is a quote not "
                                             "closed?",
                                             kMostRowBytes));
      }
      if (cut) {
        if (absl::Status status = window.More(); !status.ok()) return status;
        continue;
      }
      const IndexEntry entry{file_, window.offset(), row.bytes};
      if (absl::Status status = header_follows ? TakeHeader(row.fields) : TakeRow(entry, row.fields); !status.ok()) {
        return status;
      }
      header_follows = false;
      line_ += lines(row.bytes_with_end);
      window.Consume(row.bytes_with_end);
    }
    if (header_follows) return Broken(line_, "found the end of the file, expected a header");
    return absl::OkStatus();
  }

  absl::Status SetNames(std::vector<std::string> names) {
    guesses_.resize(names.size());
    std::set<std::string> unique;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (const std::size_t bad = FindBadText(names[i]); bad != absl::string_view::npos) {
        return Broken(line_, absl::StrFormat("the name of column %d: %s", i + 1, DescribeBadText(names[i], bad)));
      }
      if (!unique.insert(names[i]).second) {
        return Broken(line_,
                      absl::StrFormat("found the column %s twice, expected names that differ", Excerpt(names[i])));
      }
      const auto option = options_.columns.find(names[i]);
      if (option != options_.columns.end() && option->second.type == CsvType::kCategorical &&
          option->second.class_names.empty()) {
        categories_[static_cast<std::uint32_t>(i)];
      }
    }
    findings_.names = std::move(names);
    return absl::OkStatus();
  }

  absl::Status TakeHeader(std::vector<std::string> names) {
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i].empty()) names[i] = absl::StrCat("column_", i);
    }
    if (findings_.names.empty()) return SetNames(std::move(names));
    if (names == findings_.names) return absl::OkStatus();
    return Broken(line_,
                  absl::StrFormat("found the columns %s, expected those of %s: %s", Excerpt(absl::StrJoin(names, ", ")),
                                  infos_[0].path, Excerpt(absl::StrJoin(findings_.names, ", "))));
  }

  absl::Status TakeRow(const IndexEntry& entry, const std::vector<std::string>& fields) {
    if (findings_.names.empty()) {
      std::vector<std::string> names;
      for (std::size_t i = 0; i < fields.size(); ++i) names.push_back(absl::StrCat("column_", i));
      if (absl::Status status = SetNames(std::move(names)); !status.ok()) return status;
    }
    if (fields.size() != findings_.names.size()) {
      return Broken(line_, absl::StrFormat("found %d fields, expected %d: %s", fields.size(), findings_.names.size(),
                                           Excerpt(absl::StrJoin(findings_.names, ", "))));
    }
    if (rows_ < kGuessedRows) {
      for (std::size_t i = 0; i < fields.size(); ++i) LookAt(fields[i], &guesses_[i]);
    }
    for (auto& [column, categories] : categories_) {
      if (absl::Status status = categories.Add(fields[column]); !status.ok()) {
        return absl::Status(status.code(), absl::StrFormat("%s: line %d: %s: %s", infos_[file_].path, line_,
                                                           ColumnText(column), status.message()));
      }
    }
    if (rows_ % kRowsBetweenLines == 0) findings_.lines.push_back(line_);
    ++rows_;
    return index_.Add(entry);
  }

  static void LookAt(const std::string& field, Guess* guess) {
    if (field.empty()) return;
    guess->seen = true;
    std::int64_t integer = 0;
    float real = 0;
    guess->integer = guess->integer && ParseInteger(field, &integer);
    guess->real = guess->real && ParseFloat(field, &real);
  }

  const Files& files_;
  const std::vector<FileInfo>& infos_;
  const CsvOptions& options_;
  IndexBuilder& index_;
  Findings findings_;
  std::vector<Guess> guesses_;
  std::map<std::uint32_t, CategoriesBuilder> categories_;
  std::uint32_t file_ = 0;
  std::uint64_t line_ = 1;  // at which the row begins
  std::int64_t rows_ = 0;
};

struct CsvField {
  CsvType type = CsvType::kText;
  Categories categories;
};

// The value of a field; else false, and `expected` says what it should be.
bool ParseField(const CsvField& field, const std::string& text, Value* value, std::string* expected) {
  std::int64_t integer = 0;
  const bool is_integer = ParseInteger(text, &integer);
  switch (field.type) {
    case CsvType::kU8:
      *expected = "a number from 0 to 255 (u8)";
      if (!is_integer || integer < 0 || integer > 255) return false;
      *value = NumberValue(static_cast<std::uint8_t>(integer));
      return true;
    case CsvType::kI32:
      *expected = "an integer of 32 bits (i32)";
      if (!is_integer || integer < std::numeric_limits<std::int32_t>::min() ||
          integer > std::numeric_limits<std::int32_t>::max()) {
        return false;
      }
      *value = NumberValue(static_cast<std::int32_t>(integer));
      return true;
    case CsvType::kI64:
      *expected = "an integer of 64 bits (i64)";
      if (!is_integer) return false;
      *value = NumberValue(integer);
      return true;
    case CsvType::kF32: {
      *expected = "a number that a 32 bit float can hold (f32)";
      float number = 0;
      if (!ParseFloat(text, &number)) return false;
      *value = NumberValue(number);
      return true;
    }
    case CsvType::kCategorical: {
      *expected = absl::StrFormat("one of the %d classes", field.categories.names().size());
      const std::int64_t id = field.categories.IdOf(text);
      if (id < 0) return false;
      *value = NumberValue(id);
      return true;
    }
    case CsvType::kText:
      break;
  }
  *value = TextValue(text);
  return true;
}

class CsvSource final : public SampleSource {
 public:
  CsvSource(const Files& files, IndexFile index, char delimiter, std::vector<std::uint64_t> lines,
            std::vector<Column> columns, std::vector<CsvField> fields)
      : index_(std::move(index)),
        files_(files, index_.files()),
        delimiter_(delimiter),
        lines_(std::move(lines)),
        columns_(std::move(columns)),
        fields_(std::move(fields)) {}

  std::int64_t size() const override { return index_.size(); }
  const std::vector<Column>& columns() const override { return columns_; }

  absl::StatusOr<Sample> Read(std::int64_t index) const override {
    const IndexEntry entry = index_.entry(index);
    const absl::StatusOr<std::shared_ptr<const RandomAccessFile>> file = files_.Open(entry.file);
    if (!file.ok()) return file.status();
    std::string text(entry.bytes, '\0');
    if (absl::Status read = (*file)->ReadAt(entry.offset, {reinterpret_cast<std::uint8_t*>(text.data()), text.size()});
        !read.ok()) {
      return read;
    }
    CsvRow row;
    ParseCsvRow(text, /*whole=*/true, delimiter_, &row);
    if (row.state != CsvRow::State::kComplete || row.bytes != text.size() || row.fields.size() != fields_.size()) {
      return Broken(**file, index, "found no row of these columns, expected the one that was there before");
    }
    Sample sample(fields_.size());
    for (std::size_t i = 0; i < fields_.size(); ++i) {
      const std::string& field = row.fields[i];
      std::string problem;
      if (const std::size_t bad = FindBadText(field); bad != absl::string_view::npos) {
        problem = DescribeBadText(field, bad);
      } else if (std::string expected; !ParseField(fields_[i], field, &sample[i], &expected)) {
        problem = field.empty() ? absl::StrCat("found an empty field, expected ", expected)
                                : absl::StrCat("found ", Excerpt(field), ", expected ", expected);
      } else {
        continue;
      }
      return Broken(**file, index, absl::StrCat("column ", Excerpt(columns_[i].name), ": ", problem));
    }
    return sample;
  }

 private:
  absl::Status Broken(const RandomAccessFile& file, std::int64_t index, absl::string_view what) const {
    return absl::DataLossError(absl::StrCat(file.info().path, ": ", PlaceOf(file, index), ": ", what));
  }

  // "line 7": counted from the last row before it whose line is known.
  std::string PlaceOf(const RandomAccessFile& file, std::int64_t index) const {
    const IndexEntry entry = index_.entry(index);
    const std::int64_t known = index / kRowsBetweenLines;
    const IndexEntry before = index_.entry(known * kRowsBetweenLines);
    std::uint64_t offset = 0;
    std::uint64_t line = 1;
    if (before.file == entry.file && static_cast<std::size_t>(known) < lines_.size()) {
      offset = before.offset;
      line = lines_[static_cast<std::size_t>(known)];
    }
    std::vector<std::uint8_t> block;
    while (offset < entry.offset) {
      constexpr std::uint64_t kBlock = std::uint64_t{1} << 20;
      block.resize(std::min(kBlock, entry.offset - offset));
      if (!file.ReadAt(offset, absl::MakeSpan(block)).ok()) return absl::StrFormat("byte %d", entry.offset);
      line += static_cast<std::uint64_t>(std::count(block.begin(), block.end(), '\n'));
      offset += block.size();
    }
    return absl::StrFormat("line %d", line);
  }

  const IndexFile index_;
  const OpenFiles files_;
  const char delimiter_;
  const std::vector<std::uint64_t> lines_;
  const std::vector<Column> columns_;
  const std::vector<CsvField> fields_;
};

absl::Status CheckOptions(const CsvOptions& options) {
  if (absl::StrContains(absl::string_view("\"\r\n\0", 4), absl::string_view(&options.delimiter, 1))) {
    return absl::InvalidArgumentError(absl::StrFormat("found %s as delimiter, expected another character",
                                                      Excerpt(absl::string_view(&options.delimiter, 1))));
  }
  for (const auto& [name, column] : options.columns) {
    if (column.class_names.empty()) continue;
    if (column.type != CsvType::kCategorical) {
      return absl::InvalidArgumentError(
          absl::StrFormat("column %s: found names of classes, but it is not categorical", Excerpt(name)));
    }
    const std::set<std::string> unique(column.class_names.begin(), column.class_names.end());
    if (unique.size() != column.class_names.size()) {
      return absl::InvalidArgumentError(
          absl::StrFormat("column %s: found the name of a class twice, expected names that differ", Excerpt(name)));
    }
  }
  return absl::OkStatus();
}

// With all that decides what the pass finds.
std::string IndexFormat(const CsvOptions& options) {
  std::string format = absl::StrFormat("csv 1, delimiter %d, header %d", options.delimiter, options.header ? 1 : 0);
  for (const auto& [name, column] : options.columns) {
    if (column.type != CsvType::kCategorical || !column.class_names.empty()) continue;
    absl::StrAppend(&format, ", categorical ", name.size(), ":", name);
  }
  return format;
}

Column MakeColumn(const std::string& name, const CsvField& field) {
  Column column;
  column.name = name;
  switch (field.type) {
    case CsvType::kU8:
      column.type = ElementType::kU8;
      break;
    case CsvType::kI32:
      column.type = ElementType::kI32;
      break;
    case CsvType::kI64:
      column.type = ElementType::kI64;
      break;
    case CsvType::kF32:
      column.type = ElementType::kF32;
      break;
    case CsvType::kText:
      column.type = ElementType::kU8;
      column.shape = {kAnyExtent};
      column.text = true;
      break;
    case CsvType::kCategorical:
      column.type = ElementType::kI64;
      column.class_names = field.categories.names();
      column.classes = static_cast<std::int64_t>(column.class_names.size());
      break;
  }
  return column;
}

}  // namespace

absl::StatusOr<std::unique_ptr<SampleSource>> OpenCsv(const Files& files, const std::string& path,
                                                      const CsvOptions& options) {
  if (absl::Status checked = CheckOptions(options); !checked.ok()) {
    return absl::Status(checked.code(), absl::StrCat(path, ": ", checked.message()));
  }
  const absl::StatusOr<std::vector<FileInfo>> infos = ListFiles(files, path, options.suffix);
  if (!infos.ok()) return infos.status();
  std::vector<std::string> paths;
  for (const FileInfo& info : *infos) paths.push_back(info.path);
  absl::StatusOr<IndexFile> index =
      OpenOrBuild(files, paths, IndexFormat(options), options.cache_directory,
                  [&](IndexBuilder& builder) { return Pass(files, *infos, options, &builder).Run(); });
  if (!index.ok()) return index.status();
  Findings findings;
  if (!Decode(index->notes(), &findings)) {
    return absl::InternalError(absl::StrCat(path, ": the notes of its index cannot be read"));
  }
  for (const auto& [name, column] : options.columns) {
    if (std::find(findings.names.begin(), findings.names.end(), name) == findings.names.end()) {
      return absl::InvalidArgumentError(absl::StrFormat("%s: found no column %s, expected one of %s", path,
                                                        Excerpt(name), absl::StrJoin(findings.names, ", ")));
    }
  }
  std::vector<Column> columns;
  std::vector<CsvField> fields;
  for (std::size_t i = 0; i < findings.names.size(); ++i) {
    CsvField field{findings.guesses[i], {}};
    if (const auto option = options.columns.find(findings.names[i]); option != options.columns.end()) {
      field.type = option->second.type;
      field.categories =
          Categories(option->second.class_names.empty() ? findings.class_names[static_cast<std::uint32_t>(i)]
                                                        : option->second.class_names);
    }
    columns.push_back(MakeColumn(findings.names[i], field));
    fields.push_back(std::move(field));
  }
  return std::make_unique<CsvSource>(files, *std::move(index), options.delimiter, std::move(findings.lines),
                                     std::move(columns), std::move(fields));
}

}  // namespace downpour::data
