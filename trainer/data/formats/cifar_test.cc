#include "trainer/data/formats/cifar.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>

#include "trainer/data/files/testing/memory_files.h"
#include "trainer/data/formats/testing/read_values.h"

namespace downpour::data {
namespace {

using ::testing::ElementsAre;

constexpr std::size_t kImageBytes = 3072;

// A sample with pixels that follow from `seed`.
std::string SampleOf(const std::string& labels, std::uint64_t seed) {
  std::mt19937_64 random(seed);
  std::string sample = labels;
  for (std::size_t i = 0; i < kImageBytes; ++i) sample.push_back(static_cast<char>(random()));
  return sample;
}

std::string Names(int count) {
  std::string names;
  for (int i = 0; i < count; ++i) names += "name" + std::to_string(i) + "\n";
  return names;
}

class CifarTest : public ::testing::Test {
 protected:
  void SetUp() override {
    files_.Put("cifar/data_batch_1.bin", SampleOf("\x03", 1) + SampleOf("\x09", 2));
    files_.Put("cifar/data_batch_2.bin", SampleOf(std::string(1, '\0'), 3));
    files_.Put("cifar/test_batch.bin", SampleOf("\x05", 4));
    files_.Put("cifar/batches.meta.txt", Names(10) + "\n");
    files_.Put("cifar/readme.html", "");
    files_.Put("cifar100/train.bin", SampleOf("\x13\x63", 5));
    files_.Put("cifar100/test.bin", SampleOf("\x01\x02", 6) + SampleOf("\x03\x04", 7));
    files_.Put("cifar100/fine_label_names.txt", Names(100));
  }

  std::string MessageOfOpen(const std::string& path) {
    const auto source = OpenCifar10(files_, path, {});
    EXPECT_FALSE(source.ok());
    return std::string(source.status().message());
  }

  MemoryFiles files_;
};

TEST_F(CifarTest, ReadsTheBatchesBehindEachOther) {
  const auto source = OpenCifar10(files_, "cifar", {});
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_EQ((*source)->size(), 3);
  ASSERT_EQ((*source)->columns().size(), 2U);
  EXPECT_EQ((*source)->columns()[0].shape, (std::vector<std::int64_t>{3, 32, 32}));
  EXPECT_EQ((*source)->columns()[1].name, "label");
  EXPECT_EQ((*source)->columns()[1].classes, 10);
  EXPECT_EQ((*source)->columns()[1].class_names.at(9), "name9");
  const std::vector<std::int64_t> labels = {3, 9, 0};
  for (const std::int64_t i : {2, 0, 1}) {
    const auto sample = (*source)->Read(i);
    ASSERT_TRUE(sample.ok()) << sample.status();
    EXPECT_EQ((*sample)[0].shape, (*source)->columns()[0].shape);
    EXPECT_EQ(Text((*sample)[0]), SampleOf("", i + 1));
    EXPECT_EQ(Integer((*sample)[1]), labels[i]);
  }
}

TEST_F(CifarTest, ReadsTheTestSetAndSingleFiles) {
  const auto test = OpenCifar10(files_, "cifar", {Split::kTest});
  ASSERT_TRUE(test.ok()) << test.status();
  EXPECT_EQ((*test)->size(), 1);
  EXPECT_EQ(Integer((*(*test)->Read(0))[1]), 5);
  const auto file = OpenCifar10(files_, "cifar/data_batch_2.bin", {Split::kTest});
  ASSERT_TRUE(file.ok()) << file.status();
  EXPECT_EQ((*file)->size(), 1);
  EXPECT_EQ((*file)->columns()[1].class_names.size(), 10U) << "names lie beside it";
}

TEST_F(CifarTest, HundredClassesHaveCoarseOnesToo) {
  const auto source = OpenCifar100(files_, "cifar100", {});
  ASSERT_TRUE(source.ok()) << source.status();
  ASSERT_EQ((*source)->columns().size(), 3U);
  EXPECT_EQ((*source)->columns()[1].name, "label");
  EXPECT_EQ((*source)->columns()[1].class_names.size(), 100U);
  EXPECT_EQ((*source)->columns()[2].name, "coarse_label");
  EXPECT_EQ((*source)->columns()[2].classes, 20);
  EXPECT_TRUE((*source)->columns()[2].class_names.empty()) << "there is no file of them";
  const auto sample = (*source)->Read(0);
  ASSERT_TRUE(sample.ok()) << sample.status();
  EXPECT_EQ(Text((*sample)[0]), SampleOf("", 5));
  EXPECT_EQ(Integer((*sample)[1]), 99);
  EXPECT_EQ(Integer((*sample)[2]), 19);
  EXPECT_EQ((*OpenCifar100(files_, "cifar100", {Split::kTest}))->size(), 2);
}

TEST_F(CifarTest, ASampleIsOneRead) {
  const auto source = OpenCifar10(files_, "cifar", {});
  ASSERT_TRUE(source.ok());
  const std::int64_t reads = files_.reads();
  const std::uint64_t bytes = files_.bytes_read();
  ASSERT_TRUE((*source)->Read(1).ok());
  EXPECT_EQ(files_.reads() - reads, 1);
  EXPECT_EQ(files_.bytes_read() - bytes, kImageBytes + 1);
}

TEST_F(CifarTest, ErrorsSayWhatWasFound) {
  files_.Put("long/data_batch_1.bin", SampleOf("\x01", 1) + "x");
  EXPECT_EQ(MessageOfOpen("long"),
            "long/data_batch_1.bin: 3074 bytes, expected a multiple of 3073, the samples of CIFAR-10");
  files_.Put("empty/data_batch_1.bin", "");
  EXPECT_EQ(MessageOfOpen("empty"),
            "empty/data_batch_1.bin: 0 bytes, expected a multiple of 3073, the samples of CIFAR-10");
  EXPECT_EQ(MessageOfOpen("cifar100"), "cifar100: has no data_batch_*.bin, expected the binary version of CIFAR-10");
  EXPECT_EQ(MessageOfOpen("none"), "none: cannot be looked at: No such file or directory");
  files_.Put("python/data_batch_1", "");
  EXPECT_EQ(MessageOfOpen("python"), "python: has no data_batch_*.bin, expected the binary version of CIFAR-10");
  files_.Put("twice/a/data_batch_1.bin", SampleOf("\x01", 1));
  files_.Put("twice/b/data_batch_1.bin", SampleOf("\x01", 1));
  EXPECT_EQ(MessageOfOpen("twice"),
            "twice/b/data_batch_1.bin: lies in another folder than twice/a/data_batch_1.bin, expected one data set");
  files_.Put("names/data_batch_1.bin", SampleOf("\x01", 1));
  files_.Put("names/batches.meta.txt", Names(9));
  EXPECT_EQ(MessageOfOpen("names"), "names/batches.meta.txt: 9 names of classes, expected 10");
  files_.Put("names/batches.meta.txt", std::string((1 << 20) + 1, 'x'));
  EXPECT_EQ(MessageOfOpen("names"), "names/batches.meta.txt: 1048577 bytes, expected no more than 1048576");
}

TEST_F(CifarTest, ABrokenSampleLeavesTheOthers) {
  files_.Put("broken/data_batch_1.bin", SampleOf("\x01", 1) + SampleOf("\x0a", 2) + SampleOf("\x02", 3));
  const auto source = OpenCifar10(files_, "broken", {});
  ASSERT_TRUE(source.ok()) << source.status();
  const absl::Status broken = (*source)->Read(1).status();
  EXPECT_TRUE(absl::IsDataLoss(broken));
  EXPECT_EQ(broken.message(), "broken/data_batch_1.bin: sample 1 at byte 3073: label 10, expected 0 to 9");
  EXPECT_TRUE((*source)->Read(0).ok());
  EXPECT_TRUE((*source)->Read(2).ok());
  files_.Cut("broken/data_batch_1.bin", 4000);
  EXPECT_TRUE(absl::IsDataLoss((*source)->Read(2).status()));
  files_.FailReads(1, absl::UnavailableError("the store is down"));
  EXPECT_TRUE(absl::IsUnavailable((*source)->Read(0).status()));
  EXPECT_TRUE((*source)->Read(0).ok());
}

}  // namespace
}  // namespace downpour::data
