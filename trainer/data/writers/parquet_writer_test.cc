// What is written is read again by the format's reader.
#include "trainer/data/writers/parquet_writer.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "trainer/data/dataset_source.h"
#include "trainer/data/files/files.h"
#include "trainer/data/formats/parquet_source.h"
#include "trainer/data/synthetic.h"

namespace downpour::data {
namespace {

class ParquetWriterTest : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "/parquet-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    folder_ = pattern;
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }

  static std::unique_ptr<SampleSource> Generated(const SyntheticSpec& spec) {
    absl::StatusOr<std::unique_ptr<Dataset>> dataset = MakeSyntheticDataset(spec, Split::kTrain);
    EXPECT_TRUE(dataset.ok()) << dataset.status();
    return SourceOf(*std::move(dataset));
  }

  absl::Status Write(const SampleSource& source) const {
    absl::StatusOr<std::unique_ptr<SampleWriter>> writer =
        MakeSampleWriter("Parquet", {source.columns(), source.size(), folder_}, &MakeParquetWriter);
    if (!writer.ok()) return writer.status();
    for (std::int64_t i = 0; i < source.size(); ++i) {
      const absl::StatusOr<Sample> sample = source.Read(i);
      if (!sample.ok()) return sample.status();
      if (absl::Status status = (*writer)->Add(*sample); !status.ok()) return status;
    }
    return (*writer)->Finish();
  }

  std::string folder_;
};

TEST_F(ParquetWriterTest, SamplesComeBack) {
  const SyntheticSpec specs[] = {
      {.kind = "Images", .samples = 40, .shape = {3, 9, 7}},
      {.kind = "Images", .samples = 30, .shape = {3, 300, 300}},  // several row groups
      {.kind = "Speech", .samples = 12, .shape = {5, 3}, .classes = 4},
      {.kind = "Radar", .samples = 5},
  };
  for (const SyntheticSpec& spec : specs) {
    const std::unique_ptr<SampleSource> source = Generated(spec);
    const absl::Status written = Write(*source);
    ASSERT_TRUE(written.ok()) << written;
    const absl::StatusOr<std::unique_ptr<SampleSource>> read = OpenParquet(LocalFiles(), folder_ + "/data.parquet");
    ASSERT_TRUE(read.ok()) << read.status();
    ASSERT_EQ((*read)->size(), source->size());
    ASSERT_EQ((*read)->columns().size(), source->columns().size());
    for (std::size_t column = 0; column < source->columns().size(); ++column) {
      EXPECT_EQ((*read)->columns()[column].name, source->columns()[column].name);
      EXPECT_EQ((*read)->columns()[column].type, source->columns()[column].type);
      EXPECT_EQ((*read)->columns()[column].shape, source->columns()[column].shape);
    }
    for (std::int64_t i = 0; i < source->size(); ++i) {
      const absl::StatusOr<Sample> expected = source->Read(i);
      const absl::StatusOr<Sample> found = (*read)->Read(i);
      ASSERT_TRUE(expected.ok() && found.ok()) << found.status();
      for (std::size_t column = 0; column < expected->size(); ++column) {
        EXPECT_EQ((*found)[column].bytes, (*expected)[column].bytes) << spec.kind << ", sample " << i;
      }
    }
  }
}

TEST_F(ParquetWriterTest, TextsComeBack) {
  const std::vector<Column> columns = {{.name = "text", .type = ElementType::kU8, .shape = {kAnyExtent}, .text = true}};
  absl::StatusOr<std::unique_ptr<SampleWriter>> writer = MakeParquetWriter({columns, 3, folder_});
  ASSERT_TRUE(writer.ok()) << writer.status();
  const std::string texts[] = {"one", "", "größer"};
  for (const std::string& text : texts) {
    const auto* const bytes = reinterpret_cast<const std::byte*>(text.data());
    ASSERT_TRUE((*writer)->Add({{{static_cast<std::int64_t>(text.size())}, {bytes, bytes + text.size()}}}).ok());
  }
  ASSERT_TRUE((*writer)->Finish().ok());
  const absl::StatusOr<std::unique_ptr<SampleSource>> read = OpenParquet(LocalFiles(), folder_);
  ASSERT_TRUE(read.ok()) << read.status();
  for (std::size_t i = 0; i < 3; ++i) {
    const absl::StatusOr<Sample> sample = (*read)->Read(static_cast<std::int64_t>(i));
    ASSERT_TRUE(sample.ok()) << sample.status();
    const std::vector<std::byte>& bytes = sample->front().bytes;
    EXPECT_EQ(std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size()), texts[i]);
  }
}

TEST_F(ParquetWriterTest, WhatItCannotHoldIsRefusedAndLeavesNothing) {
  EXPECT_EQ(Write(*Generated({.kind = "Text", .samples = 2})).message(),
            "Parquet: column \"words\" is [*], expected values of one shape");
  EXPECT_TRUE(std::filesystem::is_empty(folder_));
  const auto missing = MakeParquetWriter({{{.name = "x"}}, 1, folder_ + "/none"});
  EXPECT_FALSE(missing.ok());
}

}  // namespace
}  // namespace downpour::data
