#include "trainer/cuda/gpu_monitor.h"

#include <cstdlib>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cuda {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::string Driver(const std::string& name) { return absl::StrCat(DOWNPOUR_TEST_CUDA_PLUGINS, "/", name, ".so"); }

std::vector<std::string> Missing(const GpuReading& reading) {
  std::vector<std::string> missing;
  for (const GpuReading::Missing& one : reading.missing) missing.push_back(absl::StrCat(one.what, ": ", one.why));
  return missing;
}

class GpuMonitorTest : public ::testing::Test {
 protected:
  ~GpuMonitorTest() override { unsetenv("FAKE_DRIVER_FAILS"); }
  static void Fail(const char* what) { setenv("FAKE_DRIVER_FAILS", what, 1); }

  // Of the devices that CUDA sees.
  static std::unique_ptr<GpuMonitor> Load(const std::string& name, const std::vector<int>& devices) {
    std::vector<std::string> uuids;
    for (const int device : devices) uuids.push_back(DeviceUuid(device, Driver("driver")).value());
    return LoadNvml(uuids, Driver(name)).value();
  }
};

constexpr int kPart = 0, kWhole = 1;

TEST_F(GpuMonitorTest, ReadsTheGpuThatCudaUses) {
  const GpuReading reading = Load("driver", {kWhole})->Read(0);
  EXPECT_DOUBLE_EQ(reading.busy.value(), 0.37);
  EXPECT_EQ(reading.memory_used, 3'000'000'000);
  EXPECT_EQ(reading.memory_total, 80'000'000'000);
  EXPECT_EQ(reading.celsius, 51);
  EXPECT_EQ(reading.watts, 123.5);
  EXPECT_THAT(reading.missing, IsEmpty());
}

TEST_F(GpuMonitorTest, ReadsWhatIsKnownOfAPartOfAGpu) {
  const std::unique_ptr<GpuMonitor> monitor = Load("driver", {kWhole, kPart});
  EXPECT_EQ(monitor->Read(0).memory_total, 80'000'000'000);
  const GpuReading reading = monitor->Read(1);
  EXPECT_EQ(reading.memory_total, 10'000'000'000);
  EXPECT_EQ(reading.busy, std::nullopt);
  EXPECT_THAT(Missing(reading),
              ElementsAre("utilisation: Not Supported", "temperature: Invalid Argument", "power: Not Supported"));
}

// One call that fails takes nothing from the others.
TEST_F(GpuMonitorTest, SaysWhichCallsFail) {
  const std::unique_ptr<GpuMonitor> monitor = Load("driver", {kWhole});
  for (const char* const what : {"utilisation", "memory", "temperature", "power"}) {
    Fail(what);
    const GpuReading reading = monitor->Read(0);
    EXPECT_THAT(Missing(reading), ElementsAre(absl::StrCat(what, ": GPU is lost")));
    EXPECT_EQ(reading.busy.has_value(), std::string(what) != "utilisation");
    EXPECT_EQ(reading.memory_used.has_value(), std::string(what) != "memory");
    EXPECT_EQ(reading.celsius.has_value(), std::string(what) != "temperature");
    EXPECT_EQ(reading.watts.has_value(), std::string(what) != "power");
  }
}

TEST_F(GpuMonitorTest, DoesWithoutWhatADriverLacks) {
  const GpuReading reading = Load("driver_without_sensors", {kWhole})->Read(0);
  EXPECT_DOUBLE_EQ(reading.busy.value(), 0.37);
  EXPECT_THAT(Missing(reading), ElementsAre("temperature: this driver cannot say", "power: this driver cannot say"));
}

TEST_F(GpuMonitorTest, SaysThatAGpuIsNotThere) {
  const absl::StatusOr<std::unique_ptr<GpuMonitor>> monitor = LoadNvml({"abc"}, Driver("driver"));
  ASSERT_TRUE(monitor.ok()) << monitor.status();
  const GpuReading reading = (*monitor)->Read(0);
  EXPECT_THAT(Missing(reading), ElementsAre("all: no GPU abc: Not Found"));
  EXPECT_EQ(reading.memory_total, std::nullopt);
}

void ExpectUnusable(const absl::Status& status, const std::string& why) {
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(status.message(), HasSubstr(why));
  EXPECT_THAT(status.message(), Not(HasSubstr("\n")));
}

TEST_F(GpuMonitorTest, SaysWhyThereIsNone) {
  ExpectUnusable(LoadNvml({}, Driver("missing")).status(), "missing.so: cannot open shared object file");
  ExpectUnusable(LoadNvml({}, Driver("driver_without_init")).status(), "driver_without_init.so has no nvmlInit_v2");
  Fail("init");
  ExpectUnusable(LoadNvml({}, Driver("driver")).status(), "driver.so: GPU is lost");
}

TEST_F(GpuMonitorTest, SaysWhyADeviceIsNotKnown) {
  EXPECT_EQ(DeviceUuid(kWhole, Driver("driver")).value(), "00010203-0405-0607-0809-0a0b0c0d0e0f");
  EXPECT_EQ(DeviceUuid(kPart, Driver("driver")).value(), "ffffffff-ffff-ffff-ffff-ffffffffffff");
  ExpectUnusable(DeviceUuid(2, Driver("driver")).status(), "which GPU is CUDA device 2 (CUDA error 101)");
  ExpectUnusable(DeviceUuid(0, Driver("missing")).status(), "cannot open shared object file");
  ExpectUnusable(DeviceUuid(0, Driver("no_symbol")).status(), "no_symbol.so has no cuInit");
  Fail("cuInit");
  ExpectUnusable(DeviceUuid(0, Driver("driver")).status(), "(CUDA error 100)");
}

}  // namespace
}  // namespace downpour::cuda
