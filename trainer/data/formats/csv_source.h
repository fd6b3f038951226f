#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_CSV_SOURCE_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_CSV_SOURCE_H_

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/files/files.h"
#include "trainer/data/sample_source.h"

namespace downpour::data {

enum class CsvType {
  kU8,
  kI32,
  kI64,
  kF32,
  kText,
  kCategorical,  // kI64: the number of the text among those of the column
};

struct CsvColumn {
  CsvType type = CsvType::kF32;
  // Of a categorical column, in the order of their numbers; none: those that are in the files, sorted: as numbers if
  // all are integers, else by their bytes.
  std::vector<std::string> class_names;
};

struct CsvOptions {
  bool header = true;  // the first row of each file has the names of the columns; else they are column_0, column_1, ...
  char delimiter = ',';
  // By name. The others are i64, f32 or text, whichever of these is the first to hold what the first 1,000 rows have
  // there; empty fields do not count.
  std::map<std::string, CsvColumn> columns;
  std::string suffix = ".csv";  // of the files of a directory that are read
  std::string cache_directory;  // of index files (index_file.h); empty: an index is built each time
};

// Rows of text (RFC 4180): a file, or all of a directory one after another, whose headers are the same. A column that
// has no name is called column_N. Lines end with LF or CRLF, empty ones are left out, and so is a byte order mark.
// Blanks around numbers are ignored. An empty field is no number.
// Opening goes through all rows once (index_file.h): a row with more or fewer fields, a quote that is not closed or not
// where one may be, a carriage return alone, and a row above 64 MiB are errors of opening, kDataLoss; so is what is
// wrong with a header. Errors of opening also are kInvalidArgument for options that do not fit the files. What else is
// wrong with a field (its type, NUL, what is not UTF-8, a text that is no class) is an error of Read. Must not outlive
// `files`.
absl::StatusOr<std::unique_ptr<SampleSource>> OpenCsv(const Files& files, const std::string& path,
                                                      const CsvOptions& options);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_CSV_SOURCE_H_
