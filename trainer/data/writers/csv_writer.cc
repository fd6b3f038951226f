#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "trainer/data/transforms/numbers.h"
#include "trainer/data/transforms/transform.h"
#include "trainer/data/writers/writer.h"

namespace downpour::data {
namespace {

constexpr std::int64_t kMostElements = 10000;  // of a row: an array is a column each

// RFC 4180.
std::string Quoted(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  return absl::StrCat("\"", absl::StrReplaceAll(text, {{"\"", "\"\""}}), "\"");
}

class CsvWriter final : public SampleWriter {
 public:
  CsvWriter(const WriterOptions& options, std::unique_ptr<AppendedFile> file)
      : options_(options), file_(std::move(file)) {}

  absl::Status Begin() {
    std::string row;
    for (const Column& column : options_.columns) {
      const std::string name = Quoted(column.name);
      std::int64_t elements = 1;
      for (const std::int64_t extent : column.shape) elements *= extent;
      if (column.text || column.shape.empty()) {
        absl::StrAppend(&row, row.empty() ? "" : ",", name);
        continue;
      }
      for (std::int64_t i = 0; i < elements; ++i) absl::StrAppend(&row, row.empty() ? "" : ",", name, "_", i);
    }
    return file_->Append(row + "\n");
  }

  absl::Status Add(const Sample& sample) override {
    std::string row;
    const char* comma = "";
    for (std::size_t i = 0; i < sample.size(); ++i) {
      const std::vector<std::byte>& bytes = sample[i].bytes;
      if (options_.columns[i].text) {
        absl::StrAppend(&row, comma, Quoted({reinterpret_cast<const char*>(bytes.data()), bytes.size()}));
        comma = ",";
        continue;
      }
      WithElementType(options_.columns[i].type, [&](auto element) {
        using Element = decltype(element);
        const auto* const elements = reinterpret_cast<const Element*>(bytes.data());
        for (std::size_t j = 0; j < bytes.size() / sizeof(Element); ++j) {
          // Nine digits are enough to read the same float again.
          absl::StrAppend(&row, comma,
                          std::is_same_v<Element, float> ? absl::StrFormat("%.9g", static_cast<double>(elements[j]))
                                                         : absl::StrCat(static_cast<std::int64_t>(elements[j])));
          comma = ",";
        }
        return 0;
      });
    }
    return file_->Append(row + "\n");
  }

  absl::Status Finish() override { return file_->Commit(); }

 private:
  const WriterOptions options_;
  const std::unique_ptr<AppendedFile> file_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SampleWriter>> MakeCsvWriter(const WriterOptions& options) {
  for (const Column& column : options.columns) {
    std::int64_t elements = 1;
    for (const std::int64_t extent : column.shape)
      elements = extent == kAnyExtent ? kMostElements + 1 : elements * extent;
    if (column.text || elements <= kMostElements) continue;
    return absl::InvalidArgumentError(absl::StrCat("CSV holds text and at most ", kMostElements,
                                                   " numbers of a column, not \"", column.name, "\", ",
                                                   TypeText(column)));
  }
  absl::StatusOr<std::unique_ptr<AppendedFile>> file = AppendedFile::Create(options.directory + "/data.csv");
  if (!file.ok()) return file.status();
  auto writer = std::make_unique<CsvWriter>(options, *std::move(file));
  if (absl::Status status = writer->Begin(); !status.ok()) return status;
  return writer;
}

}  // namespace downpour::data
