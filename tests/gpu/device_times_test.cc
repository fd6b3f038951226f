// device_times.cc against a CUPTI that is ours: the linker takes these functions.
#include <cupti.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

extern "C" int InitializeInjection();

namespace {

CUpti_BuffersCallbackRequestFunc give_buffer = nullptr;
CUpti_BuffersCallbackCompleteFunc take_buffer = nullptr;
std::set<CUpti_ActivityKind> enabled;
std::uint32_t flush_period = 0;
std::size_t dropped_records = 0;
// What the buffer holds, one record after another.
std::vector<std::size_t> record_sizes;

template <typename Record>
std::size_t Append(std::uint8_t* buffer, std::size_t at, CUpti_ActivityKind kind, std::uint64_t start,
                   std::uint64_t end) {
  Record record{};
  record.kind = kind;
  record.start = start;
  record.end = end;
  std::memcpy(buffer + at, &record, sizeof(record));
  record_sizes.push_back(sizeof(record));
  return at + sizeof(record);
}

}  // namespace

extern "C" {
CUptiResult cuptiActivityRegisterCallbacks(CUpti_BuffersCallbackRequestFunc request,
                                           CUpti_BuffersCallbackCompleteFunc complete) {
  give_buffer = request;
  take_buffer = complete;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityEnable(CUpti_ActivityKind kind) {
  enabled.insert(kind);
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityFlushPeriod(std::uint32_t milliseconds) {
  flush_period = milliseconds;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNextRecord(std::uint8_t* buffer, std::size_t valid, CUpti_Activity** record) {
  static std::size_t next = 0;
  static std::uint8_t* at = nullptr;
  if (*record == nullptr) next = 0, at = buffer;
  if (next == record_sizes.size() || static_cast<std::size_t>(at - buffer) >= valid)
    return CUPTI_ERROR_MAX_LIMIT_REACHED;
  *record = reinterpret_cast<CUpti_Activity*>(at);
  at += record_sizes[next++];
  return CUPTI_SUCCESS;
}
CUptiResult cuptiActivityGetNumDroppedRecords(CUcontext, std::uint32_t, std::size_t* dropped) {
  *dropped = dropped_records;
  return CUPTI_SUCCESS;
}
CUptiResult cuptiGetResultString(CUptiResult, const char** text) {
  *text = "an error";
  return CUPTI_SUCCESS;
}
}

namespace {

TEST(DeviceTimesTest, WritesWhatTheDeviceDidAndWhatWasLost) {
  const std::string path = testing::TempDir() + "device_times";
  const std::string file = path + "." + std::to_string(getpid());
  std::filesystem::remove(file);
  setenv("DOWNPOUR_DEVICE_TIMES", path.c_str(), 1);
  ASSERT_EQ(InitializeInjection(), 1);
  EXPECT_EQ(enabled, (std::set<CUpti_ActivityKind>{CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, CUPTI_ACTIVITY_KIND_MEMCPY,
                                                   CUPTI_ACTIVITY_KIND_MEMSET}));
  EXPECT_GT(flush_period, 0u);

  std::uint8_t* buffer = nullptr;
  std::size_t size = 0, records = 1;
  give_buffer(&buffer, &size, &records);
  ASSERT_NE(buffer, nullptr);
  EXPECT_EQ(records, 0u);
  std::size_t filled = 0;
  filled = Append<CUpti_ActivityKernel10>(buffer, filled, CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL, 10, 20);
  filled = Append<CUpti_ActivityMemcpy6>(buffer, filled, CUPTI_ACTIVITY_KIND_MEMCPY, 15, 30);
  filled = Append<CUpti_ActivityMemset4>(buffer, filled, CUPTI_ACTIVITY_KIND_MEMSET, 40, 41);
  ASSERT_LE(filled, size);
  dropped_records = 7;
  take_buffer(nullptr, 0, buffer, size, filled);

  std::uint64_t read[12] = {};
  std::ifstream(file, std::ios::binary).read(reinterpret_cast<char*>(read), sizeof(read));
  const std::vector<std::uint64_t> expected = {CUPTI_ACTIVITY_KIND_CONCURRENT_KERNEL,
                                               10,
                                               20,
                                               CUPTI_ACTIVITY_KIND_MEMCPY,
                                               15,
                                               30,
                                               CUPTI_ACTIVITY_KIND_MEMSET,
                                               40,
                                               41,
                                               0,
                                               7,
                                               0};
  EXPECT_EQ(std::vector<std::uint64_t>(std::begin(read), std::end(read)), expected);
  EXPECT_EQ(std::filesystem::file_size(file), sizeof(read));
}

}  // namespace
