#include "trainer/worker/device_gradients.h"

#include <cstdlib>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/cuda/testing/counting_kernels.h"

namespace downpour::worker {
namespace {

using cuda::testing::CountingKernels;
using ::testing::ElementsAre;
using ::testing::HasSubstr;

const model::Model::OnLoss kGoOn = [](double) { return true; };

// Two parameters and a buffer; each value of their gradients is the number that the test chooses.
class ThreeTensors final : public model::Model {
 public:
  explicit ThreeTensors(std::optional<int> device = std::nullopt) : device_(device) {}
  const std::vector<model::Tensor>& tensors() const override { return tensors_; }
  void SetParameter(std::size_t, absl::Span<const float>) override {}
  void GetParameter(std::size_t, absl::Span<float>) const override {}
  absl::StatusOr<model::StepResult> ComputeGradients(const data::Batch&, std::uint64_t, const OnLoss&,
                                                     const OnGradient&) override {
    return absl::UnimplementedError("not asked for");
  }
  absl::StatusOr<model::StepResult> ComputeDeviceGradients(const data::Batch&, std::uint64_t, const OnLoss& on_loss,
                                                           const OnDeviceGradient& on_gradient) override {
    for (const std::size_t tensor : {1u, 0u, 2u}) {
      held_[tensor].assign(static_cast<std::size_t>(tensors_[tensor].elements()), value);
      on_gradient(tensor, held_[tensor].data());
    }
    on_loss(1);  // as a device does it
    return model::StepResult{};
  }
  void ReleaseGradients() override {
    for (std::vector<float>& gradient : held_) gradient.assign(gradient.size(), -77);
  }
  std::optional<int> cuda_device() const override { return device_; }
  absl::StatusOr<model::EvaluationResult> Evaluate(const data::Batch&) override { return model::EvaluationResult{}; }
  std::string description() const override { return "three"; }

  float value = 1;

 private:
  const std::optional<int> device_;
  std::vector<model::Tensor> tensors_ = {
      {"weight", {30, 100}}, {"bias", {3}}, {"mean", {4}, model::TensorKind::kBuffer}};
  std::vector<std::vector<float>> held_ = std::vector<std::vector<float>>(3);
};

// The first tensor in two slices.
const std::vector<core::Slice> kSlices = {{0, 0, 2000}, {0, 2000, 1000}, {1, 0, 3}, {2, 0, 4}};

std::vector<float> FloatsOf(const core::EncodedGradient& gradient, std::size_t elements) {
  std::vector<float> values;
  gradient.ForEachFloats(
      elements, [&](std::size_t, absl::Span<const float> run) { values.insert(values.end(), run.begin(), run.end()); });
  return values;
}

TEST(DeviceGradientsTest, ArriveInTheOrderOfBackwardWithTheirChecks) {
  ThreeTensors model;
  DeviceGradients gradients(&model, kSlices, {core::FrameCodec::kBf16, 0.01}, cuda::MakeHostKernels());
  model.value = 2;
  for (int update = 0; update < 3; ++update) {
    ASSERT_TRUE(gradients.Begin(1, false).ok());
    std::vector<std::size_t> order;
    std::vector<double> squares;
    std::vector<float> buffer;
    const auto step = gradients.Compute({}, 0, 1, kGoOn, [&](const DeviceGradients::Arrived& arrived) {
      EXPECT_TRUE(arrived.finite);
      order.push_back(arrived.tensor);
      squares.push_back(arrived.sum_of_squares);
      if (arrived.tensor == 2) buffer.assign(arrived.buffer.begin(), arrived.buffer.end());
      EXPECT_EQ(arrived.buffer.empty(), arrived.tensor != 2);
    });
    ASSERT_TRUE(step.ok()) << step.status();
    EXPECT_THAT(order, ElementsAre(1, 0, 2));
    EXPECT_THAT(squares, ElementsAre(12, 12000, 16));
    EXPECT_EQ(buffer, std::vector<float>(4, 2));
    core::GradientEncoder& encoder = *gradients.encoder();
    const core::EncodedGradient second = encoder.Encode(1, 1000, {}, false);
    EXPECT_EQ(second.codec, core::FrameCodec::kBf16);
    EXPECT_EQ(FloatsOf(second, 1000), std::vector<float>(1000, 2));
  }
}

TEST(DeviceGradientsTest, AreAddedUpOverTheMinibatchesOfAnUpdate) {
  ThreeTensors model;
  DeviceGradients gradients(&model, kSlices, {}, cuda::MakeHostKernels());
  for (int update = 0; update < 2; ++update) {
    ASSERT_TRUE(gradients.Begin(2, false).ok());
    std::vector<std::size_t> arrived;
    const auto note = [&](const DeviceGradients::Arrived& one) {
      arrived.push_back(one.tensor);
      if (one.tensor == 2) {
        EXPECT_EQ(one.buffer[0], model.value) << "without a weight";
      }
    };
    model.value = 4;
    ASSERT_TRUE(gradients.Compute({}, 0, 0.75f, kGoOn, note).ok());
    EXPECT_THAT(arrived, ElementsAre(2));
    model.value = 8;
    ASSERT_TRUE(gradients.Compute({}, 0, 0.25f, kGoOn, note).ok());
    EXPECT_THAT(arrived, ElementsAre(2, 1, 0, 2));
    EXPECT_EQ(FloatsOf(gradients.encoder()->Encode(0, 2000, {}, false), 2000), std::vector<float>(2000, 5));
  }
}

TEST(DeviceGradientsTest, SayWhatIsNotFinite) {
  ThreeTensors model;
  DeviceGradients gradients(&model, kSlices, {core::FrameCodec::kOneBit, 0.01}, cuda::MakeHostKernels());
  ASSERT_TRUE(gradients.Begin(1, false).ok());
  model.value = std::numeric_limits<float>::infinity();
  int arrived = 0;
  ASSERT_TRUE(gradients
                  .Compute({}, 0, 1, kGoOn,
                           [&](const DeviceGradients::Arrived& one) {
                             EXPECT_FALSE(one.finite);
                             ++arrived;
                           })
                  .ok());
  EXPECT_EQ(arrived, 3);
}

TEST(DeviceGradientsTest, NothingArrivesWhereTheLossIsRefused) {
  ThreeTensors model;
  DeviceGradients gradients(&model, kSlices, {}, cuda::MakeHostKernels());
  ASSERT_TRUE(gradients.Begin(1, false).ok());
  const auto refuse = [](double) { return false; };
  const auto fail = [](const DeviceGradients::Arrived&) { ADD_FAILURE(); };
  EXPECT_TRUE(gradients.Compute({}, 0, 1, refuse, fail).ok());
  EXPECT_EQ(gradients.encoder()->Encode(0, 2000, {}, false).payload.size(), 0U);
}

absl::Status TrainTwice(CountingKernels::Counts* counts) {
  ThreeTensors model;
  DeviceGradients gradients(&model, kSlices, {core::FrameCodec::kInt8, 0.01},
                            std::make_shared<CountingKernels>(counts));
  for (const std::uint32_t minibatches : {1u, 2u}) {
    if (absl::Status begun = gradients.Begin(minibatches, false); !begun.ok()) return begun;
    for (std::uint32_t minibatch = 0; minibatch < minibatches; ++minibatch) {
      const auto step = gradients.Compute({}, 0, 1, kGoOn, [](const DeviceGradients::Arrived&) {});
      if (!step.ok()) return step.status();
    }
  }
  return absl::OkStatus();
}

TEST(DeviceGradientsTest, AnyCallThatFailsIsToldAndLeavesNothingBehind) {
  CountingKernels::Counts good;
  ASSERT_TRUE(TrainTwice(&good).ok());
  EXPECT_EQ(good.held, 0);
  for (int call = 0; call < good.calls; ++call) {
    SCOPED_TRACE(call);
    CountingKernels::Counts counts;
    counts.fails_at = call;
    EXPECT_THAT(TrainTwice(&counts).message(), HasSubstr("planted"));
    EXPECT_EQ(counts.held, 0);
  }
}

TEST(DeviceGradientsTest, SayHowMuchMemorySumsNeed) {
  ThreeTensors model;
  CountingKernels::Counts counts;
  DeviceGradients gradients(&model, kSlices, {}, std::make_shared<CountingKernels>(&counts));
  ASSERT_TRUE(gradients.Begin(1, false).ok());
  ASSERT_TRUE(gradients.Compute({}, 0, 1, kGoOn, [](const DeviceGradients::Arrived&) {}).ok());
  counts.fails_at = counts.calls + 2;  // after the wait for what was started before, and the first sum
  EXPECT_EQ(gradients.Begin(2, false),
            absl::ResourceExhaustedError("there is no memory to add up gradients on the device, for which 12012 bytes "
                                         "are wanted: could not have planted: no memory"));
}

TEST(DeviceGradientsTest, KernelsAreLoadedForADeviceAlone) {
  const char* const before = std::getenv("DOWNPOUR_CUDA_PLUGIN");
  const std::string kept = before == nullptr ? "" : before;
  setenv("DOWNPOUR_CUDA_PLUGIN", "/nowhere/kernels.so", 1);
  const auto of_the_host = KernelsOf(ThreeTensors());
  ASSERT_TRUE(of_the_host.ok()) << of_the_host.status();
  EXPECT_EQ(*of_the_host, nullptr);
  EXPECT_EQ(KernelsOf(ThreeTensors(0)).status(),
            absl::NotFoundError("no library of kernels for GPUs: there is no file /nowhere/kernels.so"));
  before == nullptr ? unsetenv("DOWNPOUR_CUDA_PLUGIN") : setenv("DOWNPOUR_CUDA_PLUGIN", kept.c_str(), 1);
}

}  // namespace
}  // namespace downpour::worker
