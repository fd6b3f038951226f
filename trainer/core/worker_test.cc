#include "trainer/core/worker.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/core/ps.h"

namespace downpour::core {
namespace {

using ::testing::HasSubstr;

constexpr char kJobUid[] = "00112233445566778899aabbccddeeff";
constexpr std::uint64_t kPsSession = 77;
constexpr std::uint32_t kUpdates = 30;
constexpr std::int64_t kElements = 5;

std::vector<v1::TensorSpec> MakeTensors() {
  std::vector<v1::TensorSpec> tensors(3);
  for (std::size_t i = 0; i < tensors.size(); ++i) {
    tensors[i].set_name(absl::StrCat("tensor", i));
    tensors[i].set_type(v1::FLOAT32);
    tensors[i].add_shape(kElements);
  }
  return tensors;
}

v1::View MakeView(std::uint64_t generation = 1, std::uint32_t incarnation = 1) {
  v1::View view;
  view.mutable_stamp()->set_generation(generation);
  view.mutable_stamp()->set_incarnation(incarnation);
  view.mutable_stamp()->set_epoch(1);
  for (const v1::TensorSpec& tensor : MakeTensors()) {
    *view.add_tensors() = tensor;
    view.add_layout()->set_primary(0);
  }
  v1::PsMember* ps = view.add_ps();
  ps->set_address("ps:1");
  ps->set_session(kPsSession);
  view.mutable_data()->set_sample_count(kUpdates);
  view.mutable_data()->set_batch_size(1);
  view.mutable_data()->set_updates_per_shard(kUpdates);
  view.mutable_data()->set_epochs(1);
  view.mutable_optimizer()->set_type(v1::SGD);
  view.mutable_optimizer()->set_learning_rate(1);
  return view;
}

// Gradients of -1 everywhere; values start at 0.
class Host final : public WorkerHost {
 public:
  std::uint64_t NewSession() override { return ++sessions; }
  Payload InitialValue(std::uint32_t, const Slice& slice) override { return Constant(slice, 0); }
  Payload Gradient(std::uint32_t, const Slice& slice) override { return Constant(slice, -1); }
  void StoreValue(std::uint32_t number, const Slice&, const Payload& value) override {
    value.ForEachFloats([&](std::size_t, absl::Span<const float> run) { values[number] = run[0]; });
  }

  std::uint64_t sessions = 0;
  std::map<std::uint32_t, float> values;

 private:
  static Payload Constant(const Slice& slice, float value) {
    auto values = std::make_shared<const std::vector<float>>(slice.elements, value);
    return Payload::OfFloats(*values, values);
  }
};

// A worker with a real parameter server; the test plays the coordinator and the model.
class WorkerTest : public ::testing::Test {
 protected:
  WorkerTest() {
    MakePs();
    answer_ = [this](const v1::WorkerSyncRequest& request) { return Grant(request); };
  }

  // One without a history, that knows nobody.
  void MakePs() {
    PsOptions options;
    options.job_uid = kJobUid;
    options.session = kPsSession;
    ps_ = *PsCore::Create(options);
    member_ = 0;
    members_version_ = 0;
  }

  void MakeWorker(int skips_until_failure = 100, std::size_t early_push_bytes = 1) {
    WorkerOptions options;
    options.job_uid = kJobUid;
    options.tensors = MakeTensors();
    options.sample_count = kUpdates;
    options.skips_until_failure = skips_until_failure;
    options.early_push_bytes = early_push_bytes;
    worker_ = std::make_unique<WorkerCore>(options, &host_);
  }

  void Direct(const v1::View& view, std::vector<std::uint64_t> sessions) {
    v1::DirectRequest request;
    request.set_job_uid(kJobUid);
    request.set_session(kPsSession);
    *request.mutable_stamp() = view.stamp();
    *request.mutable_view() = view;
    request.set_members_version(++members_version_);
    for (const std::uint64_t session : sessions) request.add_sessions(session);
    ASSERT_EQ(ps_->OnDirect(request, now_).status(), v1::SYNC_OK);
  }

  // A coordinator with one data shard, and a ps that knows whoever calls.
  v1::WorkerSyncReply Grant(const v1::WorkerSyncRequest& request) {
    const v1::View view = MakeView(1, incarnation_);
    if (request.session() != member_) Direct(view, {request.session()});
    member_ = request.session();
    v1::WorkerSyncReply reply;
    reply.set_incarnation(incarnation_);
    *reply.mutable_view() = view;
    reply.set_initialise(!ps_->initialised());
    bool done = !request.failure().empty();
    for (const v1::HeldLease& held : request.held()) {
      done = done || (held.all_sent() && request.stats().state() == "waiting");  // and everything was answered
    }
    if (done) reply.set_status(v1::SYNC_FINISHED);
    v1::Lease* lease = reply.add_leases();
    lease->set_lease(member_);
    lease->set_kind(v1::TASK_TRAIN);
    lease->mutable_shard();
    return reply;
  }

  // Carries out what the worker asks for until it has work to compute, or nothing happens before its next timer.
  std::optional<Work> Carry(WorkerOutput output) {
    for (;;) {
      std::optional<Work> work = std::move(output.work);
      std::vector<WorkerOutput> next;
      for (SyncCall& call : output.syncs) {
        requests_.push_back(call.request);
        worker_->OnSyncReply(call.call, answer_(call.request), now_, &next.emplace_back());
      }
      for (ExchangeCall& call : output.exchanges) {
        for (const Frame& frame : call.frames) pulls_ += frame.header.kind == FrameKind::kPull ? 1 : 0;
        std::vector<PsCore::DataReply> replies;
        ps_->OnData(call.call, std::move(call.frames), &replies);
        for (PsCore::DataReply& reply : replies) {
          worker_->OnExchangeReply(reply.call, std::move(reply.frames), now_, &next.emplace_back());
        }
      }
      WorkerOutput merged;
      for (WorkerOutput& part : next) {
        for (SyncCall& call : part.syncs) merged.syncs.push_back(std::move(call));
        for (ExchangeCall& call : part.exchanges) merged.exchanges.push_back(std::move(call));
        if (part.work.has_value()) work = part.work;
      }
      if (work.has_value()) merged.work = work;
      if (merged.syncs.empty() && merged.exchanges.empty()) return merged.work;
      output = std::move(merged);
    }
  }

  // Runs until the worker is finished; `verdict` decides about each update. Each takes `update_time` to compute.
  void Run(const std::function<Verdict(const UpdateId&)>& verdict, absl::Duration update_time = absl::ZeroDuration()) {
    WorkerOutput output;
    worker_->Start(now_, &output);
    std::optional<Work> work = Carry(std::move(output));
    for (int step = 0; step < 2000 && !worker_->finished().has_value(); ++step) {
      WorkerOutput next;
      if (work.has_value()) {
        const Work current = *std::exchange(work, std::nullopt);
        ComputeResult result;
        result.verdict = verdict(current.update);
        result.samples = 1;
        result.loss = 2;
        now_ += update_time;
        // Some gradients are ready before the verdict is known, and leave.
        for (std::uint32_t tensor = 3; tensor-- > 1;) {
          WorkerOutput early;
          worker_->OnGradient(current.token, tensor, now_, &early);
          EXPECT_FALSE(Carry(std::move(early)).has_value());
        }
        worker_->OnComputed(current.token, result, now_, &next);
      } else {
        now_ = std::max(now_, worker_->next_timer());
        worker_->OnTimer(now_, &next);
      }
      work = Carry(std::move(next));
    }
    ASSERT_TRUE(worker_->finished().has_value());
  }

  Time now_ = absl::Seconds(50);
  std::uint32_t incarnation_ = 1;
  std::uint64_t member_ = 0;
  std::uint64_t members_version_ = 0;
  Host host_;
  std::unique_ptr<PsCore> ps_;
  std::unique_ptr<WorkerCore> worker_;
  std::function<v1::WorkerSyncReply(const v1::WorkerSyncRequest&)> answer_;
  std::vector<v1::WorkerSyncRequest> requests_;
  std::uint32_t pulls_ = 0;  // slices that were asked for without a push
};

TEST_F(WorkerTest, AnUpdateIsSkippedOnEverySliceOrOnNone) {
  for (std::uint32_t seed = 0; seed < 40; ++seed) {
    SCOPED_TRACE(seed);
    MakePs();
    std::mt19937 random(seed);
    // Gradients that leave one by one before the verdict, in heaps, or with it.
    MakeWorker(100, seed % 3 == 0 ? 1 : seed % 3 == 1 ? 2 * kElements * 4 : 1 << 20);
    std::uint32_t skips = 0;
    std::vector<bool> seen(kUpdates, false);
    ASSERT_NO_FATAL_FAILURE(Run([&](const UpdateId& update) {
      EXPECT_FALSE(seen[update.group]);
      seen[update.group] = true;
      const bool skip = random() % 3 == 0;
      skips += skip ? 1 : 0;
      return skip ? Verdict::kSkip : Verdict::kApply;
    }));
    EXPECT_TRUE(worker_->finished()->ok());
    EXPECT_EQ(worker_->stats().skipped(), skips);
    EXPECT_EQ(worker_->stats().steps(), kUpdates);
    EXPECT_EQ(std::count(seen.begin(), seen.end(), true), kUpdates);
    const v1::LedgerReply ledger = ps_->ReadLedger();
    ASSERT_EQ(ledger.slices_size(), 3);
    for (const v1::SliceLedger& slice : ledger.slices()) {
      EXPECT_EQ(slice.version(), kUpdates);
      EXPECT_EQ(slice.skipped(), skips);
      EXPECT_EQ((*ps_->value(slice.slice()))[0], static_cast<float>(kUpdates - skips));
      EXPECT_EQ(host_.values[slice.slice()], static_cast<float>(kUpdates - skips));
    }
    EXPECT_EQ(ps_->pending_bytes(), 0u);
  }
}

TEST_F(WorkerTest, LossAndRateAreSaidOnceTheyAreKnown) {
  for (const absl::Duration update_time : {absl::Milliseconds(100), absl::Seconds(5), absl::Seconds(40)}) {
    MakePs();
    requests_.clear();
    MakeWorker();
    Run([](const UpdateId& update) { return update.group == 0 ? Verdict::kSkip : Verdict::kApply; }, update_time);
    bool rate_known = false;
    for (const v1::WorkerSyncRequest& request : requests_) {
      const v1::WorkerStats& stats = request.stats();
      EXPECT_EQ(stats.has_loss(), stats.steps() > 1) << "the first update was skipped";
      if (stats.has_loss()) {
        EXPECT_DOUBLE_EQ(stats.loss(), 2);
      }
      if (!stats.has_samples_per_second()) continue;
      rate_known = true;
      EXPECT_GE(stats.steps(), 2u);
      EXPECT_NEAR(stats.samples_per_second(), 1 / absl::ToDoubleSeconds(update_time),
                  0.2 / absl::ToDoubleSeconds(update_time));
    }
    EXPECT_TRUE(rate_known);
  }
}

TEST_F(WorkerTest, FailsTheJobAfterSoManySkipsInARow) {
  MakeWorker(/*skips_until_failure=*/4);
  int updates = 0;
  // Three in a row are no failure; a finite one between starts the count again.
  ASSERT_NO_FATAL_FAILURE(Run([&](const UpdateId&) { return ++updates == 4 ? Verdict::kApply : Verdict::kSkip; }));
  EXPECT_EQ(updates, 8);
  EXPECT_THAT(requests_.back().failure(), HasSubstr("4 updates in a row"));
  for (std::size_t i = 0; i + 1 < requests_.size(); ++i) EXPECT_EQ(requests_[i].failure(), "");
}

TEST_F(WorkerTest, AViewThatDoesNotFitTheModelEndsIt) {
  const std::function<void(v1::View&)> spoilers[] = {
      [](v1::View& view) { view.mutable_tensors(1)->set_name("another"); },
      [](v1::View& view) { view.mutable_tensors(1)->set_shape(0, kElements + 1); },
      [](v1::View& view) { view.mutable_tensors(1)->add_shape(1); },
      [](v1::View& view) {
        view.mutable_tensors()->RemoveLast();
        view.mutable_layout()->RemoveLast();
      },
      [](v1::View& view) { view.mutable_layout()->RemoveLast(); },
      [](v1::View& view) { view.mutable_tensors(0)->set_type(v1::ELEMENT_UNSPECIFIED); },
      [](v1::View& view) { view.mutable_data()->set_batch_size(0); },
  };
  for (const auto& spoil : spoilers) {
    MakeWorker();
    answer_ = [&](const v1::WorkerSyncRequest&) {
      v1::WorkerSyncReply reply;
      *reply.mutable_view() = MakeView();
      spoil(*reply.mutable_view());
      return reply;
    };
    ASSERT_NO_FATAL_FAILURE(Run([](const UpdateId&) { return Verdict::kApply; }));
    EXPECT_EQ(worker_->finished()->code(), absl::StatusCode::kFailedPrecondition);
  }
}

TEST_F(WorkerTest, AnEndedSessionStartsAnewAndRunsItsUpdatesAgainWithoutApplyingThemTwice) {
  for (std::uint32_t at = 1; at < kUpdates; at += 7) {
    SCOPED_TRACE(at);
    MakePs();
    MakeWorker();
    const std::uint64_t session = worker_->session();
    answer_ = [&, ended = false](const v1::WorkerSyncRequest& request) mutable {
      if (!ended && request.stats().steps() >= at) {
        ended = true;
        v1::WorkerSyncReply reply;
        reply.set_incarnation(1);
        reply.set_status(v1::SYNC_SESSION_ENDED);
        return reply;
      }
      return Grant(request);
    };
    std::uint32_t computed = 0;
    ASSERT_NO_FATAL_FAILURE(Run([&](const UpdateId&) {
      now_ += absl::Milliseconds(100);  // so that it synchronises meanwhile
      ++computed;
      return Verdict::kApply;
    }));
    EXPECT_NE(worker_->session(), session);
    EXPECT_GT(computed, kUpdates);
    const v1::LedgerReply ledger = ps_->ReadLedger();
    for (const v1::SliceLedger& slice : ledger.slices()) EXPECT_EQ(slice.version(), kUpdates);
  }
}

// While it has none nobody waits for it: the values that came with its last pushes may be older than a bound allows.
TEST_F(WorkerTest, BeginsAnewWithNewestValuesAfterATimeWithoutALease) {
  for (const bool lapses : {false, true}) {
    MakePs();
    MakeWorker();
    int lapse = lapses ? 1 : 0;
    answer_ = [&](const v1::WorkerSyncRequest& request) {
      v1::WorkerSyncReply reply = Grant(request);
      if (request.stats().steps() >= 3 && lapse-- > 0) reply.clear_leases();
      return reply;
    };
    pulls_ = 0;
    ASSERT_NO_FATAL_FAILURE(Run([&](const UpdateId&) {
      now_ += absl::Milliseconds(100);  // so that it synchronises meanwhile
      return Verdict::kApply;
    }));
    EXPECT_GE(worker_->stats().steps(), kUpdates);
    EXPECT_EQ(pulls_, lapses ? 6u : 3u);
  }
}

TEST_F(WorkerTest, AnOlderCoordinatorIsNotHeard) {
  MakeWorker();
  incarnation_ = 3;
  int calls = 0;
  answer_ = [&](const v1::WorkerSyncRequest& request) {
    if (++calls > 1 && calls % 2 == 0) {  // every other answer comes from one that lives on
      v1::WorkerSyncReply reply;
      reply.set_incarnation(2);
      reply.set_status(v1::SYNC_REFUSED);
      return reply;
    }
    return Grant(request);
  };
  ASSERT_NO_FATAL_FAILURE(Run([&](const UpdateId&) {
    now_ += absl::Milliseconds(300);
    return Verdict::kApply;
  }));
  EXPECT_TRUE(worker_->finished()->ok()) << *worker_->finished();
  EXPECT_EQ(worker_->stats().steps(), kUpdates);
  EXPECT_GT(calls, 4);
}

// The address of a coordinator that is gone, which somebody else got.
v1::WorkerSyncReply AnotherJobs() {
  v1::WorkerSyncReply reply;
  reply.set_incarnation(7);
  reply.set_status(v1::SYNC_WRONG_JOB);
  reply.set_message("another job");
  return reply;
}

TEST_F(WorkerTest, AnotherJobsCoordinatorIsNotHeard) {
  MakeWorker();
  int calls = 0;
  answer_ = [&](const v1::WorkerSyncRequest& request) { return ++calls % 3 != 1 ? AnotherJobs() : Grant(request); };
  ASSERT_NO_FATAL_FAILURE(Run([&](const UpdateId&) {
    now_ += absl::Milliseconds(300);
    return Verdict::kApply;
  }));
  EXPECT_TRUE(worker_->finished()->ok()) << *worker_->finished();
  EXPECT_EQ(worker_->stats().steps(), kUpdates);
}

// Asked in the middle of an update, a worker finishes it, says goodbye and ends.
TEST_F(WorkerTest, LeavesAfterItsUpdate) {
  MakeWorker();
  std::uint32_t updates = 0;
  ASSERT_NO_FATAL_FAILURE(Run([&](const UpdateId&) {
    if (++updates == 3) {
      WorkerOutput output;
      worker_->Leave(now_, &output);
      EXPECT_FALSE(Carry(std::move(output)).has_value());
      EXPECT_FALSE(worker_->finished().has_value());
    }
    return Verdict::kApply;
  }));
  EXPECT_TRUE(worker_->finished()->ok()) << *worker_->finished();
  EXPECT_EQ(updates, 3u);
  EXPECT_EQ(worker_->stats().steps(), 3u);
  EXPECT_TRUE(requests_.back().leaving());
  EXPECT_EQ(requests_.back().wanted(), 0u);
  const v1::LedgerReply ledger = ps_->ReadLedger();
  for (const v1::SliceLedger& slice : ledger.slices()) EXPECT_EQ(slice.version(), 3u);
}

// Where nobody answers any more there is nothing to wait for.
TEST_F(WorkerTest, LeavingIsNotTriedTwice) {
  for (const bool coordinator_is_gone : {true, false}) {
    SCOPED_TRACE(coordinator_is_gone);
    MakePs();
    MakeWorker();
    WorkerOutput output;
    worker_->Start(now_, &output);
    std::optional<Work> work = Carry(std::move(output));
    ASSERT_TRUE(work.has_value());
    WorkerOutput leaving;
    worker_->Leave(now_, &leaving);
    EXPECT_FALSE(Carry(std::move(leaving)).has_value());
    WorkerOutput pushes;
    worker_->OnComputed(work->token, ComputeResult{}, now_, &pushes);
    ASSERT_FALSE(pushes.exchanges.empty());
    if (!coordinator_is_gone) {
      WorkerOutput last;
      worker_->OnExchangeReply(pushes.exchanges[0].call, absl::UnavailableError("gone"), now_, &last);
      EXPECT_TRUE(last.exchanges.empty());
    } else {
      WorkerOutput goodbye;
      for (ExchangeCall& call : pushes.exchanges) {
        std::vector<PsCore::DataReply> replies;
        ps_->OnData(call.call, std::move(call.frames), &replies);
        ASSERT_EQ(replies.size(), 1u);
        worker_->OnExchangeReply(call.call, std::move(replies[0].frames), now_, &goodbye);
      }
      for (SyncCall& call : pushes.syncs) goodbye.syncs.push_back(std::move(call));
      ASSERT_FALSE(goodbye.syncs.empty());
      WorkerOutput last;
      worker_->OnSyncReply(goodbye.syncs.back().call, absl::UnavailableError("gone"), now_, &last);
      EXPECT_TRUE(last.syncs.empty());
    }
    ASSERT_TRUE(worker_->finished().has_value());
    EXPECT_TRUE(worker_->finished()->ok());
  }
}

}  // namespace
}  // namespace downpour::core
