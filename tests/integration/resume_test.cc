// A job with one worker that ends and goes on from its checkpoint computes the bits of one that was never interrupted:
// with each optimizer, in each mode, on other numbers of ps. The state machines of trainer/core and the files of
// trainer/checkpoint, in one thread.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "gtest/gtest.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/directory_store.h"
#include "trainer/checkpoint/job_store.h"
#include "trainer/checkpoint/manifest.h"
#include "trainer/checkpoint/testing/fake_file_system.h"
#include "trainer/core/coordinator.h"
#include "trainer/core/ps.h"
#include "trainer/core/testing/optimizers.h"
#include "trainer/core/worker.h"

namespace downpour {
namespace {

constexpr char kJobUid[] = "00112233445566778899aabbccddeeff";
constexpr char kStore[] = "/checkpoints";
constexpr std::uint32_t kSlices = 3;  // a tensor each
constexpr std::uint32_t kBuffer = 2;
constexpr std::uint32_t kElements = 300;  // a block of the codecs and a part of one
constexpr std::uint64_t kSamples = 50;
constexpr absl::Duration kTick = absl::Milliseconds(20);
constexpr int kPatience = 5000;  // ticks

// A value between -1 and 1 that each of `a`, `b` and `c` decides about.
float Noise(std::uint64_t a, std::uint64_t b, std::uint64_t c) {
  std::uint64_t x = (a << 40) ^ (b << 20) ^ c;
  x = (x + 0x9e3779b97f4a7c15u) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return static_cast<float>(x >> 40) / 8388608.0f - 1;
}

// Is to become the mean of what its samples are: where it is, and so the next gradient, is of all updates before and of
// their order.
class Model final : public core::WorkerHost {
 public:
  explicit Model(std::uint64_t* sessions) : sessions_(sessions) {}
  std::uint64_t NewSession() override { return ++*sessions_; }
  core::Payload InitialValue(std::uint32_t number, const core::Slice& slice) override {
    auto values = std::make_shared<std::vector<float>>(slice.elements);
    for (std::uint32_t i = 0; i < slice.elements; ++i) (*values)[i] = Noise(number, kSamples, i);
    return core::Payload::OfFloats(*values, values);
  }
  core::Payload Gradient(std::uint32_t number, const core::Slice&) override {
    return core::Payload::OfFloats(*gradients_[number], gradients_[number]);
  }
  void StoreValue(std::uint32_t number, const core::Slice&, const core::Payload& value) override {
    values_[number].resize(kElements);
    value.ForEachFloats([&](std::size_t first, absl::Span<const float> run) {
      std::copy(run.begin(), run.end(), values_[number].begin() + static_cast<std::ptrdiff_t>(first));
    });
  }
  core::ComputeResult Compute(const core::DataPlan& plan, const core::UpdateId& update) {
    const std::vector<std::int64_t> samples = plan.SampleIndices(update);
    for (std::uint32_t number = 0; number < kSlices; ++number) {
      auto gradient = std::make_shared<std::vector<float>>(kElements);
      for (std::uint32_t i = 0; i < kElements; ++i) {
        for (const std::int64_t sample : samples) {
          (*gradient)[i] += values_[number][i] - Noise(number, static_cast<std::uint64_t>(sample), i);
        }
        (*gradient)[i] /= static_cast<float>(samples.size()) * (number == kBuffer ? 10 : 1);
      }
      gradients_[number] = std::move(gradient);
    }
    core::ComputeResult result;
    const std::uint64_t seed = plan.UpdateSeed(update);
    if (seed % 9 == 0) result.verdict = core::Verdict::kSkip;
    if (seed % 3 == 0) result.factor = 0.375f;
    result.samples = samples.size();
    return result;
  }

 private:
  std::uint64_t* sessions_;
  std::map<std::uint32_t, std::vector<float>> values_;
  std::map<std::uint32_t, std::shared_ptr<std::vector<float>>> gradients_;
};

struct Gradients {
  core::FrameCodec codec = core::FrameCodec::kFp32;
  bool bf16_values = false;
};

// One thing after another, without faults but those that a test asks for. The worker computes an update a tick.
class Job {
 public:
  Job(v1::Mode mode, const v1::OptimizerConfig& optimizer, const Gradients& gradients)
      : gradients_(gradients), files_(1) {
    config_.set_job_uid(kJobUid);
    config_.set_job_name("job");
    config_.set_epochs(3);
    config_.set_batch_size(4);
    config_.set_updates_per_shard(3);
    config_.set_seed(7);
    config_.set_mode(mode);
    config_.set_workers(1);
    if (mode == v1::BOUNDED_STALENESS) config_.set_staleness(1);
    if (mode == v1::SYNCHRONOUS) config_.set_updates_per_step(3);
    *config_.mutable_optimizer() = optimizer;
    config_.mutable_checkpoint()->set_uri(kStore);
    config_.mutable_checkpoint()->set_interval_seconds(3600);
    for (std::uint32_t i = 0; i < kSlices; ++i) {
      v1::TensorSpec& tensor = tensors_.emplace_back();
      tensor.set_name(absl::StrCat("tensor", i));
      tensor.set_type(v1::FLOAT32);
      tensor.add_shape(kElements);
      if (i == kBuffer) tensor.set_kind(v1::BUFFER);
    }
  }

  void StartAll(std::uint32_t ps_count) {
    trained_.resize(at_cut_);  // the rest is lost
    config_.set_ps_replicas(ps_count);
    core::CoordinatorOptions options;
    options.config = config_;
    options.incarnation = ++coordinators_;
    coordinator_ = std::make_unique<core::CoordinatorCore>(options, now_);
    store_ = *checkpoint::JobStore::Create(
        config_, options.incarnation, [this](const std::string& uri) { return Open(uri); }, [] { return 0.0; });
    ps_.clear();
    for (std::uint32_t index = 0; index < ps_count; ++index) StartPs(index);
    StartWorker();
  }
  void LosePs(std::uint32_t index) {
    trained_.resize(at_cut_);
    work_.reset();
    StartPs(index);
  }
  // In the place of the one that there was, if there was one.
  void StartWorker() {
    core::WorkerOptions options;
    options.job_uid = kJobUid;
    options.process_incarnation = ++processes_;
    options.tensors = tensors_;
    options.sample_count = kSamples;
    options.sync_period = kTick;
    options.early_push_bytes = 1;
    options.codec = {gradients_.codec, 0.1};
    options.bf16_values = gradients_.bf16_values;
    calls_.clear();
    work_.reset();
    model_ = std::make_unique<Model>(&sessions_);
    worker_ = std::make_unique<core::WorkerCore>(options, model_.get());
    core::WorkerOutput output;
    worker_->Start(now_, &output);
    CarryOut(std::move(output));
  }

  void Train(std::size_t updates) {
    const std::size_t until = trained_.size() + updates;
    Go([&] { return trained_.size() >= until; });
  }
  // Makes a checkpoint; the worker has all of it applied and nothing else.
  void Cut() {
    v1::ProgressRequest wish;
    wish.set_checkpoint_request(absl::StrCat("checkpoint ", ++wishes_));
    coordinator_->ReportFailures(wish);
    cut_before_ = work_.has_value() ? work_->cut : 0;
    Go([&] {
      const v1::CheckpointProgress made = coordinator_->GetProgress(now_).checkpoint();
      return made.request() == wish.checkpoint_request() && made.request_state() == v1::REQUEST_DONE;
    });
    cut_before_.reset();
    at_cut_ = trained_.size();
    const auto checkpoints = checkpoint::ListCheckpoints(*Open(kStore));
    ASSERT_TRUE(checkpoints.ok()) << checkpoints.status();
    EXPECT_EQ(checkpoints->checkpoints.front().manifest.updates(), at_cut_);
  }
  void Finish() {
    Go([this] { return coordinator_->phase() == core::Phase::kDone; });
    EXPECT_EQ(coordinator_->GetProgress(now_).updates_applied(), trained_.size());
  }

  // In their order; without those that a loss undid.
  const std::vector<core::UpdateId>& trained() const { return trained_; }
  std::map<std::uint32_t, core::SliceSnapshot> NewestCheckpoint() {
    std::map<std::uint32_t, core::SliceSnapshot> slices;
    const std::unique_ptr<checkpoint::Store> store = Open(kStore);
    const checkpoint::ListedCheckpoint newest = checkpoint::ListCheckpoints(*store)->checkpoints.front();
    EXPECT_EQ(newest.manifest.updates(), trained_.size());
    const absl::Status read = checkpoint::ReadSlices(*store, newest.name, newest.manifest, {0, 1, 2},
                                                     [&slices](const core::SliceSnapshot& snapshot) {
                                                       slices[snapshot.number] = snapshot;
                                                       return absl::OkStatus();
                                                     });
    EXPECT_TRUE(read.ok()) << read;
    return slices;
  }

 private:
  std::unique_ptr<checkpoint::Store> Open(const std::string& uri) {
    return checkpoint::MakeDirectoryStore(files_, uri);
  }

  void StartPs(std::uint32_t index) {
    core::PsOptions options;
    options.job_uid = kJobUid;
    options.index = index;
    options.address = absl::StrCat("ps-", index);
    options.session = ++sessions_;
    options.process_incarnation = ++processes_;
    options.has_store = true;
    ps_[index] = *core::PsCore::Create(options);
  }

  void Go(const std::function<bool()>& until) {
    int ticks = 0;
    while (!until()) {
      ASSERT_LT(++ticks, kPatience) << coordinator_->GetProgress(now_).ShortDebugString();
      ASSERT_NO_FATAL_FAILURE(Tick());
    }
  }

  void Tick() {
    now_ += kTick;
    core::WorkerOutput output;
    for (const auto& [index, ps] : ps_) {
      if (!ps->ShouldRegister(now_)) continue;
      const absl::Status registered =
          ps->OnRegisterReply(coordinator_->OnRegisterPs(ps->MakeRegistration(), now_), now_);
      ASSERT_TRUE(registered.ok()) << registered;
    }
    for (const core::DirectCall& call : coordinator_->TakeDirectives(now_)) {
      core::PsCore& ps = *ps_.at(call.ps);
      const v1::DirectReply reply = ps.OnDirect(call.request, now_);
      Deliver(ps.TakeOwedReplies(), &output);
      coordinator_->OnDirectReply(call.call, reply, now_);
    }
    for (const core::StoreCall& call : coordinator_->TakeStoreCalls()) {
      coordinator_->OnStoreReply(call.call, store_->CarryOut(call), now_);
    }
    for (const auto& [index, ps] : ps_) ASSERT_NO_FATAL_FAILURE(UseStore(index, *ps));
    worker_->OnTimer(now_, &output);
    CarryOut(std::move(output));
    ASSERT_FALSE(worker_->finished().has_value()) << *worker_->finished();
    // A worker that is to wait does so at the first update behind the cut.
    if (work_.has_value() && !(cut_before_.has_value() && work_->cut > *cut_before_)) Compute();
  }

  void UseStore(std::uint32_t index, core::PsCore& ps) {
    const std::unique_ptr<checkpoint::Store> store = Open(kStore);
    if (const auto restore = ps.TakeRestore(); restore.has_value()) {
      const std::string& name = restore->source.checkpoint();
      const auto manifest = checkpoint::ReadManifest(*store, name);
      ASSERT_TRUE(manifest.ok()) << manifest.status();
      const absl::Status read = checkpoint::ReadSlices(
          *store, name, *manifest, restore->slices,
          [&](const core::SliceSnapshot& snapshot) { return ps.OnSliceRestored(restore->generation, snapshot); });
      ASSERT_TRUE(read.ok()) << read;
      ps.OnRestored(restore->generation, read);
    }
    if (const auto cut = ps.TakeCutToWrite(); cut.has_value()) {
      const checkpoint::PsCut part{cut->checkpoint, kJobUid, index, cut->tensors, cut->data, cut->slices};
      ps.OnCutWritten(cut->cut, checkpoint::WritePsFiles(*store, part, [&](std::uint32_t slice) {
                        return ps.TakeSnapshot(cut->cut, slice);
                      }));
    }
  }

  void Deliver(const std::vector<core::PsCore::DataReply>& replies, core::WorkerOutput* output) {
    for (const core::PsCore::DataReply& reply : replies) {
      const auto call = calls_.find(reply.call);
      if (call == calls_.end()) continue;  // of a worker before
      worker_->OnExchangeReply(call->second, reply.frames, now_, output);
      calls_.erase(call);
    }
  }

  void CarryOut(core::WorkerOutput output) {
    while (!output.syncs.empty() || !output.exchanges.empty() || output.work.has_value()) {
      core::WorkerOutput next;
      for (const core::SyncCall& call : output.syncs) {
        worker_->OnSyncReply(call.call, coordinator_->OnSyncWorker(call.request, now_), now_, &next);
      }
      for (const core::ExchangeCall& call : output.exchanges) {
        calls_[++next_call_] = call.call;
        std::vector<core::PsCore::DataReply> replies;
        ps_.at(call.ps)->OnData(next_call_, call.frames, &replies);
        Deliver(replies, &next);
      }
      if (output.work.has_value()) work_ = output.work;
      output = std::move(next);
    }
  }

  void Compute() {
    const core::Work work = *std::exchange(work_, std::nullopt);
    core::WorkerOutput output;
    if (work.kind != v1::TASK_TRAIN) {
      worker_->OnTaskDone(work.token, v1::TaskResult(), now_, &output);
      return CarryOut(std::move(output));
    }
    const core::ComputeResult result = model_->Compute(*worker_->plan(), work.update);
    trained_.push_back(work.update);
    for (std::uint32_t tensor = kSlices; tensor-- > 0 && result.verdict != core::Verdict::kSkip;) {
      worker_->OnGradient(work.token, tensor, now_, &output);
    }
    worker_->OnComputed(work.token, result, now_, &output);
    CarryOut(std::move(output));
  }

  const Gradients gradients_;
  v1::TrainingConfig config_;
  std::vector<v1::TensorSpec> tensors_;
  checkpoint::testing::FakeFileSystem files_;
  core::Time now_ = absl::Seconds(50);
  std::uint32_t coordinators_ = 0, processes_ = 0;
  std::uint64_t sessions_ = 0;
  std::unique_ptr<core::CoordinatorCore> coordinator_;
  std::unique_ptr<checkpoint::JobStore> store_;
  std::map<std::uint32_t, std::unique_ptr<core::PsCore>> ps_;
  std::unique_ptr<Model> model_;
  std::unique_ptr<core::WorkerCore> worker_;
  std::map<core::PsCore::CallId, std::uint64_t> calls_;  // the worker's number of it
  core::PsCore::CallId next_call_ = 0;
  std::optional<core::Work> work_;           // to be computed
  std::optional<std::uint32_t> cut_before_;  // nothing behind this one is computed
  int wishes_ = 0;
  std::vector<core::UpdateId> trained_;
  std::size_t at_cut_ = 0;
};

// All that the job learnt and remembers, bit for bit.
bool Same(Job& one, Job& other) {
  auto slices = one.NewestCheckpoint();
  auto others = other.NewestCheckpoint();
  bool same = one.trained() == other.trained() && slices.size() == kSlices;
  for (const auto& [number, slice] : slices) {
    const core::SliceSnapshot& of_other = others[number];
    same = same && core::testing::SameBits(*slice.value, *of_other.value) &&
           core::testing::SameState(slice.optimizer, of_other.optimizer) &&
           slice.table.ShortDebugString() == of_other.table.ShortDebugString();
  }
  return same;
}

constexpr v1::Mode kModes[] = {v1::ASYNC, v1::BOUNDED_STALENESS, v1::SYNCHRONOUS};

struct OptimizerCase {
  v1::OptimizerConfig optimizer;
  v1::Mode mode;
  bool bf16_values;
};

class ResumeTest : public ::testing::TestWithParam<OptimizerCase> {};

TEST_P(ResumeTest, ComputesTheBitsOfAJobThatWasNeverInterrupted) {
  const auto& [optimizer, mode, bf16_values] = GetParam();
  const Gradients gradients{core::FrameCodec::kFp32, bf16_values};
  Job whole(mode, optimizer, gradients);
  whole.StartAll(2);
  ASSERT_NO_FATAL_FAILURE(whole.Finish());

  Job job(mode, optimizer, gradients);
  int within_steps = 0;
  for (const std::uint32_t ps_count : {1, 3, 2}) {
    job.StartAll(ps_count);
    ASSERT_NO_FATAL_FAILURE(job.Train(4 + ps_count));
    ASSERT_NO_FATAL_FAILURE(job.Cut());
    core::OptimizerState remembered = job.NewestCheckpoint()[0].optimizer;
    within_steps += core::TakeVector(remembered, "step_sum") == nullptr ? 0 : 1;
    ASSERT_NO_FATAL_FAILURE(job.Train(2));
  }
  EXPECT_EQ(within_steps > 0, mode == v1::SYNCHRONOUS);
  job.LosePs(0);  // coordinator and worker go on
  ASSERT_NO_FATAL_FAILURE(job.Finish());
  EXPECT_TRUE(Same(whole, job));
}

std::string NameOf(const v1::OptimizerConfig& config) {
  return absl::StrCat(v1::OptimizerType_Name(config.type()),
                      config.has_schedule() ? absl::StrCat("_", v1::ScheduleType_Name(config.schedule().type())) : "",
                      config.compensation() == v1::COMPENSATION_ADAPTIVE ? "_ADAPTIVE" : "",
                      config.staleness_rule() == v1::STALENESS_GAP ? "_GAP" : "");
}

// The job has 39 updates.
v1::ScheduleConfig ScheduleOf(v1::ScheduleType type) {
  v1::ScheduleConfig schedule;
  schedule.set_type(type);
  schedule.set_gamma(0.8);
  if (type == v1::SCHEDULE_STEP) schedule.set_every_epochs(1);
  if (type == v1::SCHEDULE_EXPONENTIAL) schedule.set_every_updates(5);
  schedule.set_pct_start(0.3);
  schedule.set_div_factor(25);
  schedule.set_final_div_factor(1e4);
  schedule.mutable_warm_up()->set_updates(7);
  return schedule;
}

// As a manifest may have them: with a constant learning rate, and each optimizer with one of the schedules.
std::vector<OptimizerCase> EveryOptimizer() {
  std::vector<OptimizerCase> cases;
  for (const v1::OptimizerConfig& config : core::testing::AllConfigs()) {
    const bool of_late_gradients = config.staleness_aware() || config.type() == v1::DELAY_COMPENSATED_SGD;
    for (const v1::Mode mode : kModes) {
      if (mode == v1::SYNCHRONOUS && of_late_gradients) continue;
      for (const bool bf16_values : {false, true}) cases.push_back({config, mode, bf16_values});
      OptimizerCase scheduled{config, mode, false};
      const auto number = static_cast<int>(cases.size()) % (v1::ScheduleType_ARRAYSIZE - 1);
      *scheduled.optimizer.mutable_schedule() = ScheduleOf(static_cast<v1::ScheduleType>(1 + number));
      cases.push_back(scheduled);
    }
  }
  return cases;
}

INSTANTIATE_TEST_SUITE_P(Optimizers, ResumeTest, ::testing::ValuesIn(EveryOptimizer()), [](const auto& instance) {
  return absl::StrCat(NameOf(instance.param.optimizer), "_", v1::Mode_Name(instance.param.mode),
                      instance.param.bf16_values ? "_BF16_VALUES" : "");
});

TEST(ScheduledResumeTest, TheScheduleIsSeenInTheResult) {
  for (const v1::Mode mode : kModes) {
    v1::OptimizerConfig optimizer = core::testing::ConfigOf(v1::SGD);
    Job constant(mode, optimizer, Gradients());
    *optimizer.mutable_schedule() = ScheduleOf(v1::SCHEDULE_COSINE);
    Job scheduled(mode, optimizer, Gradients());
    for (Job* job : {&constant, &scheduled}) {
      job->StartAll(2);
      ASSERT_NO_FATAL_FAILURE(job->Finish());
    }
    EXPECT_FALSE(Same(constant, scheduled)) << v1::Mode_Name(mode);
  }
}

using CodecCase = std::tuple<core::FrameCodec, v1::Mode>;

class CodecResumeTest : public ::testing::TestWithParam<CodecCase> {};

// What a worker's codec has left out is in no checkpoint. A job that goes on from one is as if its worker had been
// killed right behind the cut, and nothing else is lost.
TEST_P(CodecResumeTest, CostsWhatAWorkerThatIsKilledCosts) {
  const auto& [codec, mode] = GetParam();
  const v1::OptimizerConfig optimizer = core::testing::ConfigOf(v1::ADAM);
  std::map<std::string, std::unique_ptr<Job>> jobs;
  for (const char* what : {"nothing", "worker", "ps", "everything"}) {
    jobs[what] = std::make_unique<Job>(mode, optimizer, Gradients{codec, false});
    jobs[what]->StartAll(2);
    ASSERT_NO_FATAL_FAILURE(jobs[what]->Train(7));
    ASSERT_NO_FATAL_FAILURE(jobs[what]->Cut());
  }
  jobs["worker"]->StartWorker();
  for (const char* what : {"ps", "everything"}) ASSERT_NO_FATAL_FAILURE(jobs[what]->Train(2));
  jobs["ps"]->LosePs(1);
  jobs["everything"]->StartAll(3);
  for (const auto& [what, job] : jobs) ASSERT_NO_FATAL_FAILURE(job->Finish()) << what;
  EXPECT_TRUE(Same(*jobs["worker"], *jobs["ps"]));
  EXPECT_TRUE(Same(*jobs["worker"], *jobs["everything"]));
  EXPECT_FALSE(Same(*jobs["worker"], *jobs["nothing"])) << "nothing was left out that could be lost";
}

std::string NameOf(core::FrameCodec codec) {
  constexpr const char* kNames[] = {"none", "fp32", "bf16", "int8", "topK", "oneBit"};
  return kNames[static_cast<int>(codec)];
}

INSTANTIATE_TEST_SUITE_P(Codecs, CodecResumeTest,
                         ::testing::Combine(::testing::Values(core::FrameCodec::kBf16, core::FrameCodec::kInt8,
                                                              core::FrameCodec::kTopK, core::FrameCodec::kOneBit),
                                            ::testing::ValuesIn(kModes)),
                         [](const auto& instance) {
                           return absl::StrCat(NameOf(std::get<0>(instance.param)), "_",
                                               v1::Mode_Name(std::get<1>(instance.param)));
                         });

}  // namespace
}  // namespace downpour
