#include "trainer/core/ps.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/core/buffer_update.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/job_uid.h"
#include "trainer/core/optimizer.h"
#include "trainer/core/sandblaster/vectors.h"
#include "trainer/core/update_mode.h"

namespace downpour::core {
namespace {

constexpr absl::Duration kCoordinatorSilence = absl::Milliseconds(1500);
constexpr absl::Duration kRegistrationPeriod = absl::Seconds(2);
constexpr std::size_t kPulledValuesKept = 4;  // of a session and slice

}  // namespace

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

bool PsCore::initialised() const {
  return view_.has_stamp() &&
         std::all_of(slices_.begin(), slices_.end(), [](const auto& entry) { return entry.second.initialised(); });
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
  // What every slice here agrees on. Without slices there is nothing to disagree with.
  std::uint32_t watermark = slices_.empty() ? plan_.epochs() : UINT32_MAX;
  std::uint32_t end = 0;
  for (const auto& [number, state] : slices_) {
    watermark = std::min(watermark, state.table().watermark());
    end = std::max(end, state.table().end_epoch());
  }
  request.set_watermark(watermark);
  for (std::uint32_t epoch = watermark; epoch < end; ++epoch) {
    Bitmap retired(plan_.shards_in_epoch(epoch), true);
    for (const auto& [number, state] : slices_) retired.And(state.table().Retired(epoch));
    v1::EpochLedger* ledger = request.add_ledger();
    ledger->set_dataset_epoch(epoch);
    ledger->set_retired(retired.bytes());
  }
  return request;
}

absl::Status PsCore::Install(const v1::View& view) {
  const bool same_history = view_.has_stamp() && view.stamp().generation() == view_.stamp().generation();
  if (same_history) {
    // Slices do not move within a generation yet: a new incarnation re-issues the same view, a new epoch is another
    // mode.
    const bool switched = view.stamp().epoch() != view_.stamp().epoch();
    view_ = view;
    SetLearningRate();
    if (switched) BeginMode();
    return absl::OkStatus();
  }
  absl::StatusOr<std::vector<Slice>> slices = CutTensors(view);
  if (!slices.ok()) return slices.status();
  absl::StatusOr<DataPlan> plan = DataPlan::Create(view.data());
  if (!plan.ok()) return plan.status();
  if (static_cast<std::size_t>(view.layout_size()) != slices->size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("view: the layout places ", view.layout_size(), " slices, the tensors have ", slices->size()));
  }
  std::map<std::uint32_t, SliceState> owned;
  v1::PsStats fresh;
  for (std::uint32_t number = 0; number < slices->size(); ++number) {
    if (view.layout(static_cast<int>(number)).primary() != options_.index) continue;
    const Slice& slice = (*slices)[number];
    const v1::TensorSpec& tensor = view.tensors(static_cast<int>(slice.tensor));
    const bool buffer = tensor.kind() == v1::BUFFER;
    absl::StatusOr<std::unique_ptr<Optimizer>> optimizer =
        buffer ? CreateBufferUpdate() : CreateOptimizer(view.optimizer(), tensor.name(), slice.elements);
    if (!optimizer.ok()) return optimizer.status();
    fresh.set_parameter_bytes(fresh.parameter_bytes() + slice.bytes());
    owned.emplace(number, SliceState(number, slice, *std::move(optimizer), *plan));
  }
  fresh.set_slices(owned.size());
  fresh.set_duplicates(stats_.duplicates());
  fresh.set_refused(stats_.refused());
  fresh.set_received_bytes(stats_.received_bytes());
  fresh.set_sent_bytes(stats_.sent_bytes());
  slices_ = std::move(owned);
  slice_count_ = static_cast<std::uint32_t>(slices->size());
  plan_ = *std::move(plan);
  view_ = view;
  SetLearningRate();
  stats_ = fresh;
  complete_ = ShardCompletion();
  least_watermark_ = 0;
  restore_given_out_ = false;
  restore_error_.clear();
  restore_waits_.clear();
  BeginMode();
  return absl::OkStatus();
}

void PsCore::SetLearningRate() {
  const v1::OptimizerConfig& optimizer = view_.optimizer();
  learning_rate_.emplace(optimizer.schedule(), optimizer.learning_rate(), plan_, StepWidth(view_), RateScale(view_));
}

void PsCore::BeginMode() {
  open_cut_.reset();  // its forks are of the mode before
  step_width_ = StepWidth(view_);
  for (auto& [number, state] : slices_) state.SetStepWidth(step_width_);
  bound_.reset();
  if (view_.mode() == v1::BOUNDED_STALENESS) bound_.emplace(view_.staleness(), slice_numbers(), options_.bug);
  for (auto& [session, state] : sessions_) End(state, &owed_);
  sessions_.clear();
  members_version_ = 0;
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
  if (request.stamp().incarnation() < highest_incarnation_) {
    reply.set_status(v1::SYNC_SESSION_ENDED);
    reply.set_message(absl::StrCat("incarnation ", request.stamp().incarnation(), " is over, ", highest_incarnation_,
                                   " has been seen"));
    return reply;
  }
  highest_incarnation_ = request.stamp().incarnation();
  last_directive_ = now;
  if (request.has_view() && (!view_.has_stamp() || CompareStamps(request.view().stamp(), view_.stamp()) > 0)) {
    const absl::Status installed = Install(request.view());
    if (!installed.ok()) {
      reply.set_status(v1::SYNC_REFUSED);
      reply.set_message(std::string(installed.message()));
      return reply;
    }
  }
  const bool in_force = view_.has_stamp() && CompareStamps(request.stamp(), view_.stamp()) == 0;
  if (in_force) {
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
    for (const v1::ShardId& shard : request.retire()) Confirm(shard, /*inspect=*/false, &reply);
    for (const v1::ShardId& shard : request.inspect()) Confirm(shard, /*inspect=*/true, &reply);
    std::uint32_t watermark = request.watermark();
    for (auto& [number, state] : slices_) {
      state.table().Advance(request.watermark());
      watermark = std::min(watermark, state.table().watermark());
    }
    least_watermark_ = watermark;
    complete_.Forget(watermark);
    reply.set_watermark(watermark);
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

void PsCore::Confirm(const v1::ShardId& shard, bool inspect, v1::DirectReply* reply) {
  v1::ShardBitmap* answer = reply->add_shards();
  *answer->mutable_shard() = shard;
  const ShardKey key{shard.dataset_epoch(), shard.shard()};
  if (!plan_.Contains({key.first, key.second, 0})) return;
  const bool retired = key.first < least_watermark_;
  const bool complete = retired || complete_.Complete(key, static_cast<std::uint32_t>(slices_.size()));
  answer->set_complete(complete);
  if (inspect && !complete) {
    Bitmap applied(plan_.updates_in_shard(key.first, key.second), true);
    for (const auto& [number, state] : slices_) applied.And(state.table().Applied(key.first, key.second));
    tables_looked_at_ += slices_.size();
    answer->set_applied(applied.bytes());
    answer->set_inspected(true);
  }
  if (retired || (!complete && options_.bug != PlantedBug::kBitmapFreedEarly)) return;
  for (auto& [number, state] : slices_) state.table().Retire(key.first, key.second, options_.bug);
  tables_looked_at_ += slices_.size();
}

absl::Status PsCore::CarryOut(const v1::VectorCommand& command, v1::VectorReply* reply) {
  std::uint64_t highest = 0;
  reply->set_number(command.number());
  for (auto& [number, state] : slices_) {
    const sandblaster::Vectors* vectors = state.search_vectors();
    if (vectors == nullptr || !state.initialised()) continue;
    const bool again =
        options_.bug == PlantedBug::kCommandRepeated && command.number() != 0 && vectors->number() == command.number();
    if (vectors->number() < command.number() || again) {
      // No cut begins while a command is under way: it is behind the one that is open.
      if (open_cut_.has_value() && !open_cut_->BeforePush(state, open_cut_->cut())) continue;
      absl::Status carried_out = state.CarryOut(command);
      if (!carried_out.ok()) return carried_out;
    }
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
    const std::vector<std::uint32_t> numbers = slice_numbers();
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
                    slice_numbers()};
}

absl::StatusOr<SliceSnapshot> PsCore::TakeSnapshot(std::uint32_t cut, std::uint32_t slice) {
  if (!open_cut_.has_value() || open_cut_->cut() != cut) {
    return absl::AbortedError(absl::StrCat("cut ", cut, " is not wanted any more"));
  }
  absl::StatusOr<SliceSnapshot> snapshot = open_cut_->Take(slices_.at(slice));
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
  return Restore{view_.stamp().generation(), view_.restore(), slice_numbers()};
}

absl::Status PsCore::OnSliceRestored(std::uint64_t generation, const SliceSnapshot& snapshot) {
  const auto state = slices_.find(snapshot.number);
  if (generation != view_.stamp().generation() || state == slices_.end()) {
    return absl::AbortedError(absl::StrCat("generation ", generation, " is over"));
  }
  if (state->second.initialised()) return absl::OkStatus();  // by a try before
  absl::Status imported = state->second.Import(snapshot, view_.optimizer().learning_rate());
  if (!imported.ok()) return imported;
  state->second.SettleSum();
  complete_.OnRestored(state->second.table());
  // Of the whole history, so that progress goes on where it was.
  stats_.set_applied(stats_.applied() + state->second.version());
  stats_.set_restored(stats_.restored() + state->second.version());
  stats_.set_skipped(std::max(stats_.skipped(), state->second.skipped()));
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

std::vector<std::uint32_t> PsCore::slice_numbers() const {
  std::vector<std::uint32_t> numbers;
  numbers.reserve(slices_.size());
  for (const auto& [number, state] : slices_) numbers.push_back(number);
  return numbers;
}

v1::PsStats PsCore::stats() const {
  v1::PsStats stats = stats_;
  stats.set_staleness(staleness_mean_);
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
  for (const auto& [number, state] : slices_) {
    v1::SliceLedger* ledger = reply.add_slices();
    ledger->set_slice(number);
    ledger->set_version(state.version());
    ledger->set_skipped(state.skipped());
    state.table().Export(ledger);
  }
  return reply;
}

std::shared_ptr<const std::vector<float>> PsCore::value(std::uint32_t slice) const {
  const auto state = slices_.find(slice);
  return state == slices_.end() ? nullptr : state->second.value();
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
  if (header.epoch != view_.stamp().epoch() && options_.bug != PlantedBug::kModeBeforeTaken) {
    return header.epoch > view_.stamp().epoch() ? ReplyStatus::kBehind : ReplyStatus::kStaleView;
  }
  if (!IsFactor(header.factor)) return ReplyStatus::kMalformed;
  if (header.kind == FrameKind::kVerdict) {
    const bool valid = header.verdict != Verdict::kPending && plan_.Contains(header.update);
    return valid ? ReplyStatus::kNone : ReplyStatus::kMalformed;
  }
  if (header.slice >= slice_count_) return ReplyStatus::kMalformed;
  const auto state = slices_.find(header.slice);
  if (state == slices_.end()) return ReplyStatus::kWrongOwner;
  switch (header.kind) {
    case FrameKind::kPull:
      if (!state->second.initialised()) return ReplyStatus::kNotReady;
      if (!header.begins_update || !HasBackupExecutions(view_.mode())) return ReplyStatus::kNone;
      if (!plan_.Contains(header.update)) return ReplyStatus::kMalformed;
      // Another one has done it, and the value may be that of the next point already.
      return step_width_ == 0 && state->second.table().watermark() > header.update.dataset_epoch
                 ? ReplyStatus::kSuperseded
                 : ReplyStatus::kNone;
    case FrameKind::kInitialise:
      if (view_.has_restore()) return ReplyStatus::kNotReady;
      return header.codec == FrameCodec::kFp32 && frame.payload.size() == state->second.slice().bytes()
                 ? ReplyStatus::kNone
                 : ReplyStatus::kMalformed;
    case FrameKind::kPush: {
      // A skipped update may carry its gradient or not; a step needs all of it. What it holds is looked at when it is
      // decoded.
      const bool whole = PayloadFits(header.codec, frame.payload.size(), state->second.slice().elements);
      const bool fits = whole || (frame.payload.size() == 0 && header.verdict == Verdict::kSkip);
      if (!fits || !plan_.Contains(header.update)) return ReplyStatus::kMalformed;
      return state->second.initialised() ? ReplyStatus::kNone : ReplyStatus::kNotReady;
    }
    case FrameKind::kVerdict:
    case FrameKind::kReply:
      break;
  }
  return ReplyStatus::kMalformed;
}

Frame PsCore::MakeReply(const Frame& frame, ReplyStatus status) const {
  Frame reply;
  reply.header = frame.header;
  reply.header.kind = FrameKind::kReply;
  reply.header.status = status;
  reply.header.type = DataType::kNone;
  reply.header.codec = FrameCodec::kNone;
  reply.header.elements = 0;
  reply.header.factor = 1;
  reply.header.loss = 0;
  reply.header.want_bf16 = false;
  if (view_.has_stamp()) {
    reply.header.generation = view_.stamp().generation();
    reply.header.incarnation = view_.stamp().incarnation();
    reply.header.epoch = view_.stamp().epoch();
  }
  const bool success =
      status == ReplyStatus::kApplied || status == ReplyStatus::kDuplicate || status == ReplyStatus::kValue;
  if (!success || frame.header.kind == FrameKind::kVerdict) return reply;
  const SliceState& state = slices_.at(frame.header.slice);
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
           slices_.at(frame.header.slice).step() >= StepOf(frame.header.update, step_width_);
  }
  return !bound_.has_value() || bound_->MayBegin(frame.header.slice, frame.header.session);
}

ReplyStatus PsCore::Apply(SliceState& state, const Frame& frame, const Decision& decision) {
  const FrameHeader& header = frame.header;
  const Verdict verdict = decision.verdict;
  SliceState* const fork = open_cut_.has_value() ? open_cut_->LatePush(state.number(), header.cut) : nullptr;
  const bool duplicate = options_.bug != PlantedBug::kNoDeduplication && state.table().Contains(header.update);
  if (duplicate) {
    stats_.set_duplicates(stats_.duplicates() + 1);
    // Of two executions of an update one may belong before the cut and the other, which came first, behind it.
    if (fork == nullptr || fork->table().Contains(header.update)) return ReplyStatus::kDuplicate;
  }
  if (verdict == Verdict::kApply && !IsSound(header.codec, frame.payload, state.slice().elements)) {
    return ReplyStatus::kMalformed;
  }
  const EncodedGradient gradient(header.codec, frame.payload);
  if (open_cut_.has_value() && !open_cut_->BeforePush(state, header.cut)) return ReplyStatus::kNotReady;
  // Of a worker that an older coordinator told it: a cut of that number can be opened here no more.
  highest_cut_ = std::max(highest_cut_, header.cut);
  applied_cut_ = std::max(applied_cut_, header.cut);
  const std::uint64_t staleness =
      step_width_ == 0 && state.version() > header.version ? state.version() - header.version : 0;
  const v1::OptimizerConfig& optimizer = view_.optimizer();
  // The differences of buffers are no gradients: what they are is not to be clipped.
  const bool buffer = view_.tensors(static_cast<int>(state.slice().tensor)).kind() == v1::BUFFER;
  StepContext context{.learning_rate = learning_rate_->At(header.update),
                      .factor = buffer ? 1 : decision.factor,
                      .staleness = staleness};
  if (optimizer.staleness_aware() && optimizer.staleness_rule() == v1::STALENESS_DIVIDE) {
    context.learning_rate *= StalenessScale(staleness, optimizer.staleness_clamp());
  }
  const std::shared_ptr<const std::vector<float>> pulled = TakePulled(header);
  context.pulled = pulled.get();
  context.loss = decision.loss;
  context.samples = plan_.samples_in_update(header.update);
  if (verdict == Verdict::kApply) {
    staleness_mean_ += 0.01 * (static_cast<double>(staleness) - staleness_mean_);
  }
  const StepId step = state.step();
  if (!duplicate && state.Apply(header.update, verdict, gradient, context)) {
    complete_.OnComplete({header.update.dataset_epoch, header.update.data_shard});
  }
  steps_moved_ = steps_moved_ || state.step() != step;
  if (fork != nullptr && options_.bug != PlantedBug::kLatePushNotInSnapshot) {
    fork->Apply(header.update, verdict, gradient, context);
  }
  if (duplicate) return ReplyStatus::kDuplicate;
  stats_.set_skipped(std::max(stats_.skipped(), state.skipped()));
  stats_.set_applied(stats_.applied() + 1);
  return ReplyStatus::kApplied;
}

Frame PsCore::CarryOut(const Frame& frame, const Decision& decision) {
  ReplyStatus status = Check(frame);
  if (status == ReplyStatus::kNone) {
    switch (frame.header.kind) {
      case FrameKind::kVerdict:
        status = ReplyStatus::kApplied;
        break;
      case FrameKind::kPull:
        status = frame.header.begins_update && !MayBegin(frame) ? ReplyStatus::kNotReady : ReplyStatus::kValue;
        break;
      case FrameKind::kInitialise:
        status =
            slices_.at(frame.header.slice).Initialise(frame.payload) ? ReplyStatus::kApplied : ReplyStatus::kDuplicate;
        break;
      case FrameKind::kPush:
        status = Apply(slices_.at(frame.header.slice), frame, decision);
        if (bound_.has_value() && (status == ReplyStatus::kApplied || status == ReplyStatus::kDuplicate)) {
          bound_->SetClock(frame.header.slice, frame.header.session, frame.header.clock);
        }
        break;
      case FrameKind::kReply:
        status = ReplyStatus::kMalformed;
        break;
    }
  }
  if (status == ReplyStatus::kRefused) stats_.set_refused(stats_.refused() + 1);
  Frame reply = MakeReply(frame, status);
  stats_.set_sent_bytes(stats_.sent_bytes() + reply.payload.size());
  if (reply.payload.size() != 0) KeepPulled(frame.header);
  return reply;
}

void PsCore::KeepPulled(const FrameHeader& header) {
  const SliceState& state = slices_.at(header.slice);
  const bool buffer = view_.tensors(static_cast<int>(state.slice().tensor)).kind() == v1::BUFFER;
  const auto session = sessions_.find(header.session);
  if (buffer || session == sessions_.end() || !NeedsPulledValues(view_.optimizer())) return;
  std::vector<PulledValue>& values = session->second.pulled[header.slice];
  if (!values.empty() && values.back().version == state.version()) return;
  // One that is asked for again and again, as its answers are lost, goes on from a late one.
  if (values.size() == kPulledValuesKept) values.erase(values.begin());
  values.push_back({state.version(), state.value()});
}

std::shared_ptr<const std::vector<float>> PsCore::TakePulled(const FrameHeader& header) {
  const auto session = sessions_.find(header.session);
  if (session == sessions_.end()) return nullptr;
  const auto values = session->second.pulled.find(header.slice);
  if (values == session->second.pulled.end()) return nullptr;
  std::shared_ptr<const std::vector<float>> pulled;
  for (const PulledValue& one : values->second) {
    if (one.version == header.version) pulled = one.value;
  }
  // It computes with no older one any more, and if it gets a newer one with the answer, not with this one either.
  std::erase_if(values->second, [&header](const PulledValue& one) {
    return one.version < header.version + (header.want_value ? 1 : 0);
  });
  return pulled;
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
  for (const Frame& frame : call.frames) reply.frames.push_back(CarryOut(frame, decision));
  replies->push_back(std::move(reply));
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

  if (all_begin && bound_.has_value()) {
    for (const Frame& frame : frames) bound_->SetClock(frame.header.slice, frame.header.session, frame.header.clock);
  }
  if (all_begin && !MayBegin(frames)) {
    SessionState& session = sessions_[frames.front().header.session];
    return Hold(session, {call, std::move(frames)}, replies);
  }

  DataReply reply{call, {}};
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
      reply.frames.push_back(CarryOut(frame, decision));
    }
  }
  replies->push_back(std::move(reply));
  if (step_width_ == 0 || std::exchange(steps_moved_, false)) ReleasePulls(replies);
}

}  // namespace downpour::core
