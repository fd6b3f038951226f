#include "trainer/core/coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/core/layout.h"

namespace downpour::core {
namespace {

constexpr std::size_t kEvaluationsKept = 100;
constexpr std::size_t kWarningsKept = 100;
constexpr int kFailuresOfShard = 3;
// A task is tried once at each worker, and so often more at those where it failed: for about a minute, in which another
// worker may come or the reason may pass.
constexpr int kTaskRetries = 7;
constexpr absl::Duration kFirstTaskPause = absl::Seconds(1);
constexpr absl::Duration kMostTaskPause = absl::Seconds(15);
constexpr std::uint64_t kGenerationsOfIncarnation = 1u << 20;

}  // namespace

CoordinatorCore::CoordinatorCore(CoordinatorOptions options, Time now)
    : options_(std::move(options)),
      started_(now),
      last_activity_(now),
      next_timer_(now),
      ps_(options_.config.ps_replicas()) {}

template <typename Predicate>
bool CoordinatorCore::EveryPs(Predicate holds) const {
  return std::all_of(ps_.begin(), ps_.end(), holds);
}

void CoordinatorCore::Warn(std::string warning) {
  if (warnings_.size() >= kWarningsKept || std::find(warnings_.begin(), warnings_.end(), warning) != warnings_.end()) {
    return;
  }
  warnings_.push_back(std::move(warning));
}

void CoordinatorCore::Fail(std::string message) {
  if (phase_ == Phase::kFailed || phase_ == Phase::kDone) return;
  phase_ = Phase::kFailed;
  message_ = std::move(message);
}

// ---- membership of the ps and views

v1::RegisterPsReply CoordinatorCore::OnRegisterPs(const v1::RegisterPsRequest& request, Time now) {
  v1::RegisterPsReply reply;
  reply.set_incarnation(options_.incarnation);
  reply.set_status(v1::SYNC_OK);
  const auto refuse = [&reply](v1::SyncStatus status, std::string why) {
    reply.set_status(status);
    reply.set_message(std::move(why));
    return reply;
  };
  if (request.job_uid() != options_.config.job_uid()) return refuse(v1::SYNC_WRONG_JOB, "another job");
  if (request.highest_incarnation() > options_.incarnation) {
    fenced_ = absl::AbortedError(absl::StrCat("ps-", request.self().index(), " has seen incarnation ",
                                              request.highest_incarnation(), " of the coordinator; this is ",
                                              options_.incarnation));
    return refuse(v1::SYNC_REFUSED, "an older coordinator");
  }
  if (request.self().index() >= ps_.size()) {
    return refuse(v1::SYNC_REFUSED, absl::StrCat("this job has ", ps_.size(), " ps"));
  }
  if (request.highest_incarnation() < options_.incarnation) {
    // What it says counts only once it refuses older coordinators: until then they may still change it.
    return refuse(v1::SYNC_WAIT, "register again");
  }
  Ps& ps = ps_[request.self().index()];
  if (ps.registration.has_value() &&
      request.self().process_incarnation() < ps.registration->self().process_incarnation()) {
    return refuse(v1::SYNC_REPLACED, "replaced by a newer process");
  }
  const bool same = ps.registration.has_value() && ps.registration->self().session() == request.self().session();
  if (!same && (phase_ == Phase::kDone || phase_ == Phase::kFailed)) return refuse(v1::SYNC_WAIT, "the job is over");
  ps.last_heard = now;
  ps.next_directive = now;
  if (!same) {
    const Time heard = now;
    ps = Ps{};
    ps.registration = request;
    ps.last_heard = heard;
    ps.next_directive = heard;
    // Whoever else has a place in the view, this process has none: another view is needed.
    phase_ = Phase::kGathering;
  } else {
    ps.registration->mutable_self()->set_address(request.self().address());
  }
  Step(now);
  return reply;
}

void CoordinatorCore::ConsiderGathered(Time now) {
  if (!EveryPs([](const Ps& ps) { return ps.registration.has_value(); })) return;
  const v1::View* newest = view_.has_stamp() ? &view_ : nullptr;
  for (const Ps& ps : ps_) {
    if (!ps.registration->has_view()) continue;
    const v1::View& held = ps.registration->view();
    if (newest == nullptr || CompareStamps(held.stamp(), newest->stamp()) > 0) newest = &held;
  }
  if (newest == nullptr) {
    phase_ = Phase::kAwaitingModel;
    return;
  }
  for (const v1::PsMember& member : newest->ps()) {
    if (member.index() >= ps_.size()) continue;
    std::optional<v1::RegisterPsRequest>& registration = ps_[member.index()].registration;
    if (registration->self().process_incarnation() < member.process_incarnation()) {
      registration.reset();  // a zombie came first: the process that replaced it is in the view
      return;
    }
  }
  if (newest->stamp().incarnation() != options_.incarnation) {
    // A history that another coordinator made: who was a member of mine is none of it.
    std::vector<std::uint64_t> mine;
    for (const auto& [id, session] : sessions_) {
      if (view_.has_stamp()) mine.push_back(id);
    }
    for (std::uint64_t id : mine) EndSession(id);
    AdoptSessions(*newest, now);
  }
  bool whole = static_cast<std::size_t>(newest->ps_size()) == ps_.size();
  for (const v1::PsMember& member : newest->ps()) {
    whole =
        whole && member.index() < ps_.size() && ps_[member.index()].registration->self().session() == member.session();
  }
  if (whole) {
    Resume(v1::View(*newest), now);
    return;
  }
  // A ps that held slices is gone. Without a standby or a checkpoint the last cut is the beginning.
  const v1::View previous = *newest;
  tensors_.assign(previous.tensors().begin(), previous.tensors().end());
  sample_count_ = previous.data().sample_count();
  view_ = previous;
  parameters_lost_ = true;
  StartHistory();
}

void CoordinatorCore::AdoptSessions(const v1::View& newest, Time now) {
  // A session that some ps of the newest history does not know was being added, and its worker was not told yet, or
  // was being ended. In both cases it is over: what is over for one ps must never come back.
  std::map<std::uint64_t, std::size_t> known_by;
  for (const Ps& ps : ps_) {
    const bool holds = ps.registration->view().stamp().generation() == newest.stamp().generation();
    for (std::uint64_t session : ps.registration->sessions()) known_by[session] += holds ? 1 : 0;
  }
  for (const auto& [id, count] : known_by) {
    if (count != ps_.size() || ended_sessions_.count(id) != 0) {
      EndSession(id);
      ended_sessions_.insert(id);
      continue;
    }
    Session& session = sessions_[id];
    session.expires = now + options_.lease;
    session.members_version = members_version_;
    session.last_heard = now;
  }
}

void CoordinatorCore::ForgetHistory() {
  epochs_.clear();
  asked_.clear();
  fencing_.clear();
  tasks_.clear();
  evaluations_.clear();
  warnings_.clear();
  watermark_ = 0;
  retired_updates_ = 0;
  adopt_until_.reset();
  initialiser_ = 0;
  for (Ps& ps : ps_) {
    ps.confirmed_stamp.Clear();
    ps.confirmed_members = 0;
    ps.confirmed_watermark = 0;
    ps.initialised = false;
    ps.stats.Clear();
    ps.in_flight.reset();
    ps.next_directive = absl::ZeroDuration();
  }
}

void CoordinatorCore::StartHistory() {
  v1::View view;
  // If every ps of an earlier history is gone, its number is not known, but workers of it may live on. Each incarnation
  // therefore numbers from a range of its own.
  const std::uint64_t first = (std::uint64_t{options_.incarnation} - 1) * kGenerationsOfIncarnation + 1;
  const std::uint64_t generation = std::max(view_.stamp().generation() + 1, first);
  if (generation >= first + kGenerationsOfIncarnation) {
    return Fail(absl::StrCat("the parameters were lost ", kGenerationsOfIncarnation, " times"));
  }
  view.mutable_stamp()->set_generation(generation);
  view.mutable_stamp()->set_incarnation(options_.incarnation);
  view.mutable_stamp()->set_epoch(1);
  for (const v1::TensorSpec& tensor : tensors_) *view.add_tensors() = tensor;
  absl::StatusOr<std::vector<Slice>> slices = CutTensors(tensors_);
  if (!slices.ok()) return Fail(std::string(slices.status().message()));
  for (std::uint32_t primary : PlaceSlices(*slices, static_cast<std::uint32_t>(ps_.size()))) {
    view.add_layout()->set_primary(primary);
  }
  for (const Ps& ps : ps_) *view.add_ps() = ps.registration->self();
  v1::DataPlan* data = view.mutable_data();
  data->set_sample_count(sample_count_);
  data->set_batch_size(options_.config.batch_size());
  data->set_epochs(options_.config.epochs());
  data->set_seed(options_.config.seed());
  data->set_updates_per_shard(options_.config.updates_per_shard() != 0
                                  ? options_.config.updates_per_shard()
                                  : DefaultUpdatesPerShard(sample_count_, options_.config.batch_size()));
  view.set_mode(options_.config.mode());
  *view.mutable_optimizer() = options_.config.optimizer();
  absl::StatusOr<DataPlan> plan = DataPlan::Create(*data);
  if (!plan.ok()) return Fail(std::string(plan.status().message()));
  view_ = std::move(view);
  plan_ = *std::move(plan);
  ForgetHistory();
  phase_ = Phase::kInstalling;
}

void CoordinatorCore::Resume(const v1::View& newest, Time now) {
  if (view_.has_stamp() && CompareStamps(newest.stamp(), view_.stamp()) == 0 &&
      view_.stamp().incarnation() == options_.incarnation) {
    phase_ = Phase::kInstalling;  // nothing was lost: a ps only registered anew
    return;
  }
  absl::StatusOr<DataPlan> plan = DataPlan::Create(newest.data());
  if (!plan.ok()) return Fail(std::string(plan.status().message()));
  ForgetHistory();
  view_ = newest;
  view_.mutable_stamp()->set_incarnation(options_.incarnation);
  for (v1::PsMember& member : *view_.mutable_ps()) member = ps_[member.index()].registration->self();
  plan_ = *std::move(plan);
  tensors_.assign(view_.tensors().begin(), view_.tensors().end());
  sample_count_ = view_.data().sample_count();
  parameters_lost_ = view_.stamp().generation() > 1;

  // A ps that does not hold the view yet has no ledger either: then nothing can have been applied anywhere.
  const auto holds = [&](const Ps& ps) {
    return ps.registration->has_view() && ps.registration->view().stamp().generation() == view_.stamp().generation();
  };
  watermark_ = plan_->epochs();
  std::uint32_t end = 0;
  for (const Ps& ps : ps_) {
    watermark_ = std::min(watermark_, holds(ps) ? ps.registration->watermark() : 0u);
    for (const v1::EpochLedger& ledger : ps.registration->ledger()) end = std::max(end, ledger.dataset_epoch() + 1);
  }
  for (std::uint32_t epoch = watermark_; epoch < std::min(end, plan_->epochs()); ++epoch) {
    Bitmap retired(plan_->shards_in_epoch(epoch), true);
    for (const Ps& ps : ps_) {
      if (holds(ps) && epoch < ps.registration->watermark()) continue;
      Bitmap of_ps(plan_->shards_in_epoch(epoch));
      for (const v1::EpochLedger& ledger : ps.registration->ledger()) {
        if (holds(ps) && ledger.dataset_epoch() == epoch) {
          of_ps = Bitmap::FromBytes(plan_->shards_in_epoch(epoch), ledger.retired());
        }
      }
      // A ps without a slice of the model has no objection.
      const bool owns = std::any_of(view_.layout().begin(), view_.layout().end(), [&](const v1::SlicePlacement& place) {
        return place.primary() == static_cast<std::uint32_t>(&ps - ps_.data());
      });
      if (owns) retired.And(of_ps);
    }
    std::vector<Shard>& shards = ShardsOf(epoch);
    for (std::uint32_t shard = 0; shard < shards.size(); ++shard) {
      if (!retired.Test(shard)) continue;
      shards[shard].state = ShardState::kRetired;
      retired_updates_ += plan_->updates_in_shard(epoch, shard);
    }
  }
  adopt_until_ = now + options_.lease;
  phase_ = Phase::kInstalling;
}

std::vector<CoordinatorCore::Shard>& CoordinatorCore::ShardsOf(std::uint32_t dataset_epoch) {
  auto [position, inserted] = epochs_.try_emplace(dataset_epoch);
  if (inserted) {
    position->second.resize(plan_->shards_in_epoch(dataset_epoch));
    for (Shard& shard : position->second) shard.complete.assign(ps_.size(), false);
  }
  return position->second;
}

CoordinatorCore::Shard* CoordinatorCore::FindShard(const v1::ShardId& id) {
  const auto epoch = epochs_.find(id.dataset_epoch());
  if (epoch == epochs_.end() || id.shard() >= epoch->second.size()) return nullptr;
  return &epoch->second[id.shard()];
}

// ---- directives

v1::DirectRequest CoordinatorCore::MakeDirective(std::uint32_t index) const {
  const Ps& ps = ps_[index];
  v1::DirectRequest request;
  request.set_job_uid(options_.config.job_uid());
  request.set_session(ps.registration->self().session());
  *request.mutable_stamp() = view_.stamp();
  if (CompareStamps(ps.confirmed_stamp, view_.stamp()) != 0) *request.mutable_view() = view_;
  request.set_members_version(members_version_);
  for (const auto& [session, state] : sessions_) request.add_sessions(session);
  for (const auto& [epoch, shard] : asked_) {
    const Shard& state = epochs_.at(epoch)[shard];
    const bool answered =
        state.complete[index] || (state.state == ShardState::kInspecting && state.applied[index].has_value());
    if (answered) continue;
    v1::ShardId* id = request.add_retire();
    id->set_dataset_epoch(epoch);
    id->set_shard(shard);
  }
  request.set_watermark(watermark_);
  return request;
}

std::vector<DirectCall> CoordinatorCore::TakeDirectives(Time now) {
  Step(now);
  std::vector<DirectCall> calls;
  next_timer_ = now + options_.lease / 6;
  if (fenced_.has_value() || !view_.has_stamp() || phase_ == Phase::kGathering || phase_ == Phase::kAwaitingModel) {
    return calls;
  }
  for (std::uint32_t index = 0; index < ps_.size(); ++index) {
    Ps& ps = ps_[index];
    if (ps.in_flight.has_value()) continue;
    const bool settled = CompareStamps(ps.confirmed_stamp, view_.stamp()) == 0 &&
                         ps.confirmed_members == members_version_ && ps.initialised && asked_.empty() &&
                         ps.confirmed_watermark == watermark_;
    const Time due = settled && first_update_milliseconds_ != 0
                         ? ps.next_directive
                         : std::min(ps.next_directive, ps.last_heard + options_.directive_pace);
    if (now < due) {
      next_timer_ = std::min(next_timer_, due);
      continue;
    }
    DirectCall call;
    call.call = next_call_++;
    call.ps = index;
    call.address = ps.registration->self().address();
    call.request = MakeDirective(index);
    call.deadline = options_.directive_deadline;
    ps.in_flight = call.call;
    ps.next_directive = now + options_.directive_period;
    calls.push_back(std::move(call));
  }
  return calls;
}

void CoordinatorCore::OnDirectReply(std::uint64_t call, const absl::StatusOr<v1::DirectReply>& reply, Time now) {
  const auto found = std::find_if(ps_.begin(), ps_.end(), [call](const Ps& ps) { return ps.in_flight == call; });
  if (found == ps_.end()) return;
  Ps& ps = *found;
  ps.in_flight.reset();
  if (!reply.ok()) {
    // Silence is not loss: its slices may be all right. Only another process in its place says that they are gone.
    ps.last_heard = std::max(ps.last_heard, now + absl::Milliseconds(20) - options_.directive_pace);
    ps.next_directive = now + absl::Milliseconds(20);
    return;
  }
  ps.last_heard = now;
  if (reply->status() == v1::SYNC_SESSION_ENDED) {
    fenced_ = absl::AbortedError(absl::StrCat("ps-", found - ps_.begin(), ": ", reply->message()));
    return;
  }
  if (reply->status() != v1::SYNC_OK) {
    ps.next_directive = now + absl::Milliseconds(100);
    ps.last_heard = now + absl::Milliseconds(100);
    return;
  }
  ps.stats = reply->stats();
  if (CompareStamps(reply->stamp(), view_.stamp()) == 0) {
    ps.confirmed_stamp = reply->stamp();
    ps.confirmed_members = std::max(ps.confirmed_members, reply->members_version());
    ps.initialised = reply->initialised();
    ps.confirmed_watermark = reply->watermark();
    for (const v1::ShardBitmap& answer : reply->shards()) {
      ApplyAnswer(static_cast<std::uint32_t>(found - ps_.begin()), answer);
    }
    if (first_update_milliseconds_ == 0 && reply->stats().applied() > 0) {
      first_update_milliseconds_ =
          static_cast<std::uint64_t>(std::max<std::int64_t>(1, absl::ToInt64Milliseconds(now - started_)));
    }
  }
  Step(now);
}

void CoordinatorCore::ApplyAnswer(std::uint32_t ps, const v1::ShardBitmap& answer) {
  Shard* shard = FindShard(answer.shard());
  if (shard == nullptr || shard->state == ShardState::kRetired) return;
  if (answer.complete()) shard->complete[ps] = true;
  if (shard->state == ShardState::kInspecting) {
    shard->applied[ps] = Bitmap::FromBytes(
        plan_->updates_in_shard(answer.shard().dataset_epoch(), answer.shard().shard()), answer.applied());
  }
  SettleShard({answer.shard().dataset_epoch(), answer.shard().shard()});
}

void CoordinatorCore::SettleShard(const ShardKey& key) {
  Shard& shard = epochs_.at(key.first)[key.second];
  if (std::all_of(shard.complete.begin(), shard.complete.end(), [](bool complete) { return complete; })) {
    shard.state = ShardState::kRetired;
    retired_updates_ += plan_->updates_in_shard(key.first, key.second);
    shard_failures_.erase(key);
    asked_.erase(key);
    fencing_.erase(key);
    return;
  }
  if (shard.state != ShardState::kInspecting) return;
  Bitmap done(plan_->updates_in_shard(key.first, key.second), true);
  for (std::size_t ps = 0; ps < ps_.size(); ++ps) {
    if (shard.complete[ps]) continue;
    if (!shard.applied[ps].has_value()) return;
    done.And(*shard.applied[ps]);
  }
  shard.done = done;
  shard.state = ShardState::kFree;
  asked_.erase(key);
}

// ---- workers

bool CoordinatorCore::EverywhereKnown(const Session& session) const {
  return EveryPs([&](const Ps& ps) { return ps.confirmed_members >= session.members_version; });
}

void CoordinatorCore::EndSession(std::uint64_t session, bool left) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return;
  const bool known = found->second.known;
  const ProcessKey process{found->second.index, found->second.process_incarnation};
  std::vector<ShardKey> held;
  sessions_.erase(found);
  ended_sessions_.insert(session);
  ++members_version_;
  if (initialiser_ == session) initialiser_ = 0;
  for (auto& [epoch, shards] : epochs_) {
    for (std::uint32_t number = 0; number < shards.size(); ++number) {
      Shard& shard = shards[number];
      if (shard.state != ShardState::kLeased || shard.session != session) continue;
      // What is only waiting to be confirmed was not being worked on.
      if (!left && asked_.count({epoch, number}) == 0) held.emplace_back(epoch, number);
      // Nobody else gets it before every ps refuses the old holder.
      shard.state = ShardState::kFencing;
      shard.members_version = members_version_;
      asked_.erase({epoch, number});
      fencing_.insert({epoch, number});
    }
  }
  for (auto& [key, task] : tasks_) {
    if (task.session == session) task.session = 0;
  }
  if (!known || judged_.count(process) != 0) return;
  held_at_end_[process] = std::move(held);
  JudgeFailure(process);
}

void CoordinatorCore::ReportFailures(const v1::ProgressRequest& request) {
  for (const v1::MemberFailure& failure : request.failures()) {
    const ProcessKey process{failure.index(), failure.process_incarnation()};
    if (failure.role() != "worker" || judged_.count(process) != 0) continue;
    reported_[process] = failure;
    JudgeFailure(process);
  }
}

void CoordinatorCore::JudgeFailure(const ProcessKey& process) {
  const auto reported = reported_.find(process);
  const auto held = held_at_end_.find(process);
  if (reported == reported_.end() || held == held_at_end_.end()) return;
  // It took another session after one that expired; what it held then is not known before that one ends too.
  const bool in_session = std::any_of(sessions_.begin(), sessions_.end(), [&process](const auto& entry) {
    return entry.second.known && ProcessKey(entry.second.index, entry.second.process_incarnation) == process;
  });
  if (in_session) return;
  const v1::MemberFailure failure = std::move(reported->second);
  const std::vector<ShardKey> shards = std::move(held->second);
  reported_.erase(reported);
  held_at_end_.erase(held);
  judged_.insert(process);
  if (failure.platform()) return;
  std::string guilty;
  for (const ShardKey& shard : shards) {
    if (++shard_failures_[shard] < kFailuresOfShard) continue;
    absl::StrAppend(&guilty, guilty.empty() ? "" : " or ", DescribeShard(shard));
  }
  if (guilty.empty() || phase_ == Phase::kFailed || phase_ == Phase::kDone) return;
  failure_ = v1::FAILURE_DATA_SHARD;
  Fail(absl::StrCat(guilty, " ended ", kFailuresOfShard, " workers that held it; the last was worker-", failure.index(),
                    ": ", failure.cause()));
}

std::string CoordinatorCore::DescribeShard(const ShardKey& key) const {
  const UpdateId first{key.first, key.second, 0};
  const UpdateId last{key.first, key.second, plan_->updates_in_shard(key.first, key.second) - 1};
  return absl::StrCat("data shard ", key.second, " of epoch ", key.first + 1, " (samples ",
                      plan_->first_position(first), " to ",
                      plan_->first_position(last) + plan_->samples_in_update(last) - 1, " in the order of that epoch)");
}

void CoordinatorCore::CheckModel(const v1::WorkerSyncRequest& request, std::string* refusal) {
  if (request.accepted()) return;
  if (tensors_.empty()) {
    tensors_.assign(request.tensors().begin(), request.tensors().end());
    sample_count_ = request.sample_count();
    return;
  }
  if (request.sample_count() != sample_count_) {
    *refusal = absl::StrCat("worker-", request.index(), " sees ", request.sample_count(),
                            " training samples, the job has ", sample_count_);
    return;
  }
  const std::string difference = TensorDifference(tensors_, request.tensors());
  if (!difference.empty()) {
    *refusal = absl::StrCat("worker-", request.index(), " has another model than the job: ", difference);
  }
}

void CoordinatorCore::Adopt(const v1::WorkerSyncRequest& request) {
  if (!adopt_until_.has_value() || request.view().generation() != view_.stamp().generation()) return;
  for (const v1::HeldLease& held : request.held()) {
    if (held.kind() != v1::TASK_TRAIN) {
      tasks_.try_emplace({held.shard().dataset_epoch(), held.kind()}, Task{request.session(), held.lease()});
      continue;
    }
    if (!plan_->Contains({held.shard().dataset_epoch(), held.shard().shard(), 0}) ||
        held.shard().dataset_epoch() < watermark_) {
      continue;
    }
    Shard& shard = ShardsOf(held.shard().dataset_epoch())[held.shard().shard()];
    if (shard.state != ShardState::kFree) continue;
    shard.state = ShardState::kLeased;
    shard.session = request.session();
    shard.lease = held.lease();
  }
}

void CoordinatorCore::CountTaskFailure(const TaskKey& key, const v1::TaskResult& result, std::uint32_t worker,
                                       Time now) {
  if (result.failure() != v1::FAILURE_OTHER) {
    failure_ = result.failure();
    return Fail(result.error());
  }
  Task& task = tasks_.at(key);
  task.session = 0;
  TaskFailures& here = task.failures[worker];
  ++here.count;
  here.error = result.error();
  int tries = 0;
  std::vector<std::string> errors;
  for (const auto& [index, failures] : task.failures) {
    tries += failures.count;
    errors.push_back(failures.error);
  }
  const int retries = tries - static_cast<int>(task.failures.size());
  task.retry_at = now + std::min(kFirstTaskPause * (1 << retries), kMostTaskPause);
  if (retries < kTaskRetries) return;
  task.done = true;
  const bool exports = key.kind == v1::TASK_EXPORT;
  std::string message =
      absl::StrCat(exports ? "the model could not be written"
                           : absl::StrCat("the evaluation after epoch ", key.dataset_epoch, " could not be made"),
                   " in ", tries, " tries: ", absl::StrJoin(errors, "; "));
  // Only the model is what the job is for: an accuracy can be had of it later.
  exports ? Fail(std::move(message)) : Warn(std::move(message));
}

void CoordinatorCore::AcceptResult(const v1::TaskResult& result, std::uint64_t session, Time now) {
  const auto task = tasks_.find({result.dataset_epoch(), result.kind()});
  if (task == tasks_.end() || task->second.done || task->second.session != session ||
      task->second.lease != result.lease()) {
    return;
  }
  if (!result.warning().empty()) Warn(result.warning());
  if (!result.error().empty()) return CountTaskFailure(task->first, result, sessions_.at(session).index, now);
  task->second.done = true;
  if (result.samples() > 0) {
    v1::Evaluation evaluation;
    evaluation.set_dataset_epoch(result.dataset_epoch());
    if (result.has_accuracy()) evaluation.set_accuracy(result.accuracy());
    evaluation.set_loss(result.loss());
    evaluation.set_samples(result.samples());
    *evaluation.mutable_metrics() = result.metrics();
    evaluations_.push_back(evaluation);
    if (evaluations_.size() > kEvaluationsKept) evaluations_.erase(evaluations_.begin());
  }
  if (!result.path().empty()) {
    model_path_ = result.path();
    const Session& writer = sessions_.at(session);
    model_writer_ = ProcessKey{writer.index, writer.process_incarnation};
  }
}

bool CoordinatorCore::MayTry(const Task& task, std::uint64_t session, Time now) const {
  const auto failures_at = [&task](std::uint32_t worker) {
    const auto found = task.failures.find(worker);
    return found == task.failures.end() ? 0 : found->second.count;
  };
  const std::uint32_t worker = sessions_.at(session).index;
  const int here = failures_at(worker);
  if (here == 0) return true;
  if (now < task.retry_at) return false;
  return std::none_of(sessions_.begin(), sessions_.end(), [&](const auto& entry) {
    return entry.second.known && entry.second.takes_work && failures_at(entry.second.index) < here;
  });
}

void CoordinatorCore::Grant(const v1::WorkerSyncRequest& request, Time now, v1::WorkerSyncReply* reply) {
  const std::uint64_t session = request.session();
  const auto add = [reply](std::uint64_t id, v1::TaskKind kind, std::uint32_t epoch, std::uint32_t shard) {
    v1::Lease* lease = reply->add_leases();
    lease->set_lease(id);
    lease->set_kind(kind);
    lease->mutable_shard()->set_dataset_epoch(epoch);
    lease->mutable_shard()->set_shard(shard);
    return lease;
  };
  const auto new_lease = [this] { return (std::uint64_t{options_.incarnation} << 32) | next_lease_++; };

  bool has_task = false;
  for (auto& [key, task] : tasks_) has_task = has_task || (!task.done && task.session == session);
  for (auto& [key, task] : tasks_) {
    if (task.done || (task.session != 0 && task.session != session)) continue;
    if (task.session == 0) {
      if (has_task || request.wanted() == 0 || !MayTry(task, session, now)) continue;
      has_task = true;
      task.session = session;
      task.lease = new_lease();
    }
    add(task.lease, key.kind, key.dataset_epoch, 0);
  }

  std::set<std::uint64_t> all_sent;
  for (const v1::HeldLease& held : request.held()) {
    if (held.all_sent()) all_sent.insert(held.lease());
  }
  std::uint32_t working = 0;
  for (auto& [epoch, shards] : epochs_) {
    for (std::uint32_t number = 0; number < shards.size(); ++number) {
      Shard& shard = shards[number];
      if (shard.state != ShardState::kLeased || shard.session != session) continue;
      if (all_sent.count(shard.lease) != 0) {
        if (options_.bug == PlantedBug::kRetiredOnWorkersWord) {
          shard.complete.assign(ps_.size(), true);
          SettleShard({epoch, number});
          continue;
        }
        asked_.insert({epoch, number});
      } else {
        ++working;
      }
      add(shard.lease, v1::TASK_TRAIN, epoch, number)->set_done(shard.done.bytes());
    }
  }
  if (phase_ != Phase::kTraining || adopt_until_.has_value()) return;
  // The next epoch begins when the one before has nothing left to give, not when it is done: nobody idles at its end.
  const std::uint32_t last = std::min(watermark_ + 2, plan_->epochs());
  for (std::uint32_t epoch = watermark_; epoch < last && working < request.wanted(); ++epoch) {
    std::vector<Shard>& shards = ShardsOf(epoch);
    for (std::uint32_t number = 0; number < shards.size() && working < request.wanted(); ++number) {
      Shard& shard = shards[number];
      if (shard.state != ShardState::kFree) continue;
      shard.state = ShardState::kLeased;
      shard.session = session;
      shard.lease = new_lease();
      ++working;
      add(shard.lease, v1::TASK_TRAIN, epoch, number)->set_done(shard.done.bytes());
    }
  }
}

v1::WorkerSyncReply CoordinatorCore::OnSyncWorker(const v1::WorkerSyncRequest& request, Time now) {
  Step(now);
  v1::WorkerSyncReply reply;
  reply.set_incarnation(options_.incarnation);
  reply.set_sequence(request.sequence());
  const auto answer = [&reply](v1::SyncStatus status, std::string why = "") {
    reply.set_status(status);
    reply.set_message(std::move(why));
    return reply;
  };
  if (request.job_uid() != options_.config.job_uid()) return answer(v1::SYNC_WRONG_JOB, "another job");
  if (fenced_.has_value()) return answer(v1::SYNC_WAIT, "an older coordinator");
  if (finished_ || phase_ == Phase::kFailed) {
    sessions_.erase(request.session());
    return answer(v1::SYNC_FINISHED);
  }
  if (request.session() == 0) return answer(v1::SYNC_REFUSED, "a session must not be 0");

  auto found = sessions_.find(request.session());
  if (found == sessions_.end()) {
    if (request.leaving()) return answer(v1::SYNC_FINISHED);
    if (ended_sessions_.count(request.session()) != 0) return answer(v1::SYNC_SESSION_ENDED);
    if (request.accepted()) {
      // Before the ps are gathered nobody knows which sessions an earlier coordinator accepted.
      const bool rebuilding = phase_ == Phase::kGathering;
      return answer(rebuilding ? v1::SYNC_WAIT : v1::SYNC_SESSION_ENDED);
    }
    if (request.incarnation() != options_.incarnation) return answer(v1::SYNC_WAIT, "propose the session again");
    for (const auto& [id, session] : sessions_) {
      if (session.known && session.index == request.index() &&
          session.process_incarnation > request.process_incarnation()) {
        return answer(v1::SYNC_REPLACED, "replaced by a newer process");
      }
    }
    std::string refusal;
    CheckModel(request, &refusal);
    if (!refusal.empty()) return answer(v1::SYNC_REFUSED, refusal);
    ++members_version_;
    Session session;
    session.members_version = members_version_;
    found = sessions_.emplace(request.session(), session).first;
  }
  Session& session = found->second;
  if (request.sequence() <= session.sequence) return answer(v1::SYNC_WAIT, "an older call");
  const bool first_contact = !session.known;
  session.known = true;
  session.takes_work = request.wanted() > 0 && !request.leaving();
  session.index = request.index();
  session.process_incarnation = request.process_incarnation();
  session.sequence = request.sequence();
  session.last_heard = now;
  session.expires = now + options_.lease;
  session.stats = request.stats();
  if (first_contact) {
    std::vector<std::uint64_t> replaced;
    for (const auto& [id, other] : sessions_) {
      if (id != request.session() && other.known && other.index == request.index()) replaced.push_back(id);
    }
    for (std::uint64_t id : replaced) EndSession(id);
  }
  if (!request.failure().empty()) {
    Fail(request.failure());
    return answer(v1::SYNC_FINISHED);
  }
  if (phase_ == Phase::kAwaitingModel) Step(now);
  if (request.leaving()) {
    EndSession(request.session(), /*left=*/true);
    return answer(v1::SYNC_FINISHED);
  }
  // Adopting comes before anything that could give the lease to somebody else.
  const bool have_view = view_.has_stamp() && plan_.has_value();
  if (have_view && first_contact) Adopt(request);
  const bool committed = phase_ == Phase::kInitialising || phase_ == Phase::kTraining || phase_ == Phase::kFinishing ||
                         phase_ == Phase::kDone;
  if (!committed || !EverywhereKnown(session)) return answer(v1::SYNC_WAIT);
  if (!request.has_view() || CompareStamps(request.view(), view_.stamp()) < 0) *reply.mutable_view() = view_;
  if (request.view().generation() == view_.stamp().generation()) {
    for (const v1::TaskResult& result : request.results()) AcceptResult(result, request.session(), now);
    if (phase_ == Phase::kInitialising) {
      if (initialiser_ == 0) initialiser_ = request.session();
      reply.set_initialise(initialiser_ == request.session());
    } else {
      Grant(request, now, &reply);
    }
  }
  Step(now);
  reply.set_status(phase_ == Phase::kFailed ? v1::SYNC_FINISHED : v1::SYNC_OK);
  return reply;
}

// ---- phases

void CoordinatorCore::Step(Time now) {
  if (now - last_activity_ > options_.lease / 2) {
    // It was paused: the workers could not have reached it. Nobody is expired for that.
    for (auto& [id, session] : sessions_) session.expires = now + options_.lease;
    if (adopt_until_.has_value()) adopt_until_ = now + options_.lease;
  }
  last_activity_ = now;
  if (fenced_.has_value() || phase_ == Phase::kDone || phase_ == Phase::kFailed) return;
  std::vector<std::uint64_t> expired;
  for (const auto& [id, session] : sessions_) {
    if (session.expires < now) expired.push_back(id);
  }
  for (std::uint64_t id : expired) {
    ++lease_expirations_;
    EndSession(id);
  }
  if (phase_ == Phase::kGathering) ConsiderGathered(now);
  if (phase_ == Phase::kAwaitingModel && !tensors_.empty()) StartHistory();
  if (phase_ == Phase::kInstalling &&
      EveryPs([&](const Ps& ps) { return CompareStamps(ps.confirmed_stamp, view_.stamp()) == 0; })) {
    phase_ = Phase::kInitialising;
  }
  if (phase_ == Phase::kInitialising && EveryPs([](const Ps& ps) { return ps.initialised; })) {
    phase_ = Phase::kTraining;
  }
  if (phase_ == Phase::kTraining) StepTraining(now);
  if (phase_ == Phase::kFinishing) StepFinishing();
}

void CoordinatorCore::StepTraining(Time now) {
  if (adopt_until_.has_value()) {
    const bool all_known =
        std::all_of(sessions_.begin(), sessions_.end(), [](const auto& entry) { return entry.second.known; });
    if (!all_known && now < *adopt_until_) return;
    adopt_until_.reset();
    // What nobody claimed may be partly applied: ask before it is leased.
    for (auto& [epoch, shards] : epochs_) {
      for (std::uint32_t number = 0; number < shards.size(); ++number) {
        if (shards[number].state != ShardState::kFree) continue;
        shards[number].state = ShardState::kInspecting;
        shards[number].applied.assign(ps_.size(), std::nullopt);
        asked_.insert({epoch, number});
      }
    }
  }
  for (auto key = fencing_.begin(); key != fencing_.end();) {
    Shard& shard = epochs_.at(key->first)[key->second];
    if (!EveryPs([&](const Ps& ps) { return ps.confirmed_members >= shard.members_version; })) {
      ++key;
      continue;
    }
    shard.state = ShardState::kInspecting;
    shard.applied.assign(ps_.size(), std::nullopt);
    asked_.insert(*key);
    key = fencing_.erase(key);
  }
  while (watermark_ < plan_->epochs()) {
    const std::vector<Shard>& shards = ShardsOf(watermark_);
    if (!std::all_of(shards.begin(), shards.end(),
                     [](const Shard& shard) { return shard.state == ShardState::kRetired; })) {
      return;
    }
    epochs_.erase(watermark_);
    retired_updates_ -= plan_->updates_in_epoch(watermark_);
    ++watermark_;
    if (options_.config.evaluate() && watermark_ < plan_->epochs()) {
      tasks_.try_emplace({watermark_, v1::TASK_EVALUATE});
    }
  }
  phase_ = Phase::kFinishing;
}

void CoordinatorCore::StepFinishing() {
  const std::uint32_t last = plan_->epochs();
  // Evaluations that nobody began are of no use any more.
  std::erase_if(tasks_, [last](const auto& entry) {
    return entry.first.dataset_epoch < last && entry.second.session == 0 && !entry.second.done;
  });
  // Also where nothing is written: a model that is not finite is no success.
  tasks_.try_emplace({last, v1::TASK_EXPORT});
  if (options_.config.evaluate()) tasks_.try_emplace({last, v1::TASK_EVALUATE});
  if (AllFinalTasksDone() && EveryPs([&](const Ps& ps) { return ps.confirmed_watermark == last; })) {
    phase_ = Phase::kDone;
  }
}

bool CoordinatorCore::AllFinalTasksDone() const {
  return std::all_of(tasks_.begin(), tasks_.end(), [this](const auto& entry) {
    return entry.first.dataset_epoch < plan_->epochs() || entry.second.done;
  });
}

v1::FinishReply CoordinatorCore::OnFinish(const v1::FinishRequest& request) {
  v1::FinishReply reply;
  if (request.job_uid() != options_.config.job_uid()) {
    reply.set_message("another job");
  } else if (phase_ != Phase::kDone && phase_ != Phase::kFailed) {
    reply.set_message("the job is not over");
  } else {
    finished_ = true;
    reply.set_accepted(true);
  }
  return reply;
}

v1::ProgressReply CoordinatorCore::GetProgress(Time now) const {
  v1::ProgressReply progress;
  switch (phase_) {
    case Phase::kGathering:
    case Phase::kAwaitingModel:
    case Phase::kInstalling:
    case Phase::kInitialising:
      progress.set_phase(options_.incarnation > 1 || parameters_lost_ ? v1::PHASE_RECOVERING : v1::PHASE_STARTING);
      break;
    case Phase::kTraining:
      progress.set_phase(adopt_until_.has_value() ? v1::PHASE_RECOVERING : v1::PHASE_TRAINING);
      break;
    case Phase::kFinishing:
      progress.set_phase(v1::PHASE_FINISHING);
      break;
    case Phase::kDone:
      progress.set_phase(v1::PHASE_DONE);
      break;
    case Phase::kFailed:
      progress.set_phase(v1::PHASE_FAILED);
      break;
  }
  progress.set_message(message_);
  progress.set_failure(failure_);
  if (phase_ == Phase::kGathering) {
    std::string missing;
    for (std::size_t index = 0; index < ps_.size(); ++index) {
      if (!ps_[index].registration.has_value()) absl::StrAppend(&missing, missing.empty() ? "ps-" : ", ps-", index);
    }
    if (!missing.empty()) progress.set_message(absl::StrCat("waiting for ", missing, " to register"));
  } else if (phase_ == Phase::kAwaitingModel) {
    progress.set_message("waiting for the first worker");
  } else if (phase_ == Phase::kInstalling) {
    progress.set_message("waiting for every ps to take the view");
  } else if (phase_ == Phase::kInitialising) {
    progress.set_message(sessions_.empty() ? "waiting for a worker to initialise the parameters"
                                           : "initialising the parameters");
  } else if (phase_ == Phase::kTraining && sessions_.empty()) {
    progress.set_message("waiting for a worker");
  } else if (phase_ == Phase::kFinishing) {
    std::string message = "evaluating and writing the model";
    for (const auto& [key, task] : tasks_) {
      if (task.done) continue;
      for (const auto& [index, failures] : task.failures) {
        absl::StrAppend(&message, "; tried again after an error: ", failures.error);
      }
    }
    progress.set_message(std::move(message));
  }
  if (view_.has_stamp()) *progress.mutable_view() = view_.stamp();
  progress.set_ps_expected(static_cast<std::uint32_t>(ps_.size()));
  progress.set_epochs(options_.config.epochs());
  progress.set_epochs_done(watermark_);
  progress.set_parameters_lost(parameters_lost_);
  progress.set_model_path(model_path_);
  if (model_writer_.has_value()) {
    progress.set_model_worker(model_writer_->first);
    progress.set_model_worker_incarnation(model_writer_->second);
  }
  progress.set_first_update_milliseconds(first_update_milliseconds_);
  progress.set_lease_expirations(lease_expirations_);

  std::uint64_t applied = 0;
  std::uint64_t slices = 0;
  std::uint64_t skipped = 0;
  for (std::uint32_t index = 0; index < ps_.size(); ++index) {
    const Ps& ps = ps_[index];
    if (!ps.registration.has_value()) continue;
    v1::MemberProgress* member = progress.add_members();
    member->set_role("ps");
    member->set_index(index);
    member->set_session(ps.registration->self().session());
    member->set_address(ps.registration->self().address());
    member->set_process_incarnation(ps.registration->self().process_incarnation());
    const absl::Duration silent = std::max(now - ps.last_heard, absl::ZeroDuration());
    member->set_silent_milliseconds(static_cast<std::uint64_t>(absl::ToInt64Milliseconds(silent)));
    member->set_state(silent > options_.lease ? "silent" : ps.initialised ? "serving" : "starting");
    *member->mutable_ps() = ps.stats;
    applied += ps.stats.applied();
    skipped = std::max(skipped, ps.stats.skipped());
    slices += ps.stats.slices();
  }
  double loss = 0;
  int losses = 0;
  for (const auto& [id, session] : sessions_) {
    if (!session.known) continue;
    v1::MemberProgress* member = progress.add_members();
    member->set_role("worker");
    member->set_index(session.index);
    member->set_session(id);
    member->set_process_incarnation(session.process_incarnation);
    const absl::Duration silent = now - session.last_heard;
    member->set_silent_milliseconds(static_cast<std::uint64_t>(absl::ToInt64Milliseconds(silent)));
    member->set_state(session.stats.state());
    *member->mutable_worker() = session.stats;
    if (session.stats.has_samples_per_second()) {
      progress.set_samples_per_second(progress.samples_per_second() + session.stats.samples_per_second());
    }
    if (session.stats.has_loss()) {
      loss += session.stats.loss();
      ++losses;
    }
  }
  if (losses > 0) progress.set_loss(loss / losses);
  for (const v1::Evaluation& evaluation : evaluations_) *progress.add_evaluations() = evaluation;
  for (const std::string& warning : warnings_) progress.add_warnings(warning);
  if (plan_.has_value()) {
    progress.set_samples_per_epoch(plan_->proto().sample_count());
    const std::uint64_t before = plan_->updates_before(watermark_);
    progress.set_updates_per_epoch(plan_->updates_in_epoch(std::min(watermark_, plan_->epochs() - 1)));
    progress.set_updates_expected(plan_->updates());
    const std::uint64_t reported = slices == 0 ? 0 : applied / slices;
    const std::uint64_t updates = std::min(std::max(before + retired_updates_, reported), progress.updates_expected());
    progress.set_updates_applied(updates);
    if (phase_ == Phase::kDone && skipped > 0) {
      progress.add_warnings(absl::StrCat(skipped, " of ", progress.updates_expected(),
                                         " updates were skipped, as their loss or gradient was not finite; a smaller "
                                         "spec.update.optimizer.learningRate may help"));
    }
    // In the epoch that is the first not complete, by its updates.
    const std::uint64_t of_epoch = updates - std::min(updates, before);
    const std::uint64_t samples = plan_->proto().sample_count();
    progress.set_samples_done(watermark_ * samples + samples * of_epoch / plan_->updates_in_epoch(watermark_));
  }
  std::uint64_t active = 0;
  for (const auto& [epoch, shards] : epochs_) {
    active += static_cast<std::uint64_t>(std::count_if(
        shards.begin(), shards.end(), [](const Shard& shard) { return shard.state == ShardState::kLeased; }));
  }
  progress.set_leases_active(active);
  return progress;
}

}  // namespace downpour::core
