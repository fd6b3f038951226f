#include "trainer/core/worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/job_uid.h"

namespace downpour::core {
namespace {

constexpr absl::Duration kWaitPeriod = absl::Milliseconds(20);

WorkerDataPlane::Options DataOptions(const WorkerOptions& options) {
  WorkerDataPlane::Options data;
  if (const absl::StatusOr<JobUid> uid = ParseJobUid(options.job_uid); uid.ok()) data.job_uid = *uid;
  data.exchanges.deadline = options.data_deadline;
  data.exchanges.payload_bytes = options.message_bytes;
  data.exchanges.in_flight = options.exchanges_in_flight;
  data.codec = options.codec;
  data.encoder = options.encoder;
  data.bf16_values = options.bf16_values;
  data.bug = options.bug;
  return data;
}

}  // namespace

WorkerCore::WorkerCore(WorkerOptions options, WorkerHost* host)
    : options_(std::move(options)), host_(host), data_(DataOptions(options_), host, &meter_) {
  if (const absl::StatusOr<JobUid> uid = ParseJobUid(options_.job_uid); !uid.ok()) finished_ = uid.status();
  BeginSession();
  meter_.SetState("registering");
  meter_.SetDevice(options_.device);
}

void WorkerCore::BeginSession() {
  session_ = host_->NewSession();
  data_.SetSession(session_);
}

WorkUnderWay WorkerCore::UnderWay() const {
  WorkUnderWay under_way;
  under_way.token = token_;
  under_way.work = work_;
  under_way.verdict = verdict_;
  under_way.factor = computed_.factor;
  under_way.loss = computed_.loss;
  under_way.pushing = phase_ == Phase::kPushing;
  under_way.fetches_next = unfetched_ == 0;
  under_way.flushes = leaving_;
  return under_way;
}

void WorkerCore::Start(Time now, WorkerOutput* output) {
  next_sync_ = now;
  meter_.Start(now);
  Pump(now, output);
}

void WorkerCore::OnTimer(Time now, WorkerOutput* output) { Pump(now, output); }

void WorkerCore::Leave(Time now, WorkerOutput* output) {
  leaving_ = true;
  Pump(now, output);
}

void WorkerCore::DropEverything() {
  DropWork();
  leases_.Clear();
}

void WorkerCore::DropWork() {
  data_.Drop(UnderWay());
  ++token_;
  phase_ = Phase::kWaiting;
  verdict_ = Verdict::kPending;
  FetchNext();
  initialise_ = false;
}

// ---- control

void WorkerCore::Sync(Time now, WorkerOutput* output) {
  SyncCall call;
  call.call = ++sync_call_;
  call.deadline = options_.sync_deadline;
  v1::WorkerSyncRequest& request = call.request;
  Introduce(options_, accepted_, &request);
  request.set_session(session_);
  request.set_sequence(++sequence_);
  request.set_incarnation(incarnation_);
  if (view_.has_stamp()) *request.mutable_view() = view_.stamp();
  leases_.Describe(&request);
  const bool may_leave = leaving_ && phase_ == Phase::kWaiting;
  request.set_wanted(leaving_ ? 0 : options_.wanted_leases);
  request.set_leaving(may_leave);
  request.set_starving(Starves(now));
  request.set_failure(failure_);
  *request.mutable_stats() = stats();
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
      leases_.SendAgain(lost);
    }
    view_ = view;
    data_.SetView(view);
    return;
  }
  absl::StatusOr<std::vector<Slice>> slices = CutTensors(view);
  absl::StatusOr<DataPlan> plan = DataPlan::Create(view.data());
  if (!slices.ok() || !plan.ok() || static_cast<std::size_t>(view.layout_size()) != slices->size() ||
      !TensorDifference(options_.tensors, view.tensors()).empty()) {
    finished_ = absl::FailedPreconditionError("the coordinator's view does not fit this worker's model");
    return;
  }
  DropEverything();
  meter_.BeginHistory();
  view_ = view;
  leases_.Begin(*std::move(plan));
  data_.Begin(view, *slices);
}

void WorkerCore::ReconcileLeases(const v1::WorkerSyncReply& reply) {
  if (!leases_.Reconcile(reply)) lapsed_ = true;
  if (phase_ != Phase::kPulling || !OthersMayDoIt()) return;
  const std::optional<HeldLeases::Update> next = leases_.NextUpdate(OpenSteps(), &sync_urgent_);
  if (!next.has_value() || next->lease != work_lease_) GiveUpPulls();
}

void WorkerCore::GiveUpPulls() {
  data_.GiveUpPulls(UnderWay());
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
absl::Duration WorkerCore::Patience() const { return std::max(kWaitPeriod, 1.5 * meter_.update_time()); }

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
      data_.HearOfCut(reply->cut());
      if (finished_.has_value()) break;
      if (reply->initialise() && !initialise_) data_.slices().InitialiseAgain();
      initialise_ = reply->initialise();
      ReconcileLeases(*reply);
      break;
    case v1::SYNC_SESSION_ENDED:
      DropEverything();
      BeginSession();
      accepted_ = false;
      next_sync_ = now;
      break;
    default:
      finished_ = EndOf(*reply);
      break;
  }
  if (left_ && !finished_.has_value()) finished_ = absl::OkStatus();
  Pump(now, output);
}

// ---- work

std::uint32_t WorkerCore::ReachedCut() const {
  const bool pushes = (phase_ == Phase::kComputing || phase_ == Phase::kPushing) && work_.kind == v1::TASK_TRAIN;
  return pushes ? work_.cut : data_.cut();
}

std::vector<UpdateId> WorkerCore::NextUpdates(std::size_t most) const {
  const bool current = phase_ != Phase::kWaiting && work_.kind == v1::TASK_TRAIN;
  return leases_.UpdatesAfter(current ? std::optional(WorkUpdate()) : std::nullopt, OpenSteps(), most);
}

bool WorkerCore::PickWork() {
  const bool flush = leaving_ && !flushed_ && data_.HasResidual();
  if ((leaving_ && !flush) || !failure_.empty()) return false;
  if (const v1::Lease* const task = flush ? nullptr : leases_.NextTask(); task != nullptr) {
    work_ = Work();
    work_.token = ++token_;
    work_.kind = task->kind();
    work_.dataset_epoch = task->shard().dataset_epoch();
    work_.lease = work_lease_ = task->lease();
    FetchNext();
    data_.slices().Renew();  // a task is about the newest weights
    return true;
  }
  const std::optional<HeldLeases::Update> next = leases_.NextUpdate(OpenSteps(), &sync_urgent_);
  if (!next.has_value()) return false;
  work_ = Work();
  work_.token = ++token_;
  work_.update = next->update;
  work_.fetched = unfetched_ == 0;
  if (work_.fetched) unfetched_ = options_.fetch_every;
  --unfetched_;
  work_lease_ = next->lease;
  flushed_ = flush;
  // For a while nobody had to wait for this worker: what it was given before it need not begin with any more.
  const bool another_point =
      Searches() && std::exchange(values_epoch_, work_.update.dataset_epoch) != work_.update.dataset_epoch;
  if (std::exchange(lapsed_, false) || another_point) data_.slices().Renew();
  return true;
}

std::optional<StepId> WorkerCore::StepOfWork() const {
  if (step_width() == 0 || work_.kind != v1::TASK_TRAIN) return std::nullopt;
  return StepOf(work_.update, step_width());
}

void WorkerCore::OnGradient(std::uint64_t token, std::uint32_t tensor, Time now, WorkerOutput* output) {
  if (token != token_ || phase_ != Phase::kComputing) return;
  if (data_.slices().SetReady(tensor) >= options_.early_push_bytes) {
    WakeAt(data_.SendPushes(UnderWay(), now, &output->exchanges));
  }
}

void WorkerCore::OnComputed(std::uint64_t token, const ComputeResult& result, Time now, WorkerOutput* output) {
  if (token != token_ || phase_ != Phase::kComputing) return;
  computed_ = result;
  verdict_ = result.verdict;
  phase_ = Phase::kPushing;
  phase_since_ = now;
  data_.slices().SetAllReady();
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
  result.set_lease(work_lease_);
  result.set_kind(work_.kind);
  result.set_dataset_epoch(work_.dataset_epoch);
  leases_.OnTaskDone(work_lease_, std::move(result));
  data_.slices().Renew();  // others went on meanwhile, and a task's pulls never wait
  phase_ = Phase::kWaiting;
  sync_urgent_ = true;
  Pump(now, output);
}

void WorkerCore::Pump(Time now, WorkerOutput* output) {
  if (finished_.has_value()) return;
  next_timer_ = absl::InfiniteDuration();
  if (accepted_ && view_.has_stamp()) {
    if (initialise_) WakeAt(data_.SendInitialValues(now, &output->exchanges));
    for (bool moved = true; moved;) {
      moved = false;
      switch (phase_) {
        case Phase::kWaiting:
          if (PickWork()) {
            if (stats().state() == "waiting") data_.slices().Renew();  // others went on meanwhile
            phase_ = Phase::kPulling;
            phase_since_ = now;
            moved = true;
          } else {
            meter_.SetState(leaving_ ? "leaving" : "waiting");
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
            data_.slices().RenewBehind(data_.clock());
          }
          const std::optional<StepId> step = StepOfWork();
          if (step.has_value()) data_.slices().RenewAllBut(*step);
          if (OthersMayDoIt() && !leases_.IsNext(WorkUpdate(), OpenSteps())) {
            GiveUpPulls();
            moved = true;
            break;
          }
          if (work_.fetched) WakeAt(data_.SendPulls(UnderWay(), now, &output->exchanges));
          if (work_.fetched && !data_.slices().fresh()) {
            meter_.SetState("pulling");
            if (step.has_value()) {
              next_sync_ = std::min(next_sync_, std::max(phase_since_, last_sync_) + Patience());
            }
            break;
          }
          meter_.OnPulled(now - phase_since_);
          phase_ = work_.kind == v1::TASK_TRAIN ? Phase::kComputing : Phase::kTask;
          work_.cut = data_.cut();
          work_.flushes = leaving_;
          verdict_ = Verdict::kPending;
          computed_ = ComputeResult();
          data_.BeginUpdate();
          meter_.SetState(work_.kind == v1::TASK_TRAIN ? "computing" : "evaluating");
          phase_since_ = now;
          output->work = work_;
          break;
        }
        case Phase::kComputing:
        case Phase::kTask:
          break;
        case Phase::kPushing: {
          meter_.SetState("pushing");
          WakeAt(data_.SendPushes(UnderWay(), now, &output->exchanges));
          if (data_.slices().sent() && leases_.OnSent(WorkUpdate(), OpenSteps())) sync_urgent_ = true;
          if (!data_.slices().done()) break;
          leases_.OnDone(WorkUpdate());
          data_.FinishUpdate();
          meter_.OnUpdate(computed_, data_.trained(), now - phase_since_);
          phase_ = Phase::kWaiting;
          moved = true;
          break;
        }
      }
    }
  }
  meter_.UpdateRate(now, phase_ != Phase::kWaiting && phase_ != Phase::kTask);
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

void WorkerCore::OnExchangeReply(std::uint64_t call, const absl::StatusOr<std::vector<Frame>>& reply, Time now,
                                 WorkerOutput* output) {
  if (finished_.has_value()) return;
  const WorkerDataPlane::Heard heard = data_.OnReply(call, reply, UnderWay(), now);
  if (!heard.expected) return;
  if (!reply.ok() && leaving_) finished_ = absl::OkStatus();  // somebody else finishes the update after the lease
  if (!heard.malformed.ok()) finished_ = heard.malformed;
  // Its slices may have gone over to another.
  if (heard.lost) sync_urgent_ = sync_urgent_ || now >= last_sync_ + kWaitPeriod;
  if (heard.denied) sync_urgent_ = now >= next_sync_ - options_.sync_period + kWaitPeriod;  // not more often
  Pump(now, output);
}

}  // namespace downpour::core
