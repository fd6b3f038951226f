#include "trainer/model/replicated_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/model/testing/steps.h"

namespace downpour::model {
namespace {

using ::testing::ElementsAre;
using testing::RandomBatch;

constexpr char kWithBatchNorm[] = R"([{"type": "conv2d", "filters": 4, "kernel": 3}, {"type": "batchNorm"},
    {"type": "relu"}, {"type": "flatten"}, {"type": "dense", "units": 3}])";
constexpr char kWithDropout[] = R"([{"type": "flatten"}, {"type": "dense", "units": 4096},
    {"type": "dropout", "rate": 0.5}, {"type": "dense", "units": 256}, {"type": "dropout", "rate": 0.5},
    {"type": "dense", "units": 3}])";
constexpr char kWithWords[] = R"([{"type": "embedding", "vocabulary": 20, "size": 6},
    {"type": "lstm", "units": 5}, {"type": "dense", "units": 3}])";

ModelOptions Options(const std::string& network) {
  ModelOptions options;
  const bool list = network.starts_with("[");
  (list ? options.model.layers : options.model.name) = network;
  options.fields = {{{"image", data::ElementType::kF32, {1, 14, 14}}}, {{"label", data::ElementType::kI64, {}, 3}}};
  if (network == kWithWords) options.fields.inputs[0] = {"words", data::ElementType::kI32, {data::kRagged}, 20};
  options.device = DeviceChoice::kCpu;
  return options;
}

std::unique_ptr<Model> Replicated(const ModelOptions& options, int replicas) {
  absl::StatusOr<std::unique_ptr<Model>> model =
      CreateReplicatedModel({replicas, ""}, [&options](int) { return CreateModel(options); });
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

std::vector<std::int64_t> Lengths(std::int64_t samples) {
  std::vector<std::int64_t> lengths(static_cast<std::size_t>(samples));
  for (std::int64_t i = 0; i < samples; ++i) lengths[static_cast<std::size_t>(i)] = 1 + i * 5 % 7;
  return lengths;
}

data::Batch Batch(const ModelOptions& options, std::uint64_t seed, std::int64_t samples) {
  return RandomBatch(options.fields, seed, Lengths(samples));
}

using Values = std::vector<std::vector<float>>;

Values ValuesOf(const Model& model) {
  Values values;
  for (std::size_t tensor = 0; tensor < model.tensors().size(); ++tensor) {
    values.push_back(testing::ValueOf(model, tensor));
  }
  return values;
}

double Distance(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, norm = 0;
  for (std::size_t i = 0; i < std::min(a.size(), b.size()); ++i) {
    difference += std::pow(double{a[i]} - double{b[i]}, 2);
    norm += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / std::max(norm, 1e-30));
}

void Descend(Model& model, const Values& gradients, float rate) {
  Values values = ValuesOf(model);
  for (std::size_t tensor = 0; tensor < values.size(); ++tensor) {
    const float step = model.tensors()[tensor].kind == TensorKind::kBuffer ? 1 : rate;
    for (std::size_t i = 0; i < values[tensor].size(); ++i) values[tensor][i] -= step * gradients[tensor][i];
    model.SetParameter(tensor, values[tensor]);
  }
}

TEST(ReplicatedModelTest, GradientsAreThoseOfOneDevice) {
  for (const char* network : {"LeNet", "MLP", kWithWords}) {
    const ModelOptions options = Options(network);
    const std::unique_ptr<Model> one = testing::Create(options);
    for (const int replicas : {1, 2, 3, 4}) {
      const std::unique_ptr<Model> several = Replicated(options, replicas);
      EXPECT_EQ(ValuesOf(*several), ValuesOf(*one));
      for (const std::int64_t samples : {1, 2, 3, 5, 8, 13}) {
        SCOPED_TRACE(absl::StrCat(network, ", ", samples, " samples on ", replicas));
        const data::Batch batch = Batch(options, static_cast<std::uint64_t>(samples), samples);
        const testing::Step found = testing::Compute(*several, batch);
        const testing::Step expected = testing::Compute(*one, batch);
        EXPECT_NEAR(found.loss, expected.loss, 1e-6);
        for (std::size_t i = 0; i < expected.gradients.size(); ++i) {
          EXPECT_LT(Distance(found.gradients[i], expected.gradients[i]), 1e-5) << several->tensors()[i].name;
        }
        EXPECT_EQ(testing::Compute(*several, batch).gradients, found.gradients) << "again, with the same bits";
      }
    }
  }
}

TEST(ReplicatedModelTest, FiftyStepsEndWithTheModelOfOneDevice) {
  for (const char* network : {"LeNet", "MLP", kWithWords}) {
    const ModelOptions options = Options(network);
    for (const int replicas : {2, 3}) {
      const std::unique_ptr<Model> one = testing::Create(options);
      const std::unique_ptr<Model> several = Replicated(options, replicas);
      const Values start = ValuesOf(*one);
      for (std::uint64_t step = 0; step < 50; ++step) {
        const data::Batch batch = Batch(options, step, step % 10 == 9 ? 5 : 16);
        for (Model* const model : {one.get(), several.get()}) {
          Descend(*model, testing::Compute(*model, batch, step).gradients, 0.02F);
        }
      }
      const Values expected = ValuesOf(*one), found = ValuesOf(*several);
      for (std::size_t i = 0; i < expected.size(); ++i) {
        EXPECT_LT(Distance(found[i], expected[i]), 1e-4) << network << " " << one->tensors()[i].name;
        EXPECT_GT(Distance(expected[i], start[i]), 1e-3) << network << " " << one->tensors()[i].name;
      }
    }
  }
}

// Each normalises by its own samples, so the sum over parts is that of batches of their own.
TEST(ReplicatedModelTest, BatchNormIsOfTheReplicaAndItsBuffersAreAveraged) {
  const ModelOptions options = Options(kWithBatchNorm);
  const data::Batch batch = Batch(options, 3, 5);
  const std::unique_ptr<Model> one = testing::Create(options);
  const auto part = [&](std::int64_t first, std::int64_t count) {
    data::Batch some = batch;
    for (data::Array* const array : {&some.inputs[0], &some.targets[0]}) {
      const std::int64_t bytes = static_cast<std::int64_t>(array->bytes.size()) / 5;
      array->bytes = {array->bytes.begin() + first * bytes, array->bytes.begin() + (first + count) * bytes};
      array->shape[0] = count;
    }
    return testing::Compute(*one, some).gradients;
  };
  const Values left = part(0, 3), right = part(3, 2);
  const Values found = testing::Compute(*Replicated(options, 2), batch).gradients;
  int buffers = 0;
  for (std::size_t i = 0; i < found.size(); ++i) {
    buffers += one->tensors()[i].kind == TensorKind::kBuffer ? 1 : 0;
    std::vector<float> expected(left[i].size());
    for (std::size_t j = 0; j < expected.size(); ++j) expected[j] = 0.6F * left[i][j] + 0.4F * right[i][j];
    EXPECT_THAT(found[i], ::testing::Pointwise(::testing::FloatNear(1e-6F), expected)) << one->tensors()[i].name;
  }
  EXPECT_EQ(buffers, 2);
  const Values whole = testing::Compute(*one, batch).gradients;
  EXPECT_GT(Distance(found[0], whole[0]), 1e-3) << "it is not that of the whole batch";
}

TEST(ReplicatedModelTest, ABatchThatLeavesOneSampleCanBeNormalised) {
  ModelOptions options = Options(R"([{"type": "flatten"}, {"type": "batchNorm"}, {"type": "dense", "units": 3}])");
  const std::unique_ptr<Model> model = Replicated(options, 2);
  EXPECT_TRUE(model->ComputeGradients(Batch(options, 1, 3), 1, nullptr, nullptr).ok());
}

TEST(ReplicatedModelTest, ReplicasDrawOnTheirOwnByTheSeed) {
  const ModelOptions options = Options(kWithDropout);
  // The same sample twice: replicas that drew alike would have the loss of one.
  data::Batch batch = Batch(options, 1, 2);
  std::copy_n(batch.inputs[0].bytes.begin(), batch.inputs[0].bytes.size() / 2,
              batch.inputs[0].bytes.begin() + static_cast<std::ptrdiff_t>(batch.inputs[0].bytes.size() / 2));
  batch.targets[0].mutable_values<std::int64_t>()[1] = batch.targets[0].values<std::int64_t>()[0];
  data::Batch half = Batch(options, 1, 1);
  half.inputs[0].bytes.assign(batch.inputs[0].bytes.begin(),
                              batch.inputs[0].bytes.begin() + half.inputs[0].bytes.size());
  half.targets[0].mutable_values<std::int64_t>()[0] = batch.targets[0].values<std::int64_t>()[0];

  const std::unique_ptr<Model> one = testing::Create(options);
  const std::unique_ptr<Model> two = Replicated(options, 2);
  Values first;
  for (int round = 0; round < 20; ++round) {
    const testing::Step step = testing::Compute(*two, batch, 7);
    if (first.empty()) first = step.gradients;
    ASSERT_EQ(step.gradients, first) << "in whatever order they draw";
  }
  const double left = testing::Compute(*one, half, ReplicaSeed(7, 0)).loss;
  const double right = testing::Compute(*one, half, ReplicaSeed(7, 1)).loss;
  EXPECT_EQ(left, testing::Compute(*one, half, 7).loss);
  EXPECT_NE(left, right);
  EXPECT_NEAR(testing::Compute(*two, batch, 7).loss, (left + right) / 2, 1e-6);
  EXPECT_NE(testing::Compute(*two, batch, 8).gradients, first);
}

TEST(ReplicatedModelTest, EvaluationsAreOfTheWholeBatch) {
  for (const char* network : {"LeNet", kWithBatchNorm, kWithWords}) {
    ModelOptions options = Options(network);
    options.model.objective.metrics = {"Accuracy"};
    const std::unique_ptr<Model> one = testing::Create(options);
    for (const std::int64_t samples : {1, 7, 30}) {
      const data::Batch batch = Batch(options, 2, samples);
      const auto expected = one->Evaluate(batch);
      const auto found = Replicated(options, 3)->Evaluate(batch);
      ASSERT_TRUE(expected.ok() && found.ok()) << found.status();
      EXPECT_NEAR(found->loss.sum, expected->loss.sum, 1e-4);
      EXPECT_EQ(found->loss.count, samples);
      ASSERT_EQ(found->metrics.size(), 1u);
      EXPECT_EQ(found->metrics[0].name, "Accuracy");
      EXPECT_EQ(found->metrics[0].sum, expected->metrics[0].sum);
      EXPECT_EQ(found->metrics[0].count, samples);
    }
  }
}

TEST(ReplicatedModelTest, EveryGradientOnceLaterLayersFirstBuffersLast) {
  for (const char* network : {"LeNet", kWithBatchNorm}) {
    const ModelOptions options = Options(network);
    const std::unique_ptr<Model> model = Replicated(options, 3);
    std::vector<std::size_t> order;
    ASSERT_TRUE(model
                    ->ComputeGradients(Batch(options, 1, 9), 1, nullptr,
                                       [&](std::size_t tensor, absl::Span<const float>) { order.push_back(tensor); })
                    .ok());
    std::vector<std::size_t> all(model->tensors().size());
    std::iota(all.begin(), all.end(), 0);
    EXPECT_THAT(order, ::testing::UnorderedElementsAreArray(all));
    const auto is_buffer = [&](std::size_t tensor) { return model->tensors()[tensor].kind == TensorKind::kBuffer; };
    EXPECT_TRUE(std::is_partitioned(order.begin(), order.end(), std::not_fn(is_buffer)));
    order.erase(std::remove_if(order.begin(), order.end(), is_buffer), order.end());
    std::vector<std::size_t> layers;  // weight and bias of a layer are neighbours, in either order
    for (const std::size_t tensor : order) layers.push_back(tensor / 2);
    EXPECT_TRUE(std::is_sorted(layers.rbegin(), layers.rend())) << network;
  }
}

TEST(ReplicatedModelTest, NobodyGoesOnWithALossThatIsRefused) {
  const ModelOptions options = Options("MLP");
  const std::unique_ptr<Model> model = Replicated(options, 2);
  const data::Batch batch = Batch(options, 1, 4);
  double seen = 0;
  int gradients = 0;
  const auto result = model->ComputeGradients(
      batch, 1,
      [&seen](double loss) {
        seen = loss;
        return false;
      },
      [&gradients](std::size_t, absl::Span<const float>) { ++gradients; });
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->loss, seen);
  EXPECT_NEAR(seen, testing::Compute(*testing::Create(options), batch).loss, 1e-6);
  EXPECT_EQ(gradients, 0);
}

TEST(ReplicatedModelTest, FrozenParametersAreSetOnAll) {
  ModelOptions options = Options("MLP");
  options.model.frozen = {"fc1.*"};
  const std::unique_ptr<Model> one = testing::Create(options);
  const std::unique_ptr<Model> two = Replicated(options, 2);
  ASSERT_EQ(two->frozen().size(), one->frozen().size());
  for (std::size_t i = 0; i < one->frozen().size(); ++i) {
    std::vector<float> values(one->frozen()[i].values.size(), 0.01F);
    one->SetFrozen(i, values);
    two->SetFrozen(i, values);
    EXPECT_EQ(two->frozen()[i].values, values);
  }
  const data::Batch batch = Batch(options, 1, 4);
  testing::ExpectSame(testing::Compute(*two, batch), testing::Compute(*one, batch), 1e-6F);
}

TEST(ReplicatedModelTest, RefusesWhatOneDeviceRefuses) {
  const ModelOptions options = Options("MLP");
  const std::unique_ptr<Model> one = testing::Create(options);
  const std::unique_ptr<Model> two = Replicated(options, 2);
  const data::Batch good = Batch(options, 1, 4);
  data::Batch label = good;
  label.targets[0].mutable_values<std::int64_t>()[3] = 3;
  data::Batch cut = good;
  cut.inputs[0].bytes.pop_back();
  for (const data::Batch& bad : {data::Batch(), label, cut}) {
    const auto status = two->ComputeGradients(bad, 1, nullptr, nullptr).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()),
                ::testing::HasSubstr(one->ComputeGradients(bad, 1, nullptr, nullptr).status().message()));
    EXPECT_EQ(two->Evaluate(bad).status(), status);
    testing::ExpectSame(testing::Compute(*two, good), testing::Compute(*one, good), 1e-6F);
  }
  EXPECT_EQ(two->TakeStep(good, 1, nullptr).status().code(), absl::StatusCode::kFailedPrecondition);
}

TEST(ReplicatedModelTest, AnExceptionOfTheCallersIsAnError) {
  const ModelOptions options = Options("MLP");
  const std::unique_ptr<Model> model = Replicated(options, 2);
  const data::Batch batch = Batch(options, 1, 4);
  const testing::Step before = testing::Compute(*model, batch);
  const auto thrown = [](auto...) -> bool { throw std::runtime_error("no room"); };
  for (const auto& result :
       {model->ComputeGradients(batch, 1, thrown, nullptr), model->ComputeGradients(batch, 1, nullptr, thrown)}) {
    EXPECT_EQ(result.status(), absl::InternalError("no room"));
  }
  EXPECT_EQ(testing::Compute(*model, batch).gradients, before.gradients);
}

// What goes wrong, and where.
enum class Fault { kNone, kBeforeTheLoss, kInBackward, kThrows, kInSetParameter };

// One tensor, whose gradient is the mean of the targets.
class FakeModel final : public Model {
 public:
  explicit FakeModel(const Fault* fault) : fault_(fault) {}

  const std::vector<Tensor>& tensors() const override { return tensors_; }
  void SetParameter(std::size_t, absl::Span<const float> values) override {
    if (*fault_ == Fault::kInSetParameter) throw std::runtime_error("no memory for values");
    value_ = values[0];
  }
  void GetParameter(std::size_t, absl::Span<float> values) const override { values[0] = value_; }

  absl::StatusOr<StepResult> ComputeGradients(const data::Batch& batch, std::uint64_t, const OnLoss& on_loss,
                                              const OnGradient& on_gradient) override {
    if (*fault_ == Fault::kBeforeTheLoss) return absl::ResourceExhaustedError("out of memory");
    if (*fault_ == Fault::kThrows) throw std::runtime_error("thrown");
    float sum = value_;
    for (const std::int64_t label : batch.targets[0].values<std::int64_t>()) sum += static_cast<float>(label);
    if (!on_loss(1)) return StepResult{1, 0, 0};
    if (*fault_ == Fault::kInBackward) return absl::ResourceExhaustedError("out of memory");
    on_gradient(0, {sum});
    return StepResult{1, 0, 0};
  }
  absl::StatusOr<EvaluationResult> Evaluate(const data::Batch&) override {
    if (*fault_ != Fault::kNone) return absl::ResourceExhaustedError("out of memory");
    return EvaluationResult{{"Loss", 1, 1}, {}};
  }
  std::string description() const override { return "fake"; }

 private:
  const Fault* const fault_;
  const std::vector<Tensor> tensors_ = {{"w", {1}}};
  float value_ = 0;
};

TEST(ReplicatedModelTest, AnErrorOfOneReplicaEndsTheStepOfAll) {
  const data::Batch batch = Batch(Options("MLP"), 1, 6);
  for (const int bad : {0, 1, 2}) {
    std::vector<Fault> faults(3, Fault::kNone);
    auto model = CreateReplicatedModel(
        {3, ""}, [&faults](int replica) { return std::make_unique<FakeModel>(&faults[replica]); });
    ASSERT_TRUE(model.ok());
    const auto compute = [&](std::vector<float>* gradient) {
      return (*model)
          ->ComputeGradients(batch, 1, nullptr,
                             [gradient](std::size_t, absl::Span<const float> values) {
                               gradient->assign(values.begin(), values.end());
                             })
          .status();
    };
    std::vector<float> good;
    ASSERT_TRUE(compute(&good).ok());
    for (const auto& [fault, status] : {std::pair{Fault::kBeforeTheLoss, absl::ResourceExhaustedError("out of memory")},
                                        {Fault::kInBackward, absl::ResourceExhaustedError("out of memory")},
                                        {Fault::kThrows, absl::InternalError("thrown")},
                                        {Fault::kInSetParameter, absl::InternalError("no memory for values")}}) {
      (*model)->SetParameter(0, std::vector<float>{0});
      faults[bad] = fault;
      const absl::Status expected(status.code(), absl::StrCat("device ", bad, ": ", status.message()));
      std::vector<float> none;
      EXPECT_EQ(compute(&none), expected);
      EXPECT_THAT(none, ElementsAre());
      EXPECT_EQ((*model)->Evaluate(batch).ok(), false);
      faults[bad] = Fault::kNone;
      std::vector<float> again;
      EXPECT_TRUE(compute(&again).ok());
      EXPECT_EQ(again, good) << "it can be used on";
    }
  }
}

TEST(ReplicatedModelTest, SeveralErrorsAreOne) {
  std::vector<Fault> faults(4, Fault::kInBackward);
  auto model =
      CreateReplicatedModel({4, ""}, [&faults](int replica) { return std::make_unique<FakeModel>(&faults[replica]); });
  ASSERT_TRUE(model.ok());
  const auto result = (*model)->ComputeGradients(Batch(Options("MLP"), 1, 8), 1, nullptr, nullptr);
  EXPECT_THAT(std::string(result.status().message()), ::testing::MatchesRegex("device [0-3]: out of memory"));
}

TEST(ReplicatedModelTest, AReplicaThatCannotBeMadeIsTold) {
  const Fault none = Fault::kNone;
  const auto model = CreateReplicatedModel({3, ""}, [&none](int replica) -> absl::StatusOr<std::unique_ptr<Model>> {
    if (replica == 2) return absl::FailedPreconditionError("no such device");
    return std::make_unique<FakeModel>(&none);
  });
  EXPECT_EQ(model.status(), absl::FailedPreconditionError("no such device"));
}

}  // namespace
}  // namespace downpour::model
