#include "trainer/core/worker.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/job_uid.h"

namespace downpour::core {
namespace {

constexpr absl::Duration kWaitPeriod = absl::Milliseconds(20);
PsExchanges::Options ExchangeOptions(const WorkerOptions& options) {
  PsExchanges::Options exchanges;
  exchanges.deadline = options.data_deadline;
  exchanges.payload_bytes = options.message_bytes;
  exchanges.in_flight = options.exchanges_in_flight;
  return exchanges;
}

}  // namespace

WorkerCore::WorkerCore(WorkerOptions options, WorkerHost* host)
    : options_(std::move(options)), host_(host), exchanges_(ExchangeOptions(options_)), feedback_(options_.codec) {
  absl::StatusOr<JobUid> uid = ParseJobUid(options_.job_uid);
  if (uid.ok()) {
    uid_ = *uid;
  } else {
    finished_ = uid.status();
  }
  session_ = host_->NewSession();
  meter_.SetState("registering");
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

void WorkerCore::SettleResiduals() {
  const bool applies =
      phase_ == Phase::kPushing && verdict_ == Verdict::kApply && options_.bug != PlantedBug::kResidualNotForgotten;
  for (std::uint32_t number = 0; number < slices_.size(); ++number) {
    if (applies && slices_.MayBeApplied(number)) {
      feedback_.Forget(number);
    } else {
      feedback_.Undo(number);  // a ps drops what waits for a verdict that never comes
    }
  }
}

void WorkerCore::DropEverything() {
  DropWork();
  leases_.Clear();
}

void WorkerCore::DropWork() {
  SettleResiduals();
  ++token_;
  clock_ = 0;
  exchanges_.Clear();
  verdict_due_.clear();
  phase_ = Phase::kWaiting;
  verdict_ = Verdict::kPending;
  FetchNext();
  initialise_ = false;
  slices_.Drop();
}

// ---- control

void WorkerCore::Sync(Time now, WorkerOutput* output) {
  SyncCall call;
  call.call = ++sync_call_;
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
  leases_.Describe(&request);
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
    const std::set<std::uint32_t> gone = exchanges_.SetView(view);
    for (const std::uint32_t ps : gone) verdict_due_.erase(ps);
    slices_.Reroute(view, gone);
    return;
  }
  absl::StatusOr<std::vector<Slice>> slices = CutTensors(view);
  absl::StatusOr<DataPlan> plan = DataPlan::Create(view.data());
  if (!slices.ok() || !plan.ok() || static_cast<std::size_t>(view.layout_size()) != slices->size() ||
      !TensorDifference(options_.tensors, view.tensors()).empty()) {
    finished_ = absl::FailedPreconditionError("the coordinator's view does not fit this worker's model");
    return;
  }
  slices_.Clear();
  feedback_.Clear();
  DropEverything();
  meter_.BeginHistory();
  view_ = view;
  exchanges_.SetView(view);
  leases_.Begin(*std::move(plan));
  slices_.Begin(*slices, view);
}

void WorkerCore::ReconcileLeases(const v1::WorkerSyncReply& reply) {
  if (!leases_.Reconcile(reply)) lapsed_ = true;
  if (phase_ != Phase::kPulling || !OthersMayDoIt()) return;
  const std::optional<HeldLeases::Update> next = leases_.NextUpdate(OpenSteps(), &sync_urgent_);
  if (!next.has_value() || next->lease != work_lease_) GiveUpPulls();
}

void WorkerCore::GiveUpPulls() {
  for (const std::uint32_t number : exchanges_.GiveUp(PsExchanges::Kind::kPull, token_)) {
    slices_[number].pull_in_flight = false;
  }
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
      cut_ = std::max(cut_, reply->cut());
      if (finished_.has_value()) break;
      if (reply->initialise() && !initialise_) slices_.InitialiseAgain();
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
  const bool current = phase_ != Phase::kWaiting && work_.kind == v1::TASK_TRAIN;
  return leases_.UpdatesAfter(current ? std::optional(WorkUpdate()) : std::nullopt, OpenSteps(), most);
}

bool WorkerCore::PickWork() {
  const bool flush = leaving_ && !flushed_ && feedback_.HasResidual();
  if ((leaving_ && !flush) || !failure_.empty()) return false;
  if (const v1::Lease* const task = flush ? nullptr : leases_.NextTask(); task != nullptr) {
    work_ = Work();
    work_.token = ++token_;
    work_.kind = task->kind();
    work_.dataset_epoch = task->shard().dataset_epoch();
    work_.lease = work_lease_ = task->lease();
    FetchNext();
    slices_.Renew();  // a task is about the newest weights
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
  if (std::exchange(lapsed_, false) || another_point) slices_.Renew();
  return true;
}

std::optional<StepId> WorkerCore::StepOfWork() const {
  if (step_width() == 0 || work_.kind != v1::TASK_TRAIN) return std::nullopt;
  return StepOf(work_.update, step_width());
}

void WorkerCore::OnGradient(std::uint64_t token, std::uint32_t tensor, Time now, WorkerOutput* output) {
  if (token != token_ || phase_ != Phase::kComputing) return;
  if (slices_.SetReady(tensor) >= options_.early_push_bytes) SendPushes(now, output);
}

void WorkerCore::OnComputed(std::uint64_t token, const ComputeResult& result, Time now, WorkerOutput* output) {
  if (token != token_ || phase_ != Phase::kComputing) return;
  computed_ = result;
  verdict_ = result.verdict;
  factor_ = result.factor;
  phase_ = Phase::kPushing;
  phase_since_ = now;
  slices_.SetAllReady();
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
  slices_.Renew();  // others went on meanwhile, and a task's pulls never wait
  phase_ = Phase::kWaiting;
  sync_urgent_ = true;
  Pump(now, output);
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
            if (stats().state() == "waiting") slices_.Renew();  // others went on meanwhile
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
            slices_.RenewBehind(clock_);
          }
          const std::optional<StepId> step = StepOfWork();
          if (step.has_value()) slices_.RenewAllBut(*step);
          if (OthersMayDoIt() && !leases_.IsNext(WorkUpdate(), OpenSteps())) {
            GiveUpPulls();
            moved = true;
            break;
          }
          if (work_.fetched) SendPulls(now, output);
          if (work_.fetched && !slices_.fresh()) {
            meter_.SetState("pulling");
            if (step.has_value()) {
              next_sync_ = std::min(next_sync_, std::max(phase_since_, last_sync_) + Patience());
            }
            break;
          }
          meter_.OnPulled(now - phase_since_);
          phase_ = work_.kind == v1::TASK_TRAIN ? Phase::kComputing : Phase::kTask;
          work_.cut = cut_;
          verdict_ = Verdict::kPending;
          factor_ = 1;
          trained_ = false;
          slices_.BeginUpdate();
          verdict_due_.clear();
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
          SendPushes(now, output);
          if (slices_.sent() && leases_.OnSent(WorkUpdate(), OpenSteps())) sync_urgent_ = true;
          if (!slices_.done()) break;
          leases_.OnDone(WorkUpdate());
          ++clock_;
          meter_.OnUpdate(computed_, trained_, now - phase_since_);
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

void WorkerCore::SendParts(PsExchanges::Kind kind, Time now, WorkerOutput* output,
                           absl::FunctionRef<bool(const WorkerSlices::Entry&)> wanted,
                           absl::FunctionRef<Frame(std::uint32_t)> frame_of) {
  for (const auto& [ps, parts] : slices_.Parts(wanted)) {
    if (MaySend(ps, now)) exchanges_.Send(kind, ps, token_, parts, frame_of, &output->exchanges);
  }
}

bool WorkerCore::MaySend(std::uint32_t ps, Time now) {
  const Time retry_at = exchanges_.retry_at(ps);
  if (now < retry_at) WakeAt(retry_at);
  return now >= retry_at;
}

void WorkerCore::SendPulls(Time now, WorkerOutput* output) {
  SendParts(
      PsExchanges::Kind::kPull, now, output,
      [](const WorkerSlices::Entry& slice) { return !slice.fresh && !slice.pull_in_flight; },
      [this](std::uint32_t number) {
        WorkerSlices::Entry& slice = slices_[number];
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
  SendParts(
      PsExchanges::Kind::kInitialise, now, output,
      [](const WorkerSlices::Entry& slice) { return !slice.initial_done && !slice.initial_in_flight; },
      [this](std::uint32_t number) {
        WorkerSlices::Entry& slice = slices_[number];
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
  SendParts(
      PsExchanges::Kind::kPush, now, output,
      [](const WorkerSlices::Entry& slice) { return slice.push == WorkerSlices::Push::kReady; },
      [this](std::uint32_t number) {
        WorkerSlices::Entry& slice = slices_[number];
        slice.push = WorkerSlices::Push::kSent;
        if (verdict_ == Verdict::kPending) {
          verdict_due_.insert(slice.ps);
        } else {
          verdict_due_.erase(slice.ps);
        }
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
          meter_.OnPush(frame.payload.size(), slice.slice.bytes());
        }
        return frame;
      });
  if (verdict_ == Verdict::kPending) return;
  // A ps that got all its slices of this update before the verdict still has to hear it.
  for (auto due = verdict_due_.begin(); due != verdict_due_.end();) {
    const std::uint32_t ps = *due;
    if (!MaySend(ps, now)) {
      ++due;
      continue;
    }
    due = verdict_due_.erase(due);
    Frame frame;
    frame.header = MakeHeader(FrameKind::kVerdict);
    frame.header.update = work_.update;
    frame.header.verdict = verdict_;
    frame.header.factor = factor_;
    frame.header.loss = computed_.loss;
    exchanges_.SendOne(PsExchanges::Kind::kPush, ps, token_, std::move(frame), &output->exchanges);
  }
}

void WorkerCore::HandleFrame(const PsExchanges::Exchange& call, std::uint32_t number, const Frame& reply, Time now,
                             bool* retry) {
  WorkerSlices::Entry& slice = slices_[number];
  const ReplyStatus status = reply.header.status;
  const bool success = IsSuccess(status);
  const bool bf16 = reply.header.codec == FrameCodec::kBf16;
  // What was pulled for another work, a task perhaps, need not be what this one may begin with.
  const bool wanted = call.kind != PsExchanges::Kind::kPull || call.token == token_;
  const bool valued = success && wanted && (bf16 || reply.header.codec == FrameCodec::kFp32) &&
                      PayloadFits(reply.header.codec, reply.payload.size(), slice.slice.elements);
  if (call.kind == PsExchanges::Kind::kPull) {
    slice.pull_in_flight = false;
  } else if (call.kind == PsExchanges::Kind::kInitialise) {
    slice.initial_in_flight = false;
    if (success) slice.initial_done = true;
  }
  // Nobody waits for whoever begins to train to catch up with all that was done before.
  if (call.kind == PsExchanges::Kind::kPull && success) clock_ = std::max(clock_, reply.header.clock);
  const std::optional<StepId> of_step = call.kind == PsExchanges::Kind::kPull && valued ? StepOfWork() : std::nullopt;
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
  if (call.kind == PsExchanges::Kind::kPush && call.token == token_ && slice.push == WorkerSlices::Push::kSent) {
    if (success) {
      slice.push = WorkerSlices::Push::kDone;
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
        meter_.OnStaleness(static_cast<double>(reply.header.version - 1 - slice.computed_version));
      }
    } else {
      slice.push = WorkerSlices::Push::kReady;
    }
  }
  if (success) return;
  *retry = true;
  switch (status) {
    case ReplyStatus::kSuperseded:
      if (call.kind != PsExchanges::Kind::kPull) break;  // a push just comes again
      [[fallthrough]];                                   // the lease is over
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
  if (finished_.has_value()) return;
  const std::optional<PsExchanges::Exchange> ended = exchanges_.End(call_id);
  if (!ended.has_value()) return;
  const PsExchanges::Exchange& call = *ended;
  bool retry = !reply.ok();
  if (retry && leaving_) finished_ = absl::OkStatus();  // somebody else finishes the update when the lease has ended
  const bool answered = reply.ok() && (call.slices.empty() ? reply->size() == 1 : reply->size() == call.slices.size());
  const bool done = answered && std::all_of(reply->begin(), reply->end(),
                                            [](const Frame& frame) { return IsSuccess(frame.header.status); });
  // Nor may the ps have taken the verdict that came with it, which pushes from before it wait for there.
  const bool undecided =
      call.kind == PsExchanges::Kind::kPush && call.token == token_ && phase_ == Phase::kPushing && !done;
  if (undecided) verdict_due_.insert(call.ps);
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
      if (slices_[number].ps == call.ps) slices_.OnLost(number, call.kind, call.token == token_);
    }
  }
  if (retry) {
    exchanges_.BackOff(call.ps, now);
  } else {
    exchanges_.Succeed(call.ps);
  }
  Pump(now, output);
}

}  // namespace downpour::core
