// Gradients that stay where they were computed, which is here the memory of the host.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "trainer/model/model.h"
#include "trainer/model/testing/steps.h"

namespace downpour::model {
namespace {

using testing::Compute;
using testing::Create;
using testing::RandomBatch;
using testing::Step;

const data::SampleFields kImages{{{"image", data::ElementType::kF32, {2, 12, 12}}},
                                 {{"label", data::ElementType::kI64, {}, 3}}};

ModelOptions Options(const std::string& layers, LayoutChoice layout = LayoutChoice::kAuto) {
  ModelOptions options;
  options.model.layers = layers;
  options.fields = kImages;
  options.device = DeviceChoice::kCpu;
  options.layout = layout;
  return options;
}

const std::string kConvolutions =
    R"([{"type": "conv2d", "filters": 3, "kernel": 3}, {"type": "batchNorm"}, {"type": "relu"},
        {"type": "conv2d", "filters": 4, "kernel": 3}, {"type": "flatten"}, {"type": "dense", "units": 3}])";

data::Batch Samples(std::uint64_t seed = 1) { return RandomBatch(kImages, seed, std::vector<std::int64_t>(5)); }

// As they are at the end of the step, and in which order they came.
struct Given {
  Step step;
  std::vector<std::size_t> order;
};

Given ComputeAndRead(Model& model, const data::Batch& batch) {
  Given given;
  std::vector<const float*> held(model.tensors().size());
  const auto result = model.ComputeDeviceGradients(
      batch, 1, [](double) { return true; },
      [&](std::size_t tensor, const float* values) {
        EXPECT_EQ(held[tensor], nullptr) << "twice";
        held[tensor] = values;
        given.order.push_back(tensor);
      });
  EXPECT_TRUE(result.ok()) << result.status();
  if (!result.ok()) return given;
  given.step.loss = result->loss;
  for (std::size_t tensor = 0; tensor < held.size(); ++tensor) {
    given.step.gradients.emplace_back(held[tensor], held[tensor] + model.tensors()[tensor].elements());
  }
  model.ReleaseGradients();
  return given;
}

TEST(DeviceGradients, AreThoseThatTheHostIsGiven) {
  for (const LayoutChoice layout : {LayoutChoice::kContiguous, LayoutChoice::kChannelsLast}) {
    const std::unique_ptr<Model> model = Create(Options(kConvolutions, layout));
    EXPECT_EQ(model->cuda_device(), std::nullopt);
    EXPECT_EQ(model->compute_stream(), nullptr);
    for (std::uint64_t seed = 1; seed < 4; ++seed) {
      const Step expected = Compute(*model, Samples(seed));
      const Given given = ComputeAndRead(*model, Samples(seed));
      EXPECT_EQ(given.step.loss, expected.loss);
      EXPECT_EQ(given.step.gradients, expected.gradients) << "buffers too";
      EXPECT_EQ(given.order.front(), 7U) << "later layers first";
      EXPECT_EQ(given.order.back(), 9U) << "buffers at the end";
      EXPECT_EQ(Compute(*model, Samples(seed)).gradients, expected.gradients) << "nothing has piled up";
    }
  }
}

TEST(DeviceGradients, OfWhatHasNoPartInTheBatchAreZero) {
  torch::jit::Module module("Net");
  module.register_attribute("training", c10::BoolType::get(), true);
  module.register_parameter("weight", at::randn({3, 288}).set_requires_grad(true), false);
  module.register_parameter("idle", at::randn({2, 5}).set_requires_grad(true), false);
  module.define(R"(
    def forward(self, x):
      return torch.matmul(x.flatten(1), self.weight.t())
  )");
  const std::string path = ::testing::TempDir() + "idle.pt";
  module.save(path);
  ModelOptions options = Options("");
  options.model.torch_script = path;
  const std::unique_ptr<Model> model = Create(options);
  ASSERT_EQ(model->tensors()[1].name, "idle");
  const Given given = ComputeAndRead(*model, Samples());
  EXPECT_EQ(given.step.gradients[1], std::vector<float>(10));
  EXPECT_EQ(given.step.gradients, Compute(*model, Samples()).gradients);
  std::filesystem::remove(path);
}

TEST(DeviceGradients, ALossThatIsRefusedLeavesBackwardOut) {
  const std::unique_ptr<Model> model = Create(Options(kConvolutions));
  int given = 0;
  const auto count = [&](std::size_t, const float*) { ++given; };
  EXPECT_TRUE(model
                  ->ComputeDeviceGradients(
                      Samples(), 1, [](double) { return false; }, count)
                  .ok());
  EXPECT_EQ(given, 0);
  EXPECT_TRUE(model->ComputeDeviceGradients(Samples(), 1, nullptr, count).ok());
  EXPECT_EQ(given, 10);
}

TEST(DeviceParameters, AreThoseThatTheHostWouldSet) {
  for (const LayoutChoice layout : {LayoutChoice::kContiguous, LayoutChoice::kChannelsLast}) {
    const std::unique_ptr<Model> model = Create(Options(kConvolutions, layout));
    std::vector<std::vector<float>> values;
    std::vector<const float*> addresses;
    for (const Tensor& tensor : model->tensors()) {
      std::vector<float>& one = values.emplace_back(static_cast<std::size_t>(tensor.elements()));
      for (std::size_t i = 0; i < one.size(); ++i)
        one[i] = static_cast<float>(values.size()) + 0.001f * static_cast<float>(i);
    }
    for (const std::vector<float>& one : values) addresses.push_back(one.data());
    ASSERT_EQ(model->SetDeviceParameters(addresses), absl::OkStatus());
    for (std::size_t tensor = 0; tensor < values.size(); ++tensor) {
      std::vector<float> got(values[tensor].size());
      model->GetParameter(tensor, absl::MakeSpan(got));
      EXPECT_EQ(got, values[tensor]) << tensor;
    }
    addresses.pop_back();
    EXPECT_EQ(model->SetDeviceParameters(addresses).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(DeviceGradients, RefuseAWrongBatch) {
  const std::unique_ptr<Model> model = Create(Options(kConvolutions));
  EXPECT_EQ(model->ComputeDeviceGradients(data::Batch{}, 1, nullptr, nullptr).status().code(),
            absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace downpour::model
