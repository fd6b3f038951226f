#include "trainer/checkpoint/state_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/checkpoint/block.h"
#include "trainer/checkpoint/directory_store.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/testing/fake_file_system.h"
#include "trainer/checkpoint/testing/sample_checkpoint.h"
#include "trainer/core/job_uid.h"

namespace downpour::checkpoint {
namespace {

using testing::FakeFileSystem;
using ::testing::HasSubstr;

constexpr char kUid[] = "00112233445566778899aabbccddeeff";

template <typename Number>
Number At(const std::string& bytes, std::size_t offset) {
  Number value;
  std::memcpy(&value, bytes.data() + offset, sizeof(value));
  return value;
}

std::uint32_t Checksum(const std::string& bytes, std::size_t begin, std::size_t count) {
  return wire::Crc32c(BytesOf(bytes).subspan(begin, count));
}

core::SliceSnapshot MakeSlice(std::uint32_t number, std::uint32_t elements) {
  core::SliceSnapshot snapshot;
  snapshot.number = number;
  snapshot.slice.elements = elements;
  snapshot.value = std::make_shared<const std::vector<float>>(elements, 1.5F);
  snapshot.optimizer = {"Momentum", {{"velocity", std::make_shared<const std::vector<float>>(elements, 2.5F)}}, {}};
  snapshot.table.set_slice(number);
  return snapshot;
}

class StateFileTest : public ::testing::Test {
 protected:
  // A file of these slices; the content of it is returned.
  std::string Write(const std::vector<core::SliceSnapshot>& slices) {
    std::unique_ptr<StoreWriter> file = *store_->Create("ps-3.state");
    StateFileWriter writer(*file);
    EXPECT_TRUE(writer.Begin({*core::ParseJobUid(kUid), 5, 6, 7, 3}).ok());
    std::uint64_t position = 800;
    for (const core::SliceSnapshot& slice : slices) {
      EXPECT_TRUE(writer.Append(slice, position).ok());
      position += slice.slice.bytes();
    }
    EXPECT_TRUE(writer.Finish().ok());
    EXPECT_TRUE(file->Commit().ok());
    const std::string content = system_.Content(kPath);
    EXPECT_EQ(writer.bytes(), content.size());
    return content;
  }

  absl::StatusOr<std::unique_ptr<StateFileReader>> Open() {
    return StateFileReader::Open(*store_->Open("ps-3.state"), "ps-3.state");
  }

  static constexpr char kPath[] = "/s/ps-3.state";
  FakeFileSystem system_{1};
  std::unique_ptr<Store> store_ = MakeDirectoryStore(system_, "/s");
};

TEST_F(StateFileTest, LayoutIsAsDocumented) {
  const std::string bytes = Write({MakeSlice(9, 5)});
  EXPECT_EQ(bytes.substr(0, 4), "DPCS");
  EXPECT_EQ(At<std::uint16_t>(bytes, 4), 1);
  EXPECT_EQ(At<std::uint16_t>(bytes, 6), 48);
  EXPECT_EQ(At<core::JobUid>(bytes, 8), *core::ParseJobUid(kUid));
  EXPECT_EQ(At<std::uint64_t>(bytes, 24), 5U);
  EXPECT_EQ(At<std::uint32_t>(bytes, 32), 6U);
  EXPECT_EQ(At<std::uint32_t>(bytes, 36), 7U);
  EXPECT_EQ(At<std::uint32_t>(bytes, 40), 3U);
  EXPECT_EQ(At<std::uint32_t>(bytes, 44), Checksum(bytes, 0, 44));

  const std::string record = bytes.substr(48);
  const auto message_bytes = At<std::uint32_t>(record, 8);
  EXPECT_EQ(record.substr(0, 4), "DPCR");
  EXPECT_EQ(At<std::uint32_t>(record, 4), 9U);
  EXPECT_EQ(At<std::uint32_t>(record, 12), Checksum(record, 48, message_bytes));
  EXPECT_EQ(At<std::uint64_t>(record, 16), 20U);
  EXPECT_EQ(At<std::uint32_t>(record, 24), Checksum(record, 48 + message_bytes, 20));
  EXPECT_EQ(At<std::uint32_t>(record, 28), 5U);
  EXPECT_EQ(At<std::uint64_t>(record, 32), 800U);
  EXPECT_EQ(At<std::uint32_t>(record, 40), wire::Crc32c(BytesOf(std::vector<float>(5, 1.5F))));
  EXPECT_EQ(At<std::uint32_t>(record, 44), Checksum(record, 0, 44));
  v1::SliceState state;
  ASSERT_TRUE(state.ParseFromString(record.substr(48, message_bytes)));
  EXPECT_EQ(state.optimizer(), "Momentum");
  EXPECT_EQ(state.vectors(0).elements(), 5U);
  EXPECT_EQ(At<float>(record, 48 + message_bytes), 2.5F);

  const std::string end = record.substr(48 + message_bytes + 20);
  EXPECT_EQ(end.size(), 24U);
  EXPECT_EQ(end.substr(0, 4), "DPCE");
  EXPECT_EQ(At<std::uint32_t>(end, 4), 1U);
  EXPECT_EQ(At<std::uint64_t>(end, 8), bytes.size());
  EXPECT_EQ(At<std::uint32_t>(end, 16), Checksum(bytes.substr(0, 96), 0, 96));
  EXPECT_EQ(At<std::uint32_t>(end, 20), Checksum(end, 0, 20));
}

TEST_F(StateFileTest, AFileCutBetweenRecordsIsNotWhole) {
  const std::string whole = Write({MakeSlice(1, 5), MakeSlice(2, 5), MakeSlice(4, 5)});
  const absl::StatusOr<std::unique_ptr<StateFileReader>> reader = Open();
  ASSERT_TRUE(reader.ok()) << reader.status();
  const std::vector<StateRecord> records = (*reader)->records();
  ASSERT_EQ(records.size(), 3U);
  EXPECT_EQ((*reader)->Read(records[1])->vectors[0].name, "velocity");
  for (const StateRecord& record : records) {
    const std::size_t begin = record.message_begin - 48;
    const std::size_t bytes = 48 + record.message_bytes + record.bulk_bytes;
    std::string& content = system_.Content(kPath);
    content = whole.substr(0, begin);
    EXPECT_TRUE(absl::IsDataLoss(Open().status()));
    content = whole.substr(0, begin) + whole.substr(whole.size() - 24);
    EXPECT_TRUE(absl::IsDataLoss(Open().status()));
    content = whole;
    content.erase(begin, bytes);
    EXPECT_THAT(std::string(Open().status().message()), HasSubstr("2 slices, expected 3"));
    content = whole;
    content.insert(begin, whole.substr(begin, bytes));
    EXPECT_TRUE(absl::IsDataLoss(Open().status()));
  }
}

TEST_F(StateFileTest, VectorsAreAsLongAsTheSlice) {
  core::SliceSnapshot slice = MakeSlice(1, 5);
  slice.optimizer.vectors[0].values = std::make_shared<const std::vector<float>>(4);
  std::unique_ptr<StoreWriter> file = *store_->Create("x");
  StateFileWriter writer(*file);
  EXPECT_EQ(writer.Append(slice, 0),
            absl::InvalidArgumentError("slice 1: the optimizer's velocity has 4 elements, expected 5"));
}

TEST(ManifestTest, LayoutIsAsDocumented) {
  FakeFileSystem system(1);
  const std::unique_ptr<Store> store = MakeDirectoryStore(system, "/s");
  const testing::SampleJob job = testing::MakeSampleJob(1);
  ASSERT_TRUE(testing::WriteSample(*store, job, 2).ok());
  const std::string folder = "/s/cut-0000000001-g1-i1-00112233/";
  EXPECT_EQ(system.Files(),
            (std::vector<std::string>{folder + "MANIFEST", folder + "OPEN", folder + "ps-0.safetensors",
                                      folder + "ps-0.state", folder + "ps-1.safetensors", folder + "ps-1.state"}));
  for (const char* name : {"MANIFEST", "OPEN"}) {
    const std::string bytes = system.Content(folder + name);
    EXPECT_EQ(bytes.substr(0, 4), "DPCM");
    EXPECT_EQ(At<std::uint16_t>(bytes, 4), 1);
    EXPECT_EQ(At<std::uint16_t>(bytes, 6), 24);
    EXPECT_EQ(At<std::uint64_t>(bytes, 8), bytes.size() - 24);
    EXPECT_EQ(At<std::uint32_t>(bytes, 16), Checksum(bytes, 24, bytes.size() - 24));
    EXPECT_EQ(At<std::uint32_t>(bytes, 20), Checksum(bytes, 0, 20));
    v1::CheckpointManifest manifest;
    ASSERT_TRUE(manifest.ParseFromString(bytes.substr(24)));
    EXPECT_EQ(manifest.job_uid(), job.identity.job_uid());
    EXPECT_EQ(manifest.files_size(), std::string(name) == "OPEN" ? 0 : 2);
  }
}

}  // namespace
}  // namespace downpour::checkpoint
