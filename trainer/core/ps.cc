#include "trainer/core/ps.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/job_uid.h"
#include "trainer/core/layout.h"
#include "trainer/core/optimizer.h"
#include "trainer/core/sandblaster/vectors.h"
#include "trainer/core/update_mode.h"

namespace downpour::core {
namespace {

constexpr absl::Duration kCoordinatorSilence = absl::Milliseconds(1500);
constexpr absl::Duration kRegistrationPeriod = absl::Seconds(2);

}  // namespace

PsCore::PsCore(PsOptions options, JobUid uid)
    : options_(std::move(options)),
      uid_(uid),
      replicas_(options_.index, options_.bug),
      replication_(Replication::Options{}) {}

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
  request.set_highest_cut(highest_cut_);
  request.set_restoring(view_.has_restore() && !initialised());
  request.mutable_self()->set_process_incarnation(options_.process_incarnation);
  request.mutable_self()->set_node(options_.node);
  if (!view_.has_stamp()) return request;
  *request.mutable_holds() = view_.stamp();
  if (!tell_all_) return request;
  *request.mutable_view() = view_;
  for (const auto& [session, state] : sessions_) request.add_sessions(session);
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
  restore_given_out_ = false;
  restore_error_.clear();
  restore_waits_.clear();
  held_.DenyAll(ReplyStatus::kRefused, &owed_);
  replication_.Clear();
  followers_to_drop_.clear();
  replication_.SetView(view_, uid_);
  BeginMode();
  SetFollowers();
  return absl::OkStatus();
}

absl::Status PsCore::ChangeView(const v1::View& view) {
  const std::vector<std::uint32_t> before = replicas_.primaries();
  if (absl::Status changed = replicas_.Change(view); !changed.ok()) return changed;
  // Two coordinators may have given the same number to different modes, of which one never counted.
  const bool another_mode = view.mode_epoch() != view_.mode_epoch() || ModeOf(view) != ModeOf(view_);
  view_ = view;
  SetLearningRate();
  replication_.SetView(view_, uid_);
  for (const std::uint32_t slice : before) {
    if (replicas_.Primary(slice) != nullptr) continue;
    for (const std::uint64_t follower : replication_.Followers(slice)) replication_.Unfollow(slice, follower);
    held_.Deny(slice, ReplyStatus::kWrongOwner, &owed_);
    if (bound_.has_value()) bound_->RemoveSlice(slice);
  }
  const std::vector<std::uint32_t> now = replicas_.primaries();
  if (bound_.has_value() && !another_mode) {
    for (const std::uint32_t slice : now) {
      if (!bound_->HasSlice(slice)) bound_->AddSlice(slice);
    }
  }
  SetFollowers();
  if (another_mode) {
    BeginMode();
  } else if (now != before) {
    open_cut_.reset();  // its slices are not those that are here
    SetStepWidth();
    ForgetPulledOfOthers();
  }
  // Those of slices that are elsewhere by now are asked for there.
  for (auto& [number, session] : sessions_) {
    waiting_pulls_ -= std::erase_if(session.pulls, [this](const PendingCall& call) {
      const bool here = std::all_of(call.frames.begin(), call.frames.end(),
                                    [this](const Frame& frame) { return Check(frame) == ReplyStatus::kNone; });
      if (!here) CarryOut(call, Decision{}, &owed_);
      return !here;
    });
  }
  return absl::OkStatus();
}

void PsCore::SetFollowers() {
  followers_to_drop_.clear();
  for (const auto& [slice, entry] : replicas_.entries()) {
    if (!entry.leads()) continue;
    const v1::SlicePlacement& placement = view_.layout(static_cast<int>(slice));
    const std::uint64_t sequence = entry.replica.sequence();
    std::set<std::uint64_t> wanted;
    if (placement.has_standby()) {
      // One that this ps has not brought up itself came with a slice that moved here: it has what the slice had then.
      replication_.Follow(slice, placement.standby(), placement.standby_replica(), /*has_all=*/true, sequence);
      wanted.insert(placement.standby_replica());
    }
    if (placement.has_joining()) {
      replication_.Follow(slice, placement.joining(), placement.joining_replica(), /*has_all=*/false, sequence);
      wanted.insert(placement.joining_replica());
    }
    for (const std::uint64_t follower : replication_.Followers(slice)) {
      if (wanted.count(follower) == 0) followers_to_drop_.emplace_back(slice, follower);
    }
  }
}

void PsCore::Commit() {
  for (const auto& [slice, follower] : std::exchange(followers_to_drop_, {})) {
    replication_.Unfollow(slice, follower);
    held_.Release(slice, released(slice), &owed_);
  }
}

void PsCore::SetLearningRate() {
  const v1::OptimizerConfig& optimizer = view_.optimizer();
  learning_rate_.emplace(optimizer.schedule(), optimizer.learning_rate(), replicas_.plan(), StepWidth(view_),
                         RateScale(view_));
}

void PsCore::BeginMode() {
  open_cut_.reset();  // its forks are of the mode before
  SetStepWidth();
  ForgetPulled(0);
  bound_.reset();
  if (view_.mode() == v1::BOUNDED_STALENESS) bound_.emplace(view_.staleness(), replicas_.primaries(), options_.bug);
  for (auto& [session, state] : sessions_) End(state, &owed_);
  sessions_.clear();
  members_version_ = 0;
}

void PsCore::SetStepWidth() {
  step_width_ = StepWidth(view_);
  for (auto& [slice, entry] : replicas_.entries()) {
    if (!entry.leads() || entry.replica.state().step_width() == step_width_) continue;
    Frame record;
    record.header.version = step_width_;
    Record(entry, RecordKind::kStepWidth, std::move(record)).IgnoreError();
  }
}

void PsCore::SetSessions(const v1::DirectRequest& request, std::vector<DataReply>* replies) {
  const bool newer_coordinator = request.stamp().incarnation() > members_incarnation_;
  const bool whole = request.members_since() == 0;
  if (newer_coordinator) {
    if (!whole) return;  // a difference to a list that is not here: the whole one will come
    members_incarnation_ = request.stamp().incarnation();
  } else if (request.members_version() <= members_version_ || request.members_since() > members_version_) {
    return;
  }
  members_version_ = request.members_version();
  // Sessions never come back, so a difference may begin before the version that is here.
  const std::set<std::uint64_t> added(request.sessions().begin(), request.sessions().end());
  std::vector<std::uint64_t> ended(request.ended().begin(), request.ended().end());
  if (options_.bug == PlantedBug::kEndedSessionsKept) ended.clear();
  for (const auto& [session, state] : sessions_) {
    if (whole && added.count(session) == 0) ended.push_back(session);
  }
  for (std::uint64_t session : ended) {
    const auto found = sessions_.find(session);
    if (found == sessions_.end()) continue;
    End(found->second, replies);
    sessions_.erase(found);
    ForgetPulled(session);
    if (bound_.has_value()) bound_->End(session);
  }
  const std::set<std::uint64_t> training(request.training().begin(), request.training().end());
  for (std::uint64_t session : added) {
    sessions_.try_emplace(session);
    if (bound_.has_value()) bound_->SetTraining(session, training.count(session) != 0);
  }
  ReleasePulls(replies);
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
    if (request.committed()) Commit();
    reply.set_committed(request.committed());
    SetCut(request);
    SetSessions(request, &owed_);
    if (request.has_vectors()) {
      const absl::Status carried_out = CarryOut(request.vectors(), reply.mutable_vectors());
      if (!carried_out.ok()) {
        reply.set_status(v1::SYNC_REFUSED);
        reply.set_message(std::string(carried_out.message()));
        return reply;
      }
    }
    const bool asked = request.retire_size() + request.inspect_size() > 0;
    const bool settled = asked && JoiningAreSettled();
    for (const v1::ShardId& shard : request.retire()) replicas_.Confirm(shard, /*inspect=*/false, settled, &reply);
    for (const v1::ShardId& shard : request.inspect()) replicas_.Confirm(shard, /*inspect=*/true, settled, &reply);
    reply.set_watermark(replicas_.Advance(request.watermark()));
    DescribeReplicas(&reply);
    if (members_incarnation_ == request.stamp().incarnation()) reply.set_members_version(members_version_);
  }
  if (view_.has_stamp()) *reply.mutable_stamp() = view_.stamp();
  reply.set_initialised(initialised());
  if (in_force && open_cut_.has_value()) *reply.mutable_cut() = open_cut_->state();
  reply.set_restore_error(restore_error_);
  reply.set_restore_waits(restore_waits_);
  *reply.mutable_stats() = stats();
  return reply;
}

bool PsCore::JoiningAreSettled() const {
  for (const auto& [number, entry] : replicas_.entries()) {
    if (!entry.leads()) continue;
    const bool joins = view_.layout(static_cast<int>(number)).has_joining();
    if (joins && replication_.held(number) < entry.replica.sequence()) return false;
  }
  return true;
}

void PsCore::DescribeReplicas(v1::DirectReply* reply) const {
  for (const auto& [number, entry] : replicas_.entries()) {
    const v1::SlicePlacement& placement = view_.layout(static_cast<int>(number));
    if (!entry.leads() || !(placement.has_joining() || placement.frozen())) continue;
    v1::ReplicaState* state = reply->add_replicas();
    state->set_slice(number);
    state->set_replica(placement.joining_replica());
    state->set_level(placement.has_joining() && replication_.level(number, placement.joining_replica()));
    state->set_frozen(entry.frozen && replication_.AllHave(number, entry.replica.sequence()));
  }
}

absl::Status PsCore::CarryOut(const v1::VectorCommand& command, v1::VectorReply* reply) {
  std::uint64_t highest = 0;
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
      if (open_cut_.has_value() && !open_cut_->BeforePush(state, open_cut_->cut())) continue;
      Frame record;
      const std::string bytes = command.SerializeAsString();
      record.header.type = DataType::kBytes;
      record.header.elements = static_cast<std::uint32_t>(bytes.size());
      record.payload = OwningPayload({bytes.begin(), bytes.end()});
      const absl::StatusOr<Replica::Done> done = Record(entry, RecordKind::kVectors, std::move(record));
      if (!done.ok()) return done.status();
    }
    if (released(number) < entry.replica.sequence()) continue;  // what the standby does not hold is not said
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

// ---- cuts and checkpoints

void PsCore::SetCut(const v1::DirectRequest& request) {
  // A directive that was overtaken must not close a cut, or open it again.
  const bool newer_coordinator = request.stamp().incarnation() > cut_incarnation_;
  if (!newer_coordinator && request.sequence() < cut_sequence_) return;
  cut_incarnation_ = request.stamp().incarnation();
  cut_sequence_ = request.sequence();
  const v1::CutOrder& order = request.cut();
  if (!request.has_cut() || (open_cut_.has_value() && open_cut_->cut() != order.cut())) open_cut_.reset();
  if (!request.has_cut()) return;
  if (!open_cut_.has_value()) {
    const std::vector<std::uint32_t> numbers = replicas_.primaries();
    open_cut_.emplace(order, std::set(numbers.begin(), numbers.end()), options_.extra_bytes_limit);
    if (!options_.has_store) {
      open_cut_->OnWritten(absl::FailedPreconditionError(absl::StrCat("ps-", options_.index, " has no store")));
    } else if (order.cut() <= highest_cut_) {
      // Pushes that belong behind it may have been applied meanwhile.
      open_cut_->OnWritten(absl::AbortedError(absl::StrCat("ps-", options_.index, " has seen cut ", highest_cut_)));
    }
    highest_cut_ = std::max(highest_cut_, order.cut());
  }
  if (order.sealed()) open_cut_->Seal();
}

bool PsCore::HasStoreWork() const {
  return (open_cut_.has_value() && open_cut_->due()) || (view_.has_restore() && !restore_given_out_);
}

std::optional<PsCore::CutToWrite> PsCore::TakeCutToWrite() {
  if (!open_cut_.has_value() || !open_cut_->due()) return std::nullopt;
  open_cut_->GiveOut();
  return CutToWrite{open_cut_->cut(),
                    open_cut_->checkpoint(),
                    {view_.tensors().begin(), view_.tensors().end()},
                    view_.data(),
                    replicas_.primaries()};
}

absl::StatusOr<SliceSnapshot> PsCore::TakeSnapshot(std::uint32_t cut, std::uint32_t slice) {
  if (!open_cut_.has_value() || open_cut_->cut() != cut) {
    return absl::AbortedError(absl::StrCat("cut ", cut, " is not wanted any more"));
  }
  const Entry* entry = replicas_.Primary(slice);
  if (entry == nullptr) return absl::AbortedError(absl::StrCat("slice ", slice, " is not here any more"));
  absl::StatusOr<SliceSnapshot> snapshot = open_cut_->Take(entry->replica.state());
  if (options_.bug == PlantedBug::kStepSumLost && snapshot.ok()) {
    return StepSum().Import(&snapshot->optimizer, snapshot->slice.elements, 0).ok() ? *std::move(snapshot) : snapshot;
  }
  return snapshot;
}

void PsCore::OnCutWritten(std::uint32_t cut, const absl::StatusOr<v1::PsFiles>& files) {
  if (open_cut_.has_value() && open_cut_->cut() == cut) open_cut_->OnWritten(files);
}

std::optional<PsCore::Restore> PsCore::TakeRestore() {
  if (!view_.has_restore() || restore_given_out_) return std::nullopt;
  restore_given_out_ = true;
  return Restore{view_.stamp().generation(), view_.restore(), replicas_.primaries()};
}

absl::Status PsCore::OnSliceRestored(std::uint64_t generation, const SliceSnapshot& snapshot) {
  Entry* entry = replicas_.Primary(snapshot.number);
  if (generation != view_.stamp().generation() || entry == nullptr) {
    return absl::AbortedError(absl::StrCat("generation ", generation, " is over"));
  }
  SliceState& state = entry->replica.state();
  if (state.initialised()) return absl::OkStatus();  // by a try before
  absl::Status imported = state.Import(snapshot, view_.optimizer().learning_rate());
  if (!imported.ok()) return imported;
  state.SettleSum();
  replicas_.OnRestored(snapshot.number);
  return absl::OkStatus();
}

bool RestoreMayComeYet(const absl::Status& read) {
  return !read.ok() && !absl::IsDataLoss(read) && !absl::IsNotFound(read) && !absl::IsInvalidArgument(read);
}

void PsCore::OnRestored(std::uint64_t generation, const absl::Status& read) {
  if (!RestoreWanted(generation)) return;
  restore_waits_.clear();
  if (read.ok()) return;
  (RestoreMayComeYet(read) ? restore_waits_ : restore_error_) = std::string(read.message());
}

v1::PsStats PsCore::stats() const {
  v1::PsStats stats = stats_;
  stats.set_staleness(staleness_mean_);
  stats.set_log_bytes(replication_.log_bytes());
  stats.set_copied_bytes(replication_.copied_bytes());
  stats.set_logged_bytes(replication_.logged_bytes());
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
  const FrameHeader& header = frame.header;
  if (header.job_uid != uid_) return ReplyStatus::kRefused;
  if (header.status == ReplyStatus::kCorrupt) return ReplyStatus::kCorrupt;
  if (!view_.has_stamp()) return ReplyStatus::kBehind;
  if (header.generation != view_.stamp().generation() && options_.bug != PlantedBug::kGenerationIgnored) {
    return header.generation > view_.stamp().generation() ? ReplyStatus::kBehind : ReplyStatus::kRefused;
  }
  if (options_.bug != PlantedBug::kSessionNotChecked && sessions_.count(header.session) == 0) {
    return ReplyStatus::kRefused;
  }
  if (options_.bug != PlantedBug::kModeBeforeTaken) {
    if (header.epoch > view_.stamp().epoch()) return ReplyStatus::kBehind;
    // What was computed in this mode counts, whoever the slices belonged to then.
    if (header.epoch < view_.mode_epoch()) return ReplyStatus::kStaleView;
  }
  if (!IsFactor(header.factor)) return ReplyStatus::kMalformed;
  if (header.kind == FrameKind::kVerdict) {
    const bool valid = header.verdict != Verdict::kPending && replicas_.plan().Contains(header.update);
    return valid ? ReplyStatus::kNone : ReplyStatus::kMalformed;
  }
  if (header.slice >= replicas_.slice_count()) return ReplyStatus::kMalformed;
  const Entry* const entry = replicas_.Primary(header.slice);
  if (entry == nullptr) return ReplyStatus::kWrongOwner;
  if (IsFrozen(*entry)) return ReplyStatus::kBehind;
  const SliceState& state = entry->replica.state();
  switch (header.kind) {
    case FrameKind::kPull:
      if (!state.initialised()) return ReplyStatus::kNotReady;
      if (!header.begins_update || !HasBackupExecutions(view_.mode())) return ReplyStatus::kNone;
      if (!replicas_.plan().Contains(header.update)) return ReplyStatus::kMalformed;
      // Another one has done it, and the value may be that of the next point already.
      return step_width_ == 0 && state.table().watermark() > header.update.dataset_epoch ? ReplyStatus::kSuperseded
                                                                                         : ReplyStatus::kNone;
    case FrameKind::kInitialise:
      if (view_.has_restore()) return ReplyStatus::kNotReady;
      return header.codec == FrameCodec::kFp32 && frame.payload.size() == state.slice().bytes()
                 ? ReplyStatus::kNone
                 : ReplyStatus::kMalformed;
    case FrameKind::kPush: {
      // A skipped update may carry its gradient or not; a step needs all of it. What it holds is looked at when it is
      // decoded.
      const bool whole = PayloadFits(header.codec, frame.payload.size(), state.slice().elements);
      const bool fits = whole || (frame.payload.size() == 0 && header.verdict == Verdict::kSkip);
      if (!fits || !replicas_.plan().Contains(header.update)) return ReplyStatus::kMalformed;
      return state.initialised() ? ReplyStatus::kNone : ReplyStatus::kNotReady;
    }
    case FrameKind::kVerdict:
    case FrameKind::kReply:
    case FrameKind::kRecord:
    case FrameKind::kCopy:
      break;
  }
  return ReplyStatus::kMalformed;
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
      reply.header.cut = applied_cut_;
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

absl::StatusOr<Replica::Done> PsCore::Record(Entry& entry, RecordKind kind, Frame record) {
  record.header.kind = FrameKind::kRecord;
  record.header.record = kind;
  record.header.slice = entry.replica.state().number();
  record.header.sequence = entry.replica.sequence() + 1;
  record.header.clock = entry.replica.number();
  absl::StatusOr<Replica::Done> done = entry.replica.Do(record);
  if (done.ok()) replication_.Append(entry.replica.state().number(), std::move(record));
  return done;
}

ReplyStatus PsCore::Apply(Entry& entry, const Frame& frame, const Decision& decision) {
  const FrameHeader& header = frame.header;
  SliceState& state = entry.replica.state();
  SliceState* const fork = open_cut_.has_value() ? open_cut_->LatePush(state.number(), header.cut) : nullptr;
  const bool duplicate = options_.bug != PlantedBug::kNoDeduplication && state.table().Contains(header.update);
  if (duplicate) {
    stats_.set_duplicates(stats_.duplicates() + 1);
    // Of two executions of an update one may belong before the cut and the other, which came first, behind it.
    if (fork == nullptr || fork->table().Contains(header.update)) return ReplyStatus::kDuplicate;
  }
  if (decision.verdict == Verdict::kApply && !IsSound(header.codec, frame.payload, state.slice().elements)) {
    return ReplyStatus::kMalformed;
  }
  if (open_cut_.has_value() && !open_cut_->BeforePush(state, header.cut)) return ReplyStatus::kNotReady;
  if (replication_.Wants(header.slice) && replication_.log_bytes() > options_.log_bytes_limit) {
    return ReplyStatus::kNotReady;
  }
  // Of a worker that an older coordinator told it: a cut of that number can be opened here no more.
  highest_cut_ = std::max(highest_cut_, header.cut);
  applied_cut_ = std::max(applied_cut_, header.cut);
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
  const absl::StatusOr<Replica::Done> done = Record(entry, RecordKind::kUpdate, std::move(record));
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
  if (reply.payload.size() != 0) KeepPulled(header);
  const bool early = options_.bug == PlantedBug::kDuplicateBeforeStandby && status == ReplyStatus::kDuplicate;
  if (IsSuccess(status) && header.kind != FrameKind::kVerdict && !early) {
    const std::uint64_t record = replicas_.Primary(header.slice)->replica.sequence();
    if (released(header.slice) < record) (*needs)[header.slice] = record;
  }
  return reply;
}

std::uint64_t PsCore::released(std::uint32_t slice) const {
  const std::uint64_t held = replication_.held(slice);
  return held > UINT64_MAX - view_.replication_lag() ? UINT64_MAX : held + view_.replication_lag();
}

void PsCore::Answer(DataReply reply, Needs needs, std::vector<DataReply>* replies) {
  if (needs.empty()) {
    replies->push_back(std::move(reply));
  } else {
    held_.Add(std::move(reply), std::move(needs));
  }
}

void PsCore::KeepPulled(const FrameHeader& header) {
  if (!NeedsPulledValues(view_.optimizer()) || sessions_.count(header.session) == 0) return;
  Entry& entry = *replicas_.Primary(header.slice);
  if (entry.replica.buffer() || entry.replica.has_pulled(header.session)) return;
  Frame record;
  record.header.session = header.session;
  Record(entry, RecordKind::kPulled, std::move(record)).IgnoreError();
}

void PsCore::ForgetPulled(std::uint64_t session) {
  if (!NeedsPulledValues(view_.optimizer())) return;
  for (auto& [slice, entry] : replicas_.entries()) {
    // What is frozen stays as it is, whoever has it next.
    if (!entry.leads() || entry.frozen || !entry.replica.keeps(session)) continue;
    Frame record;
    record.header.session = session;
    Record(entry, RecordKind::kSessionEnded, std::move(record)).IgnoreError();
  }
}

void PsCore::ForgetPulledOfOthers() {
  if (!NeedsPulledValues(view_.optimizer())) return;
  std::set<std::uint64_t> over;
  for (const auto& [slice, entry] : replicas_.entries()) {
    if (!entry.leads()) continue;
    for (const std::uint64_t session : entry.replica.pulled_sessions()) {
      if (sessions_.count(session) == 0) over.insert(session);
    }
  }
  for (const std::uint64_t session : over) ForgetPulled(session);
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
    if (!applied && !copied) continue;
    highest_cut_ = std::max(highest_cut_, header.cut);
    applied_cut_ = std::max(applied_cut_, header.cut);
  }
  return reply;
}

std::vector<ReplicationCall> PsCore::TakeReplicationCalls(Time now) {
  return replication_.Take(now, [this](std::uint32_t slice) -> std::optional<ReplicaCopy> {
    const Entry* entry = replicas_.Primary(slice);
    if (entry == nullptr || !entry->replica.state().initialised()) return std::nullopt;
    ReplicaCopy copy = entry->replica.Export();
    copy.cut = applied_cut_;
    return copy;
  });
}

void PsCore::OnReplicationReply(std::uint64_t call, const absl::StatusOr<std::vector<Frame>>& reply, Time now,
                                std::vector<DataReply>* replies) {
  for (const std::uint32_t slice : replication_.OnReply(call, reply, now)) {
    held_.Release(slice, released(slice), replies);
  }
}

void PsCore::ClearPending(SessionState& session) {
  pending_bytes_ -= session.pending_bytes;
  session.pending_bytes = 0;
  session.pending.clear();
  session.pending_update.reset();
}

// ---- calls that wait

void PsCore::Refuse(const PendingCall& call, ReplyStatus status, std::vector<DataReply>* replies) const {
  DataReply reply{call.call, {}};
  for (const Frame& frame : call.frames) reply.frames.push_back(MakeReply(frame, status));
  replies->push_back(std::move(reply));
}

void PsCore::CarryOut(const PendingCall& call, const Decision& decision, std::vector<DataReply>* replies) {
  DataReply reply{call.call, {}};
  Needs needs;
  for (const Frame& frame : call.frames) reply.frames.push_back(CarryOut(frame, decision, &needs));
  Answer(std::move(reply), std::move(needs), replies);
}

void PsCore::Release(SessionState& session, ReplyStatus status, std::vector<DataReply>* replies) {
  for (const PendingCall& pending : session.pending) Refuse(pending, status, replies);
  ClearPending(session);
}

void PsCore::Decide(SessionState& session, const UpdateId& update, const Decision& decision,
                    std::vector<DataReply>* replies) {
  session.decided_update = update;
  session.decision = decision;
  if (!session.pending_update.has_value() || !(*session.pending_update == update)) return;
  const std::vector<PendingCall> pending = std::move(session.pending);
  ClearPending(session);
  for (const PendingCall& call : pending) CarryOut(call, decision, replies);
}

bool PsCore::MayBegin(const std::vector<Frame>& pulls) const {
  return std::all_of(pulls.begin(), pulls.end(), [this](const Frame& pull) { return MayBegin(pull); });
}

void PsCore::Hold(SessionState& session, PendingCall call, std::vector<DataReply>* replies) {
  // Whoever asks again for a slice has given up the call before, which would only be answered too.
  std::set<std::uint32_t> slices;
  for (const Frame& frame : call.frames) slices.insert(frame.header.slice);
  waiting_pulls_ -= std::erase_if(session.pulls, [&](const PendingCall& held) {
    const bool again = std::any_of(held.frames.begin(), held.frames.end(),
                                   [&slices](const Frame& frame) { return slices.count(frame.header.slice) != 0; });
    if (again) Refuse(held, ReplyStatus::kSuperseded, replies);
    return again;
  });
  session.pulls.push_back(std::move(call));
  ++waiting_pulls_;
}

void PsCore::ReleasePulls(std::vector<DataReply>* replies) {
  if (waiting_pulls_ == 0) return;
  for (auto& [number, session] : sessions_) {
    waiting_pulls_ -= std::erase_if(session.pulls, [&](const PendingCall& call) {
      const bool may = MayBegin(call.frames);
      if (may) CarryOut(call, Decision{}, replies);
      return may;
    });
  }
}

void PsCore::End(SessionState& session, std::vector<DataReply>* replies) {
  Release(session, ReplyStatus::kRefused, replies);
  for (const PendingCall& call : session.pulls) Refuse(call, ReplyStatus::kRefused, replies);
  waiting_pulls_ -= session.pulls.size();
  session.pulls.clear();
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

  if (all_pending) {
    SessionState& session = sessions_[frames.front().header.session];
    const UpdateId update = frames.front().header.update;
    if (!session.decided_update.has_value() || !(*session.decided_update == update)) {
      if (session.pending_update.has_value() && !(*session.pending_update == update)) {
        Release(session, ReplyStatus::kSuperseded, replies);
      }
      if (pending_bytes_ + received <= options_.pending_bytes_limit) {
        session.pending_update = update;
        session.pending_bytes += received;
        pending_bytes_ += received;
        session.pending.push_back({call, std::move(frames)});
        return;
      }
    }
  }

  // Of slices that it has not asked for yet too: it may wait here until others know there how far it is.
  if (all_begin && bound_.has_value()) bound_->SetClock(frames.front().header.session, frames.front().header.clock);
  if (all_begin && !MayBegin(frames)) {
    SessionState& session = sessions_[frames.front().header.session];
    return Hold(session, {call, std::move(frames)}, replies);
  }

  DataReply reply{call, {}};
  Needs needs;
  reply.frames.reserve(frames.size());
  for (const Frame& frame : frames) {
    const FrameHeader& header = frame.header;
    const bool carries_update = header.kind == FrameKind::kPush || header.kind == FrameKind::kVerdict;
    const auto session = sessions_.find(header.session);
    Decision decision{header.verdict, header.factor, header.loss};
    if (carries_update && session != sessions_.end() && Check(frame) == ReplyStatus::kNone) {
      if (decision.verdict != Verdict::kPending) {
        Decide(session->second, header.update, decision, replies);
      } else if (session->second.decided_update == header.update) {
        decision = session->second.decision;  // it was overtaken by its verdict
      }
    }
    if (header.kind == FrameKind::kPush && decision.verdict == Verdict::kPending) {
      const ReplyStatus status = Check(frame);
      reply.frames.push_back(MakeReply(frame, status == ReplyStatus::kNone ? ReplyStatus::kSuperseded : status));
    } else {
      reply.frames.push_back(CarryOut(frame, decision, &needs));
    }
  }
  Answer(std::move(reply), std::move(needs), replies);
  if (step_width_ == 0 || std::exchange(steps_moved_, false)) ReleasePulls(replies);
}

}  // namespace downpour::core
