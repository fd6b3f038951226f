#include "cli/data_command.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <limits>
#include <string>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/launch.h"
#include "cli/manifest_input.h"
#include "cli/render/format.h"
#include "operator/job/training_config.h"
#include "trainer/data/dataset_source.h"
#include "trainer/data/synthetic.h"
#include "trainer/data/transforms/numbers.h"
#include "trainer/worker/dataset_spec.h"

namespace downpour::cli {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kBatch = 256;
constexpr std::size_t kMostShown = 10;  // broken samples

// "label = 3", "image u8 [1, 28, 28], 0 to 255, mean 72.9"
std::string Describe(const data::Field& field, const data::Array& array) {
  return data::WithElementType(array.type, [&](auto element) {
    using Element = decltype(element);
    const absl::Span<const Element> values = array.values<Element>();
    if (values.empty()) return absl::StrCat(field.name, " is empty");
    if (values.size() == 1) return absl::StrCat(field.name, " = ", static_cast<double>(values.front()));
    double sum = 0;
    for (const Element value : values) sum += static_cast<double>(value);
    const std::vector<std::int64_t> shape(array.shape.begin() + 1, array.shape.end());
    return absl::StrFormat("%s %s %s, %.6g to %.6g, mean %.4g", field.name, data::Name(array.type),
                           data::ShapeText(shape), static_cast<double>(*std::min_element(values.begin(), values.end())),
                           static_cast<double>(*std::max_element(values.begin(), values.end())),
                           sum / static_cast<double>(values.size()));
  });
}

void Show(const data::Dataset& dataset, std::int64_t samples) {
  for (std::int64_t i = 0; i < std::min(samples, dataset.size()); ++i) {
    const absl::StatusOr<data::Batch> batch = dataset.Read({i}, std::nullopt);
    if (!batch.ok() || batch->size() == 0) continue;  // it is among those that are broken
    std::string line = absl::StrCat("  sample ", i, ": ");
    const char* comma = "";
    const auto add = [&](const std::vector<data::Field>& fields, const std::vector<data::Array>& arrays) {
      for (std::size_t field = 0; field < fields.size(); ++field) {
        absl::StrAppend(&line, comma, Describe(fields[field], arrays[field]));
        comma = "; ";
      }
    };
    add(dataset.fields().inputs, batch->inputs);
    add(dataset.fields().targets, batch->targets);
    std::cout << line << '\n';
  }
}

// Reads every sample. How many are broken; an error: they cannot be read at all.
absl::StatusOr<std::int64_t> CountBroken(const data::Dataset& dataset) {
  std::int64_t broken = 0;
  for (std::int64_t first = 0; first < dataset.size(); first += kBatch) {
    std::vector<std::int64_t> indices;
    for (std::int64_t i = first; i < std::min(first + kBatch, dataset.size()); ++i) indices.push_back(i);
    if (dataset.Read(indices, std::nullopt).ok()) continue;
    for (const std::int64_t index : indices) {
      const absl::Status status = dataset.Read({index}, std::nullopt).status();
      if (status.ok()) continue;
      if (!absl::IsDataLoss(status)) return status;
      if (static_cast<std::size_t>(broken++) < kMostShown) {
        std::cout << "  broken: sample " << index << ": " << CleanLines(std::string(status.message())) << '\n';
      }
    }
  }
  return broken;
}

absl::Status MakeDirectory(const std::string& path) {
  std::error_code error;
  if (fs::exists(path, error) && !(fs::is_directory(path, error) && fs::is_empty(path, error))) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is there and is no empty directory"));
  }
  fs::create_directories(path, error);
  return error ? absl::InvalidArgumentError(absl::StrCat(path, ": cannot be made: ", error.message()))
               : absl::OkStatus();
}

absl::Status Generate(const GenerateOptions& options, data::Split split, const std::string& directory,
                      const data::SampleWriterFactory& parquet) {
  absl::StatusOr<std::unique_ptr<data::Dataset>> dataset =
      data::MakeSyntheticDataset({.kind = options.kind,
                                  .samples = options.samples,
                                  .test_samples = options.test_samples,
                                  .seed = options.seed,
                                  .shape = options.shape,
                                  .classes = options.classes},
                                 split);
  if (!dataset.ok()) return dataset.status();
  const std::unique_ptr<data::SampleSource> source = data::SourceOf(*std::move(dataset));
  absl::StatusOr<std::unique_ptr<data::SampleWriter>> writer = data::MakeSampleWriter(
      options.format, {source->columns(), source->size(), directory, split == data::Split::kTrain}, parquet);
  if (!writer.ok()) return writer.status();
  for (std::int64_t i = 0; i < source->size(); ++i) {
    const absl::StatusOr<data::Sample> sample = source->Read(i);
    if (!sample.ok()) return sample.status();
    if (absl::Status status = (*writer)->Add(*sample); !status.ok()) return status;
  }
  if (absl::Status status = (*writer)->Finish(); !status.ok()) return status;
  std::cout << directory << ": " << source->size() << " samples, " << options.format << '\n';
  return absl::OkStatus();
}

}  // namespace

int GenerateDataCommand(const GenerateOptions& options, const data::SampleWriterFactory& parquet) {
  if (absl::Status made = MakeDirectory(options.directory); !made.ok()) return Complain(made);
  // These have file names for both.
  const bool together = options.format == "IDX" || options.format == "CIFAR10";
  for (const data::Split split : {data::Split::kTrain, data::Split::kTest}) {
    std::string directory = options.directory;
    if (!together) absl::StrAppend(&directory, split == data::Split::kTrain ? "/train" : "/test");
    std::error_code error;
    fs::create_directories(directory, error);
    if (error) {
      return Complain(absl::InvalidArgumentError(absl::StrCat(directory, ": cannot be made: ", error.message())));
    }
    if (absl::Status status = Generate(options, split, directory, parquet); !status.ok()) return Complain(status);
  }
  return kExitDone;
}

int InspectDataCommand(const std::string& file, const Overrides& overrides, std::int64_t samples,
                       const data::ArrowReaders& arrow) {
  const api::ParsedManifest manifest = LoadManifest(file, overrides);
  if (!manifest.errors.empty()) {
    for (const api::FieldError& error : manifest.errors) std::cerr << file << ": " << error.ToString() << '\n';
    return kExitBadInput;
  }
  if (absl::Status present = CheckDataset(manifest.job); !present.ok()) return Complain(present);
  const v1::TrainingConfig config = job::ToTrainingConfig(manifest.job, "", "");
  data::DatasetSpec spec = worker::MakeDatasetSpec(config.dataset());
  spec.skip_bad_samples = false;  // each is told
  spec.most_bad_samples = std::numeric_limits<std::uint64_t>::max();
  const absl::StatusOr<data::Datasets> datasets = data::OpenDatasets(spec, config.evaluate(), arrow);
  if (!datasets.ok()) return Complain(datasets.status());
  std::cout << data::ToString(datasets->train->fields()) << '\n';
  std::int64_t broken = 0;
  for (const data::Dataset* dataset : {datasets->train.get(), datasets->test.get()}) {
    if (dataset == nullptr) continue;
    std::cout << (dataset == datasets->train.get() ? "training set: " : "test set: ") << dataset->size()
              << " samples\n";
    Show(*dataset, samples);
    const absl::StatusOr<std::int64_t> found = CountBroken(*dataset);
    if (!found.ok()) return Complain(found.status());
    broken += *found;
  }
  std::cout << (broken == 0 ? "no sample is broken" : absl::StrCat(broken, " samples are broken")) << std::endl;
  return broken == 0 ? kExitDone : kExitFailed;
}

}  // namespace downpour::cli
