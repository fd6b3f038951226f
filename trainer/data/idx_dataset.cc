#include "trainer/data/idx_dataset.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "trainer/data/idx.h"

namespace downpour::data {
namespace {

constexpr int kClasses = 10;

absl::StatusOr<std::vector<std::uint8_t>> ReadFile(const std::string& path) {
  std::error_code error;
  const std::uintmax_t size = std::filesystem::file_size(path, error);
  if (error) return absl::UnavailableError(absl::StrCat(path, ": ", error.message()));
  if (size > kMaxIdxBytes) {
    return absl::DataLossError(
        absl::StrFormat("%s: %d bytes, more than the limit of %d for an idx file", path, size, kMaxIdxBytes));
  }
  std::vector<std::uint8_t> bytes(size);
  std::ifstream file(path, std::ios::binary);
  file.read(reinterpret_cast<char*>(bytes.data()), static_cast<std::streamsize>(size));
  if (!file) return absl::UnavailableError(absl::StrCat(path, ": cannot be read: ", std::strerror(errno)));
  return bytes;
}

struct LoadedIdx {
  std::string path;
  IdxArray array;
};

// `name` in the directory, gzipped or plain.
absl::StatusOr<std::string> Find(const std::string& directory, const std::string& name) {
  const std::filesystem::path plain = std::filesystem::path(directory) / name;
  for (const std::string& path : {plain.string() + ".gz", plain.string()}) {
    std::error_code error;
    if (std::filesystem::is_regular_file(path, error)) return path;
  }
  return absl::NotFoundError(absl::StrCat(plain.string(), ".gz: no such file, nor ", name, " without .gz"));
}

absl::StatusOr<LoadedIdx> Load(const std::string& directory, const std::string& name, int dimensions) {
  const absl::StatusOr<std::string> path = Find(directory, name);
  if (!path.ok()) return path.status();
  absl::StatusOr<std::vector<std::uint8_t>> bytes = ReadFile(*path);
  if (!bytes.ok()) return bytes.status();
  absl::StatusOr<IdxArray> array = ParseIdx(*bytes, dimensions);
  if (!array.ok()) return absl::Status(array.status().code(), absl::StrCat(*path, ": ", array.status().message()));
  return LoadedIdx{*path, *std::move(array)};
}

SampleFields Fields(std::int64_t height, std::int64_t width) {
  return {{{"image", ElementType::kU8, {1, height, width}}}, {{"label", ElementType::kI64, {}, kClasses}}};
}

class IdxDataset final : public Dataset {
 public:
  IdxDataset(IdxArray images, IdxArray labels)
      : images_(std::move(images)),
        labels_(std::move(labels)),
        fields_(Fields(images_.shape[1], images_.shape[2])),
        sample_size_(images_.shape[1] * images_.shape[2]) {}

  std::int64_t size() const override { return images_.shape[0]; }
  const SampleFields& fields() const override { return fields_; }
  Deferred Defer() override { return {{{fields_.inputs[0], {}}}, {{fields_.targets[0], {}}}, true}; }

  absl::StatusOr<Batch> Read(absl::Span<const std::int64_t> indices,
                             std::optional<std::uint64_t> /*seed*/) const override {
    const std::int64_t samples = static_cast<std::int64_t>(indices.size());
    Batch batch{{MakeArray(fields_.inputs[0], samples)}, {MakeArray(fields_.targets[0], samples)}};
    std::uint8_t* to = batch.inputs[0].mutable_values<std::uint8_t>().data();
    const absl::Span<std::int64_t> labels = batch.targets[0].mutable_values<std::int64_t>();
    for (std::size_t i = 0; i < indices.size(); ++i, to += sample_size_) {
      std::copy_n(images_.values.data() + indices[i] * sample_size_, sample_size_, to);
      labels[i] = labels_.values[indices[i]];
    }
    return batch;
  }

 private:
  const IdxArray images_;
  const IdxArray labels_;
  const SampleFields fields_;
  const std::int64_t sample_size_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Dataset>> OpenIdxDataset(const std::string& directory, Split split) {
  std::error_code error;
  if (!std::filesystem::is_directory(directory, error)) {
    return absl::NotFoundError(absl::StrCat(directory, ": no such directory"));
  }
  const std::string prefix = split == Split::kTrain ? "train" : "t10k";
  absl::StatusOr<LoadedIdx> images = Load(directory, prefix + "-images-idx3-ubyte", 3);
  if (!images.ok()) return images.status();
  absl::StatusOr<LoadedIdx> labels = Load(directory, prefix + "-labels-idx1-ubyte", 1);
  if (!labels.ok()) return labels.status();
  if (images->array.shape[0] != labels->array.shape[0]) {
    return absl::DataLossError(absl::StrFormat("%s: %d labels, but %s has %d images", labels->path,
                                               labels->array.shape[0], images->path, images->array.shape[0]));
  }
  const std::vector<std::uint8_t>& values = labels->array.values;
  const auto wrong = std::find_if(values.begin(), values.end(), [](std::uint8_t label) { return label >= kClasses; });
  if (wrong != values.end()) {
    return absl::DataLossError(absl::StrFormat("%s: label %d at index %d, expected 0 to %d", labels->path, *wrong,
                                               wrong - values.begin(), kClasses - 1));
  }
  return std::make_unique<IdxDataset>(std::move(images->array), std::move(labels->array));
}

absl::StatusOr<SampleFields> ReadIdxFields(const std::string& directory) {
  const absl::StatusOr<std::string> path = Find(directory, "train-images-idx3-ubyte");
  if (!path.ok()) return path.status();
  std::vector<char> beginning(std::size_t{64} << 10);  // more than any header has, zipped too
  std::ifstream file(*path, std::ios::binary);
  file.read(beginning.data(), static_cast<std::streamsize>(beginning.size()));
  if (file.bad() || !file.is_open()) {
    return absl::UnavailableError(absl::StrCat(*path, ": cannot be read: ", std::strerror(errno)));
  }
  const absl::StatusOr<std::vector<std::int64_t>> shape = ParseIdxShape(
      {reinterpret_cast<const std::uint8_t*>(beginning.data()), static_cast<std::size_t>(file.gcount())}, 3);
  if (!shape.ok()) {
    return absl::Status(shape.status().code(),
                        absl::StrCat(*path, ": is no idx file of images: ", shape.status().message()));
  }
  return Fields((*shape)[1], (*shape)[2]);
}

}  // namespace downpour::data
