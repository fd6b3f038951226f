#include "trainer/core/replica.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/sandblaster/vectors.h"

namespace downpour::core {
namespace {

constexpr std::size_t kPulledValuesKept = 4;  // of a session

bool ParseCommand(const Payload& payload, v1::VectorCommand* command) {
  std::string bytes;
  bytes.reserve(payload.size());
  for (const auto& segment : payload.segments()) {
    bytes.append(reinterpret_cast<const char*>(segment.data()), segment.size());
  }
  return command->ParseFromString(bytes);
}

}  // namespace

absl::Status Replica::Check(const Frame& record) const {
  const FrameHeader& header = record.header;
  const auto wrong = [&](absl::string_view what) {
    return absl::InvalidArgumentError(
        absl::StrCat("record ", header.sequence, " of slice ", state_.number(), ": ", what));
  };
  switch (header.record) {
    case RecordKind::kUpdate:
      if (!state_.table().plan().Contains(header.update)) return wrong("an update that the data plan has not");
      if (state_.table().Contains(header.update)) return wrong("an update that is here");
      if (header.verdict == Verdict::kSkip) return absl::OkStatus();
      if (header.verdict != Verdict::kApply) return wrong("an update without a verdict");
      if (header.elements != state_.slice().elements || !IsSound(header.codec, record.payload, header.elements)) {
        return wrong("a gradient that does not fit");
      }
      return absl::OkStatus();
    case RecordKind::kStepWidth:
      return header.version <= UINT32_MAX ? absl::OkStatus() : wrong("too many updates a step");
    case RecordKind::kPulled:
    case RecordKind::kSessionEnded:
      return absl::OkStatus();
    case RecordKind::kVectors: {
      v1::VectorCommand command;
      if (!ParseCommand(record.payload, &command)) return wrong("no command");
      const sandblaster::Vectors* vectors = state_.search_vectors();
      return vectors == nullptr ? wrong("no vectors here") : vectors->Check(command);
    }
    case RecordKind::kNone:
      break;
  }
  return wrong("no kind");
}

StepContext Replica::ContextOf(const FrameHeader& record) const {
  StepContext context;
  context.learning_rate = record.learning_rate;
  // The differences of buffers are no gradients: what they are is not to be clipped.
  context.factor = buffer_ ? 1 : record.factor;
  const bool own_step = state_.step_width() == 0;
  context.staleness = own_step && state_.version() > record.version ? state_.version() - record.version : 0;
  context.loss = record.loss;
  context.samples = state_.table().plan().samples_in_update(record.update);
  return context;
}

absl::StatusOr<Replica::Done> Replica::Do(const Frame& record) {
  const FrameHeader& header = record.header;
  Done done;
  switch (header.record) {
    case RecordKind::kUpdate: {
      done.context = ContextOf(header);
      done.pulled = TakePulled(header);
      done.context.pulled = done.pulled.get();
      const EncodedGradient gradient(header.codec, record.payload);
      done.completes_shard = state_.Apply(header.update, header.verdict, gradient, done.context);
      break;
    }
    case RecordKind::kStepWidth:
      state_.SetStepWidth(static_cast<std::uint32_t>(header.version));
      break;
    case RecordKind::kPulled:
      KeepPulled(header.session);
      break;
    case RecordKind::kSessionEnded:
      if (header.session == 0) {
        pulled_.clear();
      } else {
        pulled_.erase(header.session);
      }
      break;
    case RecordKind::kVectors: {
      v1::VectorCommand command;
      if (!ParseCommand(record.payload, &command)) return absl::InvalidArgumentError("not a command on vectors");
      if (absl::Status carried_out = state_.CarryOut(command); !carried_out.ok()) return carried_out;
      break;
    }
    case RecordKind::kNone:
      return absl::InvalidArgumentError("a record without a kind");
  }
  ++sequence_;
  return done;
}

bool Replica::has_pulled(std::uint64_t session) const {
  const auto found = pulled_.find(session);
  return found != pulled_.end() && !found->second.empty() && found->second.back().version == state_.version();
}

std::vector<std::uint64_t> Replica::pulled_sessions() const {
  std::vector<std::uint64_t> sessions;
  sessions.reserve(pulled_.size());
  for (const auto& [session, values] : pulled_) sessions.push_back(session);
  return sessions;
}

void Replica::KeepPulled(std::uint64_t session) {
  if (has_pulled(session)) return;
  std::vector<PulledValue>& values = pulled_[session];
  // One that is asked for again and again, as its answers are lost, goes on from a late one.
  if (values.size() == kPulledValuesKept) values.erase(values.begin());
  values.push_back({state_.version(), state_.value()});
}

std::shared_ptr<const std::vector<float>> Replica::TakePulled(const FrameHeader& header) {
  const auto values = pulled_.find(header.session);
  if (values == pulled_.end()) return nullptr;
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

ReplicaCopy Replica::Export() const {
  ReplicaCopy copy;
  copy.snapshot = state_.Export();
  copy.pulled = pulled_;
  copy.sequence = sequence_;
  copy.step_width = state_.step_width();
  if (const sandblaster::Vectors* vectors = state_.search_vectors(); vectors != nullptr) copy.sums = vectors->sums();
  return copy;
}

absl::Status Replica::Import(const ReplicaCopy& copy) {
  SliceState state = state_.Fork();
  state.SetStepWidth(copy.step_width);
  if (absl::Status imported = state.Import(copy.snapshot, 0); !imported.ok()) return imported;
  if (sandblaster::Vectors* vectors = state.search_vectors(); vectors != nullptr) vectors->SetSums(copy.sums);
  state_ = std::move(state);
  pulled_ = copy.pulled;
  sequence_ = copy.sequence;
  return absl::OkStatus();
}

}  // namespace downpour::core
