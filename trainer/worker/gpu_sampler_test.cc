#include "trainer/worker/gpu_sampler.h"

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::worker {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr absl::Duration kLimit = absl::Seconds(30);

// What the driver says, as the test has it.
struct Driver {
  absl::Mutex mutex;
  std::map<std::size_t, cuda::GpuReading> readings ABSL_GUARDED_BY(mutex);
  int reads ABSL_GUARDED_BY(mutex) = 0;
  std::vector<std::string> told ABSL_GUARDED_BY(mutex);
  std::shared_ptr<absl::Notification> hang ABSL_GUARDED_BY(mutex);  // until this
  std::shared_ptr<absl::Notification> hangs = std::make_shared<absl::Notification>();

  void Set(std::size_t gpu, cuda::GpuReading reading) {
    absl::MutexLock lock(&mutex);
    readings[gpu] = std::move(reading);
  }
  std::vector<std::string> Told() {
    absl::MutexLock lock(&mutex);
    return told;
  }
  int Reads() {
    absl::MutexLock lock(&mutex);
    return reads;
  }
};

class FakeMonitor final : public cuda::GpuMonitor {
 public:
  explicit FakeMonitor(std::shared_ptr<Driver> driver) : driver_(std::move(driver)) {}
  cuda::GpuReading Read(std::size_t gpu) override {
    std::shared_ptr<absl::Notification> hang;
    {
      absl::MutexLock lock(&driver_->mutex);
      hang = driver_->hang;
      ++driver_->reads;
    }
    if (hang != nullptr) {
      if (!driver_->hangs->HasBeenNotified()) driver_->hangs->Notify();
      hang->WaitForNotification();
    }
    absl::MutexLock lock(&driver_->mutex);
    return driver_->readings[gpu];
  }

 private:
  const std::shared_ptr<Driver> driver_;
};

std::unique_ptr<GpuSampler> Sample(std::size_t gpus, const std::shared_ptr<Driver>& driver, absl::Status made = {}) {
  return std::make_unique<GpuSampler>(
      gpus,
      [driver, made]() -> absl::StatusOr<std::unique_ptr<cuda::GpuMonitor>> {
        if (!made.ok()) return made;
        return std::make_unique<FakeMonitor>(driver);
      },
      [driver](const std::string& news) {
        absl::MutexLock lock(&driver->mutex);
        driver->told.push_back(news);
      });
}

cuda::GpuReading Busy(double busy) {
  cuda::GpuReading reading;
  reading.busy = busy;
  return reading;
}

TEST(GpuSamplerTest, ReadsWhenItIsAsked) {
  const auto driver = std::make_shared<Driver>();
  driver->Set(0, Busy(0.25));
  driver->Set(1, Busy(0.5));
  const std::unique_ptr<GpuSampler> sampler = Sample(2, driver);
  EXPECT_THAT(sampler->Newest(), IsEmpty());
  sampler->Ask();
  ASSERT_TRUE(sampler->WaitForReading(kLimit));
  ASSERT_EQ(sampler->Newest().size(), 2u);
  EXPECT_EQ(sampler->Newest()[0].busy, 0.25);
  EXPECT_EQ(sampler->Newest()[1].busy, 0.5);
  driver->Set(0, Busy(0.75));
  EXPECT_EQ(sampler->Newest()[0].busy, 0.25);
  sampler->Ask();
  ASSERT_TRUE(sampler->WaitForReading(kLimit));
  EXPECT_EQ(sampler->Newest()[0].busy, 0.75);
  EXPECT_EQ(driver->Reads(), 4);
  EXPECT_THAT(driver->Told(), IsEmpty());
}

TEST(GpuSamplerTest, TellsOnceWhatIsMissing) {
  const auto driver = std::make_shared<Driver>();
  cuda::GpuReading reading = Busy(0.25);
  reading.missing = {{"power", "Not Supported"}};
  driver->Set(0, reading);
  const std::unique_ptr<GpuSampler> sampler = Sample(2, driver);
  for (int i = 0; i < 3; ++i) {
    if (i == 2) driver->Set(1, reading);
    sampler->Ask();
    ASSERT_TRUE(sampler->WaitForReading(kLimit));
    EXPECT_EQ(sampler->Newest()[0].busy, 0.25);
  }
  EXPECT_THAT(driver->Told(),
              ElementsAre("no metric of GPU 0, power: Not Supported", "no metric of GPU 1, power: Not Supported"));
}

TEST(GpuSamplerTest, DoesWithoutADriver) {
  const auto driver = std::make_shared<Driver>();
  const std::unique_ptr<GpuSampler> sampler = Sample(1, driver, absl::FailedPreconditionError("no such file"));
  for (int i = 0; i < 3; ++i) {
    sampler->Ask();
    ASSERT_TRUE(sampler->WaitForReading(kLimit));
    EXPECT_THAT(sampler->Newest(), IsEmpty());
  }
  EXPECT_THAT(driver->Told(), ElementsAre("no metrics of GPUs: no such file"));
  EXPECT_EQ(SampleGpus({}), nullptr);
}

// Asking is not waiting, the last word of a driver that hangs is not served for ever, and it does not hold up the end.
TEST(GpuSamplerTest, LeavesADriverThatHangs) {
  const auto driver = std::make_shared<Driver>();
  driver->Set(0, Busy(0.25));
  std::unique_ptr<GpuSampler> sampler = Sample(1, driver);
  sampler->Ask();
  ASSERT_TRUE(sampler->WaitForReading(kLimit));
  const auto end = std::make_shared<absl::Notification>();
  {
    absl::MutexLock lock(&driver->mutex);
    driver->hang = end;
  }
  sampler->Ask();
  ASSERT_TRUE(driver->hangs->WaitForNotificationWithTimeout(kLimit));
  for (int i = 0; i < GpuSampler::kMostMissed; ++i) {
    EXPECT_EQ(sampler->Newest().size(), 1u);
    sampler->Ask();
  }
  EXPECT_THAT(sampler->Newest(), IsEmpty());
  cuda::GpuReading reading;
  reading.missing = {{"power", "Not Supported"}};
  driver->Set(0, reading);
  sampler.reset();
  end->Notify();
  EXPECT_THAT(driver->Told(), IsEmpty());
}

TEST(GpuSamplerTest, GoesOnWithADriverThatCameBack) {
  const auto driver = std::make_shared<Driver>();
  driver->Set(0, Busy(0.25));
  const auto end = std::make_shared<absl::Notification>();
  {
    absl::MutexLock lock(&driver->mutex);
    driver->hang = end;
  }
  const std::unique_ptr<GpuSampler> sampler = Sample(1, driver);
  for (int i = 0; i < 2 * GpuSampler::kMostMissed; ++i) sampler->Ask();
  ASSERT_TRUE(driver->hangs->WaitForNotificationWithTimeout(kLimit));
  end->Notify();
  ASSERT_TRUE(sampler->WaitForReading(kLimit));
  EXPECT_EQ(sampler->Newest()[0].busy, 0.25);
}

}  // namespace
}  // namespace downpour::worker
