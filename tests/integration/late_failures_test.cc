// What is needed at the end of training is tried before it, what fails at one worker is done by another, and a model
// that is no result is no success: with real roles over gRPC, and a model whose gradients the test chooses.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "downpour/v1/control.grpc.pb.h"
#include "gmock/gmock.h"
#include "grpcpp/grpcpp.h"
#include "gtest/gtest.h"
#include "proto/member_channel.h"
#include "trainer/checkpoint/safetensors.h"
#include "trainer/coordinator/server.h"
#include "trainer/cuda/testing/counting_kernels.h"
#include "trainer/data/dataset.h"
#include "trainer/model/model.h"
#include "trainer/ps/server.h"
#include "trainer/worker/worker.h"

namespace downpour {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

constexpr char kJobUid[] = "0123456789abcdef0123456789abcdef";
constexpr std::int64_t kSamples = 8;
constexpr absl::Duration kPatience = absl::Seconds(50);

class Zeros final : public data::Dataset {
 public:
  explicit Zeros(std::vector<std::int64_t> shape = {1}, std::int64_t size = kSamples)
      : fields_{{{"value", data::ElementType::kF32, std::move(shape)}}, {{"label", data::ElementType::kI64, {}, 1}}},
        size_(size) {}
  std::int64_t size() const override { return size_; }
  const data::SampleFields& fields() const override { return fields_; }
  absl::StatusOr<data::Batch> Read(absl::Span<const std::int64_t> indices,
                                   std::optional<std::uint64_t> /*seed*/) const override {
    const std::int64_t samples = static_cast<std::int64_t>(indices.size());
    return data::Batch{{data::MakeArray(fields_.inputs[0], samples)}, {data::MakeArray(fields_.targets[0], samples)}};
  }

 private:
  const data::SampleFields fields_;
  const std::int64_t size_;
};

// Every gradient of the second tensor is the same number; the first does not move.
class PlantedModel final : public model::Model {
 public:
  // `metrics` are what it measures, if anything.
  explicit PlantedModel(float gradient, std::vector<std::string> metrics = {})
      : gradient_(gradient), metrics_(std::move(metrics)) {}
  const std::vector<model::Tensor>& tensors() const override { return tensors_; }
  void SetParameter(std::size_t tensor, absl::Span<const float> values) override {
    values_[tensor].assign(values.begin(), values.end());
  }
  void GetParameter(std::size_t tensor, absl::Span<float> values) const override {
    const auto known = values_.find(tensor);
    if (known == values_.end()) return std::fill(values.begin(), values.end(), 1.0f);
    std::copy(known->second.begin(), known->second.end(), values.begin());
  }
  absl::StatusOr<model::StepResult> ComputeGradients(const data::Batch&, std::uint64_t, const OnLoss& on_loss,
                                                     const OnGradient& on_gradient) override {
    if (!failure_.ok()) return failure_;
    model::StepResult result;
    result.loss = 1;
    if (!on_loss(result.loss)) return result;
    on_gradient(1, std::vector<float>(3, gradient_));
    on_gradient(0, std::vector<float>(2, 0.0f));
    return result;
  }
  // The metrics of the n-th batch are sums of n, 2n, ...; counts are samples.
  absl::StatusOr<model::EvaluationResult> Evaluate(const data::Batch& batch) override {
    const double nth = ++batches_;
    const std::int64_t samples = batch.size();
    model::EvaluationResult result;
    result.loss = {"loss", 10 * nth, samples};
    for (std::size_t i = 0; i < metrics_.size(); ++i) {
      result.metrics.push_back({metrics_[i], nth * static_cast<double>(i + 1), samples});
    }
    return result;
  }
  std::string description() const override { return "planted"; }
  void FailSteps(absl::Status failure) { failure_ = std::move(failure); }

 private:
  std::vector<model::Tensor> tensors_ = {{"still", {2}}, {"moving", {3}}};
  std::map<std::size_t, std::vector<float>> values_;  // that it was given
  float gradient_;
  absl::Status failure_;
  std::vector<std::string> metrics_;
  int batches_ = 0;
};

class LateFailuresTest : public ::testing::Test {
 protected:
  LateFailuresTest() : folder_(absl::StrCat(::testing::TempDir(), "/late-failures.XXXXXX")) {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
  }
  ~LateFailuresTest() override { fs::remove_all(folder_); }

  std::string Folder(const std::string& name) {
    fs::create_directories(folder_ + "/" + name);
    return folder_ + "/" + name;
  }

  v1::TrainingConfig MakeConfig(const std::string& output) {
    v1::TrainingConfig config;
    config.set_job_uid(kJobUid);
    config.set_job_name("late");
    config.set_ps_replicas(1);
    config.mutable_model()->set_name("planted");
    config.set_epochs(1);
    config.set_batch_size(1);
    config.set_mode(v1::ASYNC);
    config.mutable_optimizer()->set_type(v1::SGD);
    config.mutable_optimizer()->set_learning_rate(0.5);
    config.set_output_directory(output);
    return config;
  }

  void StartServers(const v1::TrainingConfig& config) {
    core::CoordinatorOptions options;
    options.config = config;
    auto coordinator = coordinator::CoordinatorServer::Start(options, "127.0.0.1:0", "");
    ASSERT_TRUE(coordinator.ok()) << coordinator.status();
    coordinator_ = *std::move(coordinator);
    stub_ = v1::Coordinator::NewStub(MakeMemberChannel(coordinator_->address()));
    ps::PsServerOptions ps_options;
    ps_options.job_uid = kJobUid;
    ps_options.coordinator = coordinator_->address();
    auto server = ps::PsServer::Start(ps_options);
    ASSERT_TRUE(server.ok()) << server.status();
    ps_ = *std::move(server);
  }

  absl::StatusOr<std::unique_ptr<worker::WorkerProcess>> MakeWorker(
      const v1::TrainingConfig& config, std::uint32_t index, float gradient,
      std::shared_ptr<cuda::DeviceKernels> kernels = nullptr) {
    worker::WorkerProcessOptions options;
    options.config = config;
    options.index = index;
    options.kernels = std::move(kernels);
    options.coordinator = coordinator_ == nullptr ? "127.0.0.1:1" : coordinator_->address();
    return worker::WorkerProcess::Create(options, std::make_unique<Zeros>(),
                                         config.evaluate() ? std::make_unique<Zeros>() : nullptr,
                                         std::make_unique<PlantedModel>(gradient));
  }

  // Asks until `holds` of the answer, and returns that.
  v1::ProgressReply Await(const std::function<bool(const v1::ProgressReply&)>& holds) {
    v1::ProgressReply reply;
    for (const absl::Time deadline = absl::Now() + kPatience; absl::Now() < deadline;
         absl::SleepFor(absl::Milliseconds(10))) {
      grpc::ClientContext context;
      context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
      v1::ProgressRequest request;
      request.set_job_uid(kJobUid);
      if (stub_->GetProgress(&context, request, &reply).ok() && holds(reply)) return reply;
    }
    ADD_FAILURE() << "not in time: " << reply.ShortDebugString();
    return reply;
  }
  v1::ProgressReply AwaitEnd() {
    return Await([](const v1::ProgressReply& reply) {
      return reply.phase() == v1::PHASE_DONE || reply.phase() == v1::PHASE_FAILED;
    });
  }
  void Finish() {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    v1::FinishRequest request;
    request.set_job_uid(kJobUid);
    v1::FinishReply reply;
    const grpc::Status status = stub_->Finish(&context, request, &reply);
    EXPECT_TRUE(status.ok() && reply.accepted()) << status.error_message() << reply.message();
  }

  std::string folder_;
  std::unique_ptr<coordinator::CoordinatorServer> coordinator_;
  std::unique_ptr<ps::PsServer> ps_;
  std::unique_ptr<v1::Coordinator::Stub> stub_;
};

// The thread that a worker runs on; ends with the job, or is asked to.
class Running {
 public:
  explicit Running(worker::WorkerProcess* worker) : worker_(worker), thread_([this] { status_ = worker_->Run(); }) {}
  ~Running() {
    worker_->Leave();
    thread_.join();
    EXPECT_TRUE(status_.ok()) << status_;
  }

 private:
  worker::WorkerProcess* worker_;
  absl::Status status_;
  std::thread thread_;
};

TEST_F(LateFailuresTest, AModelThatOverflowedFailsTheJobAndIsNotTakenForAResult) {
  const std::string output = Folder("output");
  v1::TrainingConfig config = MakeConfig(output);
  config.mutable_optimizer()->set_learning_rate(3e38);
  ASSERT_NO_FATAL_FAILURE(StartServers(config));
  const auto worker = MakeWorker(config, 0, 10);
  ASSERT_TRUE(worker.ok()) << worker.status();
  const Running running(worker->get());
  const v1::ProgressReply end = AwaitEnd();
  Finish();
  EXPECT_EQ(end.phase(), v1::PHASE_FAILED);
  EXPECT_EQ(end.failure(), v1::FAILURE_MODEL_NOT_FINITE);
  EXPECT_THAT(end.message(), HasSubstr("the model is not finite: 3 of 5 values in 1 of 2 tensors are not finite, first "
                                       "in moving (3 of 3); a smaller spec.update.optimizer.learningRate may help"));
  EXPECT_EQ(end.model_path(), "");
  EXPECT_FALSE(fs::exists(output + "/model.safetensors"));
  EXPECT_TRUE(checkpoint::ReadSafetensors(output + "/model.not-finite.safetensors").ok());
}

TEST_F(LateFailuresTest, WhereNothingIsWrittenTheModelIsLookedAtAllTheSame) {
  v1::TrainingConfig config = MakeConfig("");
  config.mutable_optimizer()->set_learning_rate(3e38);
  ASSERT_NO_FATAL_FAILURE(StartServers(config));
  const auto worker = MakeWorker(config, 0, 10);
  ASSERT_TRUE(worker.ok()) << worker.status();
  const Running running(worker->get());
  EXPECT_EQ(AwaitEnd().failure(), v1::FAILURE_MODEL_NOT_FINITE);
  Finish();
}

TEST_F(LateFailuresTest, TheModelIsWrittenByAnotherWorkerWhereOneCannot) {
  const v1::TrainingConfig bad = MakeConfig(Folder("gone"));
  const v1::TrainingConfig good = MakeConfig(Folder("output"));
  ASSERT_NO_FATAL_FAILURE(StartServers(good));
  const auto first = MakeWorker(bad, 0, 1);
  ASSERT_TRUE(first.ok()) << first.status();
  fs::remove_all(bad.output_directory());
  const Running first_running(first->get());
  Await([](const v1::ProgressReply& reply) {
    return reply.phase() == v1::PHASE_FINISHING && reply.message().find("worker-0: ") != std::string::npos;
  });
  const auto second = MakeWorker(good, 1, 1);
  ASSERT_TRUE(second.ok()) << second.status();
  const Running second_running(second->get());
  const v1::ProgressReply end = AwaitEnd();
  Finish();
  EXPECT_EQ(end.phase(), v1::PHASE_DONE) << end.message();
  EXPECT_EQ(end.model_path(), good.output_directory() + "/model.safetensors");
  const auto model = checkpoint::ReadSafetensors(end.model_path());
  ASSERT_TRUE(model.ok()) << model.status();
  EXPECT_EQ(model->tensors.at("moving").values, std::vector<float>(3, 1 - 0.5f * kSamples));
}

TEST_F(LateFailuresTest, AWorkerWithoutMemoryOnItsDeviceSaysSoAndEndsAlone) {
  const v1::TrainingConfig config = MakeConfig(Folder("output"));
  ASSERT_NO_FATAL_FAILURE(StartServers(config));
  cuda::testing::CountingKernels::Counts counts;
  counts.fails_at = 1;  // the first memory
  auto first = MakeWorker(config, 0, 1, std::make_shared<cuda::testing::CountingKernels>(&counts));
  ASSERT_TRUE(first.ok()) << first.status();
  const absl::Status ended = (*first)->Run();
  EXPECT_EQ(ended.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(ended.message()),
              HasSubstr("there is no memory to encode gradients on the device, for which "));
  first->reset();  // as its process ends
  const auto second = MakeWorker(config, 1, 1);
  ASSERT_TRUE(second.ok()) << second.status();
  const Running running(second->get());
  const v1::ProgressReply end = AwaitEnd();
  Finish();
  EXPECT_EQ(end.phase(), v1::PHASE_DONE) << end.message();
}

TEST_F(LateFailuresTest, AWorkerWhoseDeviceHasNoMemoryEndsAndSaysSoAndNobodyElseDoes) {
  const v1::TrainingConfig config = MakeConfig("");
  ASSERT_NO_FATAL_FAILURE(StartServers(config));
  worker::WorkerProcessOptions options;
  options.config = config;
  options.coordinator = coordinator_->address();
  auto model = std::make_unique<PlantedModel>(1);
  const absl::Status failure = absl::ResourceExhaustedError("CUDA out of memory. Tried to allocate 2.00 GiB.");
  model->FailSteps(failure);
  {
    const auto first = worker::WorkerProcess::Create(options, std::make_unique<Zeros>(), nullptr, std::move(model));
    ASSERT_TRUE(first.ok()) << first.status();
    EXPECT_EQ((*first)->Run(), failure);
  }
  const auto second = MakeWorker(config, 1, 1);
  ASSERT_TRUE(second.ok()) << second.status();
  const Running running(second->get());
  EXPECT_EQ(AwaitEnd().phase(), v1::PHASE_DONE);
  Finish();
}

TEST_F(LateFailuresTest, AnOutputFolderThatCannotTakeTheModelIsRefusedBeforeTraining) {
  const std::string output = Folder("output");
  EXPECT_TRUE(MakeWorker(MakeConfig(output), 0, 1).ok());
  EXPECT_TRUE(fs::is_empty(output)) << "trying leaves nothing";
  EXPECT_THAT(std::string(MakeWorker(MakeConfig(output + "/absent"), 0, 1).status().message()),
              HasSubstr("/absent/model.safetensors: cannot create: No such file or directory"));
  fs::create_directories(output + "/model.safetensors");
  EXPECT_THAT(std::string(MakeWorker(MakeConfig(output), 0, 1).status().message()), HasSubstr("is a directory"));
}

TEST_F(LateFailuresTest, AnEvaluationHasEveryMetricByItsNameOverTheWholeTestSet) {
  constexpr std::int64_t kTestSamples = 1200;  // three batches, the last smaller than the others: 1 + 2 + 3 = 6
  struct Case {
    std::vector<std::string> metrics;
    std::optional<double> accuracy;
  };
  for (const Case& test : {Case{{}, std::nullopt}, Case{{"MeanAbsoluteError"}, std::nullopt},
                           Case{{"Top5Accuracy", "BinaryAccuracy", "Accuracy"}, 12.0 / kTestSamples}}) {
    v1::TrainingConfig config = MakeConfig("");
    config.set_evaluate(true);
    ASSERT_NO_FATAL_FAILURE(StartServers(config));
    worker::WorkerProcessOptions options;
    options.config = config;
    options.coordinator = coordinator_->address();
    const auto worker = worker::WorkerProcess::Create(
        options, std::make_unique<Zeros>(), std::make_unique<Zeros>(std::vector<std::int64_t>{1}, kTestSamples),
        std::make_unique<PlantedModel>(1, test.metrics));
    ASSERT_TRUE(worker.ok()) << worker.status();
    const Running running(worker->get());
    const v1::ProgressReply end = AwaitEnd();
    Finish();
    ASSERT_EQ(end.evaluations_size(), 1);
    const v1::Evaluation& evaluation = end.evaluations(0);
    EXPECT_EQ(evaluation.samples(), kTestSamples);
    EXPECT_DOUBLE_EQ(evaluation.loss(), 60.0 / kTestSamples);
    EXPECT_EQ(evaluation.has_accuracy(), test.accuracy.has_value());
    EXPECT_DOUBLE_EQ(evaluation.accuracy(), test.accuracy.value_or(0));
    ASSERT_EQ(evaluation.metrics_size(), std::ssize(test.metrics));
    for (int i = 0; i < evaluation.metrics_size(); ++i) {
      EXPECT_EQ(evaluation.metrics(i).name(), test.metrics[static_cast<std::size_t>(i)]);
      EXPECT_DOUBLE_EQ(evaluation.metrics(i).value(), 6.0 * (i + 1) / kTestSamples);
    }
  }
}

// A data set of two samples of one pixel in the format of MNIST.
void WriteSplit(const std::string& folder, const std::string& prefix) {
  const auto write = [&](const std::string& name, std::string bytes) {
    std::ofstream(folder + "/" + prefix + name, std::ios::binary) << bytes;
  };
  std::string images{"\0\0\10\3\0\0\0\2\0\0\0\34\0\0\0\34", 16};
  write("-images-idx3-ubyte", images + std::string(std::size_t{2} * 28 * 28, '\7'));
  write("-labels-idx1-ubyte", std::string{"\0\0\10\1\0\0\0\2\1\2", 10});
}

TEST_F(LateFailuresTest, TheTestSetIsReadBeforeTrainingAndOnlyWhereItIsUsed) {
  worker::WorkerProcessOptions options;
  options.config = MakeConfig(Folder("output"));
  options.config.mutable_model()->set_name("MLP");
  options.config.set_device(v1::DEVICE_CPU);
  options.config.set_threads(1);
  options.config.mutable_dataset()->set_format("IDX");
  options.config.mutable_dataset()->set_path(Folder("data"));
  options.coordinator = "127.0.0.1:1";
  WriteSplit(Folder("data"), "train");
  const auto error = [&options](bool evaluate) {
    options.config.set_evaluate(evaluate);
    return std::string(worker::WorkerProcess::Create(options).status().message());
  };
  EXPECT_EQ(error(false), "") << "nobody reads it";
  EXPECT_THAT(error(true), HasSubstr("t10k-images-idx3-ubyte"));
  WriteSplit(Folder("data"), "t10k");
  EXPECT_EQ(error(true), "");
  fs::resize_file(Folder("data") + "/t10k-images-idx3-ubyte", 1000);
  EXPECT_THAT(error(true), HasSubstr("truncated"));
  EXPECT_EQ(error(false), "");
}

TEST_F(LateFailuresTest, ATestSetOfOtherFieldsIsRefusedBeforeTraining) {
  worker::WorkerProcessOptions options;
  options.config = MakeConfig("");
  options.config.set_evaluate(true);
  options.config.mutable_dataset()->set_path("/data");
  const auto worker = worker::WorkerProcess::Create(options, std::make_unique<Zeros>(),
                                                    std::make_unique<Zeros>(std::vector<std::int64_t>{1, 2}),
                                                    std::make_unique<PlantedModel>(1));
  EXPECT_EQ(
      worker.status().message(),
      "/data: samples of the test set have inputs {value: fp32 [1, 2]}, targets {label: i64 [] below 1}, those of "
      "the training set inputs {value: fp32 [1]}, targets {label: i64 [] below 1}");
}

}  // namespace
}  // namespace downpour
