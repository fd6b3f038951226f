// What DeviceKernels asks of a table, which here is the test's own.
#include <cstdint>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/cuda/device_kernels.h"
#include "trainer/cuda/plugin_table.h"

namespace downpour::cuda {
namespace {

// A device without memory that never gets done.
struct Device {
  int streams = 0;
  int events = 0;
  int freed = 0;
  bool knows_memory = true;
  int allocation = kOutOfMemory;
  void* waited_in = nullptr;
  void* recorded_in = nullptr;
};
Device* device = nullptr;

char of_streams, of_events;

PluginTable MakeTable() {
  PluginTable table{};
  table.version = kPluginVersion;
  table.size = sizeof(PluginTable);
  table.error_text = [](int error) { return error == kOutOfMemory ? "out of memory" : "another error"; };
  table.count_devices = [](int* count) {
    *count = 1;
    return 0;
  };
  table.use_device = [](int) { return 0; };
  table.allocate = [](void**, std::uint64_t) { return device->allocation; };
  table.release = [](void*) {
    ++device->freed;
    return 0;
  };
  table.allocate_host = [](void**, std::uint64_t) { return device->allocation; };
  table.release_host = table.release;
  table.memory_info = [](std::uint64_t* free, std::uint64_t* total) {
    *free = 7;
    *total = 80;
    return device->knows_memory ? 0 : 1;
  };
  table.create_stream = [](void** stream) {
    *stream = &of_streams;
    ++device->streams;
    return 0;
  };
  table.destroy_stream = [](void* stream) {
    EXPECT_EQ(stream, &of_streams);
    --device->streams;
    return 0;
  };
  table.create_event = [](void** event, int timed) {
    EXPECT_EQ(timed, 0);
    *event = &of_events;
    ++device->events;
    return 0;
  };
  table.destroy_event = [](void*) {
    --device->events;
    return 0;
  };
  table.record_event = [](void*, void* stream) {
    device->recorded_in = stream;
    return 0;
  };
  table.wait_event = [](void* stream, void*) {
    device->waited_in = stream;
    return 0;
  };
  table.query_event = [](int* over, void*) {
    *over = 0;
    return 0;
  };
  return table;
}

class PluginKernelsTest : public ::testing::Test {
 protected:
  PluginKernelsTest() : kernels_(*MakePluginKernels(table_, 0)) {}
  ~PluginKernelsTest() override {
    kernels_.reset();
    device = nullptr;
  }

  Device device_;
  Device* const in_use_ = device = &device_;
  const PluginTable table_ = MakeTable();
  std::unique_ptr<DeviceKernels> kernels_;
};

TEST_F(PluginKernelsTest, GiveBackTheirStreamAndEvents) {
  EXPECT_EQ(device_.streams, 1);
  char other;
  ASSERT_TRUE(kernels_->WaitFor(&other).ok());
  ASSERT_TRUE(kernels_->WaitFor(&other).ok());
  EXPECT_EQ(device_.events, 1);
  EXPECT_EQ(device_.recorded_in, &other);
  EXPECT_EQ(device_.waited_in, &of_streams);
  kernels_.reset();
  EXPECT_EQ(device_.streams, 0);
  EXPECT_EQ(device_.events, 0);
}

TEST_F(PluginKernelsTest, SayHowMuchMemoryThereIs) {
  EXPECT_EQ(kernels_->Allocate(100).status(),
            absl::ResourceExhaustedError("100 bytes of memory of GPU 0: out of memory; 7 bytes of 80 are free"));
  EXPECT_EQ(kernels_->AllocateHost(100).status(),
            absl::ResourceExhaustedError("100 bytes of page-locked memory of the host: out of memory"));
  device_.knows_memory = false;
  EXPECT_EQ(kernels_->Allocate(100).status(),
            absl::ResourceExhaustedError("100 bytes of memory of GPU 0: out of memory"));
  device_.allocation = 5;
  EXPECT_EQ(kernels_->Allocate(100).status(), absl::InternalError("memory on a GPU: another error (CUDA error 5)"));
}

TEST_F(PluginKernelsTest, LeaveADeviceThatHangsAlone) {
  const absl::StatusOr<void*> event = kernels_->CreateEvent();
  ASSERT_TRUE(event.ok());
  kernels_->Free(nullptr);
  EXPECT_EQ(device_.freed, 1);
  EXPECT_EQ(Await(*kernels_, *event, absl::ZeroDuration()).code(), absl::StatusCode::kDeadlineExceeded);
  kernels_->Free(nullptr);
  kernels_->FreeHost(nullptr);
  kernels_->DestroyEvent(*event);
  kernels_.reset();
  EXPECT_EQ(device_.freed, 1);
  EXPECT_EQ(device_.events, 1);
  EXPECT_EQ(device_.streams, 1);
}

}  // namespace
}  // namespace downpour::cuda
