#include "trainer/core/worker_data_plane.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/update_mode.h"

namespace downpour::core {
namespace {

using Kind = PsExchanges::Kind;

}  // namespace

WorkerDataPlane::WorkerDataPlane(const Options& options, WorkerHost* host, WorkerMeter* meter)
    : options_(options),
      host_(host),
      meter_(meter),
      exchanges_(options.exchanges),
      feedback_(options.codec),
      encoder_(options.encoder != nullptr ? options.encoder : &feedback_) {
  header_.job_uid = options.job_uid;
}

// ---- whom it speaks to, and as whom

void WorkerDataPlane::TakeView(const v1::View& view) {
  header_.generation = view.stamp().generation();
  header_.incarnation = view.stamp().incarnation();
  header_.epoch = view.stamp().epoch();
  mode_ = view.mode();
  step_width_ = StepWidth(view);
}

void WorkerDataPlane::Begin(const v1::View& view, const std::vector<Slice>& slices) {
  TakeView(view);
  exchanges_.SetView(view);
  encoder_->Clear();
  slices_.Begin(slices, view);
}

void WorkerDataPlane::SetView(const v1::View& view) {
  TakeView(view);
  const std::set<std::uint32_t> gone = exchanges_.SetView(view);
  for (const std::uint32_t ps : gone) verdict_due_.erase(ps);
  slices_.Reroute(view, gone);
}

void WorkerDataPlane::Drop(const WorkUnderWay& work) {
  const bool applies =
      work.pushing && work.verdict == Verdict::kApply && options_.bug != PlantedBug::kResidualNotForgotten;
  for (std::uint32_t number = 0; number < slices_.size(); ++number) {
    if (applies && slices_.MayBeApplied(number)) {
      encoder_->Forget(number);
    } else {
      encoder_->Undo(number);  // a ps drops what waits for a verdict that never comes
    }
  }
  clock_ = 0;
  exchanges_.Clear();
  verdict_due_.clear();
  slices_.Drop();
}

// ---- to be sent

FrameHeader WorkerDataPlane::MakeHeader(FrameKind kind, std::uint32_t slice) const {
  FrameHeader header = header_;
  header.kind = kind;
  header.slice = slice;
  return header;
}

Time WorkerDataPlane::SendParts(Kind kind, std::uint64_t token, Time now, Calls* calls,
                                absl::FunctionRef<bool(const WorkerSlices::Entry&)> wanted,
                                absl::FunctionRef<Frame(std::uint32_t)> make) {
  Time again = absl::InfiniteDuration();
  for (const auto& [ps, parts] : slices_.Parts(wanted)) {
    const Time retry_at = exchanges_.retry_at(ps);
    if (now < retry_at) {
      again = std::min(again, retry_at);
    } else {
      exchanges_.Send(kind, ps, token, parts, make, calls);
    }
  }
  return again;
}

Time WorkerDataPlane::SendInitialValues(Time now, Calls* calls) {
  return SendParts(
      Kind::kInitialise, /*token=*/0, now, calls,
      [](const WorkerSlices::Entry& slice) { return !slice.initial_done && !slice.initial_in_flight; },
      [this](std::uint32_t number) {
        WorkerSlices::Entry& slice = slices_[number];
        slice.initial_in_flight = true;
        Frame frame;
        frame.header = MakeHeader(FrameKind::kInitialise, number);
        frame.header.type = DataType::kFloat32;
        frame.header.codec = FrameCodec::kFp32;
        frame.header.elements = slice.slice.elements;
        frame.payload = host_->InitialValue(number, slice.slice);
        return frame;
      });
}

Time WorkerDataPlane::SendPulls(const WorkUnderWay& work, Time now, Calls* calls) {
  return SendParts(
      Kind::kPull, work.token, now, calls,
      [](const WorkerSlices::Entry& slice) { return !slice.fresh && !slice.pull_in_flight; },
      [this, &work](std::uint32_t number) {
        WorkerSlices::Entry& slice = slices_[number];
        slice.pull_in_flight = true;
        Frame frame;
        frame.header = MakeHeader(FrameKind::kPull, number);
        frame.header.begins_update = work.trains();
        if (work.trains() && HasBackupExecutions(mode_)) frame.header.update = work.work.update;
        frame.header.clock = clock_;
        frame.header.want_bf16 = WantsBf16(work, slice);
        return frame;
      });
}

Frame WorkerDataPlane::MakePush(const WorkUnderWay& work, std::uint32_t number) {
  const WorkerSlices::Entry& slice = slices_[number];
  Frame frame;
  frame.header = MakeHeader(FrameKind::kPush, number);
  frame.header.update = work.work.update;
  frame.header.cut = work.work.cut;
  frame.header.verdict = work.verdict;
  frame.header.factor = work.factor;
  if (work.verdict != Verdict::kPending) frame.header.loss = work.loss;
  frame.header.want_value = work.fetches_next && step_width_ == 0 && !StaysInEpoch(slice);
  frame.header.want_bf16 = WantsBf16(work, slice);
  frame.header.version = slice.computed_version;
  frame.header.clock = clock_ + 1;
  if (work.verdict == Verdict::kSkip) return frame;
  EncodedGradient gradient{FrameCodec::kFp32, host_->Gradient(number, slice.slice)};
  if (!slice.buffer) {
    const bool flush = work.flushes && options_.bug != PlantedBug::kResidualLeftBehind;
    gradient = encoder_->Encode(number, slice.slice.elements, gradient.payload, flush);
  }
  frame.header.type = DataType::kFloat32;
  frame.header.codec = gradient.codec;
  frame.header.elements = slice.slice.elements;
  frame.payload = std::move(gradient.payload);
  meter_->OnPush(frame.payload.size(), slice.slice.bytes());
  return frame;
}

Time WorkerDataPlane::SendPushes(const WorkUnderWay& work, Time now, Calls* calls) {
  const bool pending = work.verdict == Verdict::kPending;
  Time again = SendParts(
      Kind::kPush, work.token, now, calls,
      [](const WorkerSlices::Entry& slice) { return slice.push == WorkerSlices::Push::kReady; },
      [this, &work, pending](std::uint32_t number) {
        WorkerSlices::Entry& slice = slices_[number];
        slice.push = WorkerSlices::Push::kSent;
        if (pending) {
          verdict_due_.insert(slice.ps);
        } else {
          verdict_due_.erase(slice.ps);
        }
        return MakePush(work, number);
      });
  if (pending) return again;
  // A ps that got all its slices of this update before the verdict still has to hear it.
  for (auto due = verdict_due_.begin(); due != verdict_due_.end();) {
    const std::uint32_t ps = *due;
    const Time retry_at = exchanges_.retry_at(ps);
    if (now < retry_at) {
      again = std::min(again, retry_at);
      ++due;
      continue;
    }
    due = verdict_due_.erase(due);
    Frame frame;
    frame.header = MakeHeader(FrameKind::kVerdict);
    frame.header.update = work.work.update;
    frame.header.verdict = work.verdict;
    frame.header.factor = work.factor;
    frame.header.loss = work.loss;
    exchanges_.SendOne(Kind::kPush, ps, work.token, std::move(frame), calls);
  }
  return again;
}

void WorkerDataPlane::GiveUpPulls(const WorkUnderWay& work) {
  for (const std::uint32_t number : exchanges_.GiveUp(Kind::kPull, work.token)) {
    slices_[number].pull_in_flight = false;
  }
}

// ---- what becomes of it

void WorkerDataPlane::BeginUpdate() {
  trained_ = false;
  slices_.BeginUpdate();
  verdict_due_.clear();
}

WorkerDataPlane::Heard WorkerDataPlane::OnReply(std::uint64_t call_id, const absl::StatusOr<std::vector<Frame>>& reply,
                                                const WorkUnderWay& work, Time now) {
  Heard heard;
  const std::optional<PsExchanges::Exchange> call = exchanges_.End(call_id);
  heard.expected = call.has_value();
  if (!call.has_value()) return heard;
  heard.lost = !reply.ok() || reply->size() != std::max<std::size_t>(1, call->slices.size());
  const bool done = !heard.lost && std::all_of(reply->begin(), reply->end(),
                                               [](const Frame& frame) { return IsSuccess(frame.header.status); });
  // Nor may the ps have taken the verdict that came with it, which pushes from before it wait for there.
  const bool undecided = call->kind == Kind::kPush && call->token == work.token && work.pushing && !done;
  const bool forgets = options_.bug == PlantedBug::kVerdictNotToldAgain && !call->slices.empty();
  if (undecided && !forgets) verdict_due_.insert(call->ps);
  bool again = heard.lost || (call->slices.empty() && undecided);
  for (std::size_t i = 0; i < call->slices.size(); ++i) {
    const std::uint32_t number = call->slices[i];
    if (slices_[number].ps != call->ps) continue;  // what moved meanwhile is asked for elsewhere
    if (heard.lost) {
      slices_.OnLost(number, call->kind, call->token == work.token);
    } else {
      TakeAnswer(*call, number, (*reply)[i], work, &heard);
      again = again || !IsSuccess((*reply)[i].header.status);
    }
  }
  if (again) {
    exchanges_.BackOff(call->ps, now);
  } else {
    exchanges_.Succeed(call->ps);
  }
  return heard;
}

void WorkerDataPlane::TakeAnswer(const PsExchanges::Exchange& call, std::uint32_t number, const Frame& reply,
                                 const WorkUnderWay& work, Heard* heard) {
  WorkerSlices::Entry& slice = slices_[number];
  const FrameHeader& header = reply.header;
  const bool success = IsSuccess(header.status);
  const bool pull = call.kind == Kind::kPull;
  const bool current = call.token == work.token;
  // What was pulled for another work, a task perhaps, need not be what this one may begin with.
  const bool valued = success && (!pull || current) &&
                      (header.codec == FrameCodec::kBf16 || header.codec == FrameCodec::kFp32) &&
                      PayloadFits(header.codec, reply.payload.size(), slice.slice.elements);
  if (pull) {
    slice.pull_in_flight = false;
    // Nobody waits for whoever begins to train to catch up with all that was done before.
    if (success) clock_ = std::max(clock_, header.clock);
  } else if (call.kind == Kind::kInitialise) {
    slice.initial_in_flight = false;
    if (success) slice.initial_done = true;
  }
  const bool of_step = pull && valued && step_width_ != 0 && work.trains();
  if (of_step) {
    HearOfCut(header.cut);
    slice.step = std::max(slice.step, StepOf(header.update, step_width_));
  }
  // Of two answers that overtook each other the newer value is kept.
  if (of_step || (valued && header.version >= slice.version)) {
    TakeValue(number, reply);
    slice.value_of = of_step ? std::optional(StepOf(work.work.update, step_width_)) : std::nullopt;
  }
  if (call.kind == Kind::kPush && current && slice.push == WorkerSlices::Push::kSent) {
    TakePushAnswer(number, header, work, valued);
  }
  switch (header.status) {
    case ReplyStatus::kSuperseded:
      if (!pull) break;  // a push just comes again
      [[fallthrough]];   // the lease is over
    case ReplyStatus::kRefused:
    case ReplyStatus::kStaleView:
    case ReplyStatus::kWrongOwner:
    case ReplyStatus::kBehind:
      heard->denied = true;
      break;
    case ReplyStatus::kMalformed:
      heard->malformed =
          absl::InternalError(absl::StrCat("ps-", call.ps, " calls a frame of slice ", number, " malformed"));
      break;
    default:
      break;
  }
}

void WorkerDataPlane::TakeValue(std::uint32_t number, const Frame& reply) {
  WorkerSlices::Entry& slice = slices_[number];
  if (reply.header.codec == FrameCodec::kBf16) {
    auto values = std::make_shared<std::vector<float>>(slice.slice.elements);
    Decode(reply.header.codec, reply.payload, absl::MakeSpan(*values));
    host_->StoreValue(number, slice.slice, Payload::OfFloats(*values, values));
  } else {
    host_->StoreValue(number, slice.slice, reply.payload);
  }
  slice.version = reply.header.version;
  slice.clock = reply.header.clock;
  slice.fresh = true;
}

void WorkerDataPlane::TakePushAnswer(std::uint32_t number, const FrameHeader& reply, const WorkUnderWay& work,
                                     bool valued) {
  WorkerSlices::Entry& slice = slices_[number];
  if (!IsSuccess(reply.status)) {
    slice.push = WorkerSlices::Push::kReady;
    return;
  }
  slice.push = WorkerSlices::Push::kDone;
  const bool applied = reply.status == ReplyStatus::kApplied;
  // A slice takes each update once: of two executions one is taken by the first slice, whatever the others take.
  if (number == 0) trained_ = applied || slice.maybe_applied;
  // A duplicate to the first push is somebody's whose session ended in the middle of this update.
  if (work.verdict != Verdict::kApply || !(applied || slice.maybe_applied)) {
    encoder_->Undo(number);
  } else if (reply.status == ReplyStatus::kDuplicate && step_width_ != 0) {
    // Where updates are run a second time, the one that is there may be the other one.
    encoder_->Forget(number);
  } else {
    encoder_->Keep(number);
  }
  if (!valued && !StaysInEpoch(slice)) slice.fresh = false;
  if (!valued && applied) ++slice.version;  // the worker's values have it
  if (applied && step_width_ == 0 && reply.version > slice.computed_version) {
    meter_->OnStaleness(static_cast<double>(reply.version - 1 - slice.computed_version));
  }
}

}  // namespace downpour::core
