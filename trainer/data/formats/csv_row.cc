#include "trainer/data/formats/csv_row.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/data/formats/text_value.h"

namespace downpour::data {
namespace {

constexpr std::size_t kMostFields = 100'000;

class Parser {
 public:
  Parser(absl::string_view text, bool whole, char delimiter, CsvRow* row)
      : text_(text), whole_(whole), delimiter_(delimiter), special_{delimiter, '\n', '\r', '"'}, row_(*row) {}

  void Parse() {
    row_ = {};
    while (true) {
      if (row_.fields.size() == kMostFields) {
        Broken(absl::StrFormat("found more than %d fields, expected no more", kMostFields));
        return;
      }
      std::string field;
      const bool quoted = at_ < text_.size() && text_[at_] == '"';
      if (!(quoted ? TakeQuoted(&field) : TakePlain(&field))) return;
      row_.fields.push_back(std::move(field));
      if (at_ < text_.size() && text_[at_] == delimiter_) {
        ++at_;
        continue;
      }
      TakeEnd();
      return;
    }
  }

 private:
  // Where the text ends and the row does not.
  bool Cut(const char* error) { return whole_ ? Broken(error) : false; }

  bool Broken(std::string error) {
    row_.state = CsvRow::State::kBroken;
    row_.bytes = at_;
    row_.error = std::move(error);
    return false;
  }

  bool TakePlain(std::string* field) {
    std::size_t end = text_.find_first_of(absl::string_view(special_, sizeof(special_)), at_);
    if (end == absl::string_view::npos) {
      if (!whole_) return false;
      end = text_.size();
    }
    *field = std::string(text_.substr(at_, end - at_));
    at_ = end;
    if (at_ < text_.size() && text_[at_] == '"') {
      return Broken(absl::StrCat("found a quote behind ", Excerpt(*field),
                                 ", expected the whole field in quotes, and those within it twice"));
    }
    return true;
  }

  bool TakeQuoted(std::string* field) {
    std::size_t from = at_ + 1;
    while (true) {
      const std::size_t quote = text_.find('"', from);
      if (quote == absl::string_view::npos)
        return Cut("found the end of the file, expected a quote that closes the field");
      field->append(text_.data() + from, quote - from);
      if (quote + 1 == text_.size() && !whole_) return false;
      if (quote + 1 == text_.size() || text_[quote + 1] != '"') {
        at_ = quote + 1;
        return true;
      }
      field->push_back('"');
      from = quote + 2;
    }
  }

  void TakeEnd() {
    std::size_t end = at_;
    if (at_ < text_.size() && text_[at_] == '\r') {
      if (at_ + 1 == text_.size() && !whole_) return;
      ++end;
      if (end == text_.size() || text_[end] != '\n') {
        row_.fields.pop_back();
        Broken("found a carriage return without a line feed, expected both or a line feed alone");
        return;
      }
    }
    if (end < text_.size() && text_[end] != '\n') {  // behind a quote: other fields reach up to here
      row_.fields.pop_back();
      Broken(absl::StrCat("found ", Excerpt(text_.substr(end, 1)), " behind the quote that closes the field, expected ",
                          Excerpt(absl::string_view(&delimiter_, 1)), " or the end of the line"));
      return;
    }
    if (end == text_.size() && !whole_) return;
    row_.state = CsvRow::State::kComplete;
    row_.bytes = at_;
    row_.bytes_with_end = end < text_.size() ? end + 1 : end;
  }

  const absl::string_view text_;
  const bool whole_;
  const char delimiter_;
  const char special_[4];
  CsvRow& row_;
  std::size_t at_ = 0;
};

}  // namespace

void ParseCsvRow(absl::string_view text, bool whole, char delimiter, CsvRow* row) {
  Parser(text, whole, delimiter, row).Parse();
}

}  // namespace downpour::data
