// IDX, CIFAR-10 and folders of images: an image and a label.
#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/data/image.h"
#include "trainer/data/transforms/transform.h"
#include "trainer/data/writers/writer.h"

namespace downpour::data {
namespace {

// Where they are among the columns, which have nothing else.
struct Labelled {
  std::size_t image = 0;
  std::size_t label = 0;
  Column image_column;
  Column label_column;
};

absl::StatusOr<Labelled> FindLabelled(const std::vector<Column>& columns, const char* holds) {
  const int image = FindImage(columns);
  const int label = FindLabel(columns);
  if (image < 0 || label < 0 || columns.size() != 2) return absl::InvalidArgumentError(holds);
  const auto at = static_cast<std::size_t>(image);
  const auto label_at = static_cast<std::size_t>(label);
  return Labelled{at, label_at, columns[at], columns[label_at]};
}

std::string BigEndian(std::uint32_t value) {
  std::string bytes;
  for (int shift = 24; shift >= 0; shift -= 8) bytes += static_cast<char>(value >> shift & 0xff);
  return bytes;
}

class IdxWriter final : public SampleWriter {
 public:
  IdxWriter(Labelled labelled, std::unique_ptr<AppendedFile> images, std::unique_ptr<AppendedFile> labels)
      : labelled_(std::move(labelled)), images_(std::move(images)), labels_(std::move(labels)) {}

  absl::Status Add(const Sample& sample) override {
    const Value& image = sample[labelled_.image];
    if (absl::Status status = images_->Append(image.bytes.data(), image.bytes.size()); !status.ok()) return status;
    const auto label = static_cast<char>(IntegerOf(sample[labelled_.label], labelled_.label_column.type));
    return labels_->Append(&label, 1);
  }

  absl::Status Finish() override {
    const absl::Status images = images_->Commit();
    return images.ok() ? labels_->Commit() : images;
  }

 private:
  const Labelled labelled_;
  const std::unique_ptr<AppendedFile> images_;
  const std::unique_ptr<AppendedFile> labels_;
};

class CifarWriter final : public SampleWriter {
 public:
  CifarWriter(Labelled labelled, std::unique_ptr<AppendedFile> file)
      : labelled_(std::move(labelled)), file_(std::move(file)) {}

  absl::Status Add(const Sample& sample) override {
    const auto label = static_cast<char>(IntegerOf(sample[labelled_.label], labelled_.label_column.type));
    if (absl::Status status = file_->Append(&label, 1); !status.ok()) return status;
    return file_->Append(sample[labelled_.image].bytes.data(), sample[labelled_.image].bytes.size());
  }

  absl::Status Finish() override { return file_->Commit(); }

 private:
  const Labelled labelled_;
  const std::unique_ptr<AppendedFile> file_;
};

class FolderWriter final : public SampleWriter {
 public:
  FolderWriter(Labelled labelled, std::string directory)
      : labelled_(std::move(labelled)), directory_(std::move(directory)) {}

  absl::Status Add(const Sample& sample) override {
    const std::int64_t label = IntegerOf(sample[labelled_.label], labelled_.label_column.type);
    const std::vector<std::string>& names = labelled_.label_column.class_names;
    const auto number = static_cast<std::size_t>(label);
    // Sorted by name, classes have the numbers that they have here.
    const std::string folder =
        absl::StrCat(directory_, "/", number < names.size() ? names[number] : absl::StrFormat("class_%05d", label));
    std::error_code error;
    std::filesystem::create_directories(folder, error);
    if (error) return absl::UnavailableError(absl::StrCat(folder, ": cannot be made: ", error.message()));
    const absl::StatusOr<std::vector<std::uint8_t>> png = EncodePng(sample[labelled_.image]);
    if (!png.ok()) return png.status();
    absl::StatusOr<std::unique_ptr<AppendedFile>> file =
        AppendedFile::Create(absl::StrFormat("%s/%08d.png", folder, next_++));
    if (!file.ok()) return file.status();
    if (absl::Status status = (*file)->Append(png->data(), png->size()); !status.ok()) return status;
    return (*file)->Commit();
  }

  absl::Status Finish() override { return absl::OkStatus(); }

 private:
  const Labelled labelled_;
  const std::string directory_;
  std::int64_t next_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SampleWriter>> MakeIdxWriter(const WriterOptions& options) {
  constexpr char kHolds[] = "IDX holds an image, u8 [1, height, width], and a label below 10";
  absl::StatusOr<Labelled> labelled = FindLabelled(options.columns, kHolds);
  if (!labelled.ok()) return labelled.status();
  const std::vector<std::int64_t>& shape = labelled->image_column.shape;
  if (shape[0] != 1 || shape[1] == kAnyExtent || shape[2] == kAnyExtent || labelled->label_column.classes > 10) {
    return absl::InvalidArgumentError(absl::StrCat(kHolds, ", not ", TypeText(labelled->image_column), " of ",
                                                   labelled->label_column.classes, " classes"));
  }
  const std::string prefix = options.directory + (options.train ? "/train" : "/t10k");
  absl::StatusOr<std::unique_ptr<AppendedFile>> images = AppendedFile::Create(prefix + "-images-idx3-ubyte");
  if (!images.ok()) return images.status();
  absl::StatusOr<std::unique_ptr<AppendedFile>> labels = AppendedFile::Create(prefix + "-labels-idx1-ubyte");
  if (!labels.ok()) return labels.status();
  const auto samples = static_cast<std::uint32_t>(options.samples);
  absl::Status status =
      (*images)->Append(BigEndian(0x803) + BigEndian(samples) + BigEndian(static_cast<std::uint32_t>(shape[1])) +
                        BigEndian(static_cast<std::uint32_t>(shape[2])));
  if (status.ok()) status = (*labels)->Append(BigEndian(0x801) + BigEndian(samples));
  if (!status.ok()) return status;
  return std::make_unique<IdxWriter>(*std::move(labelled), *std::move(images), *std::move(labels));
}

absl::StatusOr<std::unique_ptr<SampleWriter>> MakeCifarWriter(const WriterOptions& options) {
  constexpr char kHolds[] = "CIFAR10 holds an image, u8 [3, 32, 32], and a label below 10";
  absl::StatusOr<Labelled> labelled = FindLabelled(options.columns, kHolds);
  if (!labelled.ok()) return labelled.status();
  if (labelled->image_column.shape != std::vector<std::int64_t>{3, 32, 32} || labelled->label_column.classes > 10) {
    return absl::InvalidArgumentError(absl::StrCat(kHolds, ", not ", TypeText(labelled->image_column), " of ",
                                                   labelled->label_column.classes, " classes"));
  }
  absl::StatusOr<std::unique_ptr<AppendedFile>> file =
      AppendedFile::Create(options.directory + (options.train ? "/data_batch_1.bin" : "/test_batch.bin"));
  if (!file.ok()) return file.status();
  return std::make_unique<CifarWriter>(*std::move(labelled), *std::move(file));
}

absl::StatusOr<std::unique_ptr<SampleWriter>> MakeImageFolderWriter(const WriterOptions& options) {
  absl::StatusOr<Labelled> labelled =
      FindLabelled(options.columns, "ImageFolder holds an image, u8 [1 or 3, height, width], and a label");
  if (!labelled.ok()) return labelled.status();
  return std::make_unique<FolderWriter>(*std::move(labelled), options.directory);
}

}  // namespace downpour::data
