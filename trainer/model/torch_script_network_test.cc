// TorchScript modules, through Model. The archives are what torch.jit.save makes of such modules.
#include "trainer/model/torch_script_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <torch/csrc/jit/api/module.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "trainer/model/model.h"
#include "trainer/model/testing/steps.h"

namespace downpour::model {
namespace {

using ::testing::AllOf;
using testing::Compute;
using testing::Create;
using ::testing::ElementsAre;
using testing::ExpectSame;
using ::testing::HasSubstr;
using testing::NamesOf;
using testing::RandomBatch;
using ::testing::StartsWith;
using testing::Step;
using testing::ValueOf;
using torch::jit::Module;

const data::SampleFields kImages{{{"image", data::ElementType::kF32, {2, 6, 6}}},
                                 {{"label", data::ElementType::kI64, {}, 3}}};
const data::SampleFields kTexts{{{"words", data::ElementType::kI32, {data::kRagged}, 20}},
                                {{"label", data::ElementType::kI64, {}, 3}}};

at::Tensor Trained(at::Tensor tensor) { return tensor.set_requires_grad(true); }

Module WithMode(const std::string& name) {
  Module module(name);
  module.register_attribute("training", c10::BoolType::get(), true);
  return module;
}

// As the layers conv2d, batchNorm, tanh, dropout, flatten, dense.
Module MakeNet(double rate = 0) {
  at::manual_seed(1);
  Module conv = WithMode("Conv");
  conv.register_parameter("weight", Trained(at::randn({4, 2, 3, 3})), false);
  conv.register_parameter("bias", Trained(at::randn({4})), false);
  Module norm = WithMode("Norm");
  norm.register_parameter("weight", Trained(at::ones({4})), false);
  norm.register_parameter("bias", Trained(at::zeros({4})), false);
  norm.register_buffer("running_mean", at::zeros({4}));
  norm.register_buffer("running_var", at::ones({4}));
  norm.register_buffer("num_batches_tracked", at::tensor(12, at::kLong));
  norm.define(R"(
    def forward(self, x):
      if self.training:
        self.num_batches_tracked.add_(1)
      return torch.batch_norm(x, self.weight, self.bias, self.running_mean, self.running_var, self.training,
                              0.1, 1e-5, False)
  )");
  Module dense = WithMode("Dense");
  dense.register_parameter("weight", Trained(at::randn({3, 64})), false);
  dense.register_parameter("bias", Trained(at::randn({3})), false);
  Module net = WithMode("Net");
  net.register_module("conv", conv);
  net.register_module("norm", norm);
  net.register_module("dense", dense);
  net.register_attribute("rate", c10::FloatType::get(), rate);
  net.define(R"(
    def forward(self, images):
      x = torch.conv2d(images, self.conv.weight, self.conv.bias)
      x = torch.dropout(torch.tanh(self.norm.forward(x)), self.rate, self.training)
      return torch.linear(x.flatten(1), self.dense.weight, self.dense.bias)
  )");
  return net;
}

// One parameter, and what `body` makes of it.
Module MakeSmall(const std::string& body, const at::Tensor& values = Trained(at::ones({3}))) {
  Module module = WithMode("Small");
  module.register_parameter("values", values, false);
  module.define(body);
  return module;
}
constexpr char kRepeat[] = R"(
  def forward(self, images):
    return self.values.repeat([images.size(0), 1])
)";

class TorchScriptNetwork : public ::testing::Test {
 protected:
  void TearDown() override { std::filesystem::remove(path_); }

  ModelOptions Saved(const Module& module, const data::SampleFields& fields = kImages) const {
    module.save(path_);
    ModelOptions options;
    options.model.torch_script = path_;
    options.fields = fields;
    options.device = DeviceChoice::kCpu;
    options.batch_size = 8;
    return options;
  }

  std::string Refusal(const Module& module, const data::SampleFields& fields = kImages) const {
    return std::string(CreateModel(Saved(module, fields)).status().message());
  }

  const std::string path_ = ::testing::TempDir() + "module.pt";
  const std::string where_ = "spec.model.torchScript.path: " + path_;
};

data::Batch Samples(std::size_t count) { return RandomBatch(kImages, 1, std::vector<std::int64_t>(count)); }

TEST_F(TorchScriptNetwork, ComputesWhatTheSameLayersCompute) {
  const Module module = MakeNet();
  const ModelOptions options = Saved(module);
  const std::unique_ptr<Model> script = Create(options);
  ModelOptions same = options;
  same.model.torch_script.clear();
  same.model.layers =
      R"([{"type": "conv2d", "name": "conv", "filters": 4, "kernel": 3}, {"type": "batchNorm", "name": "norm"},
          {"type": "tanh"}, {"type": "flatten"}, {"type": "dense", "name": "dense", "units": 3}])";
  const std::unique_ptr<Model> layers = Create(same);
  ASSERT_EQ(NamesOf(*script), NamesOf(*layers));
  for (std::size_t i = 0; i < script->tensors().size(); ++i) layers->SetParameter(i, ValueOf(*script, i));
  for (int step = 0; step < 4; ++step) {  // as the first is the fourth
    const std::size_t samples = step % 2 == 0 ? 8 : 3;
    const Step expected = Compute(*layers, Samples(samples)), found = Compute(*script, Samples(samples));
    ExpectSame(found, expected, 1e-5F);
  }
  EXPECT_NEAR(script->Evaluate(Samples(8))->loss.sum, layers->Evaluate(Samples(8))->loss.sum, 1e-4);
}

TEST_F(TorchScriptNetwork, BeginsWithWhatWasSavedWhateverTheSeed) {
  const Module module = MakeNet();
  ModelOptions options = Saved(module);
  options.seed = 1234;
  const std::unique_ptr<Model> model = Create(options);
  std::vector<std::string> names, expected;
  const auto expect = [&](const std::string& name, const at::Tensor& value, const std::vector<float>& found) {
    EXPECT_EQ(std::vector<float>(value.data_ptr<float>(), value.data_ptr<float>() + value.numel()), found) << name;
  };
  std::size_t index = 0;
  for (const auto& named : module.named_parameters()) {
    ASSERT_EQ(model->tensors()[index].name, named.name);
    expect(named.name, named.value, ValueOf(*model, index++));
  }
  // The names of the state_dict; the counter stays with what it was.
  for (const auto& named : module.named_buffers()) expected.push_back(named.name);
  for (; index < model->tensors().size(); ++index) names.push_back(model->tensors()[index].name);
  Compute(*model, Samples(4));
  ASSERT_EQ(model->frozen().size(), 1U);
  names.push_back(model->frozen()[0].tensor.name);
  EXPECT_EQ(names, expected);
  EXPECT_EQ(model->frozen()[0].values, std::vector<float>{12});
}

TEST_F(TorchScriptNetwork, AnUpdateThatIsDoneAgainHasTheSameBits) {
  const ModelOptions options = Saved(MakeNet(0.5));
  const std::unique_ptr<Model> model = Create(options);
  const Step first = Compute(*model, Samples(8), 42);
  EXPECT_NE(Compute(*model, Samples(8), 43).gradients, first.gradients);
  ASSERT_TRUE(model->Evaluate(Samples(8)).ok());
  for (int again = 0; again < 3; ++again) EXPECT_EQ(Compute(*model, Samples(8), 42).gradients, first.gradients);
  EXPECT_EQ(Compute(*Create(options), Samples(8), 42).gradients, first.gradients);
}

TEST_F(TorchScriptNetwork, WhatWasSavedInEvaluationModeStaysInIt) {
  Module module = MakeNet(0.5);
  module.eval();
  const std::unique_ptr<Model> model = Create(Saved(module));
  ASSERT_TRUE(model->Evaluate(Samples(8)).ok());
  const Step first = Compute(*model, Samples(8), 42);
  EXPECT_EQ(Compute(*model, Samples(8), 43).gradients, first.gradients);
  EXPECT_EQ(first.gradients.back(), std::vector<float>(4, 0.0F)) << "running_var does not follow";
}

TEST_F(TorchScriptNetwork, ABufferMayBeReplaced) {
  Module module = WithMode("Replacing");
  module.register_parameter("values", Trained(at::ones({3})), false);
  module.register_buffer("mean", at::ones({3}));
  module.define(R"(
    def forward(self, images):
      if self.training:
        self.mean = 0.75 * self.mean + 0.25 * images.mean()
      return (self.values * self.mean).repeat([images.size(0), 1])
  )");
  const std::unique_ptr<Model> model = Create(Saved(module));
  ASSERT_THAT(NamesOf(*model), ElementsAre("values", "mean"));
  data::Batch batch = Samples(2);
  for (float& value : batch.inputs[0].mutable_values<float>()) value = 3;
  for (int again = 0; again < 2; ++again) {
    EXPECT_EQ(Compute(*model, batch).gradients[1], std::vector<float>(3, 1 - 1.5F));
    EXPECT_EQ(ValueOf(*model, 1), std::vector<float>(3, 1.0F));
  }
}

// As a module that was traced in training mode does.
TEST_F(TorchScriptNetwork, OnlyUpdatesChangeBuffers) {
  Module module = WithMode("Counting");
  module.register_parameter("values", Trained(at::ones({3})), false);
  module.register_buffer("in_place", at::ones({1}));
  module.register_buffer("replaced", at::ones({1}));
  module.register_buffer("count", at::zeros({1}, at::kLong));
  module.define(R"(
    def forward(self, images):
      self.in_place.mul_(0.5)
      self.replaced = self.replaced * 0.5
      self.count.add_(1)
      return (self.values * self.replaced).repeat([images.size(0), 1])
  )");
  const std::unique_ptr<Model> model = Create(Saved(module));
  ASSERT_THAT(NamesOf(*model), ElementsAre("values", "in_place", "replaced"));
  const auto expect_first_values = [&model] {
    EXPECT_EQ(ValueOf(*model, 1), std::vector<float>{1});
    EXPECT_EQ(ValueOf(*model, 2), std::vector<float>{1});
    EXPECT_EQ(model->frozen().at(0).values, std::vector<float>{0});
  };
  expect_first_values();
  ASSERT_TRUE(model->Evaluate(Samples(2)).ok());
  expect_first_values();
  const Step step = Compute(*model, Samples(2));
  EXPECT_EQ(step.gradients[1], std::vector<float>{0.5F});
  EXPECT_EQ(step.gradients[2], std::vector<float>{0.5F});
  expect_first_values();
  model->SetParameter(2, std::vector<float>{8});
  EXPECT_EQ(Compute(*model, Samples(2)).gradients[2], std::vector<float>{4});
}

TEST_F(TorchScriptNetwork, FrozenParametersAreThoseOfTheFileAndOfTheManifest) {
  Module module = MakeNet();
  module.attr("conv").toModule().attr("weight").toTensor().set_requires_grad(false);
  ModelOptions options = Saved(module);
  options.model.frozen = {"dense.*"};
  const std::unique_ptr<Model> model = Create(options);
  EXPECT_THAT(NamesOf(*model),
              ElementsAre("conv.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"));
  EXPECT_EQ(model->frozen().size(), 4U);
  Compute(*model, Samples(4));
}

TEST_F(TorchScriptNetwork, IsGivenWordsAndLengthsAsItsForwardTakesThem) {
  const at::Tensor vectors = Trained(at::randn({20, 3}));
  const Module words = MakeSmall(R"(
    def forward(self, words):
      return torch.embedding(self.values, words).mean(1)
  )",
                                 vectors);
  EXPECT_EQ(Refusal(words, kTexts), "");
  const Module both = MakeSmall(R"(
    def forward(self, words, lengths):
      real = torch.arange(words.size(1)).unsqueeze(0) < lengths.unsqueeze(1)
      return (torch.embedding(self.values, words) * real.unsqueeze(2)).sum(1) / lengths.unsqueeze(1)
  )",
                                vectors);
  const std::unique_ptr<Model> model = Create(Saved(both, kTexts));
  data::Batch batch = RandomBatch(kTexts, 1, {5, 2});
  const Step step = Compute(*model, batch);
  batch.inputs[0].mutable_values<std::int32_t>()[8] = 7;
  EXPECT_EQ(Compute(*model, batch).gradients, step.gradients);
  EXPECT_EQ(Refusal(both), where_ +
                               ": forward has a parameter lengths: Tensor, expected one Tensor for image: fp32 [2, "
                               "6, 6]");
}

TEST_F(TorchScriptNetwork, Bf16IsCloseToFp32) {
  ModelOptions options = Saved(MakeNet());
  const Step fp32 = Compute(*Create(options), Samples(8));
  options.precision = PrecisionChoice::kBf16;
  const Step bf16 = Compute(*Create(options), Samples(8));
  EXPECT_NEAR(bf16.loss, fp32.loss, 0.05 * fp32.loss);
  EXPECT_NE(bf16.loss, fp32.loss);
}

TEST_F(TorchScriptNetwork, RefusesFilesThatAreNoArchive) {
  const auto refusal = [this](const std::string& path) {
    ModelOptions options = Saved(MakeNet());
    options.model.torch_script = path;
    return CreateModel(options).status();
  };
  EXPECT_EQ(refusal("/nowhere/net.pt"), absl::NotFoundError("spec.model.torchScript.path: no file /nowhere/net.pt"));
  const std::string text = ::testing::TempDir() + "text.pt";
  std::ofstream(text) << "no archive\n";
  EXPECT_THAT(std::string(refusal(text).message()),
              StartsWith("spec.model.torchScript.path: " + text + " is no TorchScript archive (torch.jit.save): "));
  std::filesystem::remove(text);
}

TEST_F(TorchScriptNetwork, RefusesWhatCannotBeTrained) {
  Module net = MakeNet();
  net.eval();
  EXPECT_EQ(Refusal(torch::jit::freeze(net)),
            where_ + " has no parameters to train; torch.jit.freeze makes constants of them");
  EXPECT_EQ(Refusal(MakeSmall(kRepeat, at::ones({3}))),
            where_ + " has no parameter to train: none requires a gradient");
  EXPECT_EQ(Refusal(MakeSmall(kRepeat, Trained(at::ones({3}, at::kHalf)))),
            where_ + ": the parameter values is Half, expected Float");
  const auto with_buffer = [this](const at::Tensor& buffer) {
    Module module = MakeSmall(kRepeat);
    module.register_buffer("other", buffer);
    return Refusal(module);
  };
  EXPECT_EQ(with_buffer(at::ones({3}, at::kInt)), "");
  EXPECT_EQ(with_buffer(at::ones({3}, at::kDouble)),
            where_ + ": the buffer other is Double, expected Float or integers");
  EXPECT_EQ(with_buffer(at::full({1}, (std::int64_t{1} << 40) + 1, at::kLong)),
            where_ + ": the buffer other is Long and has values that fp32 has not");
  Module tied = MakeSmall(kRepeat);
  tied.register_parameter("also", tied.attr("values").toTensor(), false);
  EXPECT_EQ(Refusal(tied), where_ + ": the parameter also has the memory of values: tied weights cannot be trained");
  EXPECT_EQ(Refusal(MakeSmall("def other(self, x):\n  return x\n")), where_ + " has no method forward");
  EXPECT_EQ(Refusal(MakeSmall("def forward(self):\n  return self.values\n")),
            where_ + ": forward takes nothing, expected one Tensor");
  EXPECT_EQ(Refusal(MakeSmall("def forward(self, x: int):\n  return self.values\n")),
            where_ + ": forward has a parameter x: int, expected one Tensor for image: fp32 [2, 6, 6]");
  EXPECT_THAT(Refusal(MakeSmall("def forward(self, x):\n  return [self.values]\n")),
              AllOf(StartsWith(where_ + " threw, given two samples of image: fp32 [2, 6, 6]: "),
                    HasSubstr("forward returned List[Tensor], expected one Tensor")));
  EXPECT_EQ(Refusal(MakeSmall("def forward(self, x):\n  return self.values\n")),
            where_ + " made [3] of two samples of image: fp32 [2, 6, 6], expected [2, ...], one output a sample");
  EXPECT_THAT(
      Refusal(MakeSmall(kRepeat, Trained(at::ones({4})))),
      StartsWith("spec.model.loss: CrossEntropy needs one output for each class of an integer label; the network "
                 "makes [4] and"));
}

}  // namespace
}  // namespace downpour::model
