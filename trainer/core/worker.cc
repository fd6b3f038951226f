#include "trainer/core/worker.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/bitmap.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/job_uid.h"

namespace downpour::core {
namespace {

constexpr absl::Duration kWaitPeriod = absl::Milliseconds(20);
constexpr absl::Duration kFirstBackoff = absl::Milliseconds(20);
constexpr absl::Duration kMostBackoff = absl::Milliseconds(500);
constexpr absl::Duration kRateWindow = absl::Seconds(1);
constexpr absl::Duration kLongestRateWindow = absl::Minutes(1);
constexpr std::uint64_t kUpdatesOfRate = 2;  // fewer say nothing about how fast it is

// A mean over about the newest 20 values.
double Smooth(double mean, double value, bool first) { return first ? value : mean + 0.05 * (value - mean); }

}  // namespace

WorkerCore::WorkerCore(WorkerOptions options, WorkerHost* host)
    : options_(std::move(options)), host_(host), feedback_(options_.codec) {
  absl::StatusOr<JobUid> uid = ParseJobUid(options_.job_uid);
  if (uid.ok()) {
    uid_ = *uid;
  } else {
    finished_ = uid.status();
  }
  session_ = host_->NewSession();
  stats_.set_state("registering");
}

void WorkerCore::Start(Time now, WorkerOutput* output) {
  next_sync_ = now;
  rate_since_ = now;
  Pump(now, output);
}

void WorkerCore::OnTimer(Time now, WorkerOutput* output) { Pump(now, output); }

void WorkerCore::Leave(Time now, WorkerOutput* output) {
  leaving_ = true;
  Pump(now, output);
}

void WorkerCore::SettleResiduals() {
  const bool applies =
      phase_ == Phase::kPushing && verdict_ == Verdict::kApply && options_.bug != PlantedBug::kResidualNotForgotten;
  for (std::uint32_t number = 0; number < slices_.size(); ++number) {
    const SliceState& slice = slices_[number];
    if (applies && slice.push != SliceProgress::kDone && (slice.push == SliceProgress::kSent || slice.maybe_applied)) {
      feedback_.Forget(number);
    } else {
      feedback_.Undo(number);  // a ps drops what waits for a verdict that never comes
    }
  }
}

void WorkerCore::DropEverything() {
  DropWork();
  leases_.clear();
}

void WorkerCore::DropWork() {
  SettleResiduals();
  ++token_;
  clock_ = 0;
  calls_.clear();
  links_.clear();
  phase_ = Phase::kWaiting;
  verdict_ = Verdict::kPending;
  FetchNext();
  initialise_ = false;
  for (SliceState& slice : slices_) {
    slice.fresh = slice.pull_in_flight = slice.initial_in_flight = slice.initial_done = false;
    slice.push = SliceProgress::kUnready;
    slice.version = 0;  // a history of the same number may have begun anew
    slice.value_of.reset();
    slice.step = StepId();
  }
}

// ---- control

void WorkerCore::Sync(Time now, WorkerOutput* output) {
  SyncCall call;
  call.call = sync_call_ = next_call_++;
  call.deadline = options_.sync_deadline;
  v1::WorkerSyncRequest& request = call.request;
  request.set_job_uid(options_.job_uid);
  request.set_index(options_.index);
  request.set_process_incarnation(options_.process_incarnation);
  request.set_session(session_);
  request.set_sequence(++sequence_);
  request.set_accepted(accepted_);
  request.set_incarnation(incarnation_);
  if (view_.has_stamp()) *request.mutable_view() = view_.stamp();
  for (const auto& [id, held] : leases_) {
    v1::HeldLease* lease = request.add_held();
    lease->set_lease(id);
    lease->set_kind(held.lease.kind());
    *lease->mutable_shard() = held.lease.shard();
    lease->set_all_sent(held.all_sent);
    lease->set_next(held.next);
    if (held.result.has_value()) *request.add_results() = *held.result;
  }
  const bool may_leave = leaving_ && phase_ == Phase::kWaiting;
  request.set_wanted(leaving_ ? 0 : options_.wanted_leases);
  request.set_leaving(may_leave);
  request.set_starving(Starves(now));
  request.set_failure(failure_);
  if (!accepted_) {
    for (const v1::TensorSpec& tensor : options_.tensors) *request.add_tensors() = tensor;
    request.set_sample_count(options_.sample_count);
    if (options_.initial_weights_crc32c.has_value()) {
      request.set_initial_weights_crc32c(*options_.initial_weights_crc32c);
    }
  }
  *request.mutable_stats() = stats_;
  request.set_cut(ReachedCut());
  reported_cut_ = request.cut();
  left_ = may_leave;
  sync_in_flight_ = true;
  sync_urgent_ = false;
  next_sync_ = now + options_.sync_period;
  last_sync_ = now;
  output->syncs.push_back(std::move(call));
}

void WorkerCore::AdoptView(const v1::View& view) {
  if (view_.has_stamp() && CompareStamps(view.stamp(), view_.stamp()) <= 0) return;
  const bool same_history = view_.has_stamp() && view.stamp().generation() == view_.stamp().generation();
  if (same_history) {
    // In another mode an update begins with other values: what is under way is done again, but for a task that has its
    // values. And what was acknowledged may be gone, if a ps was lost that ran ahead of its standby.
    const bool lost = view.lost_epoch() != view_.lost_epoch();
    if (view.mode_epoch() != view_.mode_epoch() || lost) {
      const bool task = phase_ == Phase::kTask;
      const std::uint64_t token = token_;
      DropWork();
      if (task) {
        phase_ = Phase::kTask;
        token_ = token;
      }
      for (auto& [id, held] : leases_) {
        if (held.lease.kind() != v1::TASK_TRAIN) continue;
        held.all_sent = false;
        if (lost) held.next = 0;
      }
    }
    Reroute(std::exchange(view_, view));
    return;
  }
  absl::StatusOr<std::vector<Slice>> slices = CutTensors(view);
  absl::StatusOr<DataPlan> plan = DataPlan::Create(view.data());
  if (!slices.ok() || !plan.ok() || static_cast<std::size_t>(view.layout_size()) != slices->size() ||
      !TensorDifference(options_.tensors, view.tensors()).empty()) {
    finished_ = absl::FailedPreconditionError("the coordinator's view does not fit this worker's model");
    return;
  }
  slices_.clear();
  feedback_.Clear();
  DropEverything();
  stats_.clear_loss();  // was of the history before
  view_ = view;
  plan_ = *std::move(plan);
  for (std::size_t number = 0; number < slices->size(); ++number) {
    SliceState state;
    state.slice = (*slices)[number];
    state.ps = view.layout(static_cast<int>(number)).primary();
    slices_.push_back(state);
  }
}

void WorkerCore::Reroute(const v1::View& before) {
  // One that is there under the number of another is another.
  const std::set<std::uint64_t> sessions = PsSessions(view_);
  std::set<std::uint32_t> gone;
  for (const v1::PsMember& member : before.ps()) {
    if (sessions.count(member.session()) == 0) gone.insert(member.index());
  }
  for (const std::uint32_t ps : gone) links_.erase(ps);
  std::erase_if(calls_, [&gone](const auto& call) { return gone.count(call.second.ps) != 0; });
  for (std::uint32_t number = 0; number < slices_.size(); ++number) {
    SliceState& slice = slices_[number];
    const std::uint32_t ps = view_.layout(static_cast<int>(number)).primary();
    if (ps == slice.ps && gone.count(ps) == 0) continue;
    slice.ps = ps;
    slice.pull_in_flight = slice.initial_in_flight = false;
    // Who has it now has to hear how far this worker is, or others would wait for it there.
    if (view_.mode() == v1::BOUNDED_STALENESS) slice.fresh = false;
    if (slice.push != SliceProgress::kSent) continue;
    slice.push = SliceProgress::kReady;
    slice.maybe_applied = true;
  }
}

void WorkerCore::ReconcileLeases(const v1::WorkerSyncReply& reply) {
  std::map<std::uint64_t, HeldLease> now_held;
  bool trains = false;
  for (const v1::Lease& lease : reply.leases()) {
    const auto held = leases_.find(lease.lease());
    if (held != leases_.end()) {
      trains = trains || lease.kind() == v1::TASK_TRAIN;
      held->second.lease.set_done(lease.done());
      now_held.emplace(lease.lease(), std::move(held->second));
    } else {
      HeldLease fresh;
      fresh.lease = lease;
      now_held.emplace(lease.lease(), std::move(fresh));
    }
  }
  leases_ = std::move(now_held);
  if (!trains) lapsed_ = true;
  if (phase_ != Phase::kPulling || !OthersMayDoIt()) return;
  const auto* const first = FirstLease();
  if (first == nullptr || first->first != work_lease_) GiveUpPulls();
}

void WorkerCore::GiveUpPulls() {
  std::erase_if(calls_, [this](const auto& entry) {
    const Call& call = entry.second;
    if (call.kind != Call::Kind::kPull || call.token != token_) return false;
    --links_[call.ps].in_flight;
    for (const std::uint32_t number : call.slices) slices_[number].pull_in_flight = false;
    return true;
  });
  ++token_;
  phase_ = Phase::kWaiting;
}

bool WorkerCore::Starves(Time now) const {
  if (!HasBackupExecutions(view_.mode()) || leaving_ || !accepted_) return false;
  const bool long_since = now >= phase_since_ + Patience();
  if (phase_ == Phase::kWaiting) return long_since || !Searches();
  return phase_ == Phase::kPulling && StepOfWork().has_value() && long_since;
}

// Others that compute the same take as long.
absl::Duration WorkerCore::Patience() const {
  const double update = stats_.data_seconds() + stats_.forward_seconds() + stats_.backward_seconds();
  return std::max(kWaitPeriod, absl::Seconds(1.5 * update));
}

void WorkerCore::OnSyncReply(std::uint64_t call, const absl::StatusOr<v1::WorkerSyncReply>& reply, Time now,
                             WorkerOutput* output) {
  if (!sync_in_flight_ || call != sync_call_ || finished_.has_value()) return;
  sync_in_flight_ = false;
  const bool wrong_job = reply.ok() && reply->status() == v1::SYNC_WRONG_JOB;
  if (!reply.ok() || wrong_job) {
    // To say goodbye is a courtesy: the lease ends without it too, and whoever shuts down may have ended the others.
    if (leaving_) finished_ = absl::OkStatus();
    // Leases last longer than a coordinator's restart: go on with what is held and ask again.
    next_sync_ = std::min(next_sync_, now + absl::Milliseconds(100));
    if (wrong_job && !finished_.has_value()) {
      if (absl::Status lost = wrong_job_.OnWrongJob(now); !lost.ok()) finished_ = std::move(lost);
    }
    Pump(now, output);
    return;
  }
  wrong_job_.Forget();
  if (reply->incarnation() < incarnation_) {  // an older coordinator
    Pump(now, output);
    return;
  }
  incarnation_ = reply->incarnation();
  switch (reply->status()) {
    case v1::SYNC_WAIT:
      next_sync_ = now + kWaitPeriod;
      if (reply->has_view()) AdoptView(reply->view());
      break;
    case v1::SYNC_OK:
      if (reply->has_view()) AdoptView(reply->view());
      accepted_ = true;
      cut_ = std::max(cut_, reply->cut());
      if (finished_.has_value()) break;
      if (reply->initialise() && !initialise_) {
        for (SliceState& slice : slices_) slice.initial_done = false;
      }
      initialise_ = reply->initialise();
      ReconcileLeases(*reply);
      break;
    case v1::SYNC_SESSION_ENDED:
      DropEverything();
      session_ = host_->NewSession();
      accepted_ = false;
      next_sync_ = now;
      break;
    case v1::SYNC_FINISHED:
      finished_ = absl::OkStatus();
      break;
    case v1::SYNC_REPLACED:
      finished_ = absl::AbortedError("replaced by a newer process of the same index");
      break;
    default:
      finished_ = absl::FailedPreconditionError(
          reply->message().empty() ? absl::StrCat("the coordinator answered ", v1::SyncStatus_Name(reply->status()))
                                   : reply->message());
      break;
  }
  if (left_ && !finished_.has_value()) finished_ = absl::OkStatus();
  Pump(now, output);
}

// ---- work

std::uint32_t WorkerCore::ReachedCut() const {
  const bool pushes = (phase_ == Phase::kComputing || phase_ == Phase::kPushing) && work_.kind == v1::TASK_TRAIN;
  return pushes ? work_.cut : cut_;
}

std::vector<UpdateId> WorkerCore::NextUpdates(std::size_t most) const {
  std::vector<UpdateId> next;
  if (!plan_.has_value()) return next;
  for (const auto& [id, held] : leases_) {
    if (held.lease.kind() != v1::TASK_TRAIN) continue;
    const bool current = phase_ != Phase::kWaiting && work_.kind == v1::TASK_TRAIN && id == work_lease_;
    UpdateId update = FirstUpdate(held, held.next + (current && held.next == work_.update.group ? 1 : 0));
    // Leases are done one after another, or step by step.
    const std::size_t end = (step_width() == 0 ? 0 : next.size()) + most;
    while (next.size() < end && plan_->Contains(update)) {
      next.push_back(update);
      update = FirstUpdate(held, update.group + 1);
    }
  }
  if (step_width() != 0) {
    std::stable_sort(next.begin(), next.end(), [this](const UpdateId& a, const UpdateId& b) {
      return StepOf(a, step_width()) < StepOf(b, step_width());
    });
  }
  if (next.size() > most) next.resize(most);
  return next;
}

bool WorkerCore::PickWork() {
  const bool flush = leaving_ && !flushed_ && feedback_.HasResidual();
  if ((leaving_ && !flush) || !failure_.empty()) return false;
  for (auto& [id, held] : leases_) {
    if (held.lease.kind() == v1::TASK_TRAIN || held.result.has_value() || flush) continue;
    work_ = Work();
    work_.token = ++token_;
    work_.kind = held.lease.kind();
    work_.dataset_epoch = held.lease.shard().dataset_epoch();
    work_.lease = work_lease_ = id;
    FetchNext();
    for (SliceState& slice : slices_) slice.fresh = false;  // a task is about the newest weights
    return true;
  }
  const auto* const first = FirstLease();
  if (first == nullptr) return false;
  const v1::ShardId& shard = first->second.lease.shard();
  work_ = Work();
  work_.token = ++token_;
  work_.update = UpdateId{shard.dataset_epoch(), shard.shard(), first->second.next};
  work_.fetched = unfetched_ == 0;
  if (work_.fetched) unfetched_ = options_.fetch_every;
  --unfetched_;
  work_lease_ = first->first;
  flushed_ = flush;
  // For a while nobody had to wait for this worker: what it was given before it need not begin with any more.
  const bool another_point =
      Searches() && std::exchange(values_epoch_, work_.update.dataset_epoch) != work_.update.dataset_epoch;
  if (std::exchange(lapsed_, false) || another_point) {
    for (SliceState& slice : slices_) slice.fresh = false;
  }
  return true;
}

std::optional<StepId> WorkerCore::StepOfWork() const {
  if (step_width() == 0 || work_.kind != v1::TASK_TRAIN) return std::nullopt;
  return StepOf(work_.update, step_width());
}

UpdateId WorkerCore::FirstUpdate(const HeldLease& held, std::uint32_t from) const {
  const std::uint32_t epoch = held.lease.shard().dataset_epoch();
  const std::uint32_t shard = held.lease.shard().shard();
  const std::uint32_t count = plan_->updates_in_shard(epoch, shard);
  const Bitmap done = Bitmap::FromBytes(count, held.lease.done());
  const auto over = [&](std::uint32_t group) {
    if (done.Test(group)) return true;
    if (step_width() == 0) return false;
    const StepId step = StepOf({epoch, shard, group}, step_width());
    return std::all_of(slices_.begin(), slices_.end(), [&step](const SliceState& slice) { return slice.step > step; });
  };
  while (from < count && over(from)) ++from;
  return {epoch, shard, from};
}

std::pair<const std::uint64_t, WorkerCore::HeldLease>* WorkerCore::FirstLease() {
  std::pair<const std::uint64_t, HeldLease>* first = nullptr;
  StepId place;  // of `first`
  for (auto& entry : leases_) {
    HeldLease& held = entry.second;
    if (held.lease.kind() != v1::TASK_TRAIN) continue;
    const UpdateId update = FirstUpdate(held, held.next);
    held.next = update.group;
    if (!plan_->Contains(update)) {
      if (!held.all_sent) sync_urgent_ = true;
      held.all_sent = true;
      continue;
    }
    if (step_width() == 0) return &entry;
    // Of one step what it was given first: what it took over comes after its own.
    const StepId here = StepOf(update, step_width());
    if (first != nullptr && !(here < place)) continue;
    first = &entry;
    place = here;
  }
  return first;
}

void WorkerCore::OnGradient(std::uint64_t token, std::uint32_t tensor, Time now, WorkerOutput* output) {
  if (token != token_ || phase_ != Phase::kComputing) return;
  std::size_t ready_bytes = 0;
  for (SliceState& slice : slices_) {
    if (slice.slice.tensor == tensor) slice.push = SliceProgress::kReady;
    if (slice.push == SliceProgress::kReady) ready_bytes += slice.slice.bytes();
  }
  if (ready_bytes >= options_.early_push_bytes) SendPushes(now, output);
}

void WorkerCore::OnComputed(std::uint64_t token, const ComputeResult& result, Time now, WorkerOutput* output) {
  if (token != token_ || phase_ != Phase::kComputing) return;
  computed_ = result;
  verdict_ = result.verdict;
  factor_ = result.factor;
  phase_ = Phase::kPushing;
  phase_since_ = now;
  for (SliceState& slice : slices_) {
    if (slice.push == SliceProgress::kUnready) slice.push = SliceProgress::kReady;
  }
  if (verdict_ == Verdict::kSkip) FetchNext();  // those of its own are not finite
  consecutive_skips_ = verdict_ == Verdict::kSkip ? consecutive_skips_ + 1 : 0;
  // A search steps back from there.
  if (consecutive_skips_ >= options_.skips_until_failure && !Searches()) {
    failure_ = absl::StrCat("worker-", options_.index, ": neither loss nor gradients were finite in ",
                            consecutive_skips_, " updates in a row; a smaller learning rate may help");
    sync_urgent_ = true;
  }
  Pump(now, output);
}

void WorkerCore::OnTaskDone(std::uint64_t token, v1::TaskResult result, Time now, WorkerOutput* output) {
  if (token != token_ || phase_ != Phase::kTask) return;
  const auto held = leases_.find(work_lease_);
  if (held != leases_.end()) {
    result.set_lease(work_lease_);
    result.set_kind(work_.kind);
    result.set_dataset_epoch(work_.dataset_epoch);
    held->second.result = std::move(result);
    held->second.all_sent = true;
  }
  for (SliceState& slice : slices_) slice.fresh = false;  // others went on meanwhile, and a task's pulls never wait
  phase_ = Phase::kWaiting;
  sync_urgent_ = true;
  Pump(now, output);
}

void WorkerCore::UpdateRate(Time now) {
  const Time window = now - rate_since_;
  if (window < kRateWindow) return;
  if (stats_.steps() - rate_steps_ >= kUpdatesOfRate) {
    stats_.set_samples_per_second(static_cast<double>(stats_.samples() - rate_samples_) /
                                  absl::ToDoubleSeconds(window));
  } else if (phase_ == Phase::kWaiting || phase_ == Phase::kTask) {
    stats_.clear_samples_per_second();  // it does not train
  } else {
    // An update that takes longer than the window is part of it.
    if (window >= kLongestRateWindow) stats_.clear_samples_per_second();
    return;
  }
  rate_since_ = now;
  rate_samples_ = stats_.samples();
  rate_steps_ = stats_.steps();
}

void WorkerCore::Pump(Time now, WorkerOutput* output) {
  if (finished_.has_value()) return;
  next_timer_ = absl::InfiniteDuration();
  if (accepted_ && view_.has_stamp()) {
    if (initialise_) SendInitialValues(now, output);
    for (bool moved = true; moved;) {
      moved = false;
      switch (phase_) {
        case Phase::kWaiting:
          if (PickWork()) {
            if (stats_.state() == "waiting") {
              for (SliceState& slice : slices_) slice.fresh = false;  // others went on meanwhile
            }
            phase_ = Phase::kPulling;
            phase_since_ = now;
            moved = true;
          } else {
            stats_.set_state(leaving_ ? "leaving" : "waiting");
          }
          break;
        case Phase::kPulling: {
          if (leaving_ && !flushed_) {  // the values may have to be waited for
            ++token_;
            phase_ = Phase::kWaiting;
            moved = true;
            break;
          }
          if (view_.mode() == v1::BOUNDED_STALENESS && work_.kind == v1::TASK_TRAIN) {
            // Where this session begins to train, the slices may not agree on its clock yet.
            for (SliceState& slice : slices_) slice.fresh = slice.fresh && slice.clock >= clock_;
          }
          const std::optional<StepId> step = StepOfWork();
          if (step.has_value()) {
            for (SliceState& slice : slices_) slice.fresh = slice.value_of == step;
          }
          if (OthersMayDoIt()) {
            const auto held = leases_.find(work_lease_);
            if (held == leases_.end() || FirstUpdate(held->second, held->second.next) != work_.update) {
              GiveUpPulls();
              moved = true;
              break;
            }
          }
          if (work_.fetched) SendPulls(now, output);
          if (work_.fetched &&
              !std::all_of(slices_.begin(), slices_.end(), [](const SliceState& slice) { return slice.fresh; })) {
            stats_.set_state("pulling");
            if (step.has_value()) {
              next_sync_ = std::min(next_sync_, std::max(phase_since_, last_sync_) + Patience());
            }
            break;
          }
          stats_.set_pull_seconds(
              Smooth(stats_.pull_seconds(), absl::ToDoubleSeconds(now - phase_since_), stats_.steps() == 0));
          phase_ = work_.kind == v1::TASK_TRAIN ? Phase::kComputing : Phase::kTask;
          work_.cut = cut_;
          verdict_ = Verdict::kPending;
          factor_ = 1;
          trained_ = false;
          for (SliceState& slice : slices_) {
            slice.push = SliceProgress::kUnready;
            slice.maybe_applied = false;
            slice.computed_version = slice.version;
          }
          for (auto& [ps, link] : links_) link.verdict_due = false;
          stats_.set_state(work_.kind == v1::TASK_TRAIN ? "computing" : "evaluating");
          phase_since_ = now;
          output->work = work_;
          break;
        }
        case Phase::kComputing:
        case Phase::kTask:
          break;
        case Phase::kPushing: {
          stats_.set_state("pushing");
          SendPushes(now, output);
          const auto held = leases_.find(work_lease_);
          const bool sent = std::all_of(slices_.begin(), slices_.end(), [](const SliceState& slice) {
            return slice.push == SliceProgress::kSent || slice.push == SliceProgress::kDone;
          });
          if (sent && held != leases_.end() && !held->second.all_sent) {
            const UpdateId after = FirstUpdate(held->second, work_.update.group + 1);
            if (!plan_->Contains(after)) held->second.all_sent = sync_urgent_ = true;
          }
          if (!std::all_of(slices_.begin(), slices_.end(),
                           [](const SliceState& slice) { return slice.push == SliceProgress::kDone; })) {
            break;
          }
          if (held != leases_.end()) held->second.next = work_.update.group + 1;
          ++clock_;
          const bool first = stats_.steps() == 0;
          stats_.set_steps(stats_.steps() + 1);
          if (trained_) {
            stats_.set_samples(stats_.samples() + computed_.samples);
          } else {
            stats_.set_duplicates(stats_.duplicates() + 1);
          }
          if (verdict_ == Verdict::kSkip) {
            stats_.set_skipped(stats_.skipped() + 1);
          } else {
            stats_.set_loss(Smooth(stats_.loss(), computed_.loss, !stats_.has_loss()));
          }
          const double push_seconds = absl::ToDoubleSeconds(now - phase_since_);
          stats_.set_data_seconds(Smooth(stats_.data_seconds(), computed_.data_seconds, first));
          stats_.set_forward_seconds(Smooth(stats_.forward_seconds(), computed_.forward_seconds, first));
          stats_.set_backward_seconds(Smooth(stats_.backward_seconds(), computed_.backward_seconds, first));
          stats_.set_push_seconds(Smooth(stats_.push_seconds(), push_seconds, first));
          stats_.set_step_seconds(stats_.data_seconds() + stats_.pull_seconds() + stats_.forward_seconds() +
                                  stats_.backward_seconds() + stats_.push_seconds());
          phase_ = Phase::kWaiting;
          moved = true;
          break;
        }
      }
    }
  }
  UpdateRate(now);
  const bool hungry = phase_ == Phase::kWaiting && accepted_ && !leaving_;
  if (hungry) next_sync_ = std::min(next_sync_, now + kWaitPeriod);
  if (leaving_ && phase_ == Phase::kWaiting) sync_urgent_ = true;
  if (ReachedCut() > reported_cut_) sync_urgent_ = true;  // a cut waits for it
  if (!sync_in_flight_) {
    if (sync_urgent_ || now >= next_sync_) Sync(now, output);
    if (!sync_in_flight_) WakeAt(next_sync_);
  }
  if (next_timer_ == absl::InfiniteDuration()) WakeAt(now + options_.sync_period);
}

// ---- data plane

FrameHeader WorkerCore::MakeHeader(FrameKind kind) const {
  FrameHeader header;
  header.kind = kind;
  header.job_uid = uid_;
  header.generation = view_.stamp().generation();
  header.incarnation = view_.stamp().incarnation();
  header.epoch = view_.stamp().epoch();
  header.session = session_;
  return header;
}

void WorkerCore::SendFrames(std::uint32_t ps, Call::Kind kind, std::vector<std::uint32_t> slices,
                            std::vector<Frame> frames, WorkerOutput* output) {
  ExchangeCall exchange;
  exchange.call = next_call_++;
  exchange.ps = ps;
  exchange.frames = std::move(frames);
  exchange.deadline = options_.data_deadline;
  for (const v1::PsMember& member : view_.ps()) {
    if (member.index() == ps) exchange.address = member.address();
  }
  Call call;
  call.kind = kind;
  call.ps = ps;
  call.token = token_;
  call.slices = std::move(slices);
  calls_.emplace(exchange.call, std::move(call));
  ++links_[ps].in_flight;
  output->exchanges.push_back(std::move(exchange));
}

template <typename Wanted, typename FrameOf>
void WorkerCore::SendBatches(Call::Kind kind, Time now, WorkerOutput* output, Wanted wanted, FrameOf frame_of) {
  std::map<std::uint32_t, std::vector<std::uint32_t>> by_ps;
  for (std::uint32_t number = 0; number < slices_.size(); ++number) {
    if (wanted(slices_[number])) by_ps[slices_[number].ps].push_back(number);
  }
  for (auto& [ps, numbers] : by_ps) {
    PsLink& link = links_[ps];
    if (now < link.retry_at) {
      WakeAt(link.retry_at);
      continue;
    }
    std::size_t next = 0;
    while (next < numbers.size() && link.in_flight < options_.exchanges_in_flight) {
      std::vector<std::uint32_t> slices;
      std::vector<Frame> frames;
      std::size_t bytes = 0;
      while (next < numbers.size() &&
             (frames.empty() || bytes + slices_[numbers[next]].slice.bytes() <= options_.message_bytes)) {
        SliceState& slice = slices_[numbers[next]];
        bytes += slice.slice.bytes();
        frames.push_back(frame_of(numbers[next], slice));
        slices.push_back(numbers[next]);
        ++next;
      }
      SendFrames(ps, kind, std::move(slices), std::move(frames), output);
    }
  }
}

void WorkerCore::SendPulls(Time now, WorkerOutput* output) {
  SendBatches(
      Call::Kind::kPull, now, output, [](const SliceState& slice) { return !slice.fresh && !slice.pull_in_flight; },
      [this](std::uint32_t number, SliceState& slice) {
        slice.pull_in_flight = true;
        Frame frame;
        frame.header = MakeHeader(FrameKind::kPull);
        frame.header.slice = number;
        frame.header.begins_update = work_.kind == v1::TASK_TRAIN;
        if (OthersMayDoIt()) frame.header.update = work_.update;
        frame.header.clock = clock_;
        frame.header.want_bf16 = WantsBf16(slice);
        return frame;
      });
}

void WorkerCore::SendInitialValues(Time now, WorkerOutput* output) {
  SendBatches(
      Call::Kind::kInitialise, now, output,
      [](const SliceState& slice) { return !slice.initial_done && !slice.initial_in_flight; },
      [this](std::uint32_t number, SliceState& slice) {
        slice.initial_in_flight = true;
        Frame frame;
        frame.header = MakeHeader(FrameKind::kInitialise);
        frame.header.slice = number;
        frame.header.type = DataType::kFloat32;
        frame.header.codec = FrameCodec::kFp32;
        frame.header.elements = slice.slice.elements;
        frame.payload = host_->InitialValue(number, slice.slice);
        return frame;
      });
}

void WorkerCore::SendPushes(Time now, WorkerOutput* output) {
  SendBatches(
      Call::Kind::kPush, now, output, [](const SliceState& slice) { return slice.push == SliceProgress::kReady; },
      [this](std::uint32_t number, SliceState& slice) {
        slice.push = SliceProgress::kSent;
        links_[slice.ps].verdict_due = verdict_ == Verdict::kPending;
        Frame frame;
        frame.header = MakeHeader(FrameKind::kPush);
        frame.header.slice = number;
        frame.header.update = work_.update;
        frame.header.cut = work_.cut;
        frame.header.verdict = verdict_;
        frame.header.factor = factor_;
        if (verdict_ != Verdict::kPending) frame.header.loss = computed_.loss;
        frame.header.want_value = unfetched_ == 0 && step_width() == 0 && !StaysInEpoch(slice);
        frame.header.want_bf16 = WantsBf16(slice);
        frame.header.version = slice.computed_version;
        frame.header.clock = clock_ + 1;
        if (verdict_ != Verdict::kSkip) {
          EncodedGradient gradient{FrameCodec::kFp32, host_->Gradient(number, slice.slice)};
          if (!IsBuffer(slice)) {
            const bool flush = leaving_ && options_.bug != PlantedBug::kResidualLeftBehind;
            gradient = feedback_.Encode(number, slice.slice.elements, gradient.payload, flush);
          }
          frame.header.type = DataType::kFloat32;
          frame.header.codec = gradient.codec;
          frame.header.elements = slice.slice.elements;
          frame.payload = std::move(gradient.payload);
          stats_.set_push_bytes(stats_.push_bytes() + frame.payload.size());
          stats_.set_push_bytes_saved(stats_.push_bytes_saved() + slice.slice.bytes() - frame.payload.size());
        }
        return frame;
      });
  if (verdict_ == Verdict::kPending) return;
  // A ps that got all its slices of this update before the verdict still has to hear it.
  for (auto& [ps, link] : links_) {
    if (!link.verdict_due) continue;
    if (now < link.retry_at) {
      WakeAt(link.retry_at);
      continue;
    }
    link.verdict_due = false;
    Frame frame;
    frame.header = MakeHeader(FrameKind::kVerdict);
    frame.header.update = work_.update;
    frame.header.verdict = verdict_;
    frame.header.factor = factor_;
    frame.header.loss = computed_.loss;
    std::vector<Frame> frames;
    frames.push_back(std::move(frame));
    SendFrames(ps, Call::Kind::kPush, {}, std::move(frames), output);
  }
}

void WorkerCore::BackOff(PsLink& link, Time now) {
  link.backoff = std::clamp(link.backoff * 2, kFirstBackoff, kMostBackoff);
  link.retry_at = now + link.backoff;
}

void WorkerCore::HandleFrame(const Call& call, std::uint32_t number, const Frame& reply, Time now, bool* retry) {
  SliceState& slice = slices_[number];
  const ReplyStatus status = reply.header.status;
  const bool success = IsSuccess(status);
  const bool bf16 = reply.header.codec == FrameCodec::kBf16;
  // What was pulled for another work, a task perhaps, need not be what this one may begin with.
  const bool wanted = call.kind != Call::Kind::kPull || call.token == token_;
  const bool valued = success && wanted && (bf16 || reply.header.codec == FrameCodec::kFp32) &&
                      PayloadFits(reply.header.codec, reply.payload.size(), slice.slice.elements);
  if (call.kind == Call::Kind::kPull) {
    slice.pull_in_flight = false;
  } else if (call.kind == Call::Kind::kInitialise) {
    slice.initial_in_flight = false;
    if (success) slice.initial_done = true;
  }
  // Nobody waits for whoever begins to train to catch up with all that was done before.
  if (call.kind == Call::Kind::kPull && success) clock_ = std::max(clock_, reply.header.clock);
  const std::optional<StepId> of_step = call.kind == Call::Kind::kPull && valued ? StepOfWork() : std::nullopt;
  if (of_step.has_value()) {
    cut_ = std::max(cut_, reply.header.cut);
    slice.step = std::max(slice.step, StepOf(reply.header.update, step_width()));
  }
  // Of two answers that overtook each other the newer value is kept.
  if (of_step.has_value() || (valued && reply.header.version >= slice.version)) {
    if (bf16) {
      auto values = std::make_shared<std::vector<float>>(slice.slice.elements);
      Decode(reply.header.codec, reply.payload, absl::MakeSpan(*values));
      host_->StoreValue(number, slice.slice, Payload::OfFloats(*values, values));
    } else {
      host_->StoreValue(number, slice.slice, reply.payload);
    }
    slice.version = reply.header.version;
    slice.clock = reply.header.clock;
    slice.value_of = of_step;
    slice.fresh = true;
  }
  if (call.kind == Call::Kind::kPush && call.token == token_ && slice.push == SliceProgress::kSent) {
    if (success) {
      slice.push = SliceProgress::kDone;
      // A slice takes each update once: of two executions one is taken by the first slice, whatever the others take.
      if (number == 0) trained_ = status == ReplyStatus::kApplied || slice.maybe_applied;
      // A duplicate to the first push is somebody's whose session ended in the middle of this update.
      if (verdict_ == Verdict::kApply && (status == ReplyStatus::kApplied || slice.maybe_applied)) {
        // Where updates are run a second time, the one that is there may be the other one.
        if (status == ReplyStatus::kDuplicate && step_width() != 0) {
          feedback_.Forget(number);
        } else {
          feedback_.Keep(number);
        }
      } else {
        feedback_.Undo(number);
      }
      if (!valued && !StaysInEpoch(slice)) slice.fresh = false;
      if (!valued && status == ReplyStatus::kApplied) ++slice.version;  // the worker's values have it
      if (status == ReplyStatus::kApplied && step_width() == 0 && reply.header.version > slice.computed_version) {
        const double staleness = static_cast<double>(reply.header.version - 1 - slice.computed_version);
        stats_.set_staleness(Smooth(stats_.staleness(), staleness, false));
      }
    } else {
      slice.push = SliceProgress::kReady;
    }
  }
  if (success) return;
  *retry = true;
  switch (status) {
    case ReplyStatus::kSuperseded:
      if (call.kind != Call::Kind::kPull) break;  // a push just comes again
      [[fallthrough]];                            // the lease is over
    case ReplyStatus::kRefused:
    case ReplyStatus::kStaleView:
    case ReplyStatus::kWrongOwner:
    case ReplyStatus::kBehind:
      sync_urgent_ = now >= next_sync_ - options_.sync_period + kWaitPeriod;  // not more than every kWaitPeriod
      break;
    case ReplyStatus::kMalformed:
      finished_ = absl::InternalError(absl::StrCat("ps-", call.ps, " calls a frame of slice ", number, " malformed"));
      break;
    default:
      break;
  }
}

void WorkerCore::OnExchangeReply(std::uint64_t call_id, const absl::StatusOr<std::vector<Frame>>& reply, Time now,
                                 WorkerOutput* output) {
  const auto found = calls_.find(call_id);
  if (found == calls_.end() || finished_.has_value()) return;
  const Call call = std::move(found->second);
  calls_.erase(found);
  PsLink& link = links_[call.ps];
  --link.in_flight;
  bool retry = !reply.ok();
  if (retry && leaving_) finished_ = absl::OkStatus();  // somebody else finishes the update when the lease has ended
  const bool answered = reply.ok() && (call.slices.empty() ? reply->size() == 1 : reply->size() == call.slices.size());
  const bool done = answered && std::all_of(reply->begin(), reply->end(),
                                            [](const Frame& frame) { return IsSuccess(frame.header.status); });
  // Nor may the ps have taken the verdict that came with it, which pushes from before it wait for there.
  const bool undecided = call.kind == Call::Kind::kPush && call.token == token_ && phase_ == Phase::kPushing && !done;
  link.verdict_due = link.verdict_due || undecided;
  if (answered && call.slices.empty()) {
    retry = undecided;
  } else if (answered) {
    for (std::size_t i = 0; i < call.slices.size(); ++i) {
      // What moved meanwhile is asked for elsewhere.
      if (slices_[call.slices[i]].ps == call.ps) HandleFrame(call, call.slices[i], (*reply)[i], now, &retry);
    }
  } else {
    retry = true;
    // Its slices may have gone over to another.
    sync_urgent_ = sync_urgent_ || now >= last_sync_ + kWaitPeriod;
    for (std::uint32_t number : call.slices) {
      SliceState& slice = slices_[number];
      if (slice.ps != call.ps) continue;
      if (call.kind == Call::Kind::kPull) slice.pull_in_flight = false;
      if (call.kind == Call::Kind::kInitialise) slice.initial_in_flight = false;
      if (call.kind == Call::Kind::kPush && call.token == token_ && slice.push == SliceProgress::kSent) {
        slice.push = SliceProgress::kReady;
        slice.maybe_applied = true;
      }
    }
  }
  if (retry) {
    BackOff(link, now);
  } else {
    link.backoff = absl::ZeroDuration();
  }
  Pump(now, output);
}

}  // namespace downpour::core
