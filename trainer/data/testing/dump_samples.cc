// Writes the samples of a data set as the reader of its format gives them, for tests/data/references.py:
//   data_dump FORMAT PATH OUTPUT < INDICES
// FORMAT as spec.dataset.format has it, of Text with the layout behind a colon. The numbers of the samples come from
// the standard input, "all" for their count alone. OUTPUT has this count (i64), and for each sample each column: its
// name, its type, "text" or one of fields.h, each behind its length (u32); the number of its extents (u32), these (i64
// each); the bytes behind their length (u32).
#include <cstdint>
#include <fstream>
#include <iostream>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "trainer/data/dataset_source.h"
#include "trainer/data/encoding.h"
#include "trainer/data/formats/cifar.h"
#include "trainer/data/formats/csv_source.h"
#include "trainer/data/formats/image_folder.h"
#include "trainer/data/formats/npy_source.h"
#include "trainer/data/formats/safetensors_source.h"
#include "trainer/data/formats/text_source.h"
#include "trainer/data/formats/tf_record.h"
#include "trainer/data/formats/web_dataset.h"
#include "trainer/data/idx_dataset.h"
#ifdef DOWNPOUR_ARROW
#include "trainer/data/formats/parquet_source.h"
#endif

namespace downpour::data {
namespace {

absl::StatusOr<std::unique_ptr<SampleSource>> Open(const std::string& format, const std::string& path) {
  const Files& files = LocalFiles();
  if (format == "IDX") {
    absl::StatusOr<std::unique_ptr<Dataset>> dataset = OpenIdxDataset(path, Split::kTrain);
    if (!dataset.ok()) return dataset.status();
    return SourceOf(*std::move(dataset));
  }
  if (format == "CIFAR10") return OpenCifar10(files, path, {});
  if (format == "CIFAR100") return OpenCifar100(files, path, {});
  if (format == "ImageFolder") return OpenImageFolder(files, path, {});
  if (format == "CSV") return OpenCsv(files, path, {});
  if (absl::StartsWith(format, "Text:")) {
    TextOptions options;
    if (format == "Text:LabelledLines") options.layout = TextLayout::kLabelledLines;
    if (format == "Text:Folders") options.layout = TextLayout::kFolders;
    return OpenText(files, path, options);
  }
  if (format == "NPY") return OpenNpy(files, path, {});
  if (format == "SafeTensors") return OpenSafetensors(files, path, {});
#ifdef DOWNPOUR_ARROW
  if (format == "Parquet") return OpenParquet(files, path);
#endif
  if (format == "TFRecord") return OpenTfRecord(files, path, {});
  if (format == "WebDataset") return OpenWebDataset(files, path, {});
  return absl::InvalidArgumentError(absl::StrCat("there is no format ", format));
}

absl::Status Dump(const std::string& format, const std::string& path, const std::string& output) {
  const absl::StatusOr<std::unique_ptr<SampleSource>> source = Open(format, path);
  if (!source.ok()) return source.status();
  Encoder encoder;
  encoder.Put<std::int64_t>((*source)->size());
  std::string text;
  while (std::cin >> text && text != "all") {
    std::int64_t index = 0;
    if (!absl::SimpleAtoi(text, &index) || index < 0 || index >= (*source)->size()) {
      return absl::InvalidArgumentError(absl::StrCat("found sample ", text, ", expected 0 to ", (*source)->size() - 1));
    }
    const absl::StatusOr<Sample> sample = (*source)->Read(index);
    if (!sample.ok()) return sample.status();
    for (std::size_t i = 0; i < sample->size(); ++i) {
      const Column& column = (*source)->columns()[i];
      const Value& value = (*sample)[i];
      encoder.PutText(column.name);
      encoder.PutText(column.text ? "text" : Name(column.type));
      encoder.Put<std::uint32_t>(static_cast<std::uint32_t>(value.shape.size()));
      for (const std::int64_t extent : value.shape) encoder.Put<std::int64_t>(extent);
      encoder.PutText({reinterpret_cast<const char*>(value.bytes.data()), value.bytes.size()});
    }
  }
  std::ofstream file(output, std::ios::binary);
  file << encoder.bytes();
  file.close();
  return file.fail() ? absl::UnavailableError(absl::StrCat(output, ": cannot be written")) : absl::OkStatus();
}

}  // namespace
}  // namespace downpour::data

int main(int argument_count, char** arguments) {
  if (argument_count != 4) {
    std::cerr << "usage: data_dump FORMAT PATH OUTPUT < INDICES\n";
    return 2;
  }
  const absl::Status status = downpour::data::Dump(arguments[1], arguments[2], arguments[3]);
  if (status.ok()) return 0;
  std::cerr << status.message() << '\n';
  return 1;
}
