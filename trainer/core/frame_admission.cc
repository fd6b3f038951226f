#include "trainer/core/frame_admission.h"

#include "trainer/core/codec/codec.h"
#include "trainer/core/slice_state.h"
#include "trainer/core/step_id.h"
#include "trainer/core/update_mode.h"

namespace downpour::core {

ReplyStatus FrameAdmission::Check(const Frame& frame) const {
  const FrameHeader& header = frame.header;
  if (header.job_uid != job_uid) return ReplyStatus::kRefused;
  if (header.status == ReplyStatus::kCorrupt) return ReplyStatus::kCorrupt;
  if (!view.has_stamp()) return ReplyStatus::kBehind;
  if (header.generation != view.stamp().generation() && bug != PlantedBug::kGenerationIgnored) {
    return header.generation > view.stamp().generation() ? ReplyStatus::kBehind : ReplyStatus::kRefused;
  }
  if (bug != PlantedBug::kSessionNotChecked && !sessions.Contains(header.session)) {
    return ReplyStatus::kRefused;
  }
  if (bug != PlantedBug::kModeBeforeTaken) {
    if (header.epoch > view.stamp().epoch()) return ReplyStatus::kBehind;
    // What was computed in this mode counts, whoever the slices belonged to then.
    if (header.epoch < view.mode_epoch()) return ReplyStatus::kStaleView;
  }
  if (!IsFactor(header.factor)) return ReplyStatus::kMalformed;
  if (header.kind == FrameKind::kVerdict) {
    const bool valid = header.verdict != Verdict::kPending && replicas.plan().Contains(header.update);
    return valid ? ReplyStatus::kNone : ReplyStatus::kMalformed;
  }
  if (header.slice >= replicas.slice_count()) return ReplyStatus::kMalformed;
  const PsReplicas::Entry* const entry = replicas.Primary(header.slice);
  if (entry == nullptr) return ReplyStatus::kWrongOwner;
  if (entry->frozen && !thawed) return ReplyStatus::kBehind;
  const SliceState& state = entry->replica.state();
  switch (header.kind) {
    case FrameKind::kPull:
      if (!state.initialised()) return ReplyStatus::kNotReady;
      if (!header.begins_update || !HasBackupExecutions(view.mode())) return ReplyStatus::kNone;
      if (!replicas.plan().Contains(header.update)) return ReplyStatus::kMalformed;
      // Another one has done it, and the value may be that of the next point already.
      return StepWidth(view) == 0 && state.table().watermark() > header.update.dataset_epoch ? ReplyStatus::kSuperseded
                                                                                             : ReplyStatus::kNone;
    case FrameKind::kInitialise:
      if (view.has_restore()) return ReplyStatus::kNotReady;
      return header.codec == FrameCodec::kFp32 && frame.payload.size() == state.slice().bytes()
                 ? ReplyStatus::kNone
                 : ReplyStatus::kMalformed;
    case FrameKind::kPush: {
      // A skipped update may carry its gradient or not; a step needs all of it. What it holds is looked at when it is
      // decoded.
      const bool whole = PayloadFits(header.codec, frame.payload.size(), state.slice().elements);
      const bool fits = whole || (frame.payload.size() == 0 && header.verdict == Verdict::kSkip);
      if (!fits || !replicas.plan().Contains(header.update)) return ReplyStatus::kMalformed;
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

}  // namespace downpour::core
