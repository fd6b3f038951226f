// Rings whose gradients, values and optimizers are where those of a GPU are, with the kernels of the host and NCCL's
// fake: the model is that of a ring on the host, bit for bit.
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "tests/integration/testing/finish_when_done.h"
#include "trainer/collective/fake_nccl.h"
#include "trainer/coordinator/server.h"
#include "trainer/cuda/device_kernels.h"
#include "trainer/cuda/testing/counting_kernels.h"
#include "trainer/data/dataset.h"
#include "trainer/model/model.h"
#include "trainer/worker/worker.h"

namespace downpour {
namespace {

using cuda::testing::CountingKernels;

constexpr char kJobUid[] = "0123456789abcdef0123456789abcdef";
constexpr std::int64_t kSamples = 512;
constexpr std::uint32_t kBatchSize = 16;
constexpr absl::Duration kPatience = absl::Seconds(50);
constexpr char kLayers[] = R"([{"type": "conv2d", "filters": 3, "kernel": 3}, {"type": "batchNorm"}, {"type": "relu"},
    {"type": "flatten"}, {"type": "dense", "units": 8}, {"type": "relu"}, {"type": "dense", "units": 3}])";

// Sample i is a function of i.
class Noise final : public data::Dataset {
 public:
  std::int64_t size() const override { return kSamples; }
  const data::SampleFields& fields() const override { return fields_; }
  absl::StatusOr<data::Batch> Read(absl::Span<const std::int64_t> indices,
                                   std::optional<std::uint64_t> /*seed*/) const override {
    const auto samples = static_cast<std::int64_t>(indices.size());
    data::Batch batch{{data::MakeArray(fields_.inputs[0], samples)}, {data::MakeArray(fields_.targets[0], samples)}};
    const absl::Span<float> values = batch.inputs[0].mutable_values<float>();
    const std::size_t each = values.size() / indices.size();
    for (std::size_t i = 0; i < indices.size(); ++i) {
      std::mt19937 random(static_cast<std::uint32_t>(indices[i]));
      for (std::size_t pixel = 0; pixel < each; ++pixel) {
        values[i * each + pixel] = static_cast<float>(random() % 1000) / 500.0f - 1.0f;
      }
      batch.targets[0].mutable_values<std::int64_t>()[i] = indices[i] % 3;
    }
    return batch;
  }

 private:
  const data::SampleFields fields_{{{"image", data::ElementType::kF32, {1, 8, 8}}},
                                   {{"label", data::ElementType::kI64, {}, 3}}};
};

struct Job {
  v1::OptimizerType type = v1::ADAM;
  double clip_norm = 0;
  std::uint32_t accumulate = 1;
  std::uint32_t updates_per_step = 2;
  bool bf16 = false;
};

// Where a worker has all that.
enum class Where { kHost, kKernels, kKernelsAndNccl };

v1::TrainingConfig ConfigOf(const Job& job, std::size_t workers, const std::string& directory) {
  v1::TrainingConfig config;
  config.set_job_uid(kJobUid);
  config.set_job_name("rings");
  config.set_epochs(2);
  config.set_batch_size(kBatchSize);
  config.set_accumulate(job.accumulate);
  config.set_updates_per_shard(4);
  config.set_seed(7);
  config.set_mode(v1::SYNCHRONOUS);
  config.set_updates_per_step(job.updates_per_step);
  config.set_workers(static_cast<std::uint32_t>(workers));
  config.set_clip_norm(job.clip_norm);
  v1::OptimizerConfig& optimizer = *config.mutable_optimizer();
  optimizer.set_type(job.type);
  optimizer.set_learning_rate(0.01);
  optimizer.set_momentum(0.9);
  optimizer.set_beta1(0.9);
  optimizer.set_beta2(0.999);
  optimizer.set_epsilon(1e-7);
  optimizer.set_weight_decay(0.01);
  if (job.bf16) config.mutable_codec()->set_push(v1::CODEC_BF16);
  config.mutable_all_reduce();
  config.set_output_directory(directory);
  return config;
}

// The model file. `communicators`: of NCCL's, that were made. `failing`: of the last worker, which is lost by it.
std::string Train(const Job& job, const std::vector<Where>& workers, std::int64_t* communicators = nullptr,
                  CountingKernels::Counts* failing = nullptr) {
  std::string directory = absl::StrCat(::testing::TempDir(), "/rings.XXXXXX");
  EXPECT_NE(mkdtemp(directory.data()), nullptr);
  core::CoordinatorOptions coordinator_options;
  coordinator_options.config = ConfigOf(job, workers.size(), directory);
  // A loaded machine must not change who is there.
  coordinator_options.lease = failing == nullptr ? absl::Seconds(30) : absl::Seconds(3);
  auto coordinator = coordinator::CoordinatorServer::Start(coordinator_options, "127.0.0.1:0", "");
  EXPECT_TRUE(coordinator.ok()) << coordinator.status();
  collective::FakeNccl nccl;
  {
    std::vector<std::unique_ptr<collective::FakeNcclDevice>> devices;
    std::vector<std::unique_ptr<worker::WorkerProcess>> processes;
    for (std::size_t index = 0; index < workers.size(); ++index) {
      worker::WorkerProcessOptions options;
      options.config = coordinator_options.config;
      options.index = static_cast<std::uint32_t>(index);
      options.coordinator = (*coordinator)->address();
      const bool fails = failing != nullptr && index + 1 == workers.size();
      if (workers[index] != Where::kHost) options.kernels = cuda::MakeHostKernels();
      if (fails) options.kernels = std::make_shared<CountingKernels>(failing);
      if (workers[index] == Where::kKernelsAndNccl) {
        devices.push_back(std::make_unique<collective::FakeNcclDevice>(&nccl));
        options.nccl = devices.back().get();
      }
      model::ModelOptions model_options;
      model_options.model.layers = kLayers;
      model_options.fields = Noise().fields();
      model_options.device = model::DeviceChoice::kCpu;
      model_options.seed = 7;
      auto model = model::CreateModel(model_options);
      EXPECT_TRUE(model.ok()) << model.status();
      auto process =
          worker::WorkerProcess::Create(std::move(options), std::make_unique<Noise>(), nullptr, *std::move(model));
      EXPECT_TRUE(process.ok()) << process.status();
      processes.push_back(*std::move(process));
    }
    std::vector<std::thread> threads;
    for (auto& process : processes) {
      threads.emplace_back([&process, fails = failing != nullptr && &process == &processes.back()] {
        const absl::Status finished = process->Run();
        if (!fails) {
          EXPECT_TRUE(finished.ok()) << finished;
          return;
        }
        EXPECT_EQ(finished.message(), "planted: the device is gone");
        process.reset();  // as a process that ends
      });
    }
    const absl::Status finished = downpour::testing::FinishWhenDone((*coordinator)->address(), kJobUid, kPatience);
    EXPECT_TRUE(finished.ok()) << finished;
    if (!finished.ok()) {
      for (const auto& process : processes) {
        if (process != nullptr) process->Leave();
      }
    }
    for (std::thread& thread : threads) thread.join();
    processes.clear();
    if (communicators != nullptr) *communicators = 0;
    for (const auto& device : devices) {
      if (communicators != nullptr) *communicators += device->Count("CommInitRank");
    }
  }
  EXPECT_EQ(nccl.Complaints() + nccl.Leaks(), "");
  std::ifstream file(absl::StrCat(directory, "/model.safetensors"), std::ios::binary);
  std::string bytes((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  std::filesystem::remove_all(directory);
  EXPECT_GT(bytes.size(), 1000u);
  return bytes;
}

std::vector<Job> Jobs() {
  return {{v1::ADAM, 0.1, 1, 2, false},
          {v1::MOMENTUM, 0, 3, 2, false},
          {v1::ADAM_W, 0.1, 1, 4, true},
          {v1::LAMB, 0.1, 1, 2, false}};  // which has no kernel
}

TEST(DeviceRingsTest, OneWorkerTrainsAsOnTheHost) {
  for (const Job& job : Jobs()) {
    SCOPED_TRACE(v1::OptimizerType_Name(job.type));
    const std::string expected = Train(job, {Where::kHost});
    EXPECT_TRUE(Train(job, {Where::kKernels}) == expected);
    std::int64_t communicators = 0;
    EXPECT_TRUE(Train(job, {Where::kKernelsAndNccl}, &communicators) == expected);
    EXPECT_EQ(communicators, 0) << "one worker sums nothing";
  }
}

TEST(DeviceRingsTest, SeveralTrainAsOnTheHostWhateverEachOfThemHas) {
  for (const Job& job : Jobs()) {
    SCOPED_TRACE(v1::OptimizerType_Name(job.type));
    const std::string expected = Train(job, {Where::kHost, Where::kHost});
    EXPECT_TRUE(Train(job, {Where::kKernels, Where::kKernels}) == expected);
    EXPECT_TRUE(Train(job, {Where::kHost, Where::kKernels}) == expected);
    EXPECT_TRUE(Train(job, {Where::kKernelsAndNccl, Where::kKernels}) == expected);
  }
}

// Of two values there is one sum, whatever adds them, in float32.
TEST(DeviceRingsTest, SeveralTrainByNcclAsByTcp) {
  for (const Job& job : Jobs()) {
    if (job.bf16) continue;
    SCOPED_TRACE(v1::OptimizerType_Name(job.type));
    const std::string expected = Train(job, {Where::kHost, Where::kHost});
    std::int64_t communicators = 0;
    EXPECT_TRUE(Train(job, {Where::kKernelsAndNccl, Where::kKernelsAndNccl}, &communicators) == expected);
    EXPECT_EQ(communicators, job.type == v1::LAMB ? 0 : 2);
  }
}

// In the middle of a step, at whatever it is that fails first: what goes through the host for its sum breaks the ring,
// and the next step ends the worker.
TEST(DeviceRingsTest, ADeviceThatFailsEndsItsWorkerAndTheOtherGoesOn) {
  const Job job{v1::MOMENTUM, 0, 1, 2, false};
  const std::string expected = Train(job, {Where::kHost, Where::kHost});
  for (const int call : {300, 304, 309}) {
    SCOPED_TRACE(call);
    CountingKernels::Counts failing;
    failing.fails_at = call;
    failing.stays = true;
    EXPECT_TRUE(Train(job, {Where::kKernels, Where::kKernels}, nullptr, &failing) == expected);
    EXPECT_GT(failing.calls, call);
    EXPECT_EQ(failing.held, 0);
  }
}

}  // namespace
}  // namespace downpour
