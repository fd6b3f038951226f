#include "trainer/model/copy_meter.h"

#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <map>
#include <stdexcept>

#include "gtest/gtest.h"

namespace downpour::model {
namespace {

using Way = CopyMeter::Way;

// A device whose work is over when the test says so. Its clock is the test's too.
struct FakeDevice {
  double now_ms = 0;
  struct Moment {
    double at_ms = 0;
    bool over = false;
  };
  std::map<void*, Moment> moments;
  int events_made = 0;
  void Finish() {
    for (auto& [event, moment] : moments) moment.over = true;
  }
} fake;

class FakeGuard final : public c10::impl::DeviceGuardImplInterface {
 public:
  using Stream = c10::Stream;
  using Device = c10::Device;
  using DeviceIndex = c10::DeviceIndex;
  c10::DeviceType type() const override { return c10::DeviceType::PrivateUse1; }
  Device exchangeDevice(Device device) const override { return device; }
  Device getDevice() const override { return {type(), 0}; }
  void setDevice(Device) const override {}
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device device) const override { return Stream(Stream::DEFAULT, device); }
  Stream exchangeStream(Stream stream) const override { return stream; }
  DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const Stream&, DeviceIndex, c10::EventFlag flag) const override {
    if (flag != c10::EventFlag::BACKEND_DEFAULT) throw std::logic_error("an event without a time");
    if (*event == nullptr) *event = new int(++fake.events_made);
    fake.moments[*event] = {fake.now_ms, false};
  }
  bool queryEvent(void* event) const override { return fake.moments[event].over; }
  double elapsedTime(void* begin, void* end, DeviceIndex) const override {
    return fake.moments[end].at_ms - fake.moments[begin].at_ms;
  }
  void destroyEvent(void* event, DeviceIndex) const noexcept override { delete static_cast<int*>(event); }
};
C10_REGISTER_GUARD_IMPL(PrivateUse1, FakeGuard);

class CopyMeterTest : public ::testing::Test {
 protected:
  CopyMeterTest() { fake = {}; }
  void Copy(Way way, std::size_t bytes, double milliseconds) {
    meter_.Measure(way, bytes, [&] { fake.now_ms += milliseconds; });
  }
  CopyMeter meter_{c10::Device(c10::DeviceType::PrivateUse1, 0)};
};

TEST_F(CopyMeterTest, CountsWhatIsOver) {
  Copy(Way::kToDevice, 1000, 2);
  Copy(Way::kToDevice, 500, 3);
  EXPECT_EQ(meter_.traffic().to_device.bytes, 0u);
  fake.now_ms += 50;
  fake.Finish();
  Copy(Way::kToDevice, 7, 1);
  EXPECT_EQ(meter_.traffic().to_device.bytes, 1500u);
  EXPECT_DOUBLE_EQ(meter_.traffic().to_device.seconds, 0.005);
  EXPECT_EQ(meter_.traffic().from_device.bytes, 0u);
  fake.Finish();
  Copy(Way::kToDevice, 7, 1);
  EXPECT_EQ(meter_.traffic().to_device.bytes, 1507u);
}

// Each is in a stream of its own.
TEST_F(CopyMeterTest, KeepsTheWaysApart) {
  Copy(Way::kToDevice, 1000, 2);
  Copy(Way::kFromDevice, 30, 4);
  fake.Finish();
  Copy(Way::kFromDevice, 30, 4);
  EXPECT_EQ(meter_.traffic().to_device.bytes, 0u);
  EXPECT_EQ(meter_.traffic().from_device.bytes, 30u);
  EXPECT_DOUBLE_EQ(meter_.traffic().from_device.seconds, 0.004);
}

TEST_F(CopyMeterTest, UsesEventsAgain) {
  for (int step = 0; step < 100; ++step) {
    Copy(Way::kToDevice, 1, 1);
    Copy(Way::kFromDevice, 1, 1);
    fake.Finish();
  }
  EXPECT_LE(fake.events_made, 6);
  EXPECT_EQ(meter_.traffic().to_device.bytes, 99u);
}

TEST_F(CopyMeterTest, CountsNoCopyThatFailed) {
  EXPECT_THROW(meter_.Measure(Way::kToDevice, 9, [] { throw std::runtime_error("no"); }), std::runtime_error);
  fake.Finish();
  Copy(Way::kToDevice, 1, 1);
  fake.Finish();
  Copy(Way::kToDevice, 1, 1);
  EXPECT_EQ(meter_.traffic().to_device.bytes, 1u);
}

}  // namespace
}  // namespace downpour::model
