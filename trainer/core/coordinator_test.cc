#include "trainer/core/coordinator.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer/core/job_uid.h"
#include "trainer/core/ps.h"

namespace downpour::core {
namespace {

constexpr char kJobUid[] = "00112233445566778899aabbccddeeff";
constexpr std::uint64_t kSamples = 24;
constexpr std::uint32_t kElements = 3;
constexpr absl::Duration kTick = absl::Milliseconds(50);

v1::TrainingConfig MakeConfig() {
  v1::TrainingConfig config;
  config.set_job_uid(kJobUid);
  config.set_ps_replicas(2);
  config.set_epochs(2);
  config.set_batch_size(1);
  config.set_updates_per_shard(4);
  config.set_mode(v1::ASYNC);
  config.mutable_optimizer()->set_type(v1::SGD);
  config.mutable_optimizer()->set_learning_rate(1);
  return config;
}

// A worker's side of the calls.
struct Worker {
  std::uint32_t index = 0;
  std::uint64_t session = 0;
  std::uint32_t process_incarnation = 1;
  std::uint64_t samples = kSamples;
  std::uint64_t sequence = 0;
  bool accepted = false;
  bool all_sent = false;          // of what it holds
  std::uint32_t incarnation = 1;  // of the newest coordinator heard of
  v1::View view = {};
  v1::WorkerSyncReply newest = {};

  v1::WorkerSyncRequest Request() {
    v1::WorkerSyncRequest request;
    request.set_job_uid(kJobUid);
    request.set_index(index);
    request.set_process_incarnation(process_incarnation);
    request.set_session(session);
    request.set_sequence(++sequence);
    request.set_accepted(accepted);
    request.set_incarnation(incarnation);
    request.set_wanted(2);
    if (view.has_stamp()) *request.mutable_view() = view.stamp();
    for (const v1::Lease& lease : newest.leases()) {
      v1::HeldLease* held = request.add_held();
      held->set_lease(lease.lease());
      held->set_kind(lease.kind());
      *held->mutable_shard() = lease.shard();
      held->set_all_sent(all_sent);
    }
    for (int i = 0; !accepted && i < 4; ++i) {
      v1::TensorSpec* tensor = request.add_tensors();
      tensor->set_name(std::string(1, static_cast<char>('a' + i)));
      tensor->set_type(v1::FLOAT32);
      tensor->add_shape(kElements);
    }
    if (!accepted) request.set_sample_count(samples);
    return request;
  }
  std::set<std::uint64_t> Leases() const {
    std::set<std::uint64_t> leases;
    for (const v1::Lease& lease : newest.leases()) leases.insert(lease.lease());
    return leases;
  }
};

// A coordinator with real parameter servers, and a clock that the test moves.
class CoordinatorTest : public ::testing::Test {
 protected:
  CoordinatorTest() {
    for (std::uint32_t index = 0; index < 2; ++index) {
      PsOptions options;
      options.job_uid = kJobUid;
      options.index = index;
      options.session = 100 + index;
      ps_.push_back(*PsCore::Create(options));
    }
    coordinator_ = MakeCoordinator(1);
  }

  std::unique_ptr<CoordinatorCore> MakeCoordinator(std::uint32_t incarnation) const {
    CoordinatorOptions options;
    options.config = config_;
    options.incarnation = incarnation;
    return std::make_unique<CoordinatorCore>(options, now_);
  }

  // Lets registrations and directives run until nothing is due, and time pass.
  void Tick(CoordinatorCore& coordinator) {
    for (const std::unique_ptr<PsCore>& ps : ps_) {
      for (int i = 0; i < 2 && ps->ShouldRegister(now_); ++i) {
        const v1::RegisterPsRequest request = ps->MakeRegistration();
        ++registrations_;
        if (request.has_view()) ++told_all_;
        const absl::Status status = ps->OnRegisterReply(coordinator.OnRegisterPs(request, now_), now_);
        EXPECT_TRUE(status.ok()) << status;
      }
    }
    for (const DirectCall& call : coordinator.TakeDirectives(now_)) {
      sessions_told_ += call.request.sessions_size() + call.request.ended_size();
      training_told_ += call.request.training_size();
      coordinator.OnDirectReply(call.call, ps_[call.ps]->OnDirect(call.request, now_), now_);
    }
    now_ += kTick;
  }
  void Tick(int times = 6) {
    for (int i = 0; i < times; ++i) Tick(*coordinator_);
  }

  v1::SyncStatus Sync(Worker& worker) {
    const v1::WorkerSyncReply reply = coordinator_->OnSyncWorker(worker.Request(), now_);
    worker.incarnation = reply.incarnation();
    if (reply.status() != v1::SYNC_OK) return reply.status();
    worker.accepted = true;
    worker.newest = reply;
    if (reply.has_view()) worker.view = reply.view();
    if (reply.initialise()) {
      for (int slice = 0; slice < worker.view.layout_size(); ++slice) {
        Frame frame = MakeFrame(worker, FrameKind::kInitialise, static_cast<std::uint32_t>(slice), {});
        EXPECT_EQ(Send(worker, frame), ReplyStatus::kApplied);
      }
    }
    return reply.status();
  }

  // Until it holds leases.
  void Join(Worker& worker) {
    for (int i = 0; i < 20 && worker.newest.leases().empty(); ++i) {
      Sync(worker);
      Tick(1);
    }
    ASSERT_EQ(worker.newest.leases_size(), 2);
  }

  Frame MakeFrame(const Worker& worker, FrameKind kind, std::uint32_t slice, const UpdateId& update) const {
    Frame frame;
    frame.header.kind = kind;
    frame.header.job_uid = *ParseJobUid(kJobUid);
    frame.header.generation = worker.view.stamp().generation();
    frame.header.epoch = worker.view.stamp().epoch();
    frame.header.session = worker.session;
    frame.header.slice = slice;
    frame.header.update = update;
    frame.header.verdict = Verdict::kApply;
    auto values = std::make_shared<const std::vector<float>>(kElements, 0.0f);
    frame.header.codec = FrameCodec::kFp32;
    frame.payload = Payload::OfFloats(*values, values);
    return frame;
  }
  ReplyStatus Send(const Worker& worker, const Frame& frame) {
    std::vector<PsCore::DataReply> replies;
    const std::uint32_t owner = worker.view.layout(static_cast<int>(frame.header.slice)).primary();
    ps_[owner]->OnData(1, {frame}, &replies);
    return replies.at(0).frames.at(0).header.status;
  }
  // To every slice.
  ReplyStatus PushAll(const Worker& worker, const UpdateId& update) {
    ReplyStatus status = ReplyStatus::kNone;
    for (int slice = 0; slice < worker.view.layout_size(); ++slice) {
      status = Send(worker, MakeFrame(worker, FrameKind::kPush, static_cast<std::uint32_t>(slice), update));
    }
    return status;
  }
  v1::ProgressReply Progress() const { return coordinator_->GetProgress(now_); }

  v1::TrainingConfig config_ = MakeConfig();
  Time now_ = absl::Seconds(1000);
  std::vector<std::unique_ptr<PsCore>> ps_;
  std::unique_ptr<CoordinatorCore> coordinator_;
  int sessions_told_ = 0;  // in all directives
  int training_told_ = 0;
  int registrations_ = 0;
  int told_all_ = 0;  // of these, with all that the ps holds
};

TEST_F(CoordinatorTest, ASilentWorkerLosesItsLeasesAndIsFenced) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  ASSERT_EQ(PushAll(worker, {0, 0, 0}), ReplyStatus::kApplied);
  Tick(static_cast<int>(absl::Seconds(4) / kTick));
  EXPECT_EQ(Progress().lease_expirations(), 1u);
  EXPECT_EQ(Progress().leases_active(), 0u);
  EXPECT_EQ(PushAll(worker, {0, 0, 1}), ReplyStatus::kRefused);
  EXPECT_EQ(Sync(worker), v1::SYNC_SESSION_ENDED);

  // Whoever comes next is told what is done already.
  Worker next{.index = 1, .session = 8};
  Join(next);
  EXPECT_EQ(next.newest.leases(0).shard().shard(), 0u);
  EXPECT_EQ(Bitmap::FromBytes(4, next.newest.leases(0).done()).Count(), 1u);
  EXPECT_TRUE(Bitmap::FromBytes(4, next.newest.leases(0).done()).Test(0));
}

TEST_F(CoordinatorTest, ACoordinatorThatWasPausedExtendsLeases) {
  for (const absl::Duration pause : {absl::Seconds(4), absl::Minutes(10)}) {
    Worker worker{.index = 0, .session = static_cast<std::uint64_t>(absl::ToInt64Seconds(pause))};
    Join(worker);
    const std::set<std::uint64_t> leases = worker.Leases();
    now_ += pause;
    Tick(2);  // its timers come first, then the worker's call
    EXPECT_EQ(Sync(worker), v1::SYNC_OK);
    EXPECT_EQ(worker.Leases(), leases);
    EXPECT_EQ(Progress().lease_expirations(), 0u);
  }
}

TEST_F(CoordinatorTest, ASessionOfTheSameIndexIsReplaced) {
  Worker before{.index = 3, .session = 7};
  Worker other{.index = 4, .session = 8};
  Join(before);
  Join(other);
  const v1::ShardId leased = before.newest.leases(0).shard();
  Worker after{.index = 3, .session = 9, .process_incarnation = 2};
  EXPECT_EQ(Sync(after), v1::SYNC_WAIT) << "not yet known to every ps";
  EXPECT_EQ(Sync(before), v1::SYNC_SESSION_ENDED);
  // While a ps still accepts the old session its data shards are given to nobody.
  EXPECT_EQ(PushAll(before, {leased.dataset_epoch(), leased.shard(), 0}), ReplyStatus::kApplied);
  const std::set<std::uint64_t> held = other.Leases();
  EXPECT_EQ(Sync(other), v1::SYNC_OK);
  EXPECT_EQ(other.Leases(), held);
  Join(after);
  EXPECT_EQ(PushAll(before, {leased.dataset_epoch(), leased.shard(), 1}), ReplyStatus::kRefused);
  EXPECT_EQ(Progress().lease_expirations(), 0u);

  Worker zombie{.index = 3, .session = 10, .process_incarnation = 1};
  EXPECT_EQ(Sync(zombie), v1::SYNC_REPLACED);
  EXPECT_EQ(Sync(after), v1::SYNC_OK);
  EXPECT_EQ(Sync(other), v1::SYNC_OK);
}

TEST_F(CoordinatorTest, NoDataShardIsLeasedTwice) {
  std::vector<Worker> workers;
  for (std::uint32_t index = 0; index < 8; ++index) workers.push_back({.index = index, .session = 20 + index});
  for (int round = 0; round < 20; ++round) {
    for (Worker& worker : workers) Sync(worker);
    Tick(1);
  }
  std::set<std::pair<std::uint32_t, std::uint32_t>> shards;
  std::set<std::uint64_t> ids;
  for (const Worker& worker : workers) {
    for (const v1::Lease& lease : worker.newest.leases()) {
      EXPECT_TRUE(ids.insert(lease.lease()).second);
      EXPECT_TRUE(shards.insert({lease.shard().dataset_epoch(), lease.shard().shard()}).second);
    }
  }
  EXPECT_EQ(shards.size(), 12u) << "6 data shards an epoch, 2 epochs";
}

TEST_F(CoordinatorTest, WhoIsWaitedForIsToldBeforeItIsGivenAnything) {
  config_.set_mode(v1::BOUNDED_STALENESS);
  coordinator_ = MakeCoordinator(1);
  Worker worker{.index = 0, .session = 10};
  for (int i = 0; i < 20 && worker.newest.leases().empty(); ++i) {
    const int told = training_told_;
    Sync(worker);
    if (!worker.newest.leases().empty()) {
      EXPECT_EQ(told, 2) << "every ps, once";
    }
    Tick(1);
  }
  EXPECT_EQ(worker.newest.leases_size(), 2);
}

TEST_F(CoordinatorTest, APsIsToldOfASessionOnce) {
  constexpr int kWorkers = 200;
  std::vector<Worker> workers;
  const auto settle = [&](int rounds) {
    for (int round = 0; round < rounds; ++round) {
      for (Worker& worker : workers) Sync(worker);
      Tick(1);
    }
  };
  for (std::uint32_t index = 0; index < kWorkers; ++index) workers.push_back({.index = index, .session = 20 + index});
  settle(10);
  const int ps = static_cast<int>(ps_.size());
  EXPECT_LE(sessions_told_, ps * (kWorkers + 1)) << "all of them, but that the first one came alone";
  sessions_told_ = 0;
  settle(100);
  EXPECT_EQ(sessions_told_, 0) << "nobody came or went";
  workers.push_back({.index = kWorkers, .session = 20 + kWorkers});
  settle(10);
  EXPECT_TRUE(workers.back().accepted);
  EXPECT_EQ(sessions_told_, ps);
  workers.erase(workers.begin(), workers.begin() + 3);  // they are silent from now on
  sessions_told_ = 0;
  settle(static_cast<int>(absl::Seconds(4) / kTick));
  EXPECT_EQ(Progress().lease_expirations(), 3u);
  EXPECT_EQ(sessions_told_, 3 * ps);

  coordinator_ = MakeCoordinator(2);
  now_ += absl::Milliseconds(2100);
  sessions_told_ = 0;
  settle(20);
  EXPECT_EQ(Progress().phase(), v1::PHASE_TRAINING);
  EXPECT_EQ(sessions_told_, ps * (kWorkers - 2)) << "a new coordinator says all of it, once";
}

TEST_F(CoordinatorTest, APsSaysWhatItHoldsOnceToEachCoordinator) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  Tick(static_cast<int>(absl::Seconds(60) / kTick));
  EXPECT_GT(registrations_, 50);
  EXPECT_EQ(told_all_, 0) << "they held nothing when they came";
  for (const std::uint32_t incarnation : {2u, 3u}) {
    coordinator_ = MakeCoordinator(incarnation);
    told_all_ = 0;
    Tick(static_cast<int>(absl::Seconds(60) / kTick));
    EXPECT_EQ(told_all_, 2);
    EXPECT_EQ(Progress().view().generation(), 1u);
    EXPECT_EQ(Progress().phase(), v1::PHASE_TRAINING);
  }
}

TEST_F(CoordinatorTest, APictureOfAPsCountsOnceItRefusesOlderCoordinators) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  coordinator_ = MakeCoordinator(2);
  v1::RegisterPsRequest early = ps_[0]->MakeRegistration();
  *early.mutable_view() = ps_[0]->view();
  const v1::RegisterPsReply reply = coordinator_->OnRegisterPs(early, now_);
  EXPECT_EQ(reply.status(), v1::SYNC_WAIT);
  EXPECT_TRUE(reply.tell_all());
  early.set_highest_incarnation(2);
  early.clear_view();
  EXPECT_TRUE(coordinator_->OnRegisterPs(early, now_).tell_all()) << "what it holds is not known";
  EXPECT_EQ(Progress().members_size(), 0);
  ASSERT_TRUE(ps_[0]->OnRegisterReply(reply, now_).ok());
  const v1::RegisterPsRequest all = ps_[0]->MakeRegistration();
  EXPECT_TRUE(all.has_view());
  EXPECT_EQ(all.sessions_size(), 1);
  const v1::RegisterPsReply accepted = coordinator_->OnRegisterPs(all, now_);
  EXPECT_EQ(accepted.status(), v1::SYNC_OK);
  EXPECT_FALSE(accepted.tell_all());
  EXPECT_EQ(Progress().members_size(), 1);
  ASSERT_TRUE(ps_[0]->OnRegisterReply(accepted, now_).ok());
  EXPECT_FALSE(ps_[0]->MakeRegistration().has_view());
}

TEST_F(CoordinatorTest, AWorkerWithOtherDataOrAnotherModelIsRefused) {
  Worker first{.index = 0, .session = 7};
  Join(first);
  Worker other{.index = 1, .session = 8, .samples = kSamples + 1};
  const v1::WorkerSyncReply reply = coordinator_->OnSyncWorker(other.Request(), now_);
  EXPECT_EQ(reply.status(), v1::SYNC_REFUSED);
  EXPECT_EQ(reply.message(), "worker-1 sees 25 training samples, the job has 24");
  Worker third{.index = 2, .session = 9};
  v1::WorkerSyncRequest request = third.Request();
  request.mutable_tensors(1)->set_shape(0, kElements + 1);
  EXPECT_EQ(coordinator_->OnSyncWorker(request, now_).status(), v1::SYNC_REFUSED);
  request = third.Request();
  request.mutable_tensors()->RemoveLast();
  EXPECT_EQ(coordinator_->OnSyncWorker(request, now_).status(), v1::SYNC_REFUSED);
  request = third.Request();
  request.set_job_uid("another");
  EXPECT_EQ(coordinator_->OnSyncWorker(request, now_).status(), v1::SYNC_WRONG_JOB);
  EXPECT_EQ(Sync(first), v1::SYNC_OK);
}

TEST_F(CoordinatorTest, AnOlderIncarnationIsFencedAndTheNewOneKeepsTheLeases) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  ASSERT_EQ(PushAll(worker, {0, 0, 0}), ReplyStatus::kApplied);
  const std::set<std::uint64_t> leases = worker.Leases();
  std::unique_ptr<CoordinatorCore> older = std::move(coordinator_);
  coordinator_ = MakeCoordinator(2);
  now_ += absl::Milliseconds(2100);  // the ps register again, with the newer one
  Tick(*coordinator_);
  for (int i = 0; i < 20 && !older->fenced().has_value(); ++i) Tick(*older);
  ASSERT_TRUE(older->fenced().has_value());
  EXPECT_EQ(older->fenced()->code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(older->TakeDirectives(now_ + absl::Minutes(1)).empty());
  Worker misled = worker;
  EXPECT_EQ(older->OnSyncWorker(misled.Request(), now_).status(), v1::SYNC_WAIT);

  for (int i = 0; i < 20; ++i) {
    Sync(worker);
    Tick(1);
  }
  EXPECT_EQ(worker.newest.incarnation(), 2u);
  EXPECT_EQ(worker.Leases(), leases) << "adopted from their holder";
  EXPECT_EQ(worker.view.stamp().generation(), 1u);
  EXPECT_EQ(PushAll(worker, {0, 0, 0}), ReplyStatus::kDuplicate);
  EXPECT_FALSE(Progress().parameters_lost());
}

// Whatever is asked about meanwhile: a resumed job takes the updates in the order of one that was never interrupted.
TEST_F(CoordinatorTest, ANewCoordinatorGoesOnInTheMiddleOfTheEpoch) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  ASSERT_EQ(PushAll(worker, {0, 0, 0}), ReplyStatus::kApplied);
  coordinator_ = MakeCoordinator(2);
  now_ += absl::Milliseconds(2100);
  worker.newest.clear_leases();  // it has nothing left of them
  for (int i = 0; i < 20 && worker.newest.leases().empty(); ++i) {
    Sync(worker);
    Sync(worker);  // before the ps have answered
    Tick(1);
  }
  ASSERT_EQ(worker.newest.leases_size(), 2);
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(worker.newest.leases(i).shard().dataset_epoch(), 0u);
    EXPECT_EQ(worker.newest.leases(i).shard().shard(), static_cast<std::uint32_t>(i));
  }
}

v1::ProgressRequest WishFor(std::uint64_t revision, v1::Mode mode, std::uint32_t updates_per_step = 0) {
  v1::ProgressRequest wish;
  wish.mutable_mode()->set_revision(revision);
  wish.mutable_mode()->set_mode(mode);
  wish.mutable_mode()->set_updates_per_step(updates_per_step);
  wish.mutable_mode()->set_staleness(2);
  wish.mutable_mode()->set_workers(1);
  return wish;
}

// No session, no lease and no update is lost, and nobody begins anything before every ps has taken the mode up.
TEST_F(CoordinatorTest, AHistoryGoesOnInAnotherMode) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  const v1::View before = worker.view;
  EXPECT_EQ(Progress().mode().mode(), v1::ASYNC);
  std::uint32_t group = 0;
  std::uint64_t revision = 1;
  for (const v1::Mode mode : {v1::SYNCHRONOUS, v1::BOUNDED_STALENESS, v1::ASYNC, v1::SYNCHRONOUS}) {
    SCOPED_TRACE(v1::Mode_Name(mode));
    const std::set<std::uint64_t> leases = worker.Leases();
    ASSERT_EQ(PushAll(worker, {0, 0, group}), ReplyStatus::kApplied);
    coordinator_->ReportFailures(WishFor(++revision, mode, 2));
    EXPECT_EQ(Sync(worker), v1::SYNC_WAIT);
    EXPECT_EQ(Progress().phase(), v1::PHASE_TRAINING);
    EXPECT_FALSE(Progress().has_mode());
    EXPECT_NE(Progress().message(), "");
    Tick();
    EXPECT_EQ(PushAll(worker, {0, 0, group}), ReplyStatus::kStaleView);
    ASSERT_EQ(Sync(worker), v1::SYNC_OK);
    EXPECT_EQ(worker.view.mode(), mode);
    EXPECT_EQ(worker.view.stamp().generation(), before.stamp().generation());
    EXPECT_EQ(worker.view.stamp().epoch(), revision);
    EXPECT_THAT(worker.Leases(), testing::IsSupersetOf(leases));
    EXPECT_EQ(PushAll(worker, {0, 0, group++}), ReplyStatus::kDuplicate);
    EXPECT_EQ(Progress().mode().mode(), mode);
  }
  EXPECT_EQ(worker.view.updates_per_step(), 2u);
  EXPECT_FALSE(Progress().parameters_lost());
  // What is told again, or late, changes nothing.
  coordinator_->ReportFailures(WishFor(revision, v1::SYNCHRONOUS, 2));
  coordinator_->ReportFailures(WishFor(1, v1::ASYNC));
  Tick();
  EXPECT_EQ(Sync(worker), v1::SYNC_OK);
  EXPECT_EQ(worker.view.stamp().epoch(), revision);
}

TEST_F(CoordinatorTest, WhoHoldsLeasesIsWaitedForFromTheBeginningOfABound) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  training_told_ = 0;
  coordinator_->ReportFailures(WishFor(1, v1::BOUNDED_STALENESS));
  Sync(worker);
  while (Sync(worker) != v1::SYNC_OK) {
    EXPECT_LT(training_told_, 2);
    Tick(1);
  }
  EXPECT_EQ(training_told_, 2) << "every ps, before the worker may begin";
}

// The second execution of an update would take another gradient where nothing makes the values the same.
TEST_F(CoordinatorTest, NobodySharesALeaseInAnotherMode) {
  config_.set_mode(v1::SYNCHRONOUS);
  config_.set_updates_per_step(2);
  config_.set_workers(2);
  coordinator_ = MakeCoordinator(1);
  std::vector<Worker> workers = {{.index = 0, .session = 7}, {.index = 1, .session = 8}};
  const auto settle = [&] {
    for (int i = 0; i < 20; ++i) {
      for (Worker& worker : workers) Sync(worker);
      Tick(1);
    }
  };
  settle();
  // The one has done its part of the first band, the other nothing.
  const v1::Lease first = workers[0].newest.leases(0);
  v1::WorkerSyncRequest request = workers[0].Request();
  for (v1::HeldLease& held : *request.mutable_held()) {
    if (held.lease() == first.lease()) held.set_next(4);
  }
  request.set_starving(true);
  const v1::WorkerSyncReply reply = coordinator_->OnSyncWorker(request, now_);
  const auto shards = [](const v1::WorkerSyncReply& leases) {
    std::set<std::uint32_t> numbers;
    for (const v1::Lease& lease : leases.leases()) numbers.insert(lease.shard().shard());
    return numbers;
  };
  const auto shared = [&](const v1::WorkerSyncReply& one, const v1::WorkerSyncReply& other) {
    std::vector<std::uint32_t> both;
    const std::set<std::uint32_t> of_one = shards(one), of_other = shards(other);
    std::set_intersection(of_one.begin(), of_one.end(), of_other.begin(), of_other.end(), std::back_inserter(both));
    return both.size();
  };
  ASSERT_EQ(shared(reply, workers[1].newest), 1u) << "a backup execution";
  coordinator_->ReportFailures(WishFor(1, v1::ASYNC));
  settle();
  EXPECT_EQ(shared(workers[0].newest, workers[1].newest), 0u);
  EXPECT_EQ(workers[0].view.stamp().epoch(), 2u);
}

TEST_F(CoordinatorTest, ANewCoordinatorGoesOnInTheModeOfItsConfiguration) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  ASSERT_EQ(PushAll(worker, {0, 0, 0}), ReplyStatus::kApplied);
  const std::set<std::uint64_t> leases = worker.Leases();
  config_.set_mode(v1::SYNCHRONOUS);
  config_.set_updates_per_step(3);
  coordinator_ = MakeCoordinator(2);
  now_ += absl::Milliseconds(2100);
  for (int i = 0; i < 20; ++i) {
    Sync(worker);
    Tick(1);
  }
  EXPECT_EQ(worker.view.mode(), v1::SYNCHRONOUS);
  EXPECT_EQ(worker.view.updates_per_step(), 3u);
  EXPECT_EQ(worker.view.stamp().generation(), 1u);
  EXPECT_EQ(worker.view.stamp().epoch(), 2u);
  EXPECT_THAT(worker.Leases(), testing::IsSupersetOf(leases));
  EXPECT_EQ(PushAll(worker, {0, 0, 0}), ReplyStatus::kDuplicate);
  // A coordinator that is started with what was wanted before goes back; whoever asks it says what is wanted now.
  config_.set_mode(v1::ASYNC);
  coordinator_ = MakeCoordinator(3);
  coordinator_->ReportFailures(WishFor(2, v1::SYNCHRONOUS, 3));
  now_ += absl::Milliseconds(2100);
  for (int i = 0; i < 20; ++i) {
    Sync(worker);
    Tick(1);
  }
  EXPECT_EQ(worker.view.stamp().incarnation(), 3u);
  EXPECT_EQ(worker.view.stamp().epoch(), 2u) << "nothing has changed";
}

TEST_F(CoordinatorTest, AModeThatNoHistoryGoesOverToIsNotTakenUp) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  coordinator_->ReportFailures(WishFor(1, v1::MODE_UNSPECIFIED));
  Tick();
  EXPECT_EQ(Sync(worker), v1::SYNC_OK);
  EXPECT_EQ(worker.view.mode(), v1::ASYNC);
  EXPECT_THAT(Progress().message(), testing::HasSubstr("spec.update.mode cannot change from ASYNC"));
}

TEST_F(CoordinatorTest, WarmsUpWithOneWorker) {
  config_.set_warm_start(5);
  coordinator_ = MakeCoordinator(1);
  for (int i = 0; i < 5; ++i) Tick(1);
  Worker first{.index = 0, .session = 7};
  Join(first);
  ASSERT_GT(first.newest.leases_size(), 0);
  Worker second{.index = 1, .session = 8};
  for (int i = 0; i < 5; ++i) {
    Sync(second);
    Tick(1);
  }
  EXPECT_EQ(second.newest.leases_size(), 0);
  for (std::uint32_t shard = 0; shard < 2; ++shard) {
    for (std::uint32_t group = 0; group < 4; ++group)
      ASSERT_EQ(PushAll(first, {0, shard, group}), ReplyStatus::kApplied);
  }
  first.all_sent = true;
  for (int i = 0; i < 10 && second.newest.leases().empty(); ++i) {
    Sync(first);
    Tick(1);
    Sync(second);
  }
  EXPECT_GT(second.newest.leases_size(), 0);
}

TEST_F(CoordinatorTest, ARegistrationThatHasSeenANewerIncarnationFences) {
  v1::RegisterPsRequest request = ps_[0]->MakeRegistration();
  request.set_highest_incarnation(2);
  EXPECT_EQ(coordinator_->OnRegisterPs(request, now_).status(), v1::SYNC_REFUSED);
  EXPECT_TRUE(coordinator_->fenced().has_value());
}

TEST_F(CoordinatorTest, AnotherPsProcessMeansThatItsParametersAreLost) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  ASSERT_EQ(PushAll(worker, {0, 0, 0}), ReplyStatus::kApplied);
  PsOptions options;
  options.job_uid = kJobUid;
  options.index = 1;
  options.session = 200;
  options.process_incarnation = 2;
  ps_[1] = *PsCore::Create(options);
  Tick();
  EXPECT_EQ(PushAll(worker, {0, 0, 1}), ReplyStatus::kRefused);
  EXPECT_TRUE(Progress().parameters_lost());
  EXPECT_EQ(Progress().view().generation(), 2u);
  EXPECT_EQ(Progress().updates_applied(), 0u);
  // Nobody is a member of the new history before every ps knows it again.
  for (int i = 0; i < 20 && Progress().phase() != v1::PHASE_TRAINING; ++i) {
    Sync(worker);
    Tick(1);
  }
  EXPECT_EQ(worker.view.stamp().generation(), 2u);
  EXPECT_EQ(PushAll(worker, {0, 0, 0}), ReplyStatus::kApplied) << "nothing of it is left";
}

TEST_F(CoordinatorTest, FailureOfAWorkerFailsTheJobWithItsReason) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  v1::FinishRequest finish;
  finish.set_job_uid(kJobUid);
  EXPECT_FALSE(coordinator_->OnFinish(finish).accepted());
  v1::WorkerSyncRequest request = worker.Request();
  request.set_failure("the loss is not finite");
  EXPECT_EQ(coordinator_->OnSyncWorker(request, now_).status(), v1::SYNC_WAIT);
  EXPECT_EQ(Progress().phase(), v1::PHASE_FAILED);
  EXPECT_EQ(Progress().message(), "the loss is not finite");
  Tick();
  EXPECT_EQ(Sync(worker), v1::SYNC_WAIT) << "the next coordinator may need it";
  EXPECT_FALSE(coordinator_->deserted());
  EXPECT_TRUE(coordinator_->OnFinish(finish).accepted());
  EXPECT_EQ(Sync(worker), v1::SYNC_FINISHED);
  EXPECT_TRUE(coordinator_->deserted());
}

TEST_F(CoordinatorTest, WhatIsOverdueAndWaitsForSomethingElseIsNotAskedForAgainAndAgain) {
  config_.mutable_checkpoint()->set_uri("/store");
  config_.mutable_checkpoint()->set_interval_seconds(1);
  coordinator_ = MakeCoordinator(1);
  Worker worker{.index = 0, .session = 7};
  for (int i = 0; i < 20 && Progress().phase() != v1::PHASE_TRAINING; ++i) {
    Sync(worker);
    for (const StoreCall& call : coordinator_->TakeStoreCalls()) coordinator_->OnStoreReply(call.call, {}, now_);
    Tick(1);
  }
  ASSERT_EQ(Progress().phase(), v1::PHASE_TRAINING);
  // A cut falls due while a ps is missing.
  PsOptions options;
  options.job_uid = kJobUid;
  options.session = 200;
  options.process_incarnation = 2;
  ps_[0] = *PsCore::Create(options);
  for (int i = 0; i < 60; ++i) {
    Tick(1);
    coordinator_->TakeDirectives(now_);
    EXPECT_GT(coordinator_->next_timer(), now_);
  }
}

// What is done when all is trained.
class TaskTest : public CoordinatorTest {
 protected:
  TaskTest() {
    config_.set_output_directory("/output");
    config_.set_evaluate(true);
    coordinator_ = MakeCoordinator(1);
  }

  // As Sync, with what became of a task. All updates of what it holds are sent.
  void SyncWith(Worker& worker, const std::optional<v1::TaskResult>& result) {
    v1::WorkerSyncRequest request = worker.Request();
    for (v1::HeldLease& held : *request.mutable_held()) held.set_all_sent(true);
    if (result.has_value()) *request.add_results() = *result;
    const v1::WorkerSyncReply reply = coordinator_->OnSyncWorker(request, now_);
    if (reply.status() != v1::SYNC_WAIT) worker.newest = reply;
  }

  void Train(Worker& worker) {
    for (int i = 0; i < 100 && Progress().phase() != v1::PHASE_FINISHING; ++i) {
      for (const v1::Lease& lease : worker.newest.leases()) {
        if (lease.kind() != v1::TASK_TRAIN) continue;
        for (std::uint32_t group = 0; group < config_.updates_per_shard(); ++group) {
          PushAll(worker, {lease.shard().dataset_epoch(), lease.shard().shard(), group});
        }
      }
      if (TaskOf(worker).has_value()) {  // the evaluation of an epoch before the last
        Succeed(worker);
      } else {
        SyncWith(worker, std::nullopt);
      }
      Tick(2);
    }
    ASSERT_EQ(Progress().phase(), v1::PHASE_FINISHING);
  }

  std::optional<v1::Lease> TaskOf(const Worker& worker) const {
    for (const v1::Lease& lease : worker.newest.leases()) {
      if (lease.kind() != v1::TASK_TRAIN) return lease;
    }
    return std::nullopt;
  }
  // The task that it is given within `patience`.
  std::optional<v1::Lease> Await(Worker& worker, absl::Duration patience) {
    for (const Time end = now_ + patience; now_ < end && !TaskOf(worker).has_value(); Tick(1)) {
      SyncWith(worker, std::nullopt);
    }
    return TaskOf(worker);
  }

  static v1::TaskResult ResultOf(const v1::Lease& lease) {
    v1::TaskResult result;
    result.set_lease(lease.lease());
    result.set_kind(lease.kind());
    result.set_dataset_epoch(lease.shard().dataset_epoch());
    return result;
  }
  void Succeed(Worker& worker) {
    v1::TaskResult result = ResultOf(*TaskOf(worker));
    if (result.kind() == v1::TASK_EXPORT) result.set_path("/output/model.safetensors");
    if (result.kind() == v1::TASK_EVALUATE) result.set_samples(1);
    SyncWith(worker, result);
  }
  void FailWith(Worker& worker, const std::string& error, v1::FailureKind failure = v1::FAILURE_OTHER) {
    v1::TaskResult result = ResultOf(*TaskOf(worker));
    result.set_error(error);
    result.set_failure(failure);
    SyncWith(worker, result);
  }
  // How often a task of this kind can fail at a worker that is alone, at most `most` times, before it is given no more.
  // All others succeed.
  int FailUntilGivenUp(Worker& worker, v1::TaskKind kind, const std::string& error, int most = 100) {
    int failures = 0;
    while (failures < most && Progress().phase() != v1::PHASE_FAILED && Await(worker, kPatience).has_value()) {
      if (TaskOf(worker)->kind() != kind) {
        Succeed(worker);
        continue;
      }
      FailWith(worker, error);
      ++failures;
    }
    return failures;
  }

  static constexpr absl::Duration kPatience = absl::Seconds(30);
};

// With scripted losses.
class HeedingTest : public TaskTest {
 protected:
  HeedingTest() {
    config_.set_epochs(6);
    config_.mutable_early_stopping()->set_metric("Loss");
    config_.mutable_early_stopping()->set_patience(2);
    config_.mutable_reduce_on_plateau()->set_metric("Loss");
    config_.mutable_reduce_on_plateau()->set_factor(0.5);
    config_.set_keep_best("Loss");
    coordinator_ = MakeCoordinator(1);
  }
  // Does everything that it is given, until `end` says so.
  void Work(Worker& worker, const std::vector<double>& losses, const std::function<bool()>& end) {
    for (int i = 0; i < 2000 && !end(); ++i) {
      for (const v1::Lease& lease : worker.newest.leases()) {
        if (lease.kind() != v1::TASK_TRAIN) continue;
        for (std::uint32_t group = 0; group < config_.updates_per_shard(); ++group) {
          PushAll(worker, {lease.shard().dataset_epoch(), lease.shard().shard(), group});
        }
      }
      std::optional<v1::TaskResult> result;
      if (const std::optional<v1::Lease> task = TaskOf(worker); task.has_value()) {
        result = ResultOf(*task);
        if (task->kind() == v1::TASK_EXPORT) result->set_path("/output/model.safetensors");
        if (task->kind() == v1::TASK_KEEP_BEST) result->set_path("/output/best.safetensors");
        if (task->kind() == v1::TASK_KEEP_BEST) result->set_best_epoch(2);
        if (task->kind() == v1::TASK_EVALUATE) {
          result->set_samples(1);
          result->set_loss(losses.at(task->shard().dataset_epoch() - 1));
        }
      }
      SyncWith(worker, result);
      if (worker.newest.has_view()) worker.view = worker.newest.view();
      Tick(2);
    }
  }
  bool Over() const { return Progress().phase() == v1::PHASE_DONE || Progress().phase() == v1::PHASE_FAILED; }
};

TEST_F(HeedingTest, AJobThatStopsEarlyHasDoneAPrefixOfThePlan) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  Work(worker, {0.5, 0.4, 0.45, 0.6, 0.7, 0.8}, [this] { return Over(); });
  const v1::ProgressReply progress = Progress();
  ASSERT_EQ(progress.phase(), v1::PHASE_DONE) << progress.message();
  EXPECT_NE(progress.stop_reason().find("stopped early after epoch 4"), std::string::npos) << progress.stop_reason();
  EXPECT_NE(progress.rate_reason().find("0.25"), std::string::npos) << progress.rate_reason();
  EXPECT_EQ(progress.learning_rate(), 0.25);
  EXPECT_EQ(progress.best_epoch(), 2u);
  EXPECT_EQ(progress.best_path(), "/output/best.safetensors");
  EXPECT_EQ(progress.model_path(), "/output/model.safetensors");
  EXPECT_LT(progress.updates_expected(), 6 * kSamples);
  EXPECT_EQ(progress.updates_applied(), progress.updates_expected());
  for (const std::unique_ptr<PsCore>& ps : ps_) {
    const v1::LedgerReply ledger = ps->ReadLedger();
    ASSERT_TRUE(ledger.has_end());
    const std::uint64_t done =
        DataPlan::Create(ledger.data())->updates_before(ledger.end().dataset_epoch(), ledger.end().shard());
    EXPECT_EQ(done, progress.updates_expected());
    for (const v1::SliceLedger& slice : ledger.slices()) EXPECT_EQ(slice.version(), done);
  }
}

TEST_F(HeedingTest, ANewCoordinatorGoesOnFromWhatIsCounted) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  const std::vector<double> losses = {0.5, 0.6, 0.7, 0.8, 0.9, 1.0};
  Work(worker, losses, [this] { return ps_[0]->view().evaluations_size() == 1; });
  ASSERT_EQ(ps_[0]->view().evaluations_size(), 1);
  coordinator_ = MakeCoordinator(2);
  Work(worker, losses, [this] { return Over(); });
  const v1::ProgressReply progress = Progress();
  ASSERT_EQ(progress.phase(), v1::PHASE_DONE) << progress.message();
  EXPECT_NE(progress.stop_reason().find("stopped early after epoch 3"), std::string::npos) << progress.stop_reason();
}

TEST_F(HeedingTest, ALossThatGetsBetterStopsNothing) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  Work(worker, {0.6, 0.5, 0.4, 0.3, 0.2, 0.1}, [this] { return Over(); });
  const v1::ProgressReply progress = Progress();
  ASSERT_EQ(progress.phase(), v1::PHASE_DONE) << progress.message();
  EXPECT_EQ(progress.stop_reason(), "");
  EXPECT_EQ(progress.rate_reason(), "");
  EXPECT_EQ(progress.updates_applied(), 6 * kSamples);
  EXPECT_EQ(progress.best_epoch(), 2u) << "what was kept is told by whoever kept it";
}

TEST_F(TaskTest, WhatFailsAtOneWorkerIsGivenToAnother) {
  Worker bad{.index = 0, .session = 7}, good{.index = 1, .session = 8};
  Join(bad);
  Train(bad);
  ASSERT_EQ(Await(bad, kPatience)->kind(), v1::TASK_EXPORT);
  for (int i = 0; i < 10 && good.newest.leases().empty(); ++i, Tick(1)) Sync(good);
  ASSERT_EQ(TaskOf(good)->kind(), v1::TASK_EVALUATE) << "what one has, the other has not";
  Succeed(good);
  FailWith(bad, "worker-0: read-only file system");
  EXPECT_FALSE(TaskOf(bad).has_value()) << "it is another's turn";
  EXPECT_EQ(Progress().phase(), v1::PHASE_FINISHING);
  EXPECT_THAT(Progress().message(), ::testing::HasSubstr("worker-0: read-only file system"));
  ASSERT_EQ(Await(good, kTick)->kind(), v1::TASK_EXPORT);
  EXPECT_FALSE(Progress().has_model_worker());
  Succeed(good);
  Tick();
  EXPECT_EQ(Progress().phase(), v1::PHASE_DONE);
  EXPECT_EQ(Progress().model_path(), "/output/model.safetensors");
  EXPECT_EQ(Progress().model_worker(), 1u) << "who wrote it";
  EXPECT_EQ(Progress().warnings_size(), 0) << "nothing is missing";
}

TEST_F(TaskTest, AnExportThatFailsEverywhereFailsTheJobAfterSoManyTries) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  Train(worker);
  const Time begun = now_;
  EXPECT_EQ(FailUntilGivenUp(worker, v1::TASK_EXPORT, "worker-0: no space left"), 8);
  EXPECT_GT(now_ - begun, absl::Seconds(45)) << "what passes may pass meanwhile";
  EXPECT_EQ(Progress().phase(), v1::PHASE_FAILED);
  EXPECT_EQ(Progress().failure(), v1::FAILURE_OTHER);
  EXPECT_EQ(Progress().message(), "the model could not be written in 8 tries: worker-0: no space left");
}

TEST_F(TaskTest, AnExportThatFailsForAWhileSucceeds) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  Train(worker);
  ASSERT_EQ(FailUntilGivenUp(worker, v1::TASK_EXPORT, "worker-0: no space left", 7), 7);
  while (Await(worker, kPatience).has_value()) Succeed(worker);
  EXPECT_EQ(Progress().phase(), v1::PHASE_DONE);
  EXPECT_EQ(Progress().model_path(), "/output/model.safetensors");
}

TEST_F(TaskTest, AnEvaluationThatFailsCostsTheEvaluationAlone) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  Train(worker);
  ASSERT_EQ(Await(worker, kPatience)->kind(), v1::TASK_EXPORT) << "the model is safe before anything else is tried";
  Succeed(worker);
  EXPECT_EQ(Progress().model_path(), "/output/model.safetensors");
  EXPECT_EQ(FailUntilGivenUp(worker, v1::TASK_EVALUATE, "worker-0: truncated gzip stream"), 8);
  Tick();
  const v1::ProgressReply progress = Progress();
  EXPECT_EQ(progress.phase(), v1::PHASE_DONE);
  ASSERT_EQ(progress.warnings_size(), 1);
  EXPECT_EQ(progress.warnings(0),
            "the evaluation after epoch 2 could not be made in 8 tries: worker-0: truncated gzip stream");
}

TEST_F(TaskTest, AnEvaluationIsPassedOnAsItIs) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  Train(worker);
  v1::Metric error;
  error.set_name("MeanAbsoluteError");
  error.set_value(0.25);
  while (Await(worker, kPatience).has_value()) {
    if (TaskOf(worker)->kind() != v1::TASK_EVALUATE) {
      Succeed(worker);
      continue;
    }
    v1::TaskResult result = ResultOf(*TaskOf(worker));
    result.set_samples(3);
    result.set_loss(0.5);
    *result.add_metrics() = error;
    SyncWith(worker, result);
  }
  const v1::ProgressReply progress = Progress();
  ASSERT_EQ(progress.evaluations_size(), 2);
  const v1::Evaluation& none = progress.evaluations(0);
  EXPECT_EQ(none.metrics_size(), 0);
  EXPECT_FALSE(none.has_accuracy());
  const v1::Evaluation& last = progress.evaluations(1);
  EXPECT_EQ(last.samples(), 3u);
  EXPECT_EQ(last.loss(), 0.5);
  EXPECT_FALSE(last.has_accuracy()) << "none was measured";
  ASSERT_EQ(last.metrics_size(), 1);
  EXPECT_EQ(last.metrics(0).name(), "MeanAbsoluteError");
  EXPECT_EQ(last.metrics(0).value(), 0.25);
}

TEST_F(TaskTest, AModelThatIsNotFiniteFailsTheJobAtOnce) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  Train(worker);
  ASSERT_EQ(Await(worker, kPatience)->kind(), v1::TASK_EXPORT);
  FailWith(worker, "worker-0: the model is not finite", v1::FAILURE_MODEL_NOT_FINITE);
  EXPECT_EQ(Progress().phase(), v1::PHASE_FAILED);
  EXPECT_EQ(Progress().failure(), v1::FAILURE_MODEL_NOT_FINITE);
  EXPECT_EQ(Progress().message(), "worker-0: the model is not finite");
  EXPECT_EQ(Progress().model_path(), "");
}

TEST_F(TaskTest, TheModelIsLookedAtWhereNothingIsWrittenToo) {
  config_.clear_output_directory();
  config_.set_evaluate(false);
  coordinator_ = MakeCoordinator(1);
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  Train(worker);
  EXPECT_EQ(Await(worker, kPatience)->kind(), v1::TASK_EXPORT);
}

TEST_F(TaskTest, SkippedUpdatesAreAWarningInTheEnd) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  for (int slice = 0; slice < worker.view.layout_size(); ++slice) {
    Frame skip = MakeFrame(worker, FrameKind::kPush, static_cast<std::uint32_t>(slice), {0, 0, 0});
    skip.header.verdict = Verdict::kSkip;
    EXPECT_EQ(Send(worker, skip), ReplyStatus::kApplied);
  }
  Train(worker);
  EXPECT_EQ(Progress().warnings_size(), 0);
  while (Await(worker, kPatience).has_value()) Succeed(worker);
  ASSERT_EQ(Progress().phase(), v1::PHASE_DONE);
  ASSERT_EQ(Progress().warnings_size(), 1);
  EXPECT_THAT(Progress().warnings(0), ::testing::HasSubstr("1 of 48 updates were skipped"));
}

TEST_F(TaskTest, AWarningIsPassedOnOnce) {
  Worker worker{.index = 0, .session = 7};
  Join(worker);
  Train(worker);
  ASSERT_TRUE(Await(worker, kPatience).has_value());
  v1::TaskResult result = ResultOf(*TaskOf(worker));
  result.set_path("/output/model.safetensors");
  result.set_warning("worker-0: the directory cannot be synced");
  SyncWith(worker, result);
  SyncWith(worker, result);
  ASSERT_EQ(Progress().warnings_size(), 1);
  EXPECT_EQ(Progress().warnings(0), "worker-0: the directory cannot be synced");
  EXPECT_EQ(Progress().model_path(), "/output/model.safetensors");
}

// Starts of worker-0 that hold leases one after the other; each ends in silence.
class ShardFailureTest : public CoordinatorTest {
 protected:
  // The leases of this start have expired when it returns.
  void LiveAndDie(std::uint32_t incarnation) {
    Worker worker{.index = 0, .session = 10 + incarnation, .process_incarnation = incarnation};
    Join(worker);
    Expire();
  }
  void Expire() { Tick(80); }  // 4 s

  void Report(std::uint32_t incarnation, bool platform, const char* role = "worker") {
    v1::ProgressRequest request;
    v1::MemberFailure* failure = request.add_failures();
    failure->set_role(role);
    failure->set_index(0);
    failure->set_process_incarnation(incarnation);
    failure->set_platform(platform);
    failure->set_cause("Killed by signal 11");
    coordinator_->ReportFailures(request);
  }
};

TEST_F(ShardFailureTest, TheThirdThatIsNotThePlatformsFailsTheJobAndNamesTheShard) {
  for (const std::uint32_t incarnation : {1u, 2u}) {
    LiveAndDie(incarnation);
    for (int again = 0; again < 5; ++again) Report(incarnation, /*platform=*/false);
    EXPECT_NE(Progress().phase(), v1::PHASE_FAILED);
  }
  LiveAndDie(3);
  EXPECT_NE(Progress().phase(), v1::PHASE_FAILED);
  Report(3, /*platform=*/false);
  EXPECT_EQ(Progress().phase(), v1::PHASE_FAILED);
  EXPECT_EQ(Progress().failure(), v1::FAILURE_DATA_SHARD);
  EXPECT_EQ(
      Progress().message(),
      "data shard 0 of epoch 1 (samples 0 to 3 in the order of that epoch) or data shard 1 of epoch 1 (samples 4 to "
      "7 in the order of that epoch) ended 3 workers that held it; the last was worker-0: Killed by signal 11");
}

TEST_F(ShardFailureTest, ThePlatformsDoNotCount) {
  for (std::uint32_t incarnation = 1; incarnation <= 6; ++incarnation) {
    LiveAndDie(incarnation);
    Report(incarnation, /*platform=*/true);
    Report(0, /*platform=*/false, "ps");  // a start before the one that is there
  }
  EXPECT_NE(Progress().phase(), v1::PHASE_FAILED);
}

TEST_F(ShardFailureTest, AReportMayComeBeforeTheLeaseHasExpired) {
  for (std::uint32_t incarnation = 1; incarnation <= 3; ++incarnation) {
    Worker worker{.index = 0, .session = 10 + incarnation, .process_incarnation = incarnation};
    Join(worker);
    Report(incarnation, /*platform=*/false);
    EXPECT_NE(Progress().phase(), v1::PHASE_FAILED);
    Expire();
  }
  EXPECT_EQ(Progress().failure(), v1::FAILURE_DATA_SHARD);
}

TEST_F(ShardFailureTest, AWorkerThatSaidGoodbyeHeldNothing) {
  for (std::uint32_t incarnation = 1; incarnation <= 4; ++incarnation) {
    Worker worker{.index = 0, .session = 10 + incarnation, .process_incarnation = incarnation};
    Join(worker);
    v1::WorkerSyncRequest request = worker.Request();
    request.set_leaving(true);
    EXPECT_EQ(coordinator_->OnSyncWorker(request, now_).status(), v1::SYNC_FINISHED);
    Report(incarnation, /*platform=*/false);
    Tick();
  }
  EXPECT_NE(Progress().phase(), v1::PHASE_FAILED);
}

TEST_F(ShardFailureTest, ANewCoordinatorCountsFromTheBeginning) {
  for (const std::uint32_t incarnation : {1u, 2u}) {
    LiveAndDie(incarnation);
    Report(incarnation, /*platform=*/false);
  }
  // What a new coordinator is told of the time before it means nothing to it.
  coordinator_ = MakeCoordinator(2);
  for (const std::uint32_t incarnation : {1u, 2u, 3u}) Report(incarnation, /*platform=*/false);
  EXPECT_NE(Progress().phase(), v1::PHASE_FAILED);
}

// Two ps, each with the standbys of the other's slices.
class ReplicatedCoordinatorTest : public CoordinatorTest {
 protected:
  void Begin(std::uint32_t factor) {
    config_.set_replication_factor(factor);
    coordinator_ = MakeCoordinator(1);
    v1::ProgressRequest wish;
    wish.mutable_ps()->set_count(2);
    coordinator_->ReportFailures(wish);
    Join(worker_);
    Run(absl::Seconds(2));
    EXPECT_EQ(coordinator_->phase(), Phase::kTraining);
    ASSERT_EQ(coordinator_->view().layout_size(), 4);
    EXPECT_EQ(Progress().replication().in_sync(), 4u);
    EXPECT_EQ(Progress().replication().factor(), factor);
    ASSERT_EQ(PushAll({0, 0, 0}), ReplyStatus::kApplied);
  }
  // Directives, what the ps tell each other, and time; a ps that is `away_` has no answer but that.
  void Run(absl::Duration time) {
    for (const Time end = now_ + time; now_ < end; now_ += kTick) {
      for (std::uint32_t index = 0; index < 2; ++index) {
        if (away_.has_value() && lost_ == index) continue;
        if (!ps_[index]->ShouldRegister(now_)) continue;
        const v1::RegisterPsReply reply = coordinator_->OnRegisterPs(ps_[index]->MakeRegistration(), now_);
        EXPECT_TRUE(ps_[index]->OnRegisterReply(reply, now_).ok());
      }
      for (const DirectCall& call : coordinator_->TakeDirectives(now_)) {
        if (away_.has_value() && lost_ == call.ps) {
          coordinator_->OnDirectReply(call.call, *away_, now_);
        } else {
          coordinator_->OnDirectReply(call.call, ps_[call.ps]->OnDirect(call.request, now_), now_);
        }
      }
      EXPECT_EQ(Sync(worker_), v1::SYNC_OK);
      Ship();
    }
  }
  void Ship() {
    for (std::uint32_t index = 0; index < 2; ++index) {
      for (const ReplicationCall& call : ps_[index]->TakeReplicationCalls(now_)) {
        std::vector<PsCore::DataReply> replies;
        if (away_.has_value()) {
          ps_[index]->OnReplicationReply(call.call, *away_, now_, &replies);
        } else {
          ps_[1 - index]->OnData(1, call.frames, &replies);
          const std::vector<Frame> answers = replies.at(0).frames;
          replies.clear();
          ps_[index]->OnReplicationReply(call.call, answers, now_, &replies);
        }
        for (const PsCore::DataReply& reply : replies) answers_.push_back(reply.frames.at(0).header.status);
      }
    }
  }
  // To the primary of each slice, as the view has it; kNone: somebody has not answered.
  ReplyStatus PushAll(const UpdateId& update) {
    worker_.view = coordinator_->view();
    answers_.clear();
    for (std::uint32_t slice = 0; slice < 4; ++slice) {
      std::vector<PsCore::DataReply> replies;
      const std::uint32_t owner = worker_.view.layout(static_cast<int>(slice)).primary();
      ps_[owner]->OnData(100 + slice, {MakeFrame(worker_, FrameKind::kPush, slice, update)}, &replies);
      for (const PsCore::DataReply& reply : replies) answers_.push_back(reply.frames.at(0).header.status);
    }
    Ship();
    const bool alike = answers_.size() == 4 && std::count(answers_.begin(), answers_.end(), answers_[0]) == 4;
    return alike ? answers_[0] : ReplyStatus::kNone;
  }
  void ExpectAllOn(std::uint32_t index) const {
    for (const v1::SlicePlacement& placement : coordinator_->view().layout()) {
      EXPECT_EQ(placement.primary(), index);
      EXPECT_FALSE(placement.has_standby());
    }
    EXPECT_EQ(coordinator_->view().ps_size(), 1);
    EXPECT_EQ(coordinator_->view().stamp().generation(), 1u);
    EXPECT_EQ(Progress().replication().failovers(), 2u);
  }

  Worker worker_{.index = 0, .session = 7};
  std::uint32_t lost_ = 1;
  std::optional<absl::Status> away_;
  std::vector<ReplyStatus> answers_;
};

TEST_F(ReplicatedCoordinatorTest, StandbysTakeOverWhenConnectionsBreak) {
  ASSERT_NO_FATAL_FAILURE(Begin(2));
  away_ = absl::UnavailableError("connection refused");
  Run(absl::Seconds(1));
  ExpectAllOn(0);
  EXPECT_EQ(coordinator_->phase(), Phase::kTraining);
  EXPECT_NE(PushAll({0, 0, 0}), ReplyStatus::kApplied) << "what was said is there";
  EXPECT_EQ(answers_, std::vector<ReplyStatus>(4, ReplyStatus::kDuplicate));
  EXPECT_EQ(PushAll({0, 0, 1}), ReplyStatus::kApplied) << "nobody waits for the one that is lost";
}

TEST_F(ReplicatedCoordinatorTest, StandbysTakeOverFromAPsThatIsSilent) {
  ASSERT_NO_FATAL_FAILURE(Begin(2));
  lost_ = 0;
  away_ = absl::DeadlineExceededError("no answer");
  Run(absl::Seconds(2));
  EXPECT_EQ(coordinator_->view().ps_size(), 2) << "it may be slow";
  Run(absl::Seconds(3));
  ExpectAllOn(1);
  EXPECT_EQ(PushAll({0, 0, 1}), ReplyStatus::kApplied);
}

TEST_F(ReplicatedCoordinatorTest, WithoutStandbysAPsIsWaitedFor) {
  ASSERT_NO_FATAL_FAILURE(Begin(1));
  const std::string before = coordinator_->view().SerializeAsString();
  for (const absl::Status& away : {absl::UnavailableError("connection refused"), absl::DeadlineExceededError("")}) {
    away_ = away;
    Run(absl::Seconds(10));
    EXPECT_EQ(coordinator_->view().SerializeAsString(), before);
    EXPECT_NE(Progress().replication().message().find("waiting for ps-1"), std::string::npos)
        << Progress().replication().message();
  }
  away_.reset();
  Run(absl::Seconds(1));
  EXPECT_EQ(coordinator_->view().SerializeAsString(), before) << "it is back";
  EXPECT_EQ(coordinator_->phase(), Phase::kTraining);
}

// A healthy job was rolled back: the manifest had been given fewer ps, so all of these had come, and those that were to
// make up the majority had not.
TEST_F(ReplicatedCoordinatorTest, ANewCoordinatorOfFewerPsAwaitsThoseThatMayDecide) {
  ASSERT_NO_FATAL_FAILURE(Begin(2));
  const auto make = [](std::uint32_t index, std::uint64_t session, std::uint32_t process_incarnation) {
    PsOptions options;
    options.job_uid = kJobUid;
    options.index = index;
    options.session = session;
    options.process_incarnation = process_incarnation;
    return *PsCore::Create(options);
  };
  const std::unique_ptr<PsCore> replacement = make(1, 201, 2);
  coordinator_ = MakeCoordinator(2);
  // As one comes that promises to hear no older coordinator, and tells then what it has.
  const auto promise = [this](PsCore& ps) {
    EXPECT_TRUE(ps.OnRegisterReply(coordinator_->OnRegisterPs(ps.MakeRegistration(), now_), now_).ok());
    return ps.MakeRegistration();
  };
  v1::RegisterPsRequest first = promise(*ps_[0]);
  ASSERT_TRUE(first.has_view());
  v1::View& view = *first.mutable_view();
  view.clear_quorum();
  for (std::uint32_t index = 0; index < 4; ++index) {
    view.add_quorum(100 + index);
    if (index < 2) continue;
    v1::PsMember& member = *view.add_ps();
    member.set_index(index);
    member.set_session(100 + index);
    member.set_process_incarnation(1);
  }
  coordinator_->OnRegisterPs(first, now_);
  coordinator_->OnRegisterPs(promise(*replacement), now_);
  for (const std::uint32_t index : {2u, 3u}) {
    for (int i = 0; i < 200; ++i) {
      EXPECT_TRUE(coordinator_->TakeDirectives(now_).empty());
      now_ += kTick;
    }
    EXPECT_EQ(coordinator_->phase(), Phase::kGathering) << "before ps-" << index;
    const std::unique_ptr<PsCore> other = make(index, 100 + index, 1);
    v1::RegisterPsRequest request = promise(*other);
    *request.mutable_view() = view;
    coordinator_->OnRegisterPs(request, now_);
    coordinator_->TakeDirectives(now_);
  }
  EXPECT_NE(coordinator_->phase(), Phase::kGathering);
  EXPECT_EQ(coordinator_->view().stamp().generation(), 1u);
  EXPECT_FALSE(Progress().parameters_lost());
}

}  // namespace
}  // namespace downpour::core
