#include "cli/ledger/sample_count.h"

#include <zlib.h>

#include <filesystem>
#include <fstream>

#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

api::DatasetSpec Idx(const std::string& directory) { return {.format = "IDX", .path = directory}; }

class SampleCountTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = testing::TempDir() + "/sample_count_" + testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(directory_);
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  static std::string Header(std::string magic, std::uint32_t count) {
    for (int shift = 24; shift >= 0; shift -= 8) magic.push_back(static_cast<char>(count >> shift & 0xff));
    return magic;
  }
  void WritePlain(const std::string& bytes) {
    std::ofstream(directory_ + "/train-labels-idx1-ubyte", std::ios::binary) << bytes;
  }
  void WriteGzip(const std::string& bytes) {
    gzFile file = gzopen((directory_ + "/train-labels-idx1-ubyte.gz").c_str(), "wb");
    ASSERT_NE(file, nullptr);
    ASSERT_EQ(gzwrite(file, bytes.data(), static_cast<unsigned>(bytes.size())), static_cast<int>(bytes.size()));
    ASSERT_EQ(gzclose(file), Z_OK);
  }

  const std::string label_magic_{"\0\0\10\1", 4};
  std::string directory_;
};

TEST_F(SampleCountTest, ReadsPlainAndGzip) {
  WritePlain(Header(label_magic_, 0x01020304));
  EXPECT_EQ(CountTrainingSamples(Idx(directory_)).value(), 0x01020304u);
  WriteGzip(Header(label_magic_, 60000) + std::string(60000, '\3'));
  std::filesystem::remove(directory_ + "/train-labels-idx1-ubyte");
  EXPECT_EQ(CountTrainingSamples(Idx(directory_)).value(), 60000u);
}

TEST_F(SampleCountTest, RefusesWhatIsNotALabelFile) {
  EXPECT_EQ(CountTrainingSamples(Idx(directory_)).status().code(), absl::StatusCode::kNotFound);
  for (const std::string& bytes :
       {std::string(), Header(label_magic_, 5).substr(0, 7), Header(std::string("\0\0\10\3", 4), 5)}) {
    WritePlain(bytes);
    EXPECT_EQ(CountTrainingSamples(Idx(directory_)).status().code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(SampleCountTest, GeneratedDataHaveAsManyAsTheManifestSays) {
  api::DatasetSpec dataset{.format = "Synthetic", .path = ""};
  dataset.synthetic.emplace();
  EXPECT_EQ(CountTrainingSamples(dataset).value(), 10000u);
  dataset.synthetic->samples = 7;
  EXPECT_EQ(CountTrainingSamples(dataset).value(), 7u);
}

}  // namespace
}  // namespace downpour::cli
