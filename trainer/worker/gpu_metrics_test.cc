#include "trainer/worker/gpu_metrics.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::worker {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

TEST(GpuMetricsTest, ServesWhatIsKnown) {
  service::Metrics metrics;
  cuda::GpuReading whole, part;
  whole.busy = 0.25;
  whole.memory_used = 3'000'000'000;
  whole.memory_total = 80'000'000'000;
  whole.celsius = 51;
  whole.watts = 123.5;
  part.memory_total = 10'000'000'000;
  PublishReadings({whole, part}, 2, &metrics);
  EXPECT_THAT(metrics.Text(), AllOf(HasSubstr("downpour_worker_gpu_busy_ratio{gpu=\"0\"} 0.25\n"),
                                    HasSubstr("downpour_worker_gpu_memory_used_bytes{gpu=\"0\"} 3000000000\n"),
                                    HasSubstr("downpour_worker_gpu_memory_bytes{gpu=\"0\"} 80000000000\n"),
                                    HasSubstr("downpour_worker_gpu_temperature_celsius{gpu=\"0\"} 51\n"),
                                    HasSubstr("downpour_worker_gpu_power_watts{gpu=\"0\"} 123.5\n"),
                                    HasSubstr("downpour_worker_gpu_memory_bytes{gpu=\"1\"} 10000000000\n"),
                                    Not(HasSubstr("downpour_worker_gpu_busy_ratio{gpu=\"1\"}"))));

  whole.watts = std::nullopt;
  PublishReadings({whole, part}, 2, &metrics);
  EXPECT_THAT(metrics.Text(), AllOf(HasSubstr("downpour_worker_gpu_busy_ratio{gpu=\"0\"}"),
                                    Not(HasSubstr("downpour_worker_gpu_power_watts{"))));
  // The driver hangs.
  PublishReadings({}, 2, &metrics);
  EXPECT_THAT(metrics.Text(), Not(HasSubstr("{gpu=")));
}

TEST(GpuMetricsTest, CountsCopies) {
  service::Metrics metrics;
  PublishTraffic({.to_device = {.seconds = 0.5, .bytes = 1000}, .from_device = {.seconds = 0.25, .bytes = 30}},
                 &metrics);
  EXPECT_THAT(metrics.Text(), AllOf(HasSubstr("downpour_worker_gpu_copy_seconds_total{direction=\"to_gpu\"} 0.5\n"),
                                    HasSubstr("downpour_worker_gpu_copy_seconds_total{direction=\"from_gpu\"} 0.25\n"),
                                    HasSubstr("downpour_worker_gpu_copy_bytes_total{direction=\"to_gpu\"} 1000\n"),
                                    HasSubstr("downpour_worker_gpu_copy_bytes_total{direction=\"from_gpu\"} 30\n")));
}

// Of a model on the CPU nothing is said of GPUs.
TEST(GpuMetricsTest, SaysNothingWithoutGpus) {
  class OnCpu final : public model::Model {
   public:
    const std::vector<model::Tensor>& tensors() const override { return tensors_; }
    void SetParameter(std::size_t, absl::Span<const float>) override {}
    void GetParameter(std::size_t, absl::Span<float>) const override {}
    absl::StatusOr<model::StepResult> ComputeGradients(const data::Batch&, std::uint64_t, const OnLoss&,
                                                       const OnGradient&) override {
      return absl::UnimplementedError("");
    }
    absl::StatusOr<model::EvaluationResult> Evaluate(const data::Batch&) override {
      return absl::UnimplementedError("");
    }
    std::string description() const override { return "cpu"; }

   private:
    std::vector<model::Tensor> tensors_;
  } model;
  service::Metrics metrics;
  GpuMetrics(model, &metrics).Publish();
  EXPECT_EQ(metrics.Text(), "");
}

}  // namespace
}  // namespace downpour::worker
