#ifndef DOWNPOUR_TRAINER_DATA_FORMATS_CSV_ROW_H_
#define DOWNPOUR_TRAINER_DATA_FORMATS_CSV_ROW_H_

#include <cstddef>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace downpour::data {

struct CsvRow {
  enum class State {
    kComplete,
    kCut,     // `text` ends before the row does
    kBroken,  // `error` says why
  };
  State state = State::kCut;
  std::vector<std::string> fields;  // without their quotes; of a broken row those before the broken one
  std::size_t bytes = 0;            // of the row; of a broken one those before the error
  std::size_t bytes_with_end = 0;   // and of the end of its line
  std::string error;                // what was found and what is expected
};

// The row at the beginning of `text`, as RFC 4180 has it, with lines that end with LF or CRLF. `whole`: nothing follows
// `text`, so that a row may end there; then kCut is not answered.
void ParseCsvRow(absl::string_view text, bool whole, char delimiter, CsvRow* row);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_FORMATS_CSV_ROW_H_
