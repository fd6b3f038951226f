#include "trainer/data/open_dataset.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "absl/strings/str_cat.h"
#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/split.h"

namespace downpour::data {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

template <typename T>
std::vector<T> Values(const Array& array) {
  return {array.values<T>().begin(), array.values<T>().end()};
}

TEST(OpenDatasetTest, IsOpenedByItsFormat) {
  absl::Status status = OpenDataset({.format = "IDX", .directory = "/absent"}, Split::kTrain).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(status.message(), "/absent: no such directory");
  status = OpenDataset({.format = "Video", .directory = "/absent"}, Split::kTrain).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(),
            "data set format \"Video\" is not supported; known: IDX, CIFAR10, CIFAR100, ImageFolder, CSV, Text, NPY, "
            "SafeTensors, Parquet, TFRecord, WebDataset, Synthetic");
  status = OpenDataset({.format = "Synthetic", .synthetic = {.kind = "Video"}}, Split::kTrain).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const auto dataset = OpenDataset({.format = "Synthetic", .synthetic = {.kind = "Speech"}}, Split::kTest);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->size(), 1000);
}

TEST(OpenDatasetTest, WhatNeedsArrowIsRefusedWithoutIt) {
  EXPECT_TRUE(absl::IsUnimplemented(OpenDataset({.format = "Parquet", .directory = "/data"}, Split::kTrain).status()));
  const absl::Status remote = OpenDataset({.format = "CSV", .directory = "s3://bucket/a.csv"}, Split::kTrain).status();
  EXPECT_TRUE(absl::IsUnimplemented(remote)) << remote;
}

// A store whose paths are without what only opening it needs.
TEST(OpenDatasetTest, CredentialsInAUriAreNoPartOfPathsAndMessages) {
  ArrowReaders arrow;
  arrow.is_remote = [](const std::string& path) { return path.find("://") != std::string::npos; };
  std::vector<std::string> opened;
  arrow.open_files = [&opened](const std::string& uri) -> absl::StatusOr<std::unique_ptr<Files>> {
    opened.push_back(uri);
    auto files = std::make_unique<MemoryFiles>();
    files->Put("s3://bucket/set/one/a.txt", "first");
    files->Put("s3://bucket/set/two/b.txt", "second");
    files->Put("s3://bucket/broken/c.txt", "third");
    return files;
  };
  DatasetSpec spec;
  spec.format = "Text";
  spec.layout = "Folders";
  spec.directory = "s3://ID:SECRET@bucket/set?region=x";
  spec.transforms = {{.type = "Tokenize", .words = 10}};
  const absl::StatusOr<std::unique_ptr<Dataset>> dataset = OpenDataset(spec, Split::kTrain, arrow);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->fields().targets[0].classes, 2);
  EXPECT_THAT(opened, ElementsAre(spec.directory));
  spec.directory = "s3://ID:SECRET@bucket/broken?region=x";
  const absl::Status refused = OpenDataset(spec, Split::kTrain, arrow).status();
  EXPECT_THAT(std::string(refused.message()), AllOf(HasSubstr("s3://bucket/broken"), Not(HasSubstr("SECRET"))));
}

TEST(OpenDatasetTest, AnImageAndItsMaskAreMovedAlikeWhateverElseIsDoneToOne) {
  DatasetSpec spec;
  spec.format = "Synthetic";
  spec.synthetic = {.kind = "Images", .samples = 50, .shape = {1, 5, 4}};
  spec.fields = {
      {.column = "image"}, {.column = "image", .name = "mask"}, {.column = "label", .target = true, .classes = 10}};
  spec.transforms = {{.type = "Cast", .field = "image", .element_type = "u8"}, {.type = "RandomFlip"}};
  const absl::StatusOr<std::unique_ptr<Dataset>> dataset = OpenDataset(spec, Split::kTrain);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  std::vector<std::int64_t> indices(50);
  std::iota(indices.begin(), indices.end(), 0);
  const absl::StatusOr<Batch> batch = (*dataset)->Read(indices, 3);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_EQ(batch->inputs[0].bytes, batch->inputs[1].bytes);
  EXPECT_NE(batch->inputs[0].bytes, (*dataset)->Read(indices, 4)->inputs[0].bytes);
}

TEST(OpenDatasetTest, TransformsWithoutAFieldAreForInputs) {
  DatasetSpec spec;
  spec.format = "Synthetic";
  spec.synthetic = {.kind = "Speech", .samples = 5, .shape = {2, 3}, .classes = 4};
  spec.transforms = {{.type = "OneHot"}, {.type = "Normalize", .mean = {0}, .deviation = {0.5}}};
  const absl::StatusOr<std::unique_ptr<Dataset>> dataset = OpenDataset(spec, Split::kTrain);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT(Values<float>((*dataset)->Read({1}, 3)->targets[0]), ElementsAre(0, 1, 0, 0));
}

class FilesTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/dataset-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  std::string Write(const std::string& name, const std::string& content) const {
    const std::string path = folder_ + "/" + name;
    std::filesystem::create_directories(std::filesystem::path(path).parent_path());
    std::ofstream(path) << content;
    return path;
  }

  std::string folder_;
};

TEST_F(FilesTest, TheClassesOfATestSetAreThoseOfItsTrainingSet) {
  DatasetSpec spec{.format = "CSV",
                   .directory = Write("train.csv", "x,kind\n1,b\n2,a\n3,c\n"),
                   .test_path = Write("test.csv", "x,kind\n5,c\n"),
                   .columns = {{.name = "x", .type = "fp32"}, {.name = "kind", .type = "categorical"}}};
  const absl::StatusOr<Datasets> datasets = OpenDatasets(spec, true);
  ASSERT_TRUE(datasets.ok()) << datasets.status();
  EXPECT_EQ(ToString(datasets->train->fields()), ToString(datasets->test->fields()));
  EXPECT_EQ(datasets->train->fields().targets[0].classes, 3);
  EXPECT_THAT(Values<std::int64_t>(datasets->train->Read({0, 1, 2}, 1)->targets[0]), ElementsAre(1, 0, 2));
  EXPECT_THAT(Values<std::int64_t>(datasets->test->Read({0}, 1)->targets[0]), ElementsAre(2));
  spec.test_path = Write("other.csv", "x,kind\n5,d\n");
  const absl::StatusOr<Datasets> other = OpenDatasets(spec, true);
  ASSERT_TRUE(other.ok()) << other.status();
  EXPECT_TRUE(absl::IsDataLoss(other->test->Read({0}, 1).status()));
}

TEST_F(FilesTest, SamplesAreHeldOutWhereThereIsNoTestSet) {
  std::string rows = "x,label\n";
  for (int i = 0; i < 100; ++i) absl::StrAppend(&rows, i, ",", i % 2, "\n");
  DatasetSpec spec{.format = "CSV", .directory = Write("all.csv", rows), .validation = 0.2};
  const absl::StatusOr<Datasets> datasets = OpenDatasets(spec, true);
  ASSERT_TRUE(datasets.ok()) << datasets.status();
  EXPECT_EQ(datasets->train->size() + datasets->test->size(), 100);
  std::set<std::int64_t> seen;
  for (const Dataset* part : {datasets->train.get(), datasets->test.get()}) {
    for (std::int64_t i = 0; i < part->size(); ++i) {
      EXPECT_TRUE(seen.insert(Values<std::int64_t>(part->Read({i}, 1)->inputs[0]).front()).second);
    }
  }
  spec.validation = 0;
  EXPECT_TRUE(OpenDatasets(spec, false).ok()) << "nobody asks for a test set";
  EXPECT_EQ(OpenDatasets(spec, true).status().message(),
            "spec.dataset.testPath: there is no test set: expected this, split, or training.evaluate: false");
}

TEST_F(FilesTest, FieldsAndTransformsAreAsTheManifestSays) {
  const DatasetSpec spec{.format = "CSV",
                         .directory = Write("train.csv", "width,height,kind\n10,100,1\n20,300,0\n"),
                         .fields = {{.column = "height", .name = "h"}, {.column = "kind", .target = true}},
                         .transforms = {{.type = "Cast", .field = "h", .element_type = "fp32"},
                                        {.type = "Normalize", .field = "h", .mean = {200}, .deviation = {100}},
                                        {.type = "OneHot", .field = "kind", .classes = 2}}};
  const absl::StatusOr<std::unique_ptr<Dataset>> dataset = OpenDataset(spec, Split::kTrain);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ(ToString((*dataset)->fields()), ToString(*ReadFields(spec)));
  const absl::StatusOr<Batch> batch = (*dataset)->Read({1, 0}, 1);
  ASSERT_TRUE(batch.ok()) << batch.status();
  EXPECT_THAT(Values<float>(batch->inputs[0]), ElementsAre(1, -1));
  EXPECT_THAT(Values<float>(batch->targets[0]), ElementsAre(1, 0, 0, 1));
}

TEST_F(FilesTest, WordsHaveTheNumbersOfTheTrainingSet) {
  const DatasetSpec spec{.format = "Text",
                         .directory = Write("train.txt", "good\tA fine, fine day\nbad\tA day\n"),
                         .test_path = Write("test.txt", "bad\tDay and night\n"),
                         .transforms = {{.type = "Tokenize", .words = 2, .max_length = 3}},
                         .layout = "LabelledLines"};
  const absl::StatusOr<Datasets> datasets = OpenDatasets(spec, true);
  ASSERT_TRUE(datasets.ok()) << datasets.status();
  // "a" and "day" and "fine" are there twice each: by their bytes.
  EXPECT_THAT(Values<std::int32_t>(datasets->train->Read({0}, 1)->inputs[0]), ElementsAre(2, 1, 1));
  EXPECT_THAT(Values<std::int32_t>(datasets->test->Read({0}, 1)->inputs[0]), ElementsAre(3, 1, 1));
  EXPECT_EQ(datasets->train->fields().inputs[0].classes, 4);
}

TEST_F(FilesTest, WordsAreCountedOnceAndKept) {
  const std::string end(std::size_t{70} << 10, 'a');
  DatasetSpec spec{.format = "Text",
                   .directory = Write("train.txt", "l\t" + end + " one two\nl\tthree " + end + "\n"),
                   .transforms = {{.type = "Tokenize", .words = 10, .max_length = 3}},
                   .layout = "LabelledLines",
                   .cache_directory = folder_ + "/cache"};
  const auto ids = [&spec] { return OpenDataset(spec, Split::kTrain).value()->fields().inputs[0].classes; };
  EXPECT_EQ(ids(), 6);
  // Other words, which only who reads the lines can see.
  const auto changed = std::filesystem::last_write_time(spec.directory);
  Write("train.txt", "l\t" + end + " one one\nl\tthree " + end + "\n");
  std::filesystem::last_write_time(spec.directory, changed);
  EXPECT_EQ(ids(), 6) << "no line was read";
  std::filesystem::last_write_time(spec.directory, changed + std::chrono::seconds(1));
  EXPECT_EQ(ids(), 5);
  spec.transforms[0].words = 1;
  EXPECT_EQ(ids(), 3) << "of fewer words";
  spec.transforms[0].words = 10;
  spec.validation = 0.5;
  while (!IsHeldOut(0.5, spec.split_seed, 0) || IsHeldOut(0.5, spec.split_seed, 1)) ++spec.split_seed;
  EXPECT_EQ(ids(), 4) << "of the second line alone";
}

TEST_F(FilesTest, WordsOfBrokenLinesAreLeftOutWhereTheyMayBe) {
  DatasetSpec spec{.format = "Text",
                   .directory = Write("train.txt", "a\tone\nb\t\xff\n"),
                   .transforms = {{.type = "Tokenize", .words = 10}},
                   .layout = "LabelledLines"};
  EXPECT_TRUE(absl::IsDataLoss(OpenDataset(spec, Split::kTrain).status()));
  spec.skip_bad_samples = true;
  spec.most_bad_samples = 1;
  const auto dataset = OpenDataset(spec, Split::kTrain);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_EQ((*dataset)->Read({0, 1}, 1)->size(), 1);
}

TEST_F(FilesTest, GeneratedDataCanBeTransformed) {
  const DatasetSpec spec{.format = "Synthetic",
                         .synthetic = {.kind = "Images", .samples = 10},
                         .transforms = {{.type = "Resize", .height = 8, .width = 9}}};
  const absl::StatusOr<std::unique_ptr<Dataset>> dataset = OpenDataset(spec, Split::kTrain);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  EXPECT_THAT((*dataset)->Read({3}, 1)->inputs[0].shape, ElementsAre(1, 3, 8, 9));
}

TEST_F(FilesTest, ErrorsNameTheFieldOfTheManifest) {
  DatasetSpec spec{.format = "CSV", .directory = Write("a.csv", "x,label\n1,0\n")};
  const auto refusal = [](const DatasetSpec& one) {
    return std::string(OpenDataset(one, Split::kTrain).status().message());
  };
  spec.transforms = {{.type = "Resize", .field = "x", .height = 1, .width = 1}};
  EXPECT_THAT(refusal(spec), HasSubstr("spec.dataset.transforms[0]: Resize is for images"));
  spec.transforms = {{.type = "Resize", .field = "y", .height = 1, .width = 1}};
  EXPECT_EQ(refusal(spec), "spec.dataset.transforms[0].field: there is no field \"y\"");
  spec.transforms = {};
  spec.fields = {{.column = "y"}};
  EXPECT_THAT(refusal(spec), HasSubstr("column \"y\": there is none of this name; there are x, label"));
  spec.fields = {};
  spec.delimiter = ";;";
  EXPECT_EQ(refusal(spec), "spec.dataset.delimiter: expected one character, got \";;\"");
}

}  // namespace
}  // namespace downpour::data
