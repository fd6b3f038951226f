#include "trainer/model/model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <memory>
#include <numeric>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "trainer/data/open_dataset.h"

namespace downpour::model {
namespace {

using ::testing::HasSubstr;

data::SampleFields Images(const std::vector<std::int64_t>& shape, std::int64_t classes = 10) {
  return {{{"image", data::ElementType::kF32, shape}}, {{"label", data::ElementType::kI64, {}, classes}}};
}

ModelOptions Options(const std::string& name, std::uint64_t seed = 1, LayoutChoice layout = LayoutChoice::kAuto) {
  ModelOptions options;
  options.model.name = name;
  options.fields = Images({1, 28, 28});
  options.device = DeviceChoice::kCpu;
  options.seed = seed;
  options.layout = layout;
  return options;
}

std::unique_ptr<Model> Create(const ModelOptions& options) {
  absl::StatusOr<std::unique_ptr<Model>> model = CreateModel(options);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

data::Batch RandomBatch(std::uint64_t seed, std::int64_t size, const std::vector<std::int64_t>& shape = {1, 28, 28}) {
  const data::SampleFields fields = Images(shape);
  std::mt19937_64 random(seed);
  std::uniform_real_distribution<float> pixel(0.0F, 1.0F);
  data::Batch batch{{data::MakeArray(fields.inputs[0], size)}, {data::MakeArray(fields.targets[0], size)}};
  for (float& value : batch.inputs[0].mutable_values<float>()) value = pixel(random);
  for (std::int64_t& label : batch.targets[0].mutable_values<std::int64_t>()) {
    label = static_cast<std::int64_t>(random() % 10);
  }
  return batch;
}

using Values = std::vector<std::vector<float>>;

Values Parameters(const Model& model) {
  Values values;
  for (std::size_t i = 0; i < model.tensors().size(); ++i) {
    values.emplace_back(static_cast<std::size_t>(model.tensors()[i].elements()));
    model.GetParameter(i, absl::MakeSpan(values.back()));
  }
  return values;
}

struct Gradients {
  Values values;
  std::vector<std::size_t> order;
  StepResult result;
};

Gradients Compute(Model& model, const data::Batch& batch) {
  Gradients gradients;
  gradients.values.resize(model.tensors().size());
  const auto result = model.ComputeGradients(
      batch, 0, [](double) { return true; },
      [&](std::size_t tensor, absl::Span<const float> gradient) {
        gradients.order.push_back(tensor);
        gradients.values[tensor].assign(gradient.begin(), gradient.end());
      });
  EXPECT_TRUE(result.ok()) << result.status();
  if (result.ok()) gradients.result = *result;
  return gradients;
}

double MeanLoss(Model& model, const data::Batch& batch) {
  const auto result = model.Evaluate(batch);
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? result->loss.sum / static_cast<double>(result->loss.count) : 0;
}

// The relative distance of two vectors, in double.
double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference += std::pow(static_cast<double>(a[i]) - b[i], 2);
    norm += std::pow(static_cast<double>(b[i]), 2);
  }
  return std::sqrt(difference / std::max(norm, 1e-30));
}

std::vector<ModelOptions> AllKinds(std::uint64_t seed) {
  return {Options("LeNet", seed, LayoutChoice::kContiguous), Options("LeNet", seed, LayoutChoice::kChannelsLast),
          Options("LeNet", seed, LayoutChoice::kFused), Options("MLP", seed)};
}

TEST(Model, TensorsAreThoseOfTheNetworks) {
  const std::unique_ptr<Model> lenet = Create(Options("LeNet"));
  std::vector<std::string> names;
  std::int64_t elements = 0;
  for (const Tensor& tensor : lenet->tensors()) {
    names.push_back(tensor.name);
    elements += tensor.elements();
  }
  EXPECT_THAT(names, ::testing::ElementsAre("conv1.weight", "conv1.bias", "conv2.weight", "conv2.bias", "fc1.weight",
                                            "fc1.bias", "fc2.weight", "fc2.bias"));
  EXPECT_EQ(lenet->tensors()[0].shape, (std::vector<std::int64_t>{20, 1, 3, 3}));
  EXPECT_EQ(lenet->tensors()[2].shape, (std::vector<std::int64_t>{50, 20, 5, 5}));
  EXPECT_EQ(lenet->tensors()[4].shape, (std::vector<std::int64_t>{128, 800}));
  EXPECT_EQ(lenet->tensors()[6].shape, (std::vector<std::int64_t>{10, 128}));
  EXPECT_EQ(elements, 200 + 25050 + 102528 + 1290);
  elements = 0;
  const std::unique_ptr<Model> mlp = Create(Options("MLP"));
  for (const Tensor& tensor : mlp->tensors()) elements += tensor.elements();
  EXPECT_EQ(elements, 784 * 128 + 128 + 1290);
}

TEST(Model, SameSeedSameParametersOtherSeedOthers) {
  for (std::uint64_t seed = 0; seed < 5; ++seed) {
    for (const ModelOptions& options : AllKinds(seed)) {
      const Values first = Parameters(*Create(options));
      EXPECT_EQ(first, Parameters(*Create(options)));
      ModelOptions other = options;
      other.seed = seed + 1;
      EXPECT_NE(first, Parameters(*Create(other)));
    }
    // The layout has no part in the values.
    EXPECT_EQ(Parameters(*Create(Options("LeNet", seed, LayoutChoice::kContiguous))),
              Parameters(*Create(Options("LeNet", seed, LayoutChoice::kChannelsLast))));
  }
}

// Central differences along random directions, the loss in fp32: along a unit direction of one tensor at a time the
// two agree within 2 % of the gradient's length (the loss is rounded to about 1e-7, the step is 1e-2, ReLU has kinks).
TEST(Model, GradientsAgreeWithFiniteDifferences) {
  constexpr double kStep = 1e-2;
  constexpr double kTolerance = 0.02;
  for (std::uint64_t seed = 0; seed < 4; ++seed) {
    for (const ModelOptions& options : AllKinds(seed)) {
      const std::unique_ptr<Model> model = Create(options);
      const data::Batch batch = RandomBatch(seed, 5);
      const Gradients gradients = Compute(*model, batch);
      EXPECT_NEAR(gradients.result.loss, MeanLoss(*model, batch), 1e-5);
      const Values start = Parameters(*model);
      std::mt19937_64 random(seed);
      std::normal_distribution<double> normal;
      for (std::size_t tensor = 0; tensor < start.size(); ++tensor) {
        // Half along the gradient, so that the derivative is not lost in rounding, half anywhere.
        const double length = std::sqrt(std::inner_product(
            gradients.values[tensor].begin(), gradients.values[tensor].end(), gradients.values[tensor].begin(), 0.0));
        std::vector<double> direction(start[tensor].size());
        for (std::size_t i = 0; i < direction.size(); ++i) {
          direction[i] =
              gradients.values[tensor][i] / length + normal(random) / std::sqrt(static_cast<double>(direction.size()));
        }
        const double norm = std::sqrt(std::inner_product(direction.begin(), direction.end(), direction.begin(), 0.0));
        double expected = 0;
        for (std::size_t i = 0; i < direction.size(); ++i) {
          direction[i] /= norm;
          expected += direction[i] * gradients.values[tensor][i];
        }
        std::vector<float> moved(start[tensor].size());
        double loss[2];
        for (int side = 0; side < 2; ++side) {
          for (std::size_t i = 0; i < moved.size(); ++i) {
            moved[i] = static_cast<float>(start[tensor][i] + (side == 0 ? -kStep : kStep) * direction[i]);
          }
          model->SetParameter(tensor, moved);
          loss[side] = MeanLoss(*model, batch);
        }
        model->SetParameter(tensor, start[tensor]);
        EXPECT_NEAR((loss[1] - loss[0]) / (2 * kStep), expected, kTolerance * length)
            << model->tensors()[tensor].name << ", " << model->description() << ", seed " << seed;
      }
    }
  }
}

TEST(Model, LayoutsAgree) {
  for (std::uint64_t seed = 0; seed < 3; ++seed) {
    const data::Batch batch = RandomBatch(seed, 1 + static_cast<std::int64_t>(seed) * 7);
    Gradients reference;
    for (const LayoutChoice layout : {LayoutChoice::kContiguous, LayoutChoice::kChannelsLast, LayoutChoice::kFused}) {
      for (const int threads : {1, 2}) {
        ModelOptions options = Options("LeNet", seed, layout);
        options.threads = threads;
        const std::unique_ptr<Model> model = Create(options);
        const Gradients gradients = Compute(*model, batch);
        if (reference.values.empty()) reference = gradients;
        EXPECT_NEAR(gradients.result.loss, reference.result.loss, 1e-5);
        for (std::size_t i = 0; i < gradients.values.size(); ++i) {
          EXPECT_LT(Distance(gradients.values[i], reference.values[i]), 1e-4)
              << model->tensors()[i].name << ", " << model->description() << ", seed " << seed;
        }
      }
    }
  }
}

TEST(Model, OtherSampleShapesAgreeAcrossLayouts) {
  // Odd extents and several channels: borders that no pooling window covers.
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{1, 14, 14}, {3, 15, 22}, {2, 17, 31}, {1, 29, 16}, {3, 32, 32}}) {
    const data::Batch batch = RandomBatch(3, 4, shape);
    Gradients reference;
    for (const LayoutChoice layout : {LayoutChoice::kContiguous, LayoutChoice::kChannelsLast, LayoutChoice::kFused}) {
      ModelOptions options = Options("LeNet", 1, layout);
      options.fields = Images(shape);
      const std::unique_ptr<Model> model = Create(options);
      const Gradients gradients = Compute(*model, batch);
      if (reference.values.empty()) reference = gradients;
      for (std::size_t i = 0; i < gradients.values.size(); ++i) {
        EXPECT_LT(Distance(gradients.values[i], reference.values[i]), 1e-4) << model->tensors()[i].name;
      }
    }
  }
}

TEST(Model, EveryGradientOnceAndLaterLayersFirst) {
  for (const ModelOptions& options : AllKinds(1)) {
    const std::unique_ptr<Model> model = Create(options);
    for (std::uint64_t seed = 0; seed < 3; ++seed) {
      const Gradients gradients = Compute(*model, RandomBatch(seed, 8));
      std::vector<std::size_t> sorted = gradients.order;
      std::sort(sorted.begin(), sorted.end());
      std::vector<std::size_t> all(model->tensors().size());
      std::iota(all.begin(), all.end(), 0);
      EXPECT_EQ(sorted, all);
      std::vector<std::size_t> layers;  // weight and bias of a layer are neighbours, in either order
      for (std::size_t tensor : gradients.order) layers.push_back(tensor / 2);
      EXPECT_TRUE(std::is_sorted(layers.rbegin(), layers.rend())) << model->description();
      for (std::size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(static_cast<std::int64_t>(gradients.values[i].size()), model->tensors()[i].elements());
      }
    }
  }
}

TEST(Model, GradientsDoNotPileUpAndAreRepeatable) {
  for (const ModelOptions& options : AllKinds(2)) {
    const std::unique_ptr<Model> model = Create(options);
    const data::Batch batch = RandomBatch(4, 16);
    const Gradients first = Compute(*model, batch);
    Compute(*model, RandomBatch(5, 3));
    EXPECT_EQ(Compute(*model, batch).values, first.values) << model->description();
  }
}

TEST(Model, ALossThatIsRefusedLeavesBackwardOut) {
  const std::unique_ptr<Model> model = Create(Options("LeNet"));
  const data::Batch batch = RandomBatch(1, 4);
  int calls = 0;
  double seen = 0;
  const auto result = model->ComputeGradients(
      batch, 0,
      [&](double loss) {
        seen = loss;
        return false;
      },
      [&](std::size_t, absl::Span<const float>) { ++calls; });
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->loss, seen);
  EXPECT_GT(seen, 0);
  EXPECT_EQ(calls, 0);
  EXPECT_EQ(Compute(*model, batch).order.size(), model->tensors().size());
}

TEST(Model, ParametersRoundTripRowMajorInEveryLayout) {
  for (const ModelOptions& options : AllKinds(1)) {
    const std::unique_ptr<Model> model = Create(options);
    std::mt19937_64 random(9);
    Values values = Parameters(*model);
    for (std::size_t i = 0; i < values.size(); ++i) {
      for (float& value : values[i]) value = static_cast<float>(random() % 2000) / 1000.0F - 1.0F;
      model->SetParameter(i, values[i]);
    }
    EXPECT_EQ(Parameters(*model), values) << model->description();
  }
}

TEST(Model, RefusesWrongBatches) {
  for (const char* name : {"LeNet", "MLP"}) {
    const std::unique_ptr<Model> model = Create(Options(name));
    const auto gradients = [&](const data::Batch& batch) {
      return model->ComputeGradients(batch, 0, nullptr, nullptr).status();
    };
    data::Batch batch = RandomBatch(1, 4);
    EXPECT_TRUE(gradients(batch).ok());
    for (const std::int64_t label : {std::int64_t{-1}, std::int64_t{10}}) {
      data::Batch wrong = batch;
      wrong.targets[0].mutable_values<std::int64_t>()[2] = label;
      EXPECT_EQ(gradients(wrong).code(), absl::StatusCode::kInvalidArgument);
      EXPECT_EQ(model->Evaluate(wrong).status().code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(gradients(wrong).message()), HasSubstr("expected 0 to 9"));
    }
    data::Batch short_one = batch;
    short_one.inputs[0].bytes.pop_back();
    EXPECT_EQ(gradients(short_one).code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(model->Evaluate(short_one).status().code(), absl::StatusCode::kInvalidArgument);
    EXPECT_EQ(gradients(data::Batch()).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST(Model, RefusesWrongOptions) {
  const auto code = [](const ModelOptions& options) { return CreateModel(options).status().code(); };
  EXPECT_EQ(CreateModel(Options("ResNet50")).status(),
            absl::NotFoundError(
                "spec.model.name: no network \"ResNet50\"; known: Acoustic, AlexNet, BiLSTM, CifarCNN, LeNet, "
                "LocallyConnected, MLP, PhotoCNN, ResNet18, TextTransformer, UNet"));
  ModelOptions options = Options("LeNet");
  for (const std::vector<std::int64_t>& shape :
       std::vector<std::vector<std::int64_t>>{{}, {784}, {28, 28}, {1, 13, 28}, {0, 28, 28}, {1, -28, 28}}) {
    options.fields = Images(shape);
    EXPECT_EQ(code(options), absl::StatusCode::kInvalidArgument);
  }
  options = Options("MLP");
  options.fields = Images({1, 28, 28}, 0);
  EXPECT_EQ(code(options), absl::StatusCode::kInvalidArgument);
  options = Options("LeNet", 1, LayoutChoice::kFused);
  options.precision = PrecisionChoice::kBf16;
  EXPECT_EQ(code(options), absl::StatusCode::kFailedPrecondition);
  if (!std::filesystem::exists("/dev/nvidia0")) {
    options = Options("MLP");
    options.pin_memory = true;  // has no part on the CPU
    EXPECT_TRUE(Compute(*Create(options), RandomBatch(1, 4)).result.loss > 0);
    options.device = DeviceChoice::kCuda;
    const absl::Status status = CreateModel(options).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(status.message()), HasSubstr("no NVIDIA driver on this machine"));
    options.device = DeviceChoice::kAuto;
    const std::unique_ptr<Model> model = Create(options);
    EXPECT_THAT(model->description(), HasSubstr("cpu"));
    EXPECT_THAT(model->without_gpu(), HasSubstr("no NVIDIA driver on this machine"));
    options.device = DeviceChoice::kCpu;
    EXPECT_EQ(Create(options)->without_gpu(), "") << "that was asked for";
  }
}

// An exception of the caller's passes through LibTorch; the model can be used afterwards.
TEST(Model, AnExceptionDuringBackwardIsAnError) {
  for (const ModelOptions& options : AllKinds(1)) {
    const std::unique_ptr<Model> model = Create(options);
    const data::Batch batch = RandomBatch(1, 4);
    const Gradients before = Compute(*model, batch);
    const auto result = model->ComputeGradients(
        batch, 0, nullptr, [](std::size_t, absl::Span<const float>) { throw std::runtime_error("no room"); });
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInternal);
    EXPECT_THAT(std::string(result.status().message()), HasSubstr("no room"));
    EXPECT_EQ(Compute(*model, batch).values, before.values);
  }
}

TEST(Model, SeveralModelsDoNotDisturbEachOther) {
  const data::Batch batch = RandomBatch(1, 4);
  const std::unique_ptr<Model> alone = Create(Options("LeNet", 3));
  const Gradients expected = Compute(*alone, batch);
  ModelOptions two_threads = Options("LeNet", 4);
  two_threads.threads = 2;
  const std::unique_ptr<Model> other = Create(two_threads);
  Compute(*other, batch);
  EXPECT_EQ(Compute(*alone, batch).values, expected.values);
}

TEST(Model, MeasuringChoosesALayout) {
  ModelOptions options = Options("LeNet");
  options.batch_size = 256;
  const std::unique_ptr<Model> model = Create(options);
  EXPECT_THAT(model->description(), ::testing::MatchesRegex("cpu, (contiguous|channels_last|fused), 1 thread"));
  EXPECT_EQ(Parameters(*model), Parameters(*Create(Options("LeNet"))));
}

TEST(Model, Bf16GradientsAreCloseToFp32) {
  for (const char* name : {"LeNet", "MLP"}) {
    ModelOptions options = Options(name);
    const data::Batch batch = RandomBatch(1, 32);
    const Gradients fp32 = Compute(*Create(options), batch);
    options.precision = PrecisionChoice::kBf16;
    const std::unique_ptr<Model> model = Create(options);
    EXPECT_THAT(model->description(), HasSubstr("bf16 autocast"));
    const Gradients bf16 = Compute(*model, batch);
    EXPECT_NEAR(bf16.result.loss, fp32.result.loss, 0.05);
    for (std::size_t i = 0; i < fp32.values.size(); ++i) {
      EXPECT_LT(Distance(bf16.values[i], fp32.values[i]), 0.1) << name << " " << model->tensors()[i].name;
      EXPECT_NE(bf16.values[i], fp32.values[i]);
    }
  }
}

TEST(Model, SequentialSgdOnRealImagesReducesTheLoss) {
  const std::string directory = "/usr/share/datasets/fashion-mnist";
  if (!std::filesystem::exists(directory)) FAIL() << directory << " is not installed";
  data::DatasetSpec spec;
  spec.format = "IDX";
  spec.directory = directory;
  const auto dataset = data::OpenDataset(spec, data::Split::kTest);
  ASSERT_TRUE(dataset.ok()) << dataset.status();
  for (const char* name : {"LeNet", "MLP"}) {
    ModelOptions options = Options(name, 1, LayoutChoice::kFused);
    options.fields = (*dataset)->fields();
    const std::unique_ptr<Model> model = Create(options);
    const auto read = [&](std::int64_t from, std::int64_t count) {
      std::vector<std::int64_t> indices(static_cast<std::size_t>(count));
      std::iota(indices.begin(), indices.end(), from);
      return *(*dataset)->Read(indices, std::nullopt);
    };
    const data::Batch held_out = read(9000, 1000);
    const auto before = model->Evaluate(held_out);
    ASSERT_TRUE(before.ok());
    for (std::int64_t step = 0; step < 100; ++step) {
      const Gradients gradients = Compute(*model, read(step * 64 % 8960, 64));
      Values parameters = Parameters(*model);
      for (std::size_t i = 0; i < parameters.size(); ++i) {
        for (std::size_t j = 0; j < parameters[i].size(); ++j) parameters[i][j] -= 0.1F * gradients.values[i][j];
        model->SetParameter(i, parameters[i]);
      }
    }
    const auto after = model->Evaluate(held_out);
    ASSERT_TRUE(after.ok());
    EXPECT_LT(after->loss.sum, 0.5 * before->loss.sum) << name;
    EXPECT_GT(after->metrics.at(0).sum, 600) << name;
  }
}

}  // namespace
}  // namespace downpour::model
