#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/data/image.h"
#include "trainer/data/writers/writer.h"

namespace downpour::data {
namespace {

constexpr std::size_t kBlock = 512;

// A file of a tar archive, ustar.
std::string TarEntry(const std::string& name, const std::string& content) {
  std::string header(kBlock, '\0');
  const auto put = [&header](std::size_t at, const std::string& text) {
    std::copy(text.begin(), text.end(), header.begin() + static_cast<std::ptrdiff_t>(at));
  };
  put(0, name);
  put(100, "0000644");
  put(108, "0000000");
  put(116, "0000000");
  put(124, absl::StrFormat("%011o", content.size()));
  put(136, "00000000000");
  put(148, std::string(8, ' '));
  header[156] = '0';
  put(257, std::string("ustar\0"
                       "00",
                       8));
  unsigned sum = 0;
  for (const char c : header) sum += static_cast<unsigned char>(c);
  put(148, absl::StrFormat("%06o", sum) + std::string("\0 ", 2));
  std::string entry = header + content;
  entry.resize((entry.size() + kBlock - 1) / kBlock * kBlock, '\0');
  return entry;
}

class WebDatasetWriter final : public SampleWriter {
 public:
  WebDatasetWriter(std::vector<Column> columns, int image, int label, int text, std::unique_ptr<AppendedFile> file)
      : columns_(std::move(columns)), image_(image), label_(label), text_(text), file_(std::move(file)) {}

  absl::Status Add(const Sample& sample) override {
    const std::string key = absl::StrFormat("%09d.", next_++);
    std::string entries;
    if (image_ >= 0) {
      const absl::StatusOr<std::vector<std::uint8_t>> png = EncodePng(sample[static_cast<std::size_t>(image_)]);
      if (!png.ok()) return png.status();
      entries += TarEntry(key + "png", {png->begin(), png->end()});
    }
    if (label_ >= 0) {
      const auto at = static_cast<std::size_t>(label_);
      entries += TarEntry(key + "cls", absl::StrCat(IntegerOf(sample[at], columns_[at].type)));
    }
    if (text_ >= 0) {
      const std::vector<std::byte>& bytes = sample[static_cast<std::size_t>(text_)].bytes;
      entries += TarEntry(key + "txt", {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    }
    return file_->Append(entries);
  }

  absl::Status Finish() override {
    const absl::Status end = file_->Append(std::string(2 * kBlock, '\0'));
    return end.ok() ? file_->Commit() : end;
  }

 private:
  const std::vector<Column> columns_;
  const int image_;
  const int label_;
  const int text_;
  const std::unique_ptr<AppendedFile> file_;
  std::int64_t next_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SampleWriter>> MakeWebDatasetWriter(const WriterOptions& options) {
  const int image = FindImage(options.columns);
  const int label = FindLabel(options.columns);
  const auto found =
      std::find_if(options.columns.begin(), options.columns.end(), [](const Column& column) { return column.text; });
  const int text = found == options.columns.end() ? -1 : static_cast<int>(found - options.columns.begin());
  const std::size_t held = (image >= 0 ? 1U : 0U) + (label >= 0 ? 1U : 0U) + (text >= 0 ? 1U : 0U);
  if (held != options.columns.size()) {
    return absl::InvalidArgumentError("WebDataset holds an image, u8 [1 or 3, height, width], a label and a text");
  }
  absl::StatusOr<std::unique_ptr<AppendedFile>> file = AppendedFile::Create(options.directory + "/data.tar");
  if (!file.ok()) return file.status();
  return std::make_unique<WebDatasetWriter>(options.columns, image, label, text, *std::move(file));
}

}  // namespace downpour::data
