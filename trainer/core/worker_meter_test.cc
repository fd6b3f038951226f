#include "trainer/core/worker_meter.h"

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

ComputeResult Computed(double loss, Verdict verdict = Verdict::kApply) {
  ComputeResult computed;
  computed.verdict = verdict;
  computed.loss = loss;
  computed.samples = 10;
  computed.data_seconds = 1;
  computed.forward_seconds = 2;
  computed.backward_seconds = 3;
  return computed;
}

TEST(WorkerMeterTest, CountsUpdatesByWhatBecameOfThem) {
  WorkerMeter meter;
  meter.OnUpdate(Computed(4), /*trained=*/true, absl::Seconds(1));
  meter.OnUpdate(Computed(4), /*trained=*/false, absl::Seconds(1));
  meter.OnUpdate(Computed(0, Verdict::kSkip), /*trained=*/true, absl::Seconds(1));
  EXPECT_EQ(meter.stats().steps(), 3u);
  EXPECT_EQ(meter.stats().samples(), 20u) << "a duplicate trains nothing";
  EXPECT_EQ(meter.stats().duplicates(), 1u);
  EXPECT_EQ(meter.stats().skipped(), 1u);
  meter.OnPush(10, 40);
  meter.OnPush(40, 40);
  EXPECT_EQ(meter.stats().push_bytes(), 50u);
  EXPECT_EQ(meter.stats().push_bytes_saved(), 30u);
}

TEST(WorkerMeterTest, TheLossIsAMeanOfThoseThatAreFiniteAndOfThisHistory) {
  WorkerMeter meter;
  meter.OnUpdate(Computed(1e9, Verdict::kSkip), true, absl::ZeroDuration());
  EXPECT_FALSE(meter.stats().has_loss());
  meter.OnUpdate(Computed(4), true, absl::ZeroDuration());
  EXPECT_EQ(meter.stats().loss(), 4) << "the first";
  meter.OnUpdate(Computed(8), true, absl::ZeroDuration());
  EXPECT_NEAR(meter.stats().loss(), 4.2, 1e-9);
  meter.BeginHistory();
  EXPECT_FALSE(meter.stats().has_loss());
  EXPECT_EQ(meter.stats().steps(), 3u);
  meter.OnUpdate(Computed(8), true, absl::ZeroDuration());
  EXPECT_EQ(meter.stats().loss(), 8);
}

TEST(WorkerMeterTest, TimesAreMeansAndTogetherThatOfAnUpdate) {
  WorkerMeter meter;
  meter.OnPulled(absl::Seconds(4));
  EXPECT_EQ(meter.update_time(), absl::ZeroDuration()) << "not known yet";
  meter.OnUpdate(Computed(1), true, absl::Seconds(5));
  EXPECT_EQ(meter.update_time(), absl::Seconds(6));
  EXPECT_EQ(meter.stats().step_seconds(), 4 + 6 + 5);
  meter.OnPulled(absl::Seconds(6));
  EXPECT_NEAR(meter.stats().pull_seconds(), 4.1, 1e-9);
  meter.OnStaleness(2);
  EXPECT_NEAR(meter.stats().staleness(), 0.1, 1e-9);
}

TEST(WorkerMeterTest, TheRateIsThatOfAWindowWithUpdatesEnough) {
  WorkerMeter meter;
  Time now = absl::Seconds(100);
  meter.Start(now);
  const auto updates = [&meter](int count) {
    for (int i = 0; i < count; ++i) meter.OnUpdate(Computed(1), true, absl::ZeroDuration());
  };
  updates(5);
  meter.UpdateRate(now + absl::Milliseconds(999), /*training=*/true);
  EXPECT_FALSE(meter.stats().has_samples_per_second()) << "too early";
  meter.UpdateRate(now += absl::Seconds(2), /*training=*/true);
  EXPECT_EQ(meter.stats().samples_per_second(), 25);
  updates(1);
  meter.UpdateRate(now + absl::Seconds(4), /*training=*/true);
  EXPECT_EQ(meter.stats().samples_per_second(), 25) << "an update that takes longer is part of it";
  updates(1);
  meter.UpdateRate(now += absl::Seconds(8), /*training=*/true);
  EXPECT_EQ(meter.stats().samples_per_second(), 2.5);
  meter.UpdateRate(now + absl::Seconds(59), /*training=*/true);
  EXPECT_TRUE(meter.stats().has_samples_per_second());
  meter.UpdateRate(now + absl::Seconds(60), /*training=*/true);
  EXPECT_FALSE(meter.stats().has_samples_per_second()) << "nobody knows";
  updates(120);
  meter.UpdateRate(now += absl::Seconds(60), /*training=*/true);
  EXPECT_EQ(meter.stats().samples_per_second(), 20);
  meter.UpdateRate(now += absl::Seconds(1), /*training=*/false);
  EXPECT_FALSE(meter.stats().has_samples_per_second()) << "it does not train";
}

}  // namespace
}  // namespace downpour::core
