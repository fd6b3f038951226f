#include "trainer/data/formats/cifar.h"

#include <algorithm>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "trainer/data/encoding.h"
#include "trainer/data/files/open_files.h"
#include "trainer/data/formats/shards.h"
#include "trainer/data/formats/text_value.h"

namespace downpour::data {
namespace {

constexpr std::int64_t kExtent = 32;
constexpr std::size_t kImageBytes = 3 * kExtent * kExtent;
constexpr std::uint64_t kMostNamesBytes = std::uint64_t{1} << 20;

struct Label {
  const char* column;
  std::int64_t classes;
  const char* names_file;
  std::size_t byte;  // in a sample
};

struct Variant {
  const char* name;
  const char* train_prefix;  // of the files' names, which end in ".bin"
  const char* train_files;
  const char* test_file;
  std::vector<Label> labels;
  std::size_t bytes() const { return labels.size() + kImageBytes; }
};

// The names in a file of one a line; none if there is no such file.
absl::StatusOr<std::vector<std::string>> ReadNames(const Files& files, const std::string& path, std::int64_t classes) {
  const auto file = files.Open(path);
  if (absl::IsNotFound(file.status())) return std::vector<std::string>();
  if (!file.ok()) return file.status();
  const auto bytes = ReadWhole(**file, kMostNamesBytes);
  if (!bytes.ok()) return bytes.status();
  std::vector<std::string> names;
  for (const absl::string_view line : absl::StrSplit(AsText(*bytes), '\n')) {
    const absl::string_view name = absl::StripAsciiWhitespace(line);
    if (!name.empty()) names.emplace_back(name);
  }
  if (static_cast<std::int64_t>(names.size()) == classes) return names;
  return absl::DataLossError(absl::StrFormat("%s: %d names of classes, expected %d", path, names.size(), classes));
}

class CifarSource final : public SampleSource {
 public:
  CifarSource(const Files& files, Variant variant, std::vector<FileInfo> infos, std::vector<Column> columns)
      : variant_(std::move(variant)), columns_(std::move(columns)), files_(files, std::move(infos)) {
    std::int64_t samples = 0;
    for (const FileInfo& info : files_.infos()) {
      samples += static_cast<std::int64_t>(info.bytes / variant_.bytes());
      ends_.push_back(samples);
    }
  }

  std::int64_t size() const override { return ends_.back(); }
  const std::vector<Column>& columns() const override { return columns_; }

  absl::StatusOr<Sample> Read(std::int64_t index) const override {
    const std::size_t number = std::upper_bound(ends_.begin(), ends_.end(), index) - ends_.begin();
    const std::int64_t in_file = number == 0 ? index : index - ends_[number - 1];
    const auto file = files_.Open(number);
    if (!file.ok()) return file.status();
    std::vector<std::uint8_t> bytes(variant_.bytes());
    const std::uint64_t offset = static_cast<std::uint64_t>(in_file) * bytes.size();
    if (absl::Status status = (*file)->ReadAt(offset, absl::MakeSpan(bytes)); !status.ok()) return status;
    Sample sample = {TextValue(AsText(bytes).substr(variant_.labels.size()))};
    sample[0].shape = columns_[0].shape;
    for (const Label& label : variant_.labels) {
      const std::int64_t found = bytes[label.byte];
      if (found >= label.classes) {
        return absl::DataLossError(absl::StrFormat("%s: sample %d at byte %d: %s %d, expected 0 to %d",
                                                   (*file)->info().path, in_file, offset, label.column, found,
                                                   label.classes - 1));
      }
      sample.push_back(NumberValue<std::int64_t>(found));
    }
    return sample;
  }

 private:
  const Variant variant_;
  const std::vector<Column> columns_;
  const OpenFiles files_;
  std::vector<std::int64_t> ends_;  // a file: samples in it and before it
};

absl::StatusOr<std::unique_ptr<SampleSource>> Open(const Files& files, const std::string& path,
                                                   const CifarOptions& options, Variant variant) {
  absl::StatusOr<std::vector<FileInfo>> infos = files.List(path);
  if (!infos.ok()) return infos.status();
  const bool one_file = infos->size() == 1 && infos->front().path == path;
  if (!one_file) {
    const bool train = options.split == Split::kTrain;
    const auto other = [&](const FileInfo& info) {
      absl::string_view name = FileName(info.path);
      if (!train) return name != variant.test_file;
      return !absl::StartsWith(name, variant.train_prefix) || !absl::EndsWith(name, ".bin");
    };
    infos->erase(std::remove_if(infos->begin(), infos->end(), other), infos->end());
    if (infos->empty()) {
      return absl::NotFoundError(absl::StrCat(path, ": has no ", train ? variant.train_files : variant.test_file,
                                              ", expected the binary version of ", variant.name));
    }
  }
  const std::string folder(absl::StripSuffix(infos->front().path, FileName(infos->front().path)));
  for (const FileInfo& info : *infos) {
    if (absl::StrCat(folder, FileName(info.path)) != info.path) {
      return absl::DataLossError(
          absl::StrCat(info.path, ": lies in another folder than ", infos->front().path, ", expected one data set"));
    }
    if (info.bytes == 0 || info.bytes % variant.bytes() != 0) {
      return absl::DataLossError(absl::StrFormat("%s: %d bytes, expected a multiple of %d, the samples of %s",
                                                 info.path, info.bytes, variant.bytes(), variant.name));
    }
  }
  std::vector<Column> columns(1);
  columns[0].name = "image";
  columns[0].type = ElementType::kU8;
  columns[0].shape = {3, kExtent, kExtent};
  for (const Label& label : variant.labels) {
    absl::StatusOr<std::vector<std::string>> names = ReadNames(files, folder + label.names_file, label.classes);
    if (!names.ok()) return names.status();
    Column& column = columns.emplace_back();
    column.name = label.column;
    column.type = ElementType::kI64;
    column.classes = label.classes;
    column.class_names = *std::move(names);
  }
  return std::make_unique<CifarSource>(files, std::move(variant), *std::move(infos), std::move(columns));
}

}  // namespace

absl::StatusOr<std::unique_ptr<SampleSource>> OpenCifar10(const Files& files, const std::string& path,
                                                          const CifarOptions& options) {
  return Open(
      files, path, options,
      {"CIFAR-10", "data_batch_", "data_batch_*.bin", "test_batch.bin", {{"label", 10, "batches.meta.txt", 0}}});
}

absl::StatusOr<std::unique_ptr<SampleSource>> OpenCifar100(const Files& files, const std::string& path,
                                                           const CifarOptions& options) {
  return Open(files, path, options,
              {"CIFAR-100",
               "train.",
               "train.bin",
               "test.bin",
               {{"label", 100, "fine_label_names.txt", 1}, {"coarse_label", 20, "coarse_label_names.txt", 0}}});
}

}  // namespace downpour::data
