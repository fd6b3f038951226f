#include "trainer/model/device_gradient_sum.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "trainer/model/replicated_model.h"
#include "trainer/model/testing/steps.h"

namespace downpour::model {
namespace {

constexpr char kWithBatchNorm[] = R"([{"type": "conv2d", "filters": 4, "kernel": 3}, {"type": "batchNorm"},
    {"type": "relu"}, {"type": "flatten"}, {"type": "dropout", "rate": 0.5}, {"type": "dense", "units": 3}])";

// The kernels of the host, and members whose values are there: the same calls as on devices.
absl::StatusOr<std::unique_ptr<GradientSum>> OnHost(const std::vector<Tensor>& tensors, int replicas,
                                                    std::size_t bucket_bytes) {
  std::vector<std::unique_ptr<cuda::DeviceKernels>> kernels;
  for (int i = 0; i < replicas; ++i) kernels.push_back(cuda::MakeHostKernels());
  DeviceSumOptions options;
  options.bucket_bytes = bucket_bytes;
  options.limit = absl::Hours(1);  // nobody is to be waited for that long
  return DeviceGradientSum::Create(tensors, std::move(kernels), collective::LocalMembers::OfHost(replicas), options);
}

std::unique_ptr<Model> Replicated(const CreateReplica& create, int replicas, std::size_t bucket_bytes) {
  ReplicaOptions options{replicas, ", in a test"};
  options.create_sum = [=](const std::vector<Tensor>& tensors) { return OnHost(tensors, replicas, bucket_bytes); };
  absl::StatusOr<std::unique_ptr<Model>> model = CreateReplicatedModel(options, create);
  EXPECT_TRUE(model.ok()) << model.status();
  return model.ok() ? *std::move(model) : nullptr;
}

ModelOptions Options(const std::string& network) {
  ModelOptions options;
  (network.starts_with("[") ? options.model.layers : options.model.name) = network;
  options.fields = {{{"image", data::ElementType::kF32, {1, 14, 14}}}, {{"label", data::ElementType::kI64, {}, 3}}};
  options.device = DeviceChoice::kCpu;
  return options;
}

data::Batch Batch(std::uint64_t seed, std::int64_t samples) {
  return testing::RandomBatch(Options("MLP").fields, seed,
                              std::vector<std::int64_t>(static_cast<std::size_t>(samples), 1));
}

TEST(DeviceGradientSumTest, SumsHaveTheBitsOfTheHosts) {
  for (const char* network : {"LeNet", "MLP", kWithBatchNorm}) {
    const ModelOptions options = Options(network);
    const auto create = [&options](int) { return CreateModel(options); };
    for (const int replicas : {1, 2, 3}) {
      auto by_host = CreateReplicatedModel({replicas, ""}, create);
      ASSERT_TRUE(by_host.ok()) << by_host.status();
      for (const std::size_t bucket_bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{1} << 30}) {
        const std::unique_ptr<Model> model = Replicated(create, replicas, bucket_bytes);
        // With 2 samples not every one of 3 has a part.
        for (const std::int64_t samples : {9, 2, 16}) {
          SCOPED_TRACE(absl::StrCat(network, ", ", samples, " samples on ", replicas, ", buckets of ", bucket_bytes));
          const auto seed = static_cast<std::uint64_t>(samples);
          const data::Batch batch = Batch(seed, samples);
          const testing::Step expected = testing::Compute(**by_host, batch, seed);
          const testing::Step found = testing::Compute(*model, batch, seed);
          EXPECT_EQ(found.loss, expected.loss);
          EXPECT_EQ(found.gradients, expected.gradients);
        }
      }
    }
  }
}

TEST(DeviceGradientSumTest, LaterLayersAreThereFirstAndBuffersLast) {
  const ModelOptions options = Options(kWithBatchNorm);
  const auto model = Replicated([&options](int) { return CreateModel(options); }, 2, 1);
  std::vector<std::size_t> order;
  ASSERT_TRUE(model
                  ->ComputeGradients(Batch(1, 8), 1, nullptr,
                                     [&](std::size_t tensor, absl::Span<const float>) { order.push_back(tensor); })
                  .ok());
  // Weight and bias of convolution, BatchNorm and dense; two buffers.
  EXPECT_THAT(order, ::testing::ElementsAre(5, 4, 3, 2, 1, 0, 6, 7));
  EXPECT_EQ(model->description(), "cpu, contiguous, 1 thread, in a test, added up there");
}

TEST(DeviceGradientSumTest, ALossThatIsRefusedIsTheEndOfTheStepAndOfNothingElse) {
  const ModelOptions options = Options("MLP");
  const auto model = Replicated([&options](int) { return CreateModel(options); }, 2, 4096);
  const testing::Step before = testing::Compute(*model, Batch(1, 8));
  int gradients = 0;
  ASSERT_TRUE(
      model
          ->ComputeGradients(
              Batch(1, 8), 1, [](double) { return false; }, [&](std::size_t, absl::Span<const float>) { ++gradients; })
          .ok());
  EXPECT_EQ(gradients, 0);
  EXPECT_EQ(testing::Compute(*model, Batch(1, 8)).gradients, before.gradients);
}

enum class Fault { kNone, kBeforeTheLoss, kBehindTheLoss, kThrows };

// One tensor, whose gradient is 1.
class FakeModel final : public Model {
 public:
  explicit FakeModel(const Fault* fault) : fault_(fault) {}
  const std::vector<Tensor>& tensors() const override { return tensors_; }
  void SetParameter(std::size_t, absl::Span<const float>) override {}
  void GetParameter(std::size_t, absl::Span<float>) const override {}
  absl::StatusOr<StepResult> ComputeGradients(const data::Batch&, std::uint64_t, const OnLoss&,
                                              const OnGradient&) override {
    return absl::UnimplementedError("");
  }
  absl::StatusOr<StepResult> ComputeDeviceGradients(const data::Batch&, std::uint64_t, const OnLoss& on_loss,
                                                    const OnDeviceGradient& on_gradient) override {
    if (*fault_ == Fault::kBeforeTheLoss) return absl::ResourceExhaustedError("out of memory");
    if (!on_loss(1)) return StepResult{1, 0, 0};
    if (*fault_ == Fault::kBehindTheLoss) return absl::ResourceExhaustedError("out of memory");
    if (*fault_ == Fault::kThrows) throw std::runtime_error("out of memory");
    on_gradient(0, &gradient_);
    return StepResult{1, 0, 0};
  }
  absl::StatusOr<EvaluationResult> Evaluate(const data::Batch&) override { return absl::UnimplementedError(""); }
  std::string description() const override { return "fake"; }

 private:
  const Fault* const fault_;
  const std::vector<Tensor> tensors_ = {{"w", {1}}};
  const float gradient_ = 1;
};

TEST(DeviceGradientSumTest, OneThatFailsEndsTheStepOfAllAndTheNextIsAsEver) {
  for (const std::size_t bad : {0, 1, 2}) {
    std::vector<Fault> faults(3, Fault::kNone);
    const auto model = Replicated(
        [&faults](int replica) { return std::make_unique<FakeModel>(&faults[static_cast<std::size_t>(replica)]); }, 3,
        1);
    for (const Fault fault : {Fault::kBeforeTheLoss, Fault::kBehindTheLoss, Fault::kThrows}) {
      faults[bad] = fault;
      const auto failed = model->ComputeGradients(Batch(1, 6), 1, nullptr, nullptr);
      EXPECT_EQ(failed.status().message(), absl::StrCat("device ", bad, ": out of memory"));
      faults[bad] = Fault::kNone;
      EXPECT_FLOAT_EQ(testing::Compute(*model, Batch(1, 6)).gradients[0][0], 1);
    }
  }
}

TEST(DeviceGradientSumTest, AModelThatGivesToTheHostAloneIsRefused) {
  class HostModel final : public Model {
   public:
    const std::vector<Tensor>& tensors() const override { return tensors_; }
    void SetParameter(std::size_t, absl::Span<const float>) override {}
    void GetParameter(std::size_t, absl::Span<float>) const override {}
    absl::StatusOr<StepResult> ComputeGradients(const data::Batch&, std::uint64_t, const OnLoss&,
                                                const OnGradient&) override {
      return StepResult();
    }
    absl::StatusOr<EvaluationResult> Evaluate(const data::Batch&) override { return EvaluationResult(); }
    std::string description() const override { return "host"; }

   private:
    const std::vector<Tensor> tensors_ = {{"w", {1}}};
  };
  const auto model = Replicated([](int) { return std::make_unique<HostModel>(); }, 2, 1);
  EXPECT_EQ(model->ComputeGradients(Batch(1, 4), 1, nullptr, nullptr).status().code(),
            absl::StatusCode::kFailedPrecondition);
}

TEST(DeviceGradientSumTest, KernelsAndMembersAreAsMany) {
  std::vector<std::unique_ptr<cuda::DeviceKernels>> kernels;
  kernels.push_back(cuda::MakeHostKernels());
  const auto sum = DeviceGradientSum::Create({}, std::move(kernels), collective::LocalMembers::OfHost(2));
  EXPECT_EQ(sum.status(), absl::InvalidArgumentError("kernels of 1 devices for 2 members"));
}

}  // namespace
}  // namespace downpour::model
