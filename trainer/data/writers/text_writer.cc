#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/data/writers/writer.h"

namespace downpour::data {
namespace {

// A label, a tab, a text: numbers of words become the words w1, w2, ...
class TextWriter final : public SampleWriter {
 public:
  TextWriter(int text, int label, Column label_column, bool numbers, std::unique_ptr<AppendedFile> file)
      : text_(text), label_(label), label_column_(std::move(label_column)), numbers_(numbers), file_(std::move(file)) {}

  absl::Status Add(const Sample& sample) override {
    const std::int64_t label = IntegerOf(sample[static_cast<std::size_t>(label_)], label_column_.type);
    const auto number = static_cast<std::size_t>(label);
    std::string line =
        number < label_column_.class_names.size() ? label_column_.class_names[number] : absl::StrCat(label);
    line += '\t';
    const std::vector<std::byte>& bytes = sample[static_cast<std::size_t>(text_)].bytes;
    if (numbers_) {
      for (std::size_t i = 0; i < bytes.size(); i += sizeof(std::int32_t)) {
        std::int32_t word = 0;
        std::memcpy(&word, bytes.data() + i, sizeof(word));
        absl::StrAppend(&line, i == 0 ? "w" : " w", word);
      }
    } else {
      line.append(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    }
    return file_->Append(line + "\n");
  }

  absl::Status Finish() override { return file_->Commit(); }

 private:
  const int text_;
  const int label_;
  const Column label_column_;
  const bool numbers_;
  const std::unique_ptr<AppendedFile> file_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SampleWriter>> MakeTextWriter(const WriterOptions& options) {
  int text = -1;
  for (std::size_t i = 0; i < options.columns.size(); ++i) {
    const Column& column = options.columns[i];
    const bool words = column.type == ElementType::kI32 && column.shape == std::vector<std::int64_t>{kAnyExtent};
    if (column.text || words) text = static_cast<int>(i);
  }
  const int label = FindLabel(options.columns);
  if (text < 0 || label < 0) {
    return absl::InvalidArgumentError("Text holds a text, or the numbers of its words, and a label");
  }
  absl::StatusOr<std::unique_ptr<AppendedFile>> file = AppendedFile::Create(options.directory + "/data.txt");
  if (!file.ok()) return file.status();
  return std::make_unique<TextWriter>(text, label, options.columns[static_cast<std::size_t>(label)],
                                      !options.columns[static_cast<std::size_t>(text)].text, *std::move(file));
}

}  // namespace downpour::data
