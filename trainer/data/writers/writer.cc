#include "trainer/data/writers/writer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace downpour::data {

absl::StatusOr<std::unique_ptr<AppendedFile>> AppendedFile::Create(const std::string& path) {
  absl::StatusOr<std::unique_ptr<NewFile>> file = NewFile::Create(path);
  if (!file.ok()) return file.status();
  return std::unique_ptr<AppendedFile>(new AppendedFile(*std::move(file)));
}

absl::Status AppendedFile::Append(const void* bytes, std::size_t count) {
  const std::uint64_t at = std::exchange(bytes_, bytes_ + count);
  return file_->WriteAt(at, {static_cast<const std::uint8_t*>(bytes), count});
}

int FindColumn(const std::vector<Column>& columns, const std::string& name) {
  const auto found =
      std::find_if(columns.begin(), columns.end(), [&name](const Column& column) { return column.name == name; });
  return found == columns.end() ? -1 : static_cast<int>(found - columns.begin());
}

int FindLabel(const std::vector<Column>& columns) {
  const auto found = std::find_if(columns.begin(), columns.end(), [](const Column& column) {
    return !column.text && column.shape.empty() && column.type != ElementType::kF32 && column.classes > 0;
  });
  return found == columns.end() ? -1 : static_cast<int>(found - columns.begin());
}

int FindImage(const std::vector<Column>& columns) {
  const auto found = std::find_if(columns.begin(), columns.end(), [](const Column& column) {
    return !column.text && column.type == ElementType::kU8 && column.shape.size() == 3 &&
           (column.shape[0] == 1 || column.shape[0] == 3);
  });
  return found == columns.end() ? -1 : static_cast<int>(found - columns.begin());
}

absl::StatusOr<std::unique_ptr<SampleWriter>> MakeSampleWriter(const std::string& format, const WriterOptions& options,
                                                               const SampleWriterFactory& parquet) {
  if (format == "Parquet" && parquet) return parquet(options);
  if (format == "CSV") return MakeCsvWriter(options);
  if (format == "Text") return MakeTextWriter(options);
  if (format == "NPY") return MakeNpyWriter(options);
  if (format == "SafeTensors") return MakeSafetensorsWriter(options);
  if (format == "IDX") return MakeIdxWriter(options);
  if (format == "CIFAR10") return MakeCifarWriter(options);
  if (format == "ImageFolder") return MakeImageFolderWriter(options);
  if (format == "TFRecord") return MakeTfRecordWriter(options);
  if (format == "WebDataset") return MakeWebDatasetWriter(options);
  return absl::UnimplementedError(absl::StrCat(
      "the format ", format,
      " is not written; those that are: CSV, Text, NPY, SafeTensors, IDX, CIFAR10, ImageFolder, TFRecord, WebDataset"));
}

}  // namespace downpour::data
