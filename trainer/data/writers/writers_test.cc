// Whatever is written is read again by the format's reader.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "trainer/data/dataset_source.h"
#include "trainer/data/open_dataset.h"
#include "trainer/data/synthetic.h"
#include "trainer/data/writers/writer.h"

namespace downpour::data {
namespace {

using ::testing::HasSubstr;

class WritersTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/writers-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::unique_ptr<SampleSource> Generated(const SyntheticSpec& spec) {
    absl::StatusOr<std::unique_ptr<Dataset>> dataset = MakeSyntheticDataset(spec, Split::kTrain);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return SourceOf(*std::move(dataset));
  }

  absl::Status Write(const SampleSource& source, const std::string& format,
                     const SampleWriterFactory& parquet = {}) const {
    absl::StatusOr<std::unique_ptr<SampleWriter>> writer =
        MakeSampleWriter(format, {source.columns(), source.size(), folder_}, parquet);
    if (!writer.ok()) return writer.status();
    for (std::int64_t i = 0; i < source.size(); ++i) {
      const absl::StatusOr<Sample> sample = source.Read(i);
      if (!sample.ok()) return sample.status();
      if (absl::Status status = (*writer)->Add(*sample); !status.ok()) return status;
    }
    return (*writer)->Finish();
  }

  // By the names of the fields, which need not be in the same order.
  static void ExpectSame(const SampleSource& source, const Dataset& read, const std::vector<std::string>& names,
                         const std::vector<std::string>& names_read) {
    ASSERT_EQ(read.size(), source.size());
    for (std::int64_t i = 0; i < source.size(); ++i) {
      const absl::StatusOr<Sample> sample = source.Read(i);
      absl::StatusOr<Batch> batch = read.Read({i}, std::nullopt);
      ASSERT_TRUE(sample.ok() && batch.ok()) << batch.status();
      for (std::size_t n = 0; n < names.size(); ++n) {
        const int column = FindColumn(source.columns(), names[n]);
        const SampleFields& fields = read.fields();
        const Array* array = nullptr;
        for (std::size_t f = 0; f < fields.inputs.size(); ++f) {
          if (fields.inputs[f].name == names_read[n]) array = &batch->inputs[f];
        }
        for (std::size_t f = 0; f < fields.targets.size(); ++f) {
          if (fields.targets[f].name == names_read[n]) array = &batch->targets[f];
        }
        ASSERT_NE(array, nullptr) << names_read[n];
        EXPECT_EQ(array->bytes, (*sample)[static_cast<std::size_t>(column)].bytes) << names[n] << " of sample " << i;
      }
    }
  }

  std::string folder_;
};

TEST_F(WritersTest, ImagesComeBack) {
  struct Case {
    const char* format;
    std::vector<std::int64_t> shape;
    std::vector<ColumnSpec> columns;
  };
  const std::vector<ColumnSpec> record = {{.name = "image", .type = "image"}, {.name = "label", .type = "i64"}};
  for (const Case& one :
       {Case{"IDX", {1, 9, 7}, {}}, Case{"CIFAR10", {3, 32, 32}, {}}, Case{"WebDataset", {3, 9, 7}, {}},
        Case{"TFRecord", {3, 9, 7}, record}, Case{"NPY", {3, 9, 7}, {}}, Case{"SafeTensors", {3, 9, 7}, {}}}) {
    SCOPED_TRACE(one.format);
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directory(folder_);
    const auto source = Generated({.kind = "Images", .samples = 23, .shape = one.shape});
    ASSERT_TRUE(Write(*source, one.format).ok());
    DatasetSpec spec{.format = one.format, .directory = folder_, .columns = one.columns};
    if (spec.format == "SafeTensors") spec.directory += "/data.safetensors";
    const bool varies = spec.format == "WebDataset" || spec.format == "TFRecord";
    if (varies) spec.transforms = {{.type = "Resize", .height = 9, .width = 7}};  // to what they are
    const absl::StatusOr<std::unique_ptr<Dataset>> read = OpenDataset(spec, Split::kTrain);
    ASSERT_TRUE(read.ok()) << read.status();
    ExpectSame(*source, **read, {"image", "label"}, {"image", "label"});
  }
}

TEST_F(WritersTest, FoldersOfImagesComeBackByClass) {
  const auto source = Generated({.kind = "Images", .samples = 20, .shape = {1, 6, 5}});
  ASSERT_TRUE(Write(*source, "ImageFolder").ok());
  const absl::StatusOr<std::unique_ptr<Dataset>> read =
      OpenDataset({.format = "ImageFolder",
                   .directory = folder_,
                   .transforms = {{.type = "Resize", .height = 6, .width = 5}},
                   .channels = 1},
                  Split::kTrain);
  ASSERT_TRUE(read.ok()) << read.status();
  ASSERT_EQ((*read)->size(), 20);
  // Sorted by class: sample i of class c is c + 10 i.
  for (std::int64_t i = 0; i < 20; ++i) {
    const absl::StatusOr<Sample> sample = source->Read(i / 2 + 10 * (i % 2));
    const absl::StatusOr<Batch> batch = (*read)->Read({i}, std::nullopt);
    ASSERT_TRUE(sample.ok() && batch.ok()) << batch.status();
    EXPECT_EQ(batch->inputs[0].bytes, (*sample)[0].bytes) << i;
    EXPECT_EQ(batch->targets[0].values<std::int64_t>()[0], i / 2);
  }
}

TEST_F(WritersTest, TablesAndTextsComeBack) {
  const auto speech = Generated({.kind = "Speech", .samples = 12, .shape = {1, 3}, .classes = 4});
  ASSERT_TRUE(Write(*speech, "CSV").ok());
  const absl::StatusOr<std::unique_ptr<Dataset>> table =
      OpenDataset({.format = "CSV", .directory = folder_ + "/data.csv"}, Split::kTrain);
  ASSERT_TRUE(table.ok()) << table.status();
  for (std::int64_t i = 0; i < 12; ++i) {
    const absl::StatusOr<Batch> batch = (*table)->Read({i}, std::nullopt);
    ASSERT_TRUE(batch.ok()) << batch.status();
    const absl::StatusOr<Sample> sample = speech->Read(i);
    const auto* const values = reinterpret_cast<const float*>((*sample)[0].bytes.data());
    for (std::size_t n = 0; n < 3; ++n) EXPECT_EQ(batch->inputs[n].values<float>()[0], values[n]);
    EXPECT_EQ(batch->targets[0].values<std::int64_t>()[0], i % 4);
  }
  const auto text = Generated({.kind = "Text", .samples = 12});
  ASSERT_TRUE(Write(*text, "Text").ok());
  const absl::StatusOr<std::unique_ptr<Dataset>> lines =
      OpenDataset({.format = "Text",
                   .directory = folder_ + "/data.txt",
                   .transforms = {{.type = "Tokenize", .words = 100000}},
                   .layout = "LabelledLines"},
                  Split::kTrain);
  ASSERT_TRUE(lines.ok()) << lines.status();
  for (std::int64_t i = 0; i < 12; ++i) {
    const absl::StatusOr<Batch> batch = (*lines)->Read({i}, std::nullopt);
    ASSERT_TRUE(batch.ok()) << batch.status();
    EXPECT_EQ(batch->inputs[0].bytes.size(), (*text->Read(i))[0].bytes.size()) << "as many words";
    EXPECT_EQ(batch->targets[0].values<std::int64_t>()[0], i % 2);
  }
}

TEST_F(WritersTest, WhatAFormatCannotHoldIsRefused) {
  const auto text = Generated({.kind = "Text", .samples = 2});
  for (const char* format : {"CSV", "NPY", "SafeTensors", "IDX", "CIFAR10", "ImageFolder", "WebDataset"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(Write(*text, format))) << format;
  }
  const absl::Status cifar = Write(*Generated({.kind = "Images", .samples = 2, .shape = {3, 8, 8}}), "CIFAR10");
  EXPECT_EQ(cifar.message(),
            "CIFAR10 holds an image, u8 [3, 32, 32], and a label below 10, not u8 [3, 8, 8] of 10 classes");
  EXPECT_THAT(std::string(Write(*text, "HDF5").message()), HasSubstr("the format HDF5 is not written"));
  EXPECT_TRUE(std::filesystem::is_empty(folder_)) << "nothing half-written";
}

}  // namespace
}  // namespace downpour::data
