// Jobs without parameter servers, each from one seed: coordinator and workers, a store of checkpoints, and groups that
// fail in the middle of whatever they do, as gloo's and NCCL's do: some members have the result then, and others an
// error. Every step adds one to a counter of each of its samples.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <iostream>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <optional>
#include <queue>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "trainer/checkpoint/checkpoint.h"
#include "trainer/checkpoint/directory_store.h"
#include "trainer/checkpoint/job_store.h"
#include "trainer/checkpoint/testing/fake_file_system.h"
#include "trainer/core/ring/ring_coordinator.h"
#include "trainer/core/ring/ring_worker.h"
#include "trainer/core/schedule.h"

namespace downpour::core {
namespace {

constexpr char kUid[] = "00112233445566778899aabbccddeeff";
constexpr absl::Duration kLongest = absl::Minutes(20);  // of simulated time
constexpr absl::Duration kFaultsUntil = absl::Seconds(60);

absl::StatusOr<RingWorkerCore::StepResult> ResultOf(const absl::Status& status) {
  if (!status.ok()) return status;
  return RingWorkerCore::StepResult();
}

class World {
 public:
  explicit World(std::uint64_t seed) : random_(seed) {}

  Time now() const { return now_; }
  void At(Time when, std::function<void()> what) { events_.push({std::max(when, now_), next_++, std::move(what)}); }
  void After(absl::Duration delay, std::function<void()> what) { At(now_ + delay, std::move(what)); }
  // False: nothing is left to do.
  bool Step() {
    if (events_.empty()) return false;
    const Event event = events_.top();
    events_.pop();
    now_ = event.when;
    event.what();
    return true;
  }
  std::uint32_t Below(std::uint32_t end) { return static_cast<std::uint32_t>(random_() % end); }
  bool Chance(double part) { return std::uniform_real_distribution<double>(0, 1)(random_) < part; }
  absl::Duration Between(absl::Duration least, absl::Duration most) {
    return least + (most - least) * std::uniform_real_distribution<double>(0, 1)(random_);
  }

 private:
  struct Event {
    Time when;
    std::uint64_t number;
    std::function<void()> what;
    bool operator<(const Event& other) const { return when != other.when ? when > other.when : number > other.number; }
  };
  std::mt19937_64 random_;
  Time now_ = absl::Seconds(1000);
  std::uint64_t next_ = 0;
  std::priority_queue<Event> events_;
};

struct Worker;

// One end of a group; a round is one operation of all of them.
struct Group {
  int size = 0;
  std::map<int, Worker*> members;  // by rank, that have come
  bool broken = false;
  std::string round;                                         // what it is
  std::map<int, std::function<void(absl::Status)>> waiting;  // of the round, by rank
  std::uint64_t rounds = 0;
  // Of the round.
  std::map<int, RingPosition> positions;
  std::map<int, std::vector<std::vector<float>>> sums;  // by slice
  std::vector<std::vector<float>> reduced;
  std::vector<SliceSnapshot> healed;
  // Of a divided state.
  struct Fragment {
    std::vector<float> values;
    OptimizerState state;
  };
  std::vector<Fragment> fragments;
  std::map<int, std::vector<float>> flats;  // by rank, as they lie in the layout
  std::vector<float> gathered;
  std::vector<SliceSnapshot> whole;  // that came together at rank 0
};

struct Worker {
  std::uint32_t index = 0;
  std::uint32_t incarnation = 1;
  bool alive = true;
  Time paused_until = absl::ZeroDuration();
  std::optional<RingWorkerCore> core;
  std::shared_ptr<Group> group;
  int rank = 0;
  bool tick_set = false;
  std::uint64_t round = 0;
  std::function<void(absl::Status)> pending;  // hears of the operation that it is in; at most one
  std::vector<float> flat;  // sums of its share, then new values; where there are none, what must not be looked at
};

class Job {
 public:
  Job(std::uint64_t seed, PlantedBug bug, bool divided = false) : world_(seed), files_(seed), bug_(bug) {
    config_.set_job_uid(kUid);
    config_.set_epochs(2 + world_.Below(4));
    config_.set_batch_size(4 + world_.Below(5));
    config_.set_seed(seed);
    config_.set_mode(v1::SYNCHRONOUS);
    config_.set_workers(1 + world_.Below(4));
    config_.set_updates_per_step(config_.workers());
    config_.set_evaluate(world_.Chance(0.5));
    config_.mutable_all_reduce();
    config_.mutable_optimizer()->set_type(v1::SGD);
    config_.mutable_optimizer()->set_learning_rate(1);
    samples_ = 200 + world_.Below(1000);
    if (world_.Chance(0.5)) {
      config_.mutable_checkpoint()->set_uri("/store");
      config_.mutable_checkpoint()->set_interval_seconds(1 + world_.Below(3));
    }
    if (world_.Chance(0.3)) {
      config_.mutable_all_reduce()->set_batch_policy(v1::AllReduceConfig::SCALE_LEARNING_RATE);
    }
    if (divided) {
      config_.mutable_all_reduce()->set_state_copies(1 + world_.Below(3));
    }
    if (divided && !Scales()) {
      config_.mutable_optimizer()->set_type(v1::MOMENTUM);
      config_.mutable_optimizer()->set_momentum(0.9);
    }
  }

  // One worker at a time is killed or leaves, or none reaches the coordinator, and the others have time to get, or to
  // divide anew, what it had.
  std::vector<std::string> RunGently() {
    config_.set_workers(2 + world_.Below(4));
    config_.set_updates_per_step(config_.workers());
    config_.set_epochs(12);
    if (config_.all_reduce().state_copies() > 0) config_.mutable_all_reduce()->set_state_copies(2);
    config_.mutable_all_reduce()->set_batch_policy(v1::AllReduceConfig::KEEP_GLOBAL_BATCH);
    if (config_.all_reduce().state_copies() > 0) {
      config_.mutable_optimizer()->set_type(v1::MOMENTUM);
      config_.mutable_optimizer()->set_momentum(0.9);
    }
    world_.After(absl::Seconds(3), [this] { Lose(); });
    return Run(/*faults=*/false);
  }

  std::vector<std::string> Run(bool faults) {
    StartCoordinator();
    for (std::uint32_t index = 0; index < config_.workers(); ++index) StartWorker(index);
    if (faults) world_.After(absl::Seconds(1), [this] { Fault(); });
    world_.After(absl::Milliseconds(200), [this] { Ask(); });
    const Time end = world_.now() + kLongest;
    while (violations_.empty() && !done_ && world_.now() < end && world_.Step()) {
    }
    if (!done_ && violations_.empty()) violations_.push_back(absl::StrCat("the job hangs: ", WhatOfIt()));
    return violations_;
  }

  std::uint64_t kills = 0, rings = 0, restarted = 0, heals = 0, partial = 0, unseen = 0, finished = 0, halved = 0,
                written = 0, loaded = 0, cuts = 0, began = 0;

 private:
  // ---- coordinator
  void StartCoordinator() {
    CoordinatorOptions options;
    options.config = config_;
    options.incarnation = ++coordinator_incarnation_;
    options.bug = bug_;
    coordinator_.emplace(options, world_.now());
    store_ = *checkpoint::JobStore::Create(
        config_, options.incarnation, [this](const std::string& uri) { return OpenStore(uri); },
        [this] { return absl::ToDoubleSeconds(world_.now()); });
    TickCoordinator(coordinator_incarnation_);
  }
  void TickCoordinator(std::uint32_t incarnation) {
    if (!coordinator_.has_value() || incarnation != coordinator_incarnation_) return;
    coordinator_->TakeDirectives(world_.now());
    for (const StoreCall& call : coordinator_->TakeStoreCalls()) {
      world_.After(StoreDelay(), [this, incarnation, call] {
        if (!coordinator_.has_value() || incarnation != coordinator_incarnation_) return;
        const StoreReply reply = store_->CarryOut(call);
        if (call.kind == StoreCall::Kind::kCommit && reply.status.ok()) ++written;
        world_.After(StoreDelay(), [this, incarnation, id = call.call, reply] {
          if (coordinator_.has_value() && incarnation == coordinator_incarnation_) {
            coordinator_->OnStoreReply(id, reply, world_.now());
          }
        });
      });
    }
    world_.At(std::max(coordinator_->next_timer(), world_.now() + absl::Milliseconds(1)),
              [this, incarnation] { TickCoordinator(incarnation); });
  }
  absl::Duration StoreDelay() {
    return world_.Between(absl::Milliseconds(1), absl::Milliseconds(world_.Chance(0.1) ? 900 : 50));
  }
  std::unique_ptr<checkpoint::Store> OpenStore(const std::string& uri) {
    return checkpoint::MakeDirectoryStore(files_, uri);
  }
  // Whoever runs the job.
  void Ask() {
    world_.After(absl::Milliseconds(200), [this] { Ask(); });
    if (!coordinator_.has_value()) return;
    v1::ProgressRequest request;
    request.set_job_uid(kUid);
    for (const auto& [index, incarnation] : ended_) {
      v1::MemberFailure* failure = request.add_failures();
      failure->set_role("worker");
      failure->set_index(index);
      failure->set_process_incarnation(incarnation);
    }
    coordinator_->ReportFailures(request);
    coordinator_->TakeDirectives(world_.now());
    const v1::ProgressReply progress = coordinator_->GetProgress(world_.now());
    const v1::View& view = coordinator_->view();
    const bool scales = config_.all_reduce().batch_policy() == v1::AllReduceConfig::SCALE_LEARNING_RATE;
    if (scales && view.ring_size() > 0 &&
        (view.updates_per_step() != static_cast<std::uint32_t>(view.ring_size()) ||
         RateScale(view) != static_cast<double>(view.ring_size()) / config_.workers())) {
      violations_.push_back(absl::StrCat(view.updates_per_step(), " updates a step, ", RateScale(view),
                                         " times the rate with ", view.ring_size(), " of ", config_.workers()));
    }
    if (progress.phase() == v1::PHASE_FAILED)
      violations_.push_back(absl::StrCat("the job failed: ", progress.message()));
    if (progress.phase() == v1::PHASE_DONE) Finish();
  }

  // ---- workers
  void StartWorker(std::uint32_t index) {
    auto worker = std::make_unique<Worker>();
    worker->index = index;
    worker->incarnation = ++incarnations_[index];
    RingWorkerOptions options;
    options.job_uid = kUid;
    options.index = index;
    options.process_incarnation = worker->incarnation;
    v1::TensorSpec tensor;
    tensor.set_name("samples");
    tensor.set_type(v1::FLOAT32);
    tensor.add_shape(static_cast<std::int64_t>(samples_));
    options.tensors = {tensor};
    tensor.set_name("updates");
    tensor.clear_shape();
    tensor.add_shape(3);
    options.tensors.push_back(tensor);
    options.sample_count = samples_;
    options.address = absl::StrCat("worker-", index, ".", worker->incarnation);
    options.bug = bug_;
    worker->core.emplace(options, [this] { return next_session_++; });
    Worker* const started = worker.get();
    workers_[index] = started;
    all_.push_back(std::move(worker));
    On(started, [this, started](RingOutput* output) { started->core->Start(world_.now(), output); });
  }
  Worker* Find(std::uint32_t index) {
    const auto found = workers_.find(index);
    return found == workers_.end() || !found->second->alive ? nullptr : found->second;
  }

  // Something happens at the worker, when it is not paused.
  void On(Worker* worker, std::function<void(RingOutput*)> event) {
    if (!worker->alive) return;
    if (world_.now() < worker->paused_until) {
      return world_.At(worker->paused_until, [this, worker, event] { On(worker, event); });
    }
    RingOutput output;
    event(&output);
    if (output.abort) LeaveGroup(worker);
    if (output.cut.has_value()) {
      world_.After(StoreDelay(), [this, worker, cut = *std::move(output.cut)] { Write(worker, cut); });
    }
    for (SyncCall& call : output.syncs) Send(worker, std::move(call));
    if (output.work.has_value()) {
      const RingWork work = *output.work;
      world_.After(world_.Between(absl::ZeroDuration(), absl::Milliseconds(5)),
                   [this, worker, work] { Work(worker, work); });
    }
    if (worker->core->finished().has_value()) {
      LeaveGroup(worker);
      worker->alive = false;
      if (worker->core->finished()->ok()) {
        // Another takes its place, if the job is not over.
        world_.After(world_.Between(absl::Seconds(1), absl::Seconds(6)), [this, index = worker->index] {
          if (!done_ && index < config_.workers() && Find(index) == nullptr) StartWorker(index);
        });
        return;
      }
      if (!absl::IsAborted(*worker->core->finished())) {
        violations_.push_back(
            absl::StrCat("worker-", worker->index, " gave up: ", worker->core->finished()->ToString()));
      }
      return;
    }
    if (worker->tick_set) return;
    worker->tick_set = true;
    world_.At(std::max(worker->core->next_timer(), world_.now() + absl::Milliseconds(1)), [this, worker] {
      worker->tick_set = false;
      On(worker, [this, worker](RingOutput* next) { worker->core->OnTimer(world_.now(), next); });
    });
  }

  void Write(Worker* worker, const RingCut& cut) {
    if (!worker->alive) return;
    const std::unique_ptr<checkpoint::Store> store = OpenStore(config_.checkpoint().uri());
    checkpoint::PsCut part{cut.checkpoint, kUid, 0, cut.tensors, cut.data, {}};
    part.slices.resize(cut.slices.size());
    std::iota(part.slices.begin(), part.slices.end(), 0);
    const absl::StatusOr<v1::PsFiles> files = checkpoint::WritePsFiles(
        *store, part, [&](std::uint32_t slice) -> absl::StatusOr<SliceSnapshot> { return cut.slices[slice]; });
    world_.After(StoreDelay(), [this, worker, number = cut.cut, files] {
      On(worker, [this, worker, number, files](RingOutput* output) {
        worker->core->OnCutWritten(number, files, world_.now(), output);
      });
    });
  }
  absl::Status Load(const v1::RestoreSource& source, RingReplica* replica) {
    ++loaded;
    const std::unique_ptr<checkpoint::Store> store = OpenStore(source.store());
    const absl::StatusOr<v1::CheckpointManifest> manifest = checkpoint::ReadManifest(*store, source.checkpoint());
    if (!manifest.ok()) return manifest.status();
    std::vector<std::uint32_t> slices(replica->slices().size());
    std::iota(slices.begin(), slices.end(), 0);
    return checkpoint::ReadSlices(*store, source.checkpoint(), *manifest, slices,
                                  [&](const SliceSnapshot& snapshot) { return replica->Import(snapshot); });
  }

  absl::Duration Delay() {
    return world_.Between(absl::Milliseconds(0.2), absl::Milliseconds(world_.Chance(0.02) ? 400 : 6));
  }

  void Send(Worker* worker, SyncCall call) {
    last_[worker] = call.request.ring();
    auto answered = std::make_shared<bool>(false);
    const auto answer = [this, worker, id = call.call, answered](const absl::StatusOr<v1::WorkerSyncReply>& reply) {
      if (std::exchange(*answered, true)) return;
      On(worker,
         [this, worker, id, reply](RingOutput* output) { worker->core->OnSyncReply(id, reply, world_.now(), output); });
    };
    world_.After(call.deadline, [answer] { answer(absl::DeadlineExceededError("no answer")); });
    if (cut_off_.count(worker->index) != 0 || world_.Chance(0.01)) return;
    const int copies = world_.Chance(0.02) ? 2 : 1;
    for (int copy = 0; copy < copies; ++copy) {
      world_.After(Delay(), [this, worker, call, answer] {
        if (!coordinator_.has_value()) return;
        const v1::WorkerSyncReply reply = coordinator_->OnSyncWorker(call.request, world_.now());
        CheckProgress();
        if (coordinator_->fenced().has_value()) violations_.push_back("the only coordinator is fenced");
        if (cut_off_.count(worker->index) != 0 || world_.Chance(0.01)) return;
        world_.After(Delay(), [answer, reply] { answer(reply); });
      });
    }
  }

  // Whoever has taken a step may be lost before the others have: that one is done again, and no more. A coordinator
  // knows what it was told itself.
  void CheckProgress() {
    const v1::ProgressReply progress = coordinator_->GetProgress(world_.now());
    const v1::View& view = coordinator_->view();
    const bool scales = config_.all_reduce().batch_policy() == v1::AllReduceConfig::SCALE_LEARNING_RATE;
    if (scales && view.ring_size() > 0 &&
        (view.updates_per_step() != static_cast<std::uint32_t>(view.ring_size()) ||
         RateScale(view) != static_cast<double>(view.ring_size()) / config_.workers())) {
      violations_.push_back(absl::StrCat(view.updates_per_step(), " updates a step, ", RateScale(view),
                                         " times the rate with ", view.ring_size(), " of ", config_.workers()));
    }
    // A coordinator that began anew may have heard of an older ring alone.
    if (!progress.has_view() || progress.phase() == v1::PHASE_RECOVERING) return;
    std::uint64_t& most = most_[{progress.view().generation(), coordinator_incarnation_}];
    const std::uint64_t width = std::max<std::uint64_t>(coordinator_->view().updates_per_step(), incarnations_.size());
    if (progress.updates_applied() > 0 && progress.updates_applied() + width < most) {
      violations_.push_back(absl::StrCat("from ", most, " updates back to ", progress.updates_applied()));
    }
    most = std::max(most, progress.updates_applied());
  }

  // ---- groups
  void LeaveGroup(Worker* worker) {
    if (const auto pending = std::exchange(worker->pending, nullptr); pending != nullptr) {
      world_.After(Delay(), [pending] { pending(absl::AbortedError("the group was left")); });
    }
    if (worker->group == nullptr) return;
    BreakGroup(std::exchange(worker->group, nullptr));
  }
  void BreakGroup(const std::shared_ptr<Group>& group) {
    group->broken = true;
    for (auto& [rank, wake] : std::exchange(group->waiting, {})) {
      world_.After(Delay(), [wake = wake] { wake(absl::UnavailableError("a member of the group is gone")); });
    }
  }

  // The worker enters the next operation of its group; `done` hears how it ended, once. `last` is called when all have.
  void Enter(Worker* worker, const std::string& round, const std::function<void(Group&)>& last,
             std::function<void(absl::Status)> done) {
    worker->pending = std::move(done);
    const auto answer = [worker, round = ++worker->round](const absl::Status& status) {
      if (worker->round != round) return;
      if (const auto pending = std::exchange(worker->pending, nullptr); pending != nullptr) pending(status);
    };
    const std::shared_ptr<Group> group = worker->group;
    if (group == nullptr || group->broken) {
      world_.After(Delay(), [answer] { answer(absl::UnavailableError("the group is broken")); });
      return;
    }
    if (group->waiting.empty()) group->round = round;
    if (group->round != round) {
      violations_.push_back(absl::StrCat("worker-", worker->index, " does ", round, " and others do ", group->round));
    }
    group->waiting[worker->rank] = answer;
    if (static_cast<int>(group->waiting.size()) < group->size) return;
    last(*group);
    for (auto& [rank, wake] : std::exchange(group->waiting, {})) {
      world_.After(world_.Between(absl::Milliseconds(0.2), absl::Milliseconds(40)), [this, group, wake = wake] {
        // Somebody's end may have come before the last bytes of the others.
        const bool fails = group->broken && world_.Chance(0.5);
        if (fails) ++partial;
        wake(fails ? absl::UnavailableError("a member of the group is gone") : absl::OkStatus());
      });
    }
  }

  void Work(Worker* worker, const RingWork& work) {
    if (!worker->alive) return;
    if (world_.now() < worker->paused_until) {
      return world_.At(worker->paused_until, [this, worker, work] { Work(worker, work); });
    }
    switch (work.kind) {
      case RingWork::Kind::kForm:
        return Form(worker, work);
      case RingWork::Kind::kAlign:
        if (worker->group != nullptr) worker->group->positions[worker->rank] = worker->core->position();
        return Enter(
            worker, "align", [](Group&) {},
            [this, worker, group = worker->group, work](const absl::Status& status) {
              std::vector<RingPosition> told;
              if (status.ok()) {
                for (const auto& [rank, position] : group->positions) told.push_back(position);
              }
              const auto positions = status.ok() ? absl::StatusOr<std::vector<RingPosition>>(told) : status;
              On(worker, [this, worker, work, positions](RingOutput* output) {
                worker->core->OnAligned(work.token, positions, world_.now(), output);
              });
            });
      case RingWork::Kind::kBegin:
        began = std::max(began, work.view.stamp().generation());
        if (work.view.has_restore()) {
          const absl::Status status = Load(work.view.restore(), worker->core->replica());
          if (!status.ok()) violations_.push_back(absl::StrCat("a checkpoint cannot be loaded: ", status.ToString()));
          return On(worker, [this, worker, work, status](RingOutput* output) {
            worker->core->OnBegun(work.token, status, world_.now(), output);
          });
        }
        for (std::uint32_t slice = 0; slice < worker->core->replica()->slices().size(); ++slice) {
          const std::vector<float> zeros(worker->core->replica()->slices()[slice].elements);
          worker->core->replica()->Initialise(slice, Payload::OfFloats(zeros, nullptr));
        }
        ++restarted;
        return On(worker, [this, worker, work](RingOutput* output) {
          worker->core->OnBegun(work.token, absl::OkStatus(), world_.now(), output);
        });
      case RingWork::Kind::kHeal:
        return Heal(worker, work);
      case RingWork::Kind::kSettle:
        return Enter(
            worker, "settle", [](Group&) {},
            [this, worker, work](const absl::Status& status) {
              On(worker, [this, worker, work, status](RingOutput* output) {
                worker->core->OnSettled(work.token, status, world_.now(), output);
              });
            });
      case RingWork::Kind::kGather:
        return Gather(worker, work);
      case RingWork::Kind::kStep:
        return world_.After(world_.Between(absl::Milliseconds(2), absl::Milliseconds(40)),
                            [this, worker, work] { StepOf(worker, work); });
      case RingWork::Kind::kTask:
        return world_.After(world_.Between(absl::Milliseconds(5), absl::Milliseconds(300)), [this, worker, work] {
          On(worker, [this, worker, work](RingOutput* output) {
            v1::TaskResult result;
            result.set_loss(1);
            result.set_samples(10);
            worker->core->OnTaskDone(work.token, result, world_.now(), output);
          });
        });
    }
  }

  void Form(Worker* worker, const RingWork& work) {
    LeaveGroup(worker);
    const v1::ViewStamp& stamp = work.view.stamp();
    const std::string key = absl::StrCat(stamp.generation(), ".", stamp.incarnation(), ".", stamp.epoch());
    std::shared_ptr<Group>& group = groups_[key];
    if (group == nullptr) {
      group = std::make_shared<Group>();
      group->size = work.view.ring_size();
      ++rings;
    }
    worker->group = group;
    worker->rank = work.rank;
    group->members[work.rank] = worker;
    const auto formed = [this, worker, work](const absl::Status& status) {
      On(worker, [this, worker, work, status](RingOutput* output) {
        worker->core->OnFormed(work.token, status, world_.now(), output);
      });
    };
    // Whoever does not come is not waited for for ever.
    world_.After(absl::Seconds(5), [this, worker, round = worker->round + 1, group = group] {
      if (worker->alive && worker->round == round && worker->pending != nullptr) BreakGroup(group);
    });
    Enter(
        worker, "form", [](Group&) {}, formed);
  }

  void HealDivided(Worker* worker, const RingWork& work) {
    RingReplica& own = *worker->core->replica();
    if (work.recovery.finish) {
      ++finished;
      const RingReplica::Step step = own.PreparedStep(work.recovery.last);
      if (step.verdict == Verdict::kApply) {
        own.UpdateHeld(step, [&](std::uint32_t slice) { return OfSlice(&worker->flat, own, slice); });
        own.LoseOthers();
      }
      own.TakeStep(step, [&](std::uint32_t slice) { return OfSlice(&worker->flat, own, slice); });
    }
    Enter(
        worker, "heal",
        [work](Group& group) {
          const RingReplica& replica = *group.members[work.source]->core->replica();
          group.healed.clear();
          group.fragments.clear();
          for (std::uint32_t slice = 0; slice < replica.slices().size(); ++slice)
            group.healed.push_back(replica.Export(slice));
          for (const StateFragment& fragment : work.recovery.fragments) {
            const RingReplica& source = *group.members[fragment.source]->core->replica();
            const std::vector<float>& values = *source.value(fragment.slice);
            const auto first = values.begin() + static_cast<std::ptrdiff_t>(fragment.offset);
            group.fragments.push_back({{first, first + static_cast<std::ptrdiff_t>(fragment.values.size())},
                                       source.ExportFragment(fragment)});
          }
        },
        [this, worker, work, group = worker->group](absl::Status status) {
          RingReplica& replica = *worker->core->replica();
          if (status.ok()) {
            RingReplica::Assembly assembly(replica, work.recovery.share);
            for (const SliceSnapshot& snapshot : group->healed) assembly.Add(snapshot);
            for (std::size_t i = 0; i < group->fragments.size() && status.ok(); ++i) {
              status = assembly.Add(work.recovery.fragments[i], group->fragments[i].values, group->fragments[i].state);
            }
            if (status.ok()) status = replica.Install(std::move(assembly), work.recovery.keeps);
            if (status.ok()) replica.RememberLast(work.recovery.last);
            if (!status.ok())
              violations_.push_back(absl::StrCat("what came together does not fit: ", status.ToString()));
          }
          On(worker, [this, worker, work, status](RingOutput* output) {
            worker->core->OnHealed(work.token, status, world_.now(), output);
          });
        });
  }

  void Gather(Worker* worker, const RingWork& work) {
    Enter(
        worker, absl::StrCat("gather ", work.cut),
        [this](Group& group) {
          const RingReplica& first = *group.members[0]->core->replica();
          std::vector<std::vector<StateShare>> shares;
          for (const auto& [rank, member] : group.members) {
            const RingReplica& replica = *member->core->replica();
            shares.push_back(replica.shares());
            if (replica.updates() != first.updates()) violations_.push_back("states of different steps come together");
          }
          const auto fragments = PlanFragments(first.layout(), first.slices(), first.view().state_copies(), shares);
          RingReplica::Assembly all(first, StateShare());
          for (std::uint32_t slice = 0; slice < first.slices().size(); ++slice) all.Add(first.Export(slice));
          for (const StateFragment& fragment : *fragments) {
            const RingReplica& source = *group.members[fragment.source]->core->replica();
            const std::vector<float>& values = *source.value(fragment.slice);
            const absl::Status added =
                all.Add(fragment, absl::MakeConstSpan(values).subspan(fragment.offset, fragment.values.size()),
                        source.ExportFragment(fragment));
            if (!added.ok()) violations_.push_back(added.ToString());
          }
          group.whole = all.TakeSlices();
        },
        [this, worker, work, group = worker->group](const absl::Status& status) {
          absl::StatusOr<std::vector<SliceSnapshot>> slices = std::vector<SliceSnapshot>();
          if (!status.ok()) slices = status;
          if (status.ok() && worker->rank == 0) slices = group->whole;
          On(worker, [this, worker, work, slices](RingOutput* output) {
            worker->core->OnGathered(work.token, slices, world_.now(), output);
          });
        });
  }

  static absl::Span<float> OfSlice(std::vector<float>* flat, const RingReplica& replica, std::uint32_t slice) {
    const Slice& part = replica.slices()[slice];
    return absl::MakeSpan(*flat).subspan(replica.layout().tensor(part.tensor).begin + part.offset, part.elements);
  }

  bool Scales() const { return config_.all_reduce().batch_policy() == v1::AllReduceConfig::SCALE_LEARNING_RATE; }

  // Not finite at times, as all find alike.
  Verdict VerdictOf(const std::vector<UpdateId>& updates) const {
    if (Scales()) return Verdict::kApply;  // where each sample is counted
    return (updates.front().dataset_epoch + updates.front().data_shard) % 5 == 3 ? Verdict::kSkip : Verdict::kApply;
  }

  void Heal(Worker* worker, const RingWork& work) {
    ++heals;
    if (worker->core->replica()->divided()) return HealDivided(worker, work);
    Enter(
        worker, "heal",
        [work](Group& group) {
          const RingReplica& replica = *group.members[work.source]->core->replica();
          group.healed.clear();
          for (std::uint32_t slice = 0; slice < replica.slices().size(); ++slice)
            group.healed.push_back(replica.Export(slice));
        },
        [this, worker, work, group = worker->group](absl::Status status) {
          const bool keeps = bug_ == PlantedBug::kOwnStateKept && worker->core->position().known;
          if (status.ok() && worker->rank != work.source && !keeps) {
            for (const SliceSnapshot& snapshot : group->healed) {
              if (status.ok()) status = worker->core->replica()->Import(snapshot);
            }
          }
          On(worker, [this, worker, work, status](RingOutput* output) {
            worker->core->OnHealed(work.token, status, world_.now(), output);
          });
        });
  }

  // By slice, of those updates that are a worker's own.
  static std::vector<std::vector<float>> SumsOf(const RingReplica& replica, const std::vector<UpdateId>& updates,
                                                const std::vector<UpdateId>& own) {
    std::vector<std::vector<float>> sums;
    for (std::uint32_t slice = 0; slice < replica.slices().size(); ++slice) {
      sums.emplace_back(replica.slices()[slice].elements);
      const auto whole =
          static_cast<float>(static_cast<double>(replica.SamplesFor(slice, updates)) / RateScale(replica.view()));
      for (const UpdateId& update : own) {
        if (slice == 1) {
          sums[1][0] -= whole;
          continue;
        }
        for (const std::int64_t sample : replica.plan().SampleIndices(update))
          sums[0][static_cast<std::size_t>(sample)] -= whole;
      }
    }
    return sums;
  }

  void StepOf(Worker* worker, const RingWork& work) {
    if (!worker->alive) return;
    if (world_.now() < worker->paused_until) {
      return world_.At(worker->paused_until, [this, worker, work] { StepOf(worker, work); });
    }
    RingReplica& replica = *worker->core->replica();
    std::vector<std::vector<float>> sums = SumsOf(replica, work.updates, work.own);
    const std::shared_ptr<Group> group = worker->group;
    if (group != nullptr) group->sums[worker->rank] = std::move(sums);
    Enter(
        worker, "step",
        [](Group& all) {
          all.reduced = all.sums.begin()->second;
          for (auto sum = std::next(all.sums.begin()); sum != all.sums.end(); ++sum) {
            for (std::size_t slice = 0; slice < all.reduced.size(); ++slice) {
              for (std::size_t i = 0; i < all.reduced[slice].size(); ++i)
                all.reduced[slice][i] += sum->second[slice][i];
            }
          }
          all.sums.clear();
        },
        [this, worker, work, group](const absl::Status& status) {
          if (status.ok() && worker->core->replica()->divided()) return TakePrepared(worker, work, group);
          const bool counts = status.ok() || bug_ == PlantedBug::kStepDoneWhenOwnIs;
          const bool dropped = !status.ok() && bug_ == PlantedBug::kSamplesOfAbortedDropped;
          if (counts || dropped) TakeStep(worker, work, group == nullptr ? Group() : *group, dropped);
          On(worker, [this, worker, work, status](RingOutput* output) {
            worker->core->OnStepTaken(work.token, ResultOf(status), world_.now(), output);
          });
        });
  }

  // With a divided state: the sums of its share are there; once all say so it counts; then the new values go to all.
  void TakePrepared(Worker* worker, const RingWork& work, const std::shared_ptr<Group>& group) {
    RingReplica& replica = *worker->core->replica();
    std::vector<float> reduced(replica.layout().size());
    for (std::uint32_t slice = 0; slice < replica.slices().size(); ++slice) {
      std::copy(group->reduced[slice].begin(), group->reduced[slice].end(), OfSlice(&reduced, replica, slice).begin());
    }
    const auto rank = static_cast<std::uint32_t>(worker->rank), size = static_cast<std::uint32_t>(group->size);
    const auto copy = [&](std::uint32_t copies, const std::vector<float>& from) {
      for (const Range& range : RangesOf({rank, size}, copies, replica.layout())) {
        for (std::size_t i = range.begin; i < range.end; ++i) worker->flat[i] = from[i];
      }
    };
    worker->flat.assign(reduced.size(), std::numeric_limits<float>::quiet_NaN());
    const std::vector<float> none(reduced.size());
    copy(replica.view().state_copies(), bug_ == PlantedBug::kCopiesNotUpdated ? none : reduced);
    copy(1, reduced);
    replica.Prepare(work.updates);
    const auto answer = [this, worker, work](const absl::Status& status) {
      On(worker, [this, worker, work, status](RingOutput* output) {
        worker->core->OnStepTaken(work.token, ResultOf(status), world_.now(), output);
      });
    };
    Enter(
        worker, "norms", [](Group&) {},
        [this, worker, work, group, answer](const absl::Status& prepared) {
          if (!prepared.ok()) return answer(prepared);
          RingReplica& own = *worker->core->replica();
          const RingReplica::Step step{work.updates, VerdictOf(work.updates), 1};
          const auto values = [worker, &own](std::uint32_t slice) { return OfSlice(&worker->flat, own, slice); };
          if (step.verdict == Verdict::kSkip) {
            own.TakeStep(step, values);
            return answer(absl::OkStatus());
          }
          own.UpdateHeld(step, values);
          group->flats[worker->rank] = worker->flat;
          Enter(
              worker, "values",
              [&own](Group& all) {
                all.gathered.resize(own.layout().size());
                for (const auto& [of, flat] : all.flats) {
                  for (const Range& range : RangesOf(
                           {static_cast<std::uint32_t>(of), static_cast<std::uint32_t>(all.size)}, 1, own.layout())) {
                    for (std::size_t i = range.begin; i < range.end; ++i) all.gathered[i] = flat[i];
                  }
                }
                all.flats.clear();
              },
              [this, worker, step, group, answer](const absl::Status& gathered) {
                RingReplica& after = *worker->core->replica();
                if (gathered.ok()) worker->flat = group->gathered;
                after.TakeStep(step, [&](std::uint32_t slice) { return OfSlice(&worker->flat, after, slice); });
                if (!gathered.ok()) {
                  ++halved;
                  after.LoseOthers();
                }
                answer(gathered);
              });
        });
  }

  // What a job has that nothing ever happened to.
  RingReplica Undisturbed() const {
    RingReplica replica = *RingReplica::Create([&] {
      v1::View view = coordinator_->view();
      view.set_state_copies(0);
      view.set_state_holders(0);
      return view;
    }());
    for (std::uint32_t slice = 0; slice < replica.slices().size(); ++slice) {
      const std::vector<float> zeros(replica.slices()[slice].elements);
      replica.Initialise(slice, Payload::OfFloats(zeros, nullptr));
    }
    for (;;) {
      const std::vector<UpdateId> updates = replica.NextStep();
      if (updates.empty()) return replica;
      std::vector<std::vector<float>> sums = SumsOf(replica, updates, updates);
      replica.TakeStep({updates, VerdictOf(updates), 1},
                       [&](std::uint32_t slice) { return absl::MakeConstSpan(sums[slice]); });
    }
  }

  void TakeStep(Worker* worker, const RingWork& work, const Group& group, bool skip) {
    RingReplica& replica = *worker->core->replica();
    RingReplica::Step step;
    step.updates = work.updates;
    step.verdict = skip ? Verdict::kSkip : Verdict::kApply;
    std::vector<std::vector<float>> sums = group.reduced;
    if (sums.empty()) {
      for (const Slice& slice : replica.slices()) sums.emplace_back(slice.elements);
    }
    replica.TakeStep(step, [&](std::uint32_t slice) { return absl::MakeConstSpan(sums[slice]); });
  }

  // ---- faults
  // Two at least, each of which has said that it has the state, or its share of one that is divided.
  bool HaveState(const v1::View& view) {
    for (const v1::RingMember& member : view.ring()) {
      const Worker* const worker = Find(member.index());
      if (worker == nullptr || worker->core->session() != member.session()) return false;
      const v1::RingState& told = last_[worker];
      if (!told.has_took() || CompareStamps(told.joined(), view.stamp()) != 0) return false;
      if (view.state_copies() == 0) continue;
      if (told.shares_size() != 1) return false;
      if (told.shares(0).holders() != static_cast<std::uint32_t>(view.ring_size())) return false;
    }
    return view.ring_size() > 1;
  }
  void Lose() {
    world_.After(world_.Between(absl::Seconds(6), absl::Seconds(9)), [this] { Lose(); });
    const std::uint32_t index = world_.Below(config_.workers());
    Worker* const worker = Find(index);
    if (worker == nullptr || !cut_off_.empty() || !HaveState(coordinator_->view())) return;
    if (world_.Chance(0.25)) {
      // All, from the coordinator: longer than a lease, at times.
      ++cuts;
      for (const auto& [other, incarnation] : incarnations_) cut_off_.insert(other);
      return world_.After(world_.Between(absl::Milliseconds(100), absl::Seconds(15)), [this] { cut_off_.clear(); });
    }
    if (world_.Chance(0.3)) {
      return On(worker, [this, worker](RingOutput* output) { worker->core->Leave(world_.now(), output); });
    }
    ++kills;
    worker->alive = false;
    LeaveGroup(worker);
    if (world_.Chance(0.5)) ended_.emplace(worker->index, worker->incarnation);
    world_.After(world_.Between(absl::Milliseconds(100), absl::Seconds(1)), [this, index] {
      if (Find(index) == nullptr) StartWorker(index);
    });
  }

  void Fault() {
    if (world_.now() > absl::Seconds(1000) + kFaultsUntil) {
      cut_off_.clear();
      for (std::uint32_t index = 0; index < config_.workers(); ++index) {
        if (Find(index) == nullptr) StartWorker(index);
      }
      if (!coordinator_.has_value()) StartCoordinator();
      return;
    }
    world_.After(world_.Between(absl::Milliseconds(20), absl::Seconds(2.5)), [this] { Fault(); });
    const std::uint32_t index = world_.Below(static_cast<std::uint32_t>(incarnations_.size()));
    Worker* const worker = Find(index);
    switch (world_.Below(8)) {
      case 0:
      case 1:
      case 2:
        if (worker == nullptr) {
          StartWorker(index);
          break;
        }
        ++kills;
        worker->alive = false;
        LeaveGroup(worker);
        if (world_.Chance(0.5)) ended_.emplace(worker->index, worker->incarnation);
        world_.After(world_.Between(absl::Milliseconds(100), absl::Seconds(6)), [this, index] {
          if (Find(index) == nullptr) StartWorker(index);
        });
        break;
      case 3:
        if (worker != nullptr)
          worker->paused_until = world_.now() + world_.Between(absl::Milliseconds(100), absl::Seconds(9));
        break;
      case 4:
        if (worker == nullptr) break;
        cut_off_.insert(index);
        world_.After(world_.Between(absl::Milliseconds(100), absl::Seconds(9)),
                     [this, index] { cut_off_.erase(index); });
        break;
      case 5:
        if (!coordinator_.has_value()) break;
        coordinator_.reset();
        world_.After(world_.Between(absl::Milliseconds(50), absl::Seconds(5)), [this] {
          if (!coordinator_.has_value()) StartCoordinator();
        });
        break;
      case 6:
        if (worker != nullptr && world_.Chance(0.5)) {
          On(worker, [this, worker](RingOutput* output) { worker->core->Leave(world_.now(), output); });
        } else if (incarnations_.size() < 6) {
          StartWorker(static_cast<std::uint32_t>(incarnations_.size()));
        }
        break;
      default:
        break;
    }
  }

  // ---- the end
  void Finish() {
    done_ = true;
    const auto check = [this](bool holds, const std::string& what) {
      if (!holds) violations_.push_back(what);
    };
    const RingReplica* first = nullptr;
    int compared = 0;
    for (const v1::RingMember& member : coordinator_->view().ring()) {
      Worker* const worker = Find(member.index());
      if (worker == nullptr || worker->core->session() != member.session()) continue;
      // Who has come since the last step may not have all of it yet.
      const bool healed = worker->core->position().known && last_[worker].waits();
      if (!healed && (!worker->core->position().known ||
                      worker->core->replica()->updates() != worker->core->replica()->plan().updates())) {
        continue;
      }
      const RingReplica& replica = *worker->core->replica();
      const std::uint64_t expected = replica.plan().updates();
      check(replica.updates() == expected,
            absl::StrCat("worker-", member.index(), " has ", replica.updates(), " of ", expected));
      if (first == nullptr) first = &replica;
      ++compared;
      for (std::uint32_t slice = 0; slice < replica.slices().size(); ++slice) {
        check(*replica.value(slice) == *first->value(slice),
              absl::StrCat("worker-", member.index(), " has other values"));
      }
      if (replica.divided() && !Scales()) {
        const RingReplica undisturbed = Undisturbed();
        for (std::uint32_t slice = 0; slice < replica.slices().size(); ++slice) {
          const std::vector<float>&has = *replica.value(slice), &wanted = *undisturbed.value(slice);
          const auto other = std::mismatch(has.begin(), has.end(), wanted.begin());
          if (other.first == has.end()) continue;
          check(false,
                absl::StrCat("worker-", member.index(), " has ", *other.first, " as value ", other.first - has.begin(),
                             " of slice ", slice, ", without any fault ", *other.second));
        }
        continue;
      }
      const std::vector<float>& counts = *replica.value(0);
      for (std::size_t sample = 0; sample < counts.size(); ++sample) {
        // Each is the mean of so many samples times their number: one but for the last bits.
        if (std::abs(counts[sample] - static_cast<float>(config_.epochs())) < 0.01f) continue;
        check(false, absl::StrCat("worker-", member.index(), ": sample ", sample, " was counted ", counts[sample],
                                  " times, expected ", config_.epochs()));
        break;
      }
      check(std::abs((*replica.value(1))[0] - static_cast<float>(expected)) < 0.01f,
            absl::StrCat("worker-", member.index(), " counted ", (*replica.value(1))[0], " updates of ", expected));
    }
    unseen += compared == 0 ? 1 : 0;
  }

  std::string WhatOfIt() {
    std::string text =
        coordinator_.has_value() ? coordinator_->GetProgress(world_.now()).ShortDebugString() : "no coordinator";
    for (const auto& [index, worker] : workers_) {
      if (!worker->alive) continue;
      const RingPosition position = worker->core->position();
      absl::StrAppend(&text, "\n  ", last_[worker].ShortDebugString());
      absl::StrAppend(&text, "\n  worker-", index, ": ", position.updates, " updates, view ",
                      worker->core->view().stamp().ShortDebugString());
    }
    return text;
  }

  World world_;
  checkpoint::testing::FakeFileSystem files_;
  std::unique_ptr<checkpoint::JobStore> store_;
  PlantedBug bug_;
  v1::TrainingConfig config_;
  std::uint64_t samples_ = 0;
  std::optional<RingCoordinatorCore> coordinator_;
  std::uint32_t coordinator_incarnation_ = 0;
  std::map<std::uint32_t, Worker*> workers_;  // the newest of each index
  std::vector<std::unique_ptr<Worker>> all_;
  std::map<std::uint32_t, std::uint32_t> incarnations_;
  std::set<std::pair<std::uint32_t, std::uint32_t>> ended_;
  std::set<std::uint32_t> cut_off_;  // from the coordinator
  std::map<std::string, std::shared_ptr<Group>> groups_;
  std::uint64_t next_session_ = 1;
  std::map<const Worker*, v1::RingState> last_;  // that it told
  std::map<std::pair<std::uint64_t, std::uint32_t>, std::uint64_t>
      most_;  // updates told, by generation and incarnation
  bool done_ = false;
  std::vector<std::string> violations_;
};

// Fewer under sanitizers.
std::uint64_t JobsOf(std::uint64_t jobs) {
  const char* const fewer = std::getenv("DOWNPOUR_SIMULATION_SEEDS");
  if (fewer != nullptr) {
    EXPECT_TRUE(absl::SimpleAtoi(fewer, &jobs)) << fewer;
  }
  return jobs;
}

void Simulate(std::uint64_t jobs, bool divided) {
  std::uint64_t kills = 0, rings = 0, restarted = 0, heals = 0, partial = 0, unseen = 0, finished = 0, halved = 0;
  std::uint64_t written = 0, loaded = 0;
  for (std::uint64_t seed = 1; seed <= jobs; ++seed) {
    Job job(seed, PlantedBug::kNone, divided);
    const std::vector<std::string> violations = job.Run(/*faults=*/seed % 10 != 0);
    for (const std::string& violation : violations) ADD_FAILURE() << "seed " << seed << ": " << violation;
    if (testing::Test::HasFailure()) return;
    kills += job.kills;
    rings += job.rings;
    restarted += job.restarted;
    heals += job.heals;
    partial += job.partial;
    unseen += job.unseen;
    finished += job.finished;
    halved += job.halved;
    written += job.written;
    loaded += job.loaded;
  }
  EXPECT_LT(unseen, 10u) << "jobs whose workers had all gone in the end";
  std::cout << jobs << " jobs: " << kills << " kills, " << rings << " rings, " << heals << " healings, " << partial
            << " operations that some had and others not, " << restarted << " beginnings, " << finished
            << " steps finished later, " << halved << " without the values of others, " << written
            << " checkpoints written, " << loaded << " loaded" << std::endl;
}

TEST(RingSimulationTest, EverySampleCountsOnceAndAllHaveTheSameBits) { Simulate(JobsOf(1000), /*divided=*/false); }

TEST(RingSimulationTest, ADividedStateIsThatOfAJobWithoutFaults) { Simulate(JobsOf(500), /*divided=*/true); }

// Whoever is killed, and whoever does not reach the coordinator: with a state that all have, and with two copies of one
// that is divided, nothing begins anew.
void SimulateGently(std::uint64_t jobs, bool divided) {
  std::uint64_t kills = 0, rings = 0, finished = 0, cuts = 0;
  for (std::uint64_t seed = 1; seed <= jobs; ++seed) {
    Job job(seed, PlantedBug::kNone, divided);
    for (const std::string& violation : job.RunGently()) ADD_FAILURE() << "seed " << seed << ": " << violation;
    EXPECT_EQ(job.began, 1u) << "seed " << seed;
    if (testing::Test::HasFailure()) return;
    kills += job.kills;
    rings += job.rings;
    finished += job.finished;
    cuts += job.cuts;
  }
  std::cout << kills << " kills, " << cuts << " times without the coordinator, " << rings << " rings, " << finished
            << " steps finished later" << std::endl;
}

TEST(RingSimulationTest, NoWorkerTakesAnythingWithIt) { SimulateGently(JobsOf(100), /*divided=*/false); }

TEST(RingSimulationTest, WithTwoCopiesNoWorkerTakesAnythingWithIt) { SimulateGently(JobsOf(200), /*divided=*/true); }

std::uint64_t FirstSeedThatNotices(PlantedBug bug, bool divided) {
  for (std::uint64_t seed = 1; seed <= 200; ++seed) {
    if (!Job(seed, bug, divided).Run(/*faults=*/true).empty()) return seed;
  }
  return 0;
}

TEST(RingSimulationTest, PlantedBugsAreNoticed) {
  for (const auto& [bug, divided] :
       {std::pair(PlantedBug::kOwnStateKept, false), std::pair(PlantedBug::kStepDoneWhenOwnIs, false),
        std::pair(PlantedBug::kHealedFromAnybody, false), std::pair(PlantedBug::kSamplesOfAbortedDropped, false),
        std::pair(PlantedBug::kCopiesNotUpdated, true), std::pair(PlantedBug::kShareOfBeforeKept, true),
        std::pair(PlantedBug::kGatheredAtAnyWait, true)}) {
    const std::uint64_t seed = FirstSeedThatNotices(bug, divided);
    EXPECT_GT(seed, 0u) << static_cast<int>(bug);
    std::cout << "bug " << static_cast<int>(bug) << ": seed " << seed << std::endl;
  }
}

}  // namespace
}  // namespace downpour::core
