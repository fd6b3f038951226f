#include "trainer/core/worker.h"

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/core/codec/codec.h"
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
    WorkerOptions& options = worker_options_ = WorkerOptions();
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

  // From now on the coordinator grants as ever, and once `moved` is set in another epoch of the view, which `edit`
  // makes another layout.
  void MoveWhen(const bool& moved, std::function<void(v1::View*)> edit) {
    answer_ = [this, &moved, edit = std::move(edit)](const v1::WorkerSyncRequest& request) {
      v1::WorkerSyncReply reply = Grant(request);
      if (!moved) return reply;
      reply.mutable_view()->mutable_stamp()->set_epoch(2);
      edit(reply.mutable_view());
      return reply;
    };
  }

  // Starts the worker; the work that it has before long, if any.
  std::optional<Work> FirstWork() {
    WorkerOutput output;
    worker_->Start(now_, &output);
    std::optional<Work> work = Carry(std::move(output));
    for (int i = 0; i < 50 && !work.has_value(); ++i) {
      WorkerOutput next;
      now_ = std::max(now_, worker_->next_timer());
      worker_->OnTimer(now_, &next);
      work = Carry(std::move(next));
    }
    return work;
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
        fetched_ = current.fetched;
        result.verdict = verdict(current.update);
        result.factor = factor_;
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

  WorkerOptions worker_options_;
  float factor_ = 1;
  bool fetched_ = true;  // of the work under way
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

TEST_F(WorkerTest, KnowsTheUpdatesThatFollow) {
  MakeWorker();
  EXPECT_TRUE(worker_->NextUpdates(3).empty());
  ASSERT_NO_FATAL_FAILURE(Run([&](const UpdateId& update) {
    const std::vector<UpdateId> next = worker_->NextUpdates(3);
    EXPECT_EQ(next.size(), std::min<std::size_t>(3, kUpdates - 1 - update.group)) << update.group;
    for (std::size_t i = 0; i < next.size(); ++i) {
      EXPECT_EQ(next[i], (UpdateId{0, 0, update.group + 1 + static_cast<std::uint32_t>(i)}));
    }
    return Verdict::kApply;
  }));
}

TEST_F(WorkerTest, TheFactorGoesWithTheVerdictToWhateverWasPushedBefore) {
  factor_ = 0.5f;
  for (const std::size_t early : {std::size_t{1}, std::size_t{2 * kElements * 4}, std::size_t{1} << 20}) {
    MakePs();
    MakeWorker(100, early);
    ASSERT_NO_FATAL_FAILURE(
        Run([](const UpdateId& update) { return update.group % 3 == 0 ? Verdict::kSkip : Verdict::kApply; }));
    const std::uint32_t applied = kUpdates - (kUpdates + 2) / 3;
    for (std::uint32_t slice = 0; slice < 3; ++slice) {
      EXPECT_EQ((*ps_->value(slice))[0], 0.5f * static_cast<float>(applied)) << early;
    }
  }
}

TEST_F(WorkerTest, NewValuesAreTakenBeforeEveryNthUpdateAndAfterOneThatWasSkipped) {
  for (std::uint32_t every = 1; every <= 4; ++every) {
    MakePs();
    MakeWorker();
    worker_options_.fetch_every = every;
    worker_ = std::make_unique<WorkerCore>(worker_options_, &host_);
    std::uint32_t since = 0;
    ASSERT_NO_FATAL_FAILURE(Run([&](const UpdateId& update) {
      EXPECT_EQ(fetched_, since % every == 0) << "update " << update.group << " of every " << every;
      if (fetched_) {
        EXPECT_EQ(host_.values[0], (*ps_->value(0))[0]);
      }
      ++since;
      if (update.group % 7 != 3) return Verdict::kApply;
      since = 0;
      return Verdict::kSkip;
    }));
    EXPECT_TRUE(worker_->finished()->ok());
    EXPECT_EQ(worker_->stats().steps(), kUpdates);
    EXPECT_EQ(worker_->stats().staleness(), 0) << "updates of its own";
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

// It keeps its leases and what it has done of them; what it had begun it does again, with new values.
TEST_F(WorkerTest, GoesOnWithItsLeasesInAnotherMode) {
  for (std::uint32_t at = 1; at < kUpdates; at += 7) {
    SCOPED_TRACE(at);
    MakePs();
    MakeWorker();
    std::uint32_t epoch = 1;
    answer_ = [&](const v1::WorkerSyncRequest& request) {
      v1::WorkerSyncReply reply = Grant(request);
      if (epoch == 1 && request.stats().steps() >= at) {
        epoch = 2;
        v1::View view = MakeView(1, incarnation_);
        view.mutable_stamp()->set_epoch(2);
        view.set_mode_epoch(2);
        view.set_mode(v1::SYNCHRONOUS);
        view.set_updates_per_step(3);
        Direct(view, {member_});
      }
      if (epoch == 1) return reply;
      *reply.mutable_view() = ps_->view();
      return reply;
    };
    const std::uint64_t session = worker_->session();
    std::map<std::uint32_t, std::uint32_t> computed;  // by group: how often
    ASSERT_NO_FATAL_FAILURE(Run([&](const UpdateId& update) {
      now_ += absl::Milliseconds(100);  // so that it synchronises meanwhile
      ++computed[update.group];
      return Verdict::kApply;
    }));
    EXPECT_EQ(worker_->session(), session);
    EXPECT_EQ(worker_->epoch(), 2u);
    std::uint32_t again = 0;
    for (const auto& [group, times] : computed) again += times - 1;
    EXPECT_LE(again, 1u);
    EXPECT_LT(worker_->clock(), kUpdates) << "counts from the change on";
    const v1::LedgerReply ledger = ps_->ReadLedger();
    for (const v1::SliceLedger& slice : ledger.slices()) EXPECT_EQ(slice.version(), kUpdates);
  }
}

// Each evaluation that is counted makes another view, while others may be under way.
TEST_F(WorkerTest, ATaskThatHasItsValuesGoesOnUnderAnotherView) {
  MakeWorker();
  ASSERT_NO_FATAL_FAILURE(Run([](const UpdateId&) { return Verdict::kApply; }));  // the values are there by then
  MakeWorker();
  std::uint32_t epoch = 1;
  answer_ = [&](const v1::WorkerSyncRequest& request) {
    v1::WorkerSyncReply reply = Grant(request);
    reply.set_status(v1::SYNC_OK);
    reply.mutable_leases(0)->set_kind(v1::TASK_EVALUATE);
    v1::View view = MakeView(1, incarnation_);
    view.mutable_stamp()->set_epoch(epoch);
    view.set_mode_epoch(epoch);
    if (epoch != ps_->view().stamp().epoch()) Direct(view, {member_});
    *reply.mutable_view() = view;
    return reply;
  };
  const std::optional<Work> work = FirstWork();
  ASSERT_TRUE(work.has_value());
  ASSERT_EQ(work->kind, v1::TASK_EVALUATE);
  epoch = 2;
  for (int i = 0; i < 50 && worker_->epoch() != 2; ++i) {
    WorkerOutput next;
    now_ = std::max(now_, worker_->next_timer());
    worker_->OnTimer(now_, &next);
    EXPECT_FALSE(Carry(std::move(next)).has_value()) << "it has that at hand";
  }
  ASSERT_EQ(worker_->epoch(), 2u);
  WorkerOutput next;
  v1::TaskResult result;
  result.set_loss(0.5);
  worker_->OnTaskDone(work->token, result, now_, &next);
  Carry(std::move(next));
  ASSERT_EQ(requests_.back().results_size(), 1);
  EXPECT_EQ(requests_.back().results(0).loss(), 0.5);
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

// A worker that encodes: 300 elements a tensor, the last of which is a buffer, gradients of its own making, and a ps
// that the test asks what it was pushed.
class CodecWorkerTest : public ::testing::Test {
 protected:
  static constexpr std::uint32_t kSize = 300;

  // The gradients of an update that is computed twice are the same.
  struct Model final : public WorkerHost {
    std::uint64_t NewSession() override { return ++sessions; }
    Payload InitialValue(std::uint32_t, const Slice& slice) override {
      return Floats(std::vector<float>(slice.elements, 1.0f / 3));
    }
    Payload Gradient(std::uint32_t number, const Slice& slice) override {
      EXPECT_EQ(slice.elements, kSize);
      return Floats(GradientOf(update, number));
    }
    static std::vector<float> GradientOf(const UpdateId& update, std::uint32_t number) {
      std::mt19937 random(update.group * 100 + number);
      std::normal_distribution<float> normal(0.01f, 1);
      std::vector<float> values(kSize);
      for (float& value : values) value = normal(random);
      return values;
    }
    void StoreValue(std::uint32_t number, const Slice& slice, const Payload& value) override {
      std::vector<float>& kept = values[number];
      kept.resize(slice.elements);
      Decode(FrameCodec::kFp32, value, absl::MakeSpan(kept));
    }
    static Payload Floats(std::vector<float> values) {
      auto owner = std::make_shared<const std::vector<float>>(std::move(values));
      return Payload::OfFloats(*owner, owner);
    }

    std::uint64_t sessions = 0;
    UpdateId update;
    std::map<std::uint32_t, std::vector<float>> values;
  };

  CodecWorkerTest() {
    view_ = MakeView();
    for (int i = 0; i < 3; ++i) {
      view_.mutable_tensors(i)->set_shape(0, kSize);
      if (i == kBuffer) view_.mutable_tensors(i)->set_kind(v1::BUFFER);
    }
    PsOptions ps;
    ps.job_uid = kJobUid;
    ps.session = kPsSession;
    ps_ = *PsCore::Create(ps);
  }

  void Begin(FrameCodec codec, bool bf16_values = false) {
    WorkerOptions options;
    options.job_uid = kJobUid;
    options.tensors = {view_.tensors().begin(), view_.tensors().end()};
    options.sample_count = kUpdates;
    options.early_push_bytes = 1;
    options.codec = {codec, 0.1};
    options.bf16_values = bf16_values;
    worker_ = std::make_unique<WorkerCore>(options, &model_);
    WorkerOutput output;
    worker_->Start(now_, &output);
    Carry(std::move(output));
    Wait();
  }

  // The coordinator's part.
  void Answer(const SyncCall& call, WorkerOutput* next) {
    v1::WorkerSyncReply reply;
    reply.set_incarnation(1);
    if (std::exchange(end_session_, false)) {
      reply.set_status(v1::SYNC_SESSION_ENDED);
    } else {
      if (call.request.session() != member_) {
        member_ = call.request.session();
        v1::DirectRequest request;
        request.set_job_uid(kJobUid);
        request.set_session(kPsSession);
        *request.mutable_stamp() = view_.stamp();
        *request.mutable_view() = view_;
        request.set_members_version(++members_version_);
        request.add_sessions(member_);
        ASSERT_EQ(ps_->OnDirect(request, now_).status(), v1::SYNC_OK);
      }
      *reply.mutable_view() = view_;
      reply.set_initialise(!ps_->initialised());
      v1::Lease* lease = reply.add_leases();
      lease->set_lease(member_ * 10 + static_cast<std::uint64_t>(kind_));
      lease->set_kind(kind_);
      lease->mutable_shard();
    }
    worker_->OnSyncReply(call.call, reply, now_, next);
  }

  // Until nothing is left to do at this time. Exchanges on which `lose_` says so are carried out without an answer.
  void Carry(WorkerOutput output) {
    std::vector<WorkerOutput> queue;
    queue.push_back(std::move(output));
    for (std::size_t i = 0; i < queue.size(); ++i) {
      WorkerOutput current = std::move(queue[i]);
      if (current.work.has_value()) {
        work_ = current.work;
        model_.update = work_->update;
      }
      for (const SyncCall& call : current.syncs) {
        WorkerOutput next;
        Answer(call, &next);
        queue.push_back(std::move(next));
      }
      for (ExchangeCall& call : current.exchanges) {
        for (const Frame& frame : call.frames) Note(frame);
        std::vector<PsCore::DataReply> replies;
        const bool lost = lose_ && lose_(call.frames);
        if (lost && drop_requests_) {
          WorkerOutput next;
          worker_->OnExchangeReply(call.call, absl::UnavailableError("lost"), now_, &next);
          queue.push_back(std::move(next));
          continue;
        }
        ps_->OnData(call.call, std::move(call.frames), &replies);
        for (PsCore::DataReply& reply : replies) {
          WorkerOutput next;
          if (lost && reply.call == call.call) {
            worker_->OnExchangeReply(reply.call, absl::UnavailableError("lost"), now_, &next);
          } else {
            worker_->OnExchangeReply(reply.call, std::move(reply.frames), now_, &next);
          }
          queue.push_back(std::move(next));
        }
      }
    }
  }

  // Of each push: what it carries, and that a push that comes again carries the same.
  void Note(const Frame& frame) {
    if (frame.header.kind == FrameKind::kInitialise) {
      EXPECT_EQ(frame.header.codec, FrameCodec::kFp32);
    }
    if (frame.header.kind == FrameKind::kPull || frame.header.kind == FrameKind::kPush) {
      asked_bf16_[frame.header.slice] = frame.header.want_bf16;
    }
    if (frame.header.kind != FrameKind::kPush || frame.payload.size() == 0) return;
    std::vector<std::uint8_t> bytes;
    for (const auto& segment : frame.payload.segments()) bytes.insert(bytes.end(), segment.begin(), segment.end());
    const auto key = std::make_tuple(frame.header.session, frame.header.update, frame.header.slice);
    const auto [known, fresh] = pushed_.try_emplace(key, bytes);
    if (!fresh) {
      ++again_;
      EXPECT_EQ(known->second, bytes);
    }
    codecs_[frame.header.update.group][frame.header.slice] = frame.header.codec;
  }

  // Computes the update at hand, and lets time pass until the next one, or the end.
  void Step(Verdict verdict, bool leave_between = false) {
    ASSERT_TRUE(work_.has_value());
    const Work work = *std::exchange(work_, std::nullopt);
    for (const std::uint32_t tensor : {2u, 1u}) {
      WorkerOutput early;
      worker_->OnGradient(work.token, tensor, now_, &early);
      Carry(std::move(early));
    }
    if (leave_between) Leave();
    if (verdict == Verdict::kApply) {
      for (std::uint32_t number = 0; number < 3; ++number) {
        const std::vector<float> gradient = Model::GradientOf(work.update, number);
        for (std::size_t i = 0; i < kSize; ++i) expected_[number][i] -= gradient[i];
      }
    }
    ComputeResult result;
    result.verdict = verdict;
    result.samples = 1;
    WorkerOutput output;
    worker_->OnComputed(work.token, result, now_, &output);
    Carry(std::move(output));
    Wait();
  }
  void Wait() {
    for (int i = 0; i < 100 && !work_.has_value() && !worker_->finished().has_value(); ++i) {
      now_ = std::max(now_, worker_->next_timer());
      WorkerOutput output;
      worker_->OnTimer(now_, &output);
      Carry(std::move(output));
    }
  }
  void Leave() {
    WorkerOutput output;
    worker_->Leave(now_, &output);
    Carry(std::move(output));
  }
  // That the ps has all that the gradients were, but for rounding.
  void ExpectAllApplied() {
    for (std::uint32_t number = 0; number < 3; ++number) {
      const std::vector<float>& value = *ps_->value(number);
      for (std::size_t i = 0; i < kSize; ++i) ASSERT_NEAR(value[i], expected_[number][i], 1e-4) << number << " " << i;
    }
  }

  static constexpr int kBuffer = 2;
  Time now_ = absl::Seconds(50);
  v1::View view_;
  Model model_;
  std::unique_ptr<PsCore> ps_;
  std::unique_ptr<WorkerCore> worker_;
  std::optional<Work> work_;
  std::uint64_t member_ = 0;
  std::uint64_t members_version_ = 0;
  v1::TaskKind kind_ = v1::TASK_TRAIN;
  bool end_session_ = false;
  std::function<bool(const std::vector<Frame>&)> lose_;
  bool drop_requests_ = false;
  int again_ = 0;
  std::map<std::tuple<std::uint64_t, UpdateId, std::uint32_t>, std::vector<std::uint8_t>> pushed_;
  std::map<std::uint32_t, std::map<std::uint32_t, FrameCodec>> codecs_;  // by update and slice
  std::map<std::uint32_t, bool> asked_bf16_;
  std::vector<std::vector<double>> expected_ =
      std::vector<std::vector<double>>(3, std::vector<double>(kSize, 1.0f / 3));
};

// Through skipped updates and lost answers: the same bytes come again, and what leaves with the last update makes the
// sum whole.
class LossyWorkerTest : public CodecWorkerTest, public ::testing::WithParamInterface<FrameCodec> {};

TEST_P(LossyWorkerTest, LosesNothingThroughSkipsAndRetries) {
  std::mt19937 random(3);
  lose_ = [&](const std::vector<Frame>& frames) {
    return frames.front().header.kind != FrameKind::kInitialise && random() % 4 == 0;
  };
  Begin(GetParam());
  for (int step = 0; step < 20; ++step) {
    drop_requests_ = step % 2 == 0;
    ASSERT_NO_FATAL_FAILURE(Step(step % 5 == 3 ? Verdict::kSkip : Verdict::kApply));
  }
  EXPECT_GT(again_, 5);
  EXPECT_EQ(codecs_[0][0], GetParam());
  EXPECT_EQ(codecs_[0][kBuffer], FrameCodec::kFp32);
  EXPECT_GT(worker_->stats().push_bytes_saved(), 0u);
  EXPECT_EQ(worker_->stats().samples(), 20u) << "also those whose answers were lost";
  EXPECT_EQ(worker_->stats().duplicates(), 0u);
  lose_ = nullptr;
  Leave();
  ASSERT_NO_FATAL_FAILURE(Step(Verdict::kApply));
  for (std::uint32_t number = 0; number < 3; ++number) EXPECT_EQ(codecs_[20][number], FrameCodec::kFp32);
  ASSERT_TRUE(worker_->finished().has_value());
  ExpectAllApplied();
}

INSTANTIATE_TEST_SUITE_P(Codecs, LossyWorkerTest,
                         ::testing::Values(FrameCodec::kBf16, FrameCodec::kInt8, FrameCodec::kTopK,
                                           FrameCodec::kOneBit));

// Asked to leave when some slices were encoded already, it does one more update.
TEST_F(CodecWorkerTest, OneMoreUpdateWhereSomethingWasEncodedAlready) {
  Begin(FrameCodec::kTopK);
  EXPECT_FALSE(work_->flushes);
  ASSERT_NO_FATAL_FAILURE(Step(Verdict::kApply));
  ASSERT_NO_FATAL_FAILURE(Step(Verdict::kApply, /*leave_between=*/true));
  EXPECT_EQ(codecs_[1][0], FrameCodec::kFp32) << "had not left yet";
  EXPECT_EQ(codecs_[1][1], FrameCodec::kTopK);
  ASSERT_TRUE(work_.has_value());
  EXPECT_TRUE(work_->flushes) << "whoever encodes in backward knows by then";
  ASSERT_NO_FATAL_FAILURE(Step(Verdict::kApply));
  EXPECT_EQ(codecs_[2][1], FrameCodec::kFp32);
  EXPECT_TRUE(worker_->finished().has_value());
  EXPECT_EQ(worker_->stats().steps(), 3u);
  ExpectAllApplied();
}

TEST_F(CodecWorkerTest, NoMoreUpdateWhereNothingIsLeft) {
  Begin(FrameCodec::kFp32);
  ASSERT_NO_FATAL_FAILURE(Step(Verdict::kApply));
  ASSERT_NO_FATAL_FAILURE(Step(Verdict::kApply, /*leave_between=*/true));
  EXPECT_TRUE(worker_->finished().has_value());
  EXPECT_EQ(worker_->stats().steps(), 2u);
  EXPECT_EQ(worker_->stats().push_bytes(), 2u * 3 * kSize * 4);
  EXPECT_EQ(worker_->stats().push_bytes_saved(), 0u);
}

// The session ends before the verdict was told: nothing of the update is applied, and the residual is as it was.
TEST_F(CodecWorkerTest, AnUpdateThatIsGivenUpBeforeItsVerdictCostsNoResidual) {
  Begin(FrameCodec::kTopK);
  ASSERT_NO_FATAL_FAILURE(Step(Verdict::kApply));
  WorkerOutput early;
  worker_->OnGradient(work_->token, 1, now_, &early);
  Carry(std::move(early));
  work_.reset();
  end_session_ = true;
  now_ += absl::Seconds(1);
  WorkerOutput output;
  worker_->OnTimer(now_, &output);
  Carry(std::move(output));
  Wait();
  ASSERT_TRUE(work_.has_value());
  EXPECT_EQ(worker_->session(), 2u);
  EXPECT_EQ(work_->update.group, 0u) << "the lease is whole: what is applied answers as a duplicate";
  // The first update comes again and is a duplicate everywhere, which leaves the residual alone too.
  for (std::vector<double>& values : expected_) values.assign(kSize, 1.0f / 3);
  ASSERT_NO_FATAL_FAILURE(Step(Verdict::kApply));
  EXPECT_EQ(worker_->stats().duplicates(), 1u);
  EXPECT_EQ(worker_->stats().samples(), 1u) << "of the update that was applied, once";
  ASSERT_NO_FATAL_FAILURE(Step(Verdict::kApply));
  EXPECT_EQ(worker_->stats().samples(), 2u);
  EXPECT_EQ(worker_->stats().steps(), 3u);
  Leave();
  ASSERT_NO_FATAL_FAILURE(Step(Verdict::kApply));
  EXPECT_TRUE(worker_->finished().has_value());
  ExpectAllApplied();
}

// The session ends while answers are owed: what may be applied is in no residual any more, so nothing counts twice.
TEST_F(CodecWorkerTest, WhatMayBeAppliedIsForgottenWithTheSession) {
  Begin(FrameCodec::kTopK);
  ASSERT_NO_FATAL_FAILURE(Step(Verdict::kApply));
  lose_ = [](const std::vector<Frame>& frames) { return frames.front().header.slice == 0; };
  end_session_ = true;
  ASSERT_NO_FATAL_FAILURE(Step(Verdict::kApply));
  EXPECT_EQ(worker_->session(), 2u);
  lose_ = nullptr;
  Leave();
  Wait();
  pushed_.clear();
  ASSERT_NO_FATAL_FAILURE(Step(Verdict::kApply));
  // Of slice 0 the gradient alone, of slice 1 with what was left of it.
  for (const auto& [key, bytes] : pushed_) {
    const std::uint32_t number = std::get<2>(key);
    const std::vector<float> gradient = Model::GradientOf(std::get<1>(key), number);
    const bool alone = std::memcmp(bytes.data(), gradient.data(), bytes.size()) == 0;
    EXPECT_EQ(alone, number != 1) << number;
  }
}

TEST_F(CodecWorkerTest, ValuesComeInBf16ForTrainingOnly) {
  Begin(FrameCodec::kInt8, /*bf16_values=*/true);
  EXPECT_TRUE(asked_bf16_[0]);
  EXPECT_FALSE(asked_bf16_[kBuffer]);
  EXPECT_EQ(model_.values[0][0], 0.333984375f) << "1/3 rounded to 8 bits";
  EXPECT_EQ(model_.values[kBuffer][0], 1.0f / 3);
  kind_ = v1::TASK_EXPORT;
  for (int i = 0; i < 5 && work_.has_value() && work_->kind == v1::TASK_TRAIN; ++i) {
    now_ += absl::Seconds(1);  // so that it hears of the task
    ASSERT_NO_FATAL_FAILURE(Step(Verdict::kApply));
  }
  ASSERT_TRUE(work_.has_value());
  ASSERT_EQ(work_->kind, v1::TASK_EXPORT);
  EXPECT_FALSE(asked_bf16_[0]);
  for (std::uint32_t number = 0; number < 3; ++number) EXPECT_EQ(model_.values[number], *ps_->value(number));
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

// A ps is lost, or slices move: the update is the same, whoever has the slices.
TEST_F(WorkerTest, GoesOnWithTheUpdateThatItHasInAnotherLayout) {
  MakeWorker();
  bool moved = false;
  MoveWhen(moved, [](v1::View* view) {
    for (auto& placement : *view->mutable_layout()) placement.set_primary(1);
    view->mutable_ps(0)->set_index(1);
    view->mutable_ps(0)->set_address("ps:2");
    view->mutable_ps(0)->set_session(kPsSession + 1);
  });
  const std::optional<Work> work = FirstWork();
  ASSERT_TRUE(work.has_value());
  const UpdateId update = work->update;
  WorkerOutput pushes;
  ComputeResult result;
  result.samples = 1;
  worker_->OnComputed(work->token, result, now_, &pushes);
  ASSERT_FALSE(pushes.exchanges.empty());
  for (const ExchangeCall& call : pushes.exchanges) EXPECT_EQ(call.ps, 0u);

  // Nobody answers any more there, and the next view says where the slices are.
  moved = true;
  std::vector<ExchangeCall> again;
  for (int i = 0; i < 50 && worker_->epoch() != 2; ++i) {
    WorkerOutput next;
    now_ = std::max(now_, worker_->next_timer());
    worker_->OnTimer(now_, &next);
    for (const SyncCall& call : next.syncs) {
      WorkerOutput after;
      worker_->OnSyncReply(call.call, answer_(call.request), now_, &after);
      EXPECT_FALSE(after.work.has_value()) << "it is computed";
      for (ExchangeCall& exchange : after.exchanges) again.push_back(std::move(exchange));
    }
  }
  ASSERT_EQ(worker_->epoch(), 2u);
  WorkerOutput late;
  for (const ExchangeCall& call : pushes.exchanges) {
    worker_->OnExchangeReply(call.call, absl::UnavailableError("gone"), now_, &late);
  }
  EXPECT_TRUE(late.exchanges.empty());
  std::vector<std::uint32_t> slices;
  WorkerOutput next;
  for (const ExchangeCall& call : again) {
    EXPECT_EQ(call.ps, 1u);
    EXPECT_EQ(call.address, "ps:2");
    std::vector<Frame> answers = call.frames;
    for (Frame& frame : answers) {
      ASSERT_EQ(frame.header.kind, FrameKind::kPush);
      EXPECT_EQ(frame.header.update, update);
      EXPECT_EQ(frame.header.verdict, Verdict::kApply);
      EXPECT_EQ(frame.header.epoch, 2u);
      EXPECT_EQ(frame.payload.size(), kElements * sizeof(float)) << "the gradient that it has";
      slices.push_back(frame.header.slice);
      frame.header.kind = FrameKind::kReply;
      // Of the first the standby had it already.
      frame = ReplyTo(frame.header, frame.header.slice == 0 ? ReplyStatus::kDuplicate : ReplyStatus::kApplied);
    }
    worker_->OnExchangeReply(call.call, answers, now_, &next);
  }
  EXPECT_THAT(slices, ::testing::UnorderedElementsAre(0, 1, 2)) << "each once";
  for (int i = 0; i < 50 && !next.work.has_value(); ++i) {
    std::vector<ExchangeCall> exchanges = std::exchange(next.exchanges, {});
    for (ExchangeCall& call : exchanges) {
      for (Frame& frame : call.frames) {
        EXPECT_EQ(frame.header.kind, FrameKind::kPull);
        frame.header.kind = FrameKind::kReply;
        frame.header.status = ReplyStatus::kValue;
        frame.header.version = 9;
        frame.header.type = DataType::kFloat32;
        frame.header.codec = FrameCodec::kFp32;
        frame.header.elements = kElements;
        frame.payload = host_.InitialValue(0, {0, 0, kElements});
      }
      worker_->OnExchangeReply(call.call, call.frames, now_, &next);
    }
  }
  ASSERT_TRUE(next.work.has_value());
  EXPECT_EQ(next.work->update.group, update.group + 1);
}

// What was pushed before the verdict waits for it at the ps. It came with the push of another slice, which that ps had
// just given away, and so was not taken: workers stood still until something else changed.
TEST_F(WorkerTest, TheVerdictIsToldAgainWhereThePushThatCarriedItIsDenied) {
  MakeWorker();
  bool moved = false;
  MoveWhen(moved, [](v1::View* view) {
    v1::PsMember& other = *view->add_ps();
    other.set_index(1);
    other.set_address("ps:2");
    other.set_session(kPsSession + 1);
    for (int slice = 0; slice < 2; ++slice) view->mutable_layout(slice)->set_primary(1);
  });
  const std::optional<Work> work = FirstWork();
  ASSERT_TRUE(work.has_value());
  WorkerOutput early, next;
  worker_->OnGradient(work->token, 2, now_, &early);
  ASSERT_EQ(early.exchanges.size(), 1u);
  EXPECT_EQ(early.exchanges[0].frames.at(0).header.verdict, Verdict::kPending);
  ComputeResult result;
  result.samples = 1;
  worker_->OnComputed(work->token, result, now_, &next);
  ASSERT_FALSE(next.exchanges.empty());
  moved = true;
  int verdicts = 0;
  for (int i = 0; i < 100 && verdicts == 0; ++i) {
    const WorkerOutput output = std::exchange(next, {});
    for (const SyncCall& call : output.syncs) worker_->OnSyncReply(call.call, answer_(call.request), now_, &next);
    for (const ExchangeCall& call : output.exchanges) {
      if (call.ps != 0) continue;
      std::vector<Frame> answers;
      for (const Frame& frame : call.frames) {
        EXPECT_EQ(frame.header.verdict, Verdict::kApply);
        verdicts += frame.header.kind == FrameKind::kVerdict ? 1 : 0;
        answers.push_back(ReplyTo(frame.header, ReplyStatus::kWrongOwner));
      }
      worker_->OnExchangeReply(call.call, answers, now_, &next);
    }
    if (!next.syncs.empty() || !next.exchanges.empty()) continue;
    now_ = std::max(now_, worker_->next_timer());
    worker_->OnTimer(now_, &next);
  }
  EXPECT_EQ(worker_->epoch(), 2u);
  EXPECT_EQ(verdicts, 1);
}

}  // namespace
}  // namespace downpour::core
