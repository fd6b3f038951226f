#include "trainer/core/ps.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/frame_admission.h"
#include "trainer/core/job_uid.h"
#include "trainer/core/layout.h"
#include "trainer/core/optimizer.h"
#include "trainer/core/sandblaster/vectors.h"
#include "trainer/core/update_mode.h"

namespace downpour::core {
namespace {

constexpr absl::Duration kCoordinatorSilence = absl::Milliseconds(1500);
constexpr absl::Duration kRegistrationPeriod = absl::Seconds(2);

PsStoreWork::Options StoreOptions(const PsOptions& options) {
  return {options.index, options.has_store, options.extra_bytes_limit, options.bug};
}

}  // namespace

PsCore::PsCore(PsOptions options, JobUid uid)
    : options_(std::move(options)),
      uid_(uid),
      replicas_(options_.index, options_.bug),
      replication_(&replicas_, uid_),
      store_work_(&replicas_, StoreOptions(options_)),
      sessions_(options_.bug),
      waiting_(options_.pending_bytes_limit) {}

absl::StatusOr<std::unique_ptr<PsCore>> PsCore::Create(PsOptions options) {
  absl::StatusOr<JobUid> uid = ParseJobUid(options.job_uid);
  if (!uid.ok()) return uid.status();
  return std::unique_ptr<PsCore>(new PsCore(std::move(options), *uid));
}

// ---- control

bool PsCore::ShouldRegister(Time now) const {
  if (!last_registered_.has_value() || now - *last_registered_ > kRegistrationPeriod) return true;
  return !last_directive_.has_value() || now - *last_directive_ > kCoordinatorSilence;
}

absl::Status PsCore::OnRegisterReply(const v1::RegisterPsReply& reply, Time now) {
  if (reply.status() == v1::SYNC_WRONG_JOB) return wrong_job_.OnWrongJob(now);
  wrong_job_.Forget();
  if (reply.incarnation() < highest_incarnation_) return absl::OkStatus();
  highest_incarnation_ = reply.incarnation();
  tell_all_ = reply.tell_all();
  if (reply.status() == v1::SYNC_OK) last_registered_ = now;
  if (reply.status() == v1::SYNC_WAIT) last_registered_.reset();
  if (reply.status() == v1::SYNC_REPLACED) return absl::AbortedError(reply.message());
  if (reply.status() == v1::SYNC_REFUSED) return absl::FailedPreconditionError(reply.message());
  return absl::OkStatus();
}

v1::RegisterPsRequest PsCore::MakeRegistration() const {
  v1::RegisterPsRequest request;
  request.set_job_uid(options_.job_uid);
  request.mutable_self()->set_index(options_.index);
  request.mutable_self()->set_address(options_.address);
  request.mutable_self()->set_session(options_.session);
  request.set_highest_incarnation(highest_incarnation_);
  request.set_highest_cut(store_work_.highest_cut());
  request.set_restoring(view_.has_restore() && !initialised());
  request.mutable_self()->set_process_incarnation(options_.process_incarnation);
  request.mutable_self()->set_node(options_.node);
  if (!view_.has_stamp()) return request;
  *request.mutable_holds() = view_.stamp();
  if (!tell_all_) return request;
  *request.mutable_view() = view_;
  for (const std::uint64_t session : sessions_.sessions()) request.add_sessions(session);
  replicas_.Describe(&request);
  return request;
}

absl::Status PsCore::Install(const v1::View& view) {
  const bool same_history = view_.has_stamp() && view.stamp().generation() == view_.stamp().generation();
  return same_history ? ChangeView(view) : BeginHistory(view);
}

absl::Status PsCore::BeginHistory(const v1::View& view) {
  if (absl::Status begun = replicas_.Begin(view); !begun.ok()) return begun;
  view_ = view;
  SetLearningRate();
  store_work_.Begin();
  replication_.Begin(view_, &owed_);
  BeginMode();
  replication_.SetFollowers(view_);
  return absl::OkStatus();
}

absl::Status PsCore::ChangeView(const v1::View& view) {
  const std::vector<std::uint32_t> before = replicas_.primaries();
  if (absl::Status changed = replicas_.Change(view); !changed.ok()) return changed;
  // Two coordinators may have given the same number to different modes, of which one never counted.
  const bool another_mode = view.mode_epoch() != view_.mode_epoch() || ModeOf(view) != ModeOf(view_);
  view_ = view;
  SetLearningRate();
  replication_.Change(view_, before, &owed_);
  const std::vector<std::uint32_t> now = replicas_.primaries();
  if (bound_.has_value() && !another_mode) {
    for (const std::uint32_t slice : before) {
      if (replicas_.Primary(slice) == nullptr) bound_->RemoveSlice(slice);
    }
    for (const std::uint32_t slice : now) {
      if (!bound_->HasSlice(slice)) bound_->AddSlice(slice);
    }
  }
  replication_.SetFollowers(view_);
  if (another_mode) {
    BeginMode();
  } else if (now != before) {
    store_work_.CloseCut();  // its slices are not those that are here
    SetStepWidth();
    replication_.ForgetPulledOfOthers(sessions_);
  }
  // Those of slices that are elsewhere by now are asked for there.
  const auto elsewhere = [this](const std::vector<Frame>& pulls) {
    return std::any_of(pulls.begin(), pulls.end(),
                       [this](const Frame& pull) { return Check(pull) != ReplyStatus::kNone; });
  };
  CarryOut(waiting_.TakePulls(elsewhere), Decision{}, &owed_);
  return absl::OkStatus();
}

void PsCore::SetLearningRate() {
  const v1::OptimizerConfig& optimizer = view_.optimizer();
  learning_rate_.emplace(optimizer.schedule(), optimizer.learning_rate(), replicas_.plan(), StepWidth(view_),
                         RateScale(view_));
}

void PsCore::BeginMode() {
  store_work_.CloseCut();  // its forks are of the mode before
  SetStepWidth();
  replication_.ForgetPulled(0);
  bound_.reset();
  if (view_.mode() == v1::BOUNDED_STALENESS) bound_.emplace(view_.staleness(), replicas_.primaries(), options_.bug);
  Refuse(waiting_.EndAll(), ReplyStatus::kRefused, &owed_);
  sessions_.Clear();
}

void PsCore::SetStepWidth() {
  step_width_ = StepWidth(view_);
  replication_.SetStepWidth(step_width_);
}

void PsCore::SetSessions(const v1::DirectRequest& request) {
  const std::optional<std::vector<std::uint64_t>> ended = sessions_.Take(request);
  if (!ended.has_value()) return;
  for (const std::uint64_t session : *ended) {
    Refuse(waiting_.End(session), ReplyStatus::kRefused, &owed_);
    replication_.ForgetPulled(session);
    if (bound_.has_value()) bound_->End(session);
  }
  if (bound_.has_value()) {
    const std::set<std::uint64_t> training(request.training().begin(), request.training().end());
    for (const std::uint64_t session : std::set(request.sessions().begin(), request.sessions().end())) {
      bound_->SetTraining(session, training.count(session) != 0);
    }
  }
  ReleasePulls(&owed_);
}

v1::DirectReply PsCore::OnDirect(const v1::DirectRequest& request, Time now) {
  v1::DirectReply reply;
  reply.set_status(v1::SYNC_OK);
  if (request.job_uid() != options_.job_uid) {
    reply.set_status(v1::SYNC_WRONG_JOB);
    return reply;
  }
  if (request.session() != options_.session) {
    reply.set_status(v1::SYNC_REFUSED);
    reply.set_message("meant for another process of this ps");
    return reply;
  }
  if (request.stamp().incarnation() < highest_incarnation_ && options_.bug != PlantedBug::kTwoCoordinatorsObeyed) {
    reply.set_status(v1::SYNC_SESSION_ENDED);
    reply.set_message(absl::StrCat("incarnation ", request.stamp().incarnation(), " is over, ", highest_incarnation_,
                                   " has been seen"));
    return reply;
  }
  highest_incarnation_ = std::max(highest_incarnation_, request.stamp().incarnation());
  last_directive_ = now;
  const int age = view_.has_stamp() ? CompareStamps(request.view().stamp(), view_.stamp()) : 1;
  const bool newer = age > 0 || (age < 0 && options_.bug == PlantedBug::kTwoCoordinatorsObeyed);
  if (request.has_view() && newer) {
    const absl::Status installed = Install(request.view());
    if (!installed.ok()) {
      reply.set_status(v1::SYNC_REFUSED);
      reply.set_message(std::string(installed.message()));
      return reply;
    }
    view_since_ = now;
  }
  thawed_ = options_.bug == PlantedBug::kFrozenThawed && now - view_since_ > absl::Milliseconds(2);
  const bool in_force = view_.has_stamp() && CompareStamps(request.stamp(), view_.stamp()) == 0;
  if (in_force) {
    if (request.committed()) replication_.Commit(&owed_);
    reply.set_committed(request.committed());
    store_work_.Take(request);
    SetSessions(request);
    if (request.has_vectors()) {
      const absl::Status carried_out = CarryOut(request.vectors(), reply.mutable_vectors());
      if (!carried_out.ok()) {
        reply.set_status(v1::SYNC_REFUSED);
        reply.set_message(std::string(carried_out.message()));
        return reply;
      }
    }
    const bool asked = request.retire_size() + request.inspect_size() > 0;
    const bool settled = asked && replication_.JoiningAreSettled(view_);
    for (const v1::ShardId& shard : request.retire()) replicas_.Confirm(shard, /*inspect=*/false, settled, &reply);
    for (const v1::ShardId& shard : request.inspect()) replicas_.Confirm(shard, /*inspect=*/true, settled, &reply);
    reply.set_watermark(replicas_.Advance(request.watermark()));
    replication_.Describe(view_, &reply);
    const std::optional<std::uint64_t> members = sessions_.version(request.stamp().incarnation());
    if (members.has_value()) reply.set_members_version(*members);
  }
  if (view_.has_stamp()) *reply.mutable_stamp() = view_.stamp();
  reply.set_initialised(initialised());
  store_work_.Describe(/*with_cut=*/in_force, &reply);
  *reply.mutable_stats() = stats();
  return reply;
}

absl::Status PsCore::CarryOut(const v1::VectorCommand& command, v1::VectorReply* reply) {
  std::uint64_t highest = 0;
  OpenCut* const open_cut = store_work_.open_cut();
  reply->set_number(command.number());
  for (auto& [number, entry] : replicas_.entries()) {
    if (!entry.leads()) continue;
    SliceState& state = entry.replica.state();
    const sandblaster::Vectors* vectors = state.search_vectors();
    if (vectors == nullptr || !state.initialised()) continue;
    const bool again =
        options_.bug == PlantedBug::kCommandRepeated && command.number() != 0 && vectors->number() == command.number();
    if (vectors->number() < command.number() || again) {
      if (IsFrozen(entry)) continue;
      // No cut begins while a command is under way: it is behind the one that is open.
      if (open_cut != nullptr && !open_cut->BeforePush(state, open_cut->cut())) continue;
      Frame record;
      const std::string bytes = command.SerializeAsString();
      record.header.type = DataType::kBytes;
      record.header.elements = static_cast<std::uint32_t>(bytes.size());
      record.payload = OwningPayload({bytes.begin(), bytes.end()});
      const absl::StatusOr<Replica::Done> done = replication_.Record(entry, RecordKind::kVectors, std::move(record));
      if (!done.ok()) return done.status();
    }
    // What the standby does not hold is not said.
    if (replication_.released(number) < entry.replica.sequence()) continue;
    v1::SliceSums* sums = reply->add_slices();
    sums->set_slice(number);
    sums->set_number(vectors->number());
    if (command.number() != 0) {
      sums->mutable_sums()->Add(vectors->sums().begin(), vectors->sums().end());
    } else if (vectors->number() > highest) {
      highest = vectors->number();
      reply->clear_search();
      reply->mutable_search()->Add(vectors->search().begin(), vectors->search().end());
    }
  }
  return absl::OkStatus();
}

v1::PsStats PsCore::stats() const {
  v1::PsStats stats = stats_;
  stats.set_staleness(staleness_mean_);
  replication_.Describe(&stats);
  replicas_.Describe(&stats);
  return stats;
}

v1::LedgerReply PsCore::ReadLedger() const {
  v1::LedgerReply reply;
  reply.set_job_uid(options_.job_uid);
  reply.set_ps_index(options_.index);
  if (!view_.has_stamp()) return reply;
  *reply.mutable_stamp() = view_.stamp();
  *reply.mutable_data() = view_.data();
  if (view_.has_end()) *reply.mutable_end() = view_.end();
  replicas_.Describe(&reply);
  return reply;
}

std::shared_ptr<const std::vector<float>> PsCore::value(std::uint32_t slice) const {
  const Entry* entry = replicas_.Primary(slice);
  return entry == nullptr ? nullptr : entry->replica.state().value();
}

// ---- data

ReplyStatus PsCore::Check(const Frame& frame) const {
  return FrameAdmission{uid_, view_, sessions_, replicas_, thawed_, options_.bug}.Check(frame);
}

Frame PsCore::MakeReply(const Frame& frame, ReplyStatus status) const {
  Frame reply = ReplyTo(frame.header, status);
  if (view_.has_stamp()) {
    reply.header.generation = view_.stamp().generation();
    reply.header.incarnation = view_.stamp().incarnation();
    reply.header.epoch = view_.stamp().epoch();
  }
  if (!IsSuccess(status) || frame.header.kind == FrameKind::kVerdict) return reply;
  const SliceState& state = replicas_.Primary(frame.header.slice)->replica.state();
  reply.header.version = state.version();
  if (bound_.has_value()) reply.header.clock = bound_->clock(frame.header.slice, frame.header.session);
  // A worker may begin its next update with the value that comes with the answer to a push.
  const bool wanted = frame.header.kind == FrameKind::kPull || (frame.header.want_value && MayBegin(frame));
  if (wanted) {
    reply.header.type = DataType::kFloat32;
    reply.header.codec = FrameCodec::kFp32;
    reply.header.elements = state.slice().elements;
    std::shared_ptr<const std::vector<float>> value = state.value();
    if (frame.header.kind == FrameKind::kPull && frame.header.begins_update && step_width_ != 0) {
      if (options_.bug != PlantedBug::kValueBeforeNotKept) {
        value = state.value_at(StepOf(frame.header.update, step_width_));
      }
      reply.header.update = FirstUpdateOf(state.step(), step_width_);
      // What begins with a value that has a push behind a cut is behind it too: what a cut has of a step, it has all of
      // the steps before.
      reply.header.cut = store_work_.applied_cut();
    }
    if (frame.header.want_bf16) {
      reply.header.codec = FrameCodec::kBf16;
      std::vector<std::uint8_t> bytes(EncodedBytes(FrameCodec::kBf16, 0, value->size()));
      Encode(FrameCodec::kBf16, 0, *value, bytes.data());
      reply.payload = OwningPayload(std::move(bytes));
    } else {
      reply.payload = Payload::OfFloats(*value, value);
    }
  }
  return reply;
}

bool PsCore::MayBegin(const Frame& frame) const {
  if (step_width_ != 0) {
    if (options_.bug == PlantedBug::kStepsNotAwaited) return frame.header.kind == FrameKind::kPull;
    // Whoever has pushed asks for the value of the next step when it knows which one that is.
    return frame.header.kind == FrameKind::kPull &&
           replicas_.Primary(frame.header.slice)->replica.state().step() >= StepOf(frame.header.update, step_width_);
  }
  return !bound_.has_value() || bound_->MayBegin(frame.header.slice, frame.header.session);
}

ReplyStatus PsCore::Apply(Entry& entry, const Frame& frame, const Decision& decision) {
  const FrameHeader& header = frame.header;
  SliceState& state = entry.replica.state();
  OpenCut* const open_cut = store_work_.open_cut();
  SliceState* const fork = open_cut != nullptr ? open_cut->LatePush(state.number(), header.cut) : nullptr;
  const bool duplicate = options_.bug != PlantedBug::kNoDeduplication && state.table().Contains(header.update);
  if (duplicate) {
    stats_.set_duplicates(stats_.duplicates() + 1);
    // Of two executions of an update one may belong before the cut and the other, which came first, behind it.
    if (fork == nullptr || fork->table().Contains(header.update)) return ReplyStatus::kDuplicate;
  }
  if (decision.verdict == Verdict::kApply && !IsSound(header.codec, frame.payload, state.slice().elements)) {
    return ReplyStatus::kMalformed;
  }
  if (open_cut != nullptr && !open_cut->BeforePush(state, header.cut)) return ReplyStatus::kNotReady;
  if (replication_.LogIsFull(header.slice, options_.log_bytes_limit)) return ReplyStatus::kNotReady;
  // Of a worker that an older coordinator told it: a cut of that number can be opened here no more.
  store_work_.OnPush(header.cut);
  Frame record = frame;
  // Whatever the push says: it was found to fit, and the standby has to find so too.
  if (decision.verdict == Verdict::kApply) record.header.elements = state.slice().elements;
  record.header.verdict = decision.verdict;
  record.header.factor = decision.factor;
  record.header.loss = decision.loss;
  record.header.learning_rate = learning_rate_->At(header.update);
  const StepContext context = entry.replica.ContextOf(record.header);
  const v1::OptimizerConfig& optimizer = view_.optimizer();
  if (optimizer.staleness_aware() && optimizer.staleness_rule() == v1::STALENESS_DIVIDE) {
    record.header.learning_rate *= StalenessScale(context.staleness, optimizer.staleness_clamp());
  }
  const EncodedGradient gradient(header.codec, frame.payload);
  const bool in_fork = fork != nullptr && options_.bug != PlantedBug::kLatePushNotInSnapshot;
  if (duplicate) {
    if (in_fork) fork->Apply(header.update, decision.verdict, gradient, entry.replica.ContextOf(record.header));
    return ReplyStatus::kDuplicate;
  }
  if (decision.verdict == Verdict::kApply) {
    staleness_mean_ += 0.01 * (static_cast<double>(context.staleness) - staleness_mean_);
  }
  const StepId step = state.step();
  const absl::StatusOr<Replica::Done> done = replication_.Record(entry, RecordKind::kUpdate, std::move(record));
  if (!done.ok()) return ReplyStatus::kMalformed;
  if (done->completes_shard) replicas_.OnComplete({header.update.dataset_epoch, header.update.data_shard});
  steps_moved_ = steps_moved_ || state.step() != step;
  if (in_fork) fork->Apply(header.update, decision.verdict, gradient, done->context);
  return ReplyStatus::kApplied;
}

Frame PsCore::CarryOut(const Frame& frame, const Decision& decision, Needs* needs) {
  ReplyStatus status = Check(frame);
  const FrameHeader& header = frame.header;
  if (status == ReplyStatus::kNone) {
    switch (header.kind) {
      case FrameKind::kVerdict:
        status = ReplyStatus::kApplied;
        break;
      case FrameKind::kPull:
        status = header.begins_update && !MayBegin(frame) ? ReplyStatus::kNotReady : ReplyStatus::kValue;
        break;
      case FrameKind::kInitialise:
        status = replicas_.Primary(header.slice)->replica.state().Initialise(frame.payload) ? ReplyStatus::kApplied
                                                                                            : ReplyStatus::kDuplicate;
        break;
      case FrameKind::kPush:
        status = Apply(*replicas_.Primary(header.slice), frame, decision);
        if (bound_.has_value() && (status == ReplyStatus::kApplied || status == ReplyStatus::kDuplicate)) {
          bound_->SetClock(header.slice, header.session, header.clock);
        }
        if (options_.on_push) options_.on_push(frame, status, replicas_.Primary(header.slice)->replica.sequence());
        break;
      case FrameKind::kReply:
      case FrameKind::kRecord:
      case FrameKind::kCopy:
        status = ReplyStatus::kMalformed;
        break;
    }
  }
  if (status == ReplyStatus::kRefused) stats_.set_refused(stats_.refused() + 1);
  Frame reply = MakeReply(frame, status);
  stats_.set_sent_bytes(stats_.sent_bytes() + reply.payload.size());
  if (reply.payload.size() != 0) {
    replication_.KeepPulled(*replicas_.Primary(header.slice), header.session, sessions_);
  }
  const bool early = options_.bug == PlantedBug::kDuplicateBeforeStandby && status == ReplyStatus::kDuplicate;
  if (IsSuccess(status) && header.kind != FrameKind::kVerdict && !early) {
    const std::uint64_t record = replicas_.Primary(header.slice)->replica.sequence();
    if (replication_.released(header.slice) < record) (*needs)[header.slice] = record;
  }
  return reply;
}

// ---- to and from other ps

DataReply PsCore::TakeReplicaFrames(CallId call, const std::vector<Frame>& frames) {
  DataReply reply{call, {}};
  reply.frames.reserve(frames.size());
  for (const Frame& frame : frames) {
    const FrameHeader& header = frame.header;
    const std::uint64_t generation = view_.stamp().generation();
    const bool mine = header.job_uid == uid_ && view_.has_stamp() && header.generation == generation;
    bool applied = false;
    reply.frames.push_back(replicas_.Take(frame, mine, &applied));
    const bool copied = header.kind == FrameKind::kCopy && reply.frames.back().header.status == ReplyStatus::kApplied;
    if (applied || copied) store_work_.OnPush(header.cut);
  }
  return reply;
}

// ---- calls that wait

void PsCore::Refuse(const std::vector<WaitingCalls::Call>& calls, ReplyStatus status,
                    std::vector<DataReply>* replies) const {
  for (const WaitingCalls::Call& call : calls) {
    DataReply reply{call.call, {}};
    reply.frames.reserve(call.frames.size());
    for (const Frame& frame : call.frames) reply.frames.push_back(MakeReply(frame, status));
    replies->push_back(std::move(reply));
  }
}

void PsCore::CarryOut(const std::vector<WaitingCalls::Call>& calls, const Decision& decision,
                      std::vector<DataReply>* replies) {
  for (const WaitingCalls::Call& call : calls) {
    DataReply reply{call.call, {}};
    reply.frames.reserve(call.frames.size());
    Needs needs;
    for (const Frame& frame : call.frames) reply.frames.push_back(CarryOut(frame, decision, &needs));
    replication_.Answer(std::move(reply), std::move(needs), replies);
  }
}

void PsCore::ReleasePulls(std::vector<DataReply>* replies) {
  const auto may_begin = [this](const std::vector<Frame>& pulls) { return MayBegin(pulls); };
  CarryOut(waiting_.TakePulls(may_begin), Decision{}, replies);
}

bool PsCore::MayBegin(const std::vector<Frame>& pulls) const {
  return std::all_of(pulls.begin(), pulls.end(), [this](const Frame& pull) { return MayBegin(pull); });
}

void PsCore::OnData(CallId call, std::vector<Frame> frames, std::vector<DataReply>* replies) {
  const auto from_ps = [](const Frame& frame) {
    return frame.header.kind == FrameKind::kRecord || frame.header.kind == FrameKind::kCopy;
  };
  if (!frames.empty() && std::all_of(frames.begin(), frames.end(), from_ps)) {
    return replies->push_back(TakeReplicaFrames(call, frames));
  }
  std::uint64_t received = 0;
  bool all_pending = !frames.empty();
  bool all_begin = !frames.empty();
  for (const Frame& frame : frames) {
    all_begin = all_begin && frame.header.kind == FrameKind::kPull && frame.header.begins_update &&
                frame.header.session == frames.front().header.session && Check(frame) == ReplyStatus::kNone;
    received += frame.payload.size();
    all_pending = all_pending && frame.header.kind == FrameKind::kPush && frame.header.verdict == Verdict::kPending &&
                  frame.header.update == frames.front().header.update &&
                  frame.header.session == frames.front().header.session && Check(frame) == ReplyStatus::kNone;
  }
  stats_.set_received_bytes(stats_.received_bytes() + received);

  WaitingCalls::Call request{call, std::move(frames)};
  if (all_pending) {
    const FrameHeader& first = request.frames.front().header;
    if (!waiting_.DecisionOn(first.session, first.update).has_value()) {
      std::vector<WaitingCalls::Call> superseded;
      const bool held = waiting_.HoldPushes(request, &superseded);
      Refuse(superseded, ReplyStatus::kSuperseded, replies);
      if (held) return;
    }
  }

  // Of slices that it has not asked for yet too: it may wait here until others know there how far it is.
  if (all_begin && bound_.has_value()) {
    const FrameHeader& first = request.frames.front().header;
    bound_->SetClock(first.session, first.clock);
  }
  if (all_begin && !MayBegin(request.frames)) {
    return Refuse(waiting_.HoldPulls(std::move(request)), ReplyStatus::kSuperseded, replies);
  }

  DataReply reply{call, {}};
  Needs needs;
  reply.frames.reserve(request.frames.size());
  for (const Frame& frame : request.frames) {
    const FrameHeader& header = frame.header;
    const bool carries_update = header.kind == FrameKind::kPush || header.kind == FrameKind::kVerdict;
    Decision decision{header.verdict, header.factor, header.loss};
    if (carries_update && Check(frame) == ReplyStatus::kNone) {
      if (decision.verdict != Verdict::kPending) {
        CarryOut(waiting_.Decide(header.session, header.update, decision), decision, replies);
      } else if (const auto decided = waiting_.DecisionOn(header.session, header.update); decided.has_value()) {
        decision = *decided;  // it was overtaken by its verdict
      }
    }
    if (header.kind == FrameKind::kPush && decision.verdict == Verdict::kPending) {
      const ReplyStatus status = Check(frame);
      reply.frames.push_back(MakeReply(frame, status == ReplyStatus::kNone ? ReplyStatus::kSuperseded : status));
    } else {
      reply.frames.push_back(CarryOut(frame, decision, &needs));
    }
  }
  replication_.Answer(std::move(reply), std::move(needs), replies);
  if (step_width_ == 0 || std::exchange(steps_moved_, false)) ReleasePulls(replies);
}

}  // namespace downpour::core
