#ifndef DOWNPOUR_TRAINER_CORE_FRAME_H_
#define DOWNPOUR_TRAINER_CORE_FRAME_H_

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <memory>
#include <tuple>
#include <vector>

#include "absl/types/span.h"

// What travels on the data plane: a header and a payload, by value and by reference. The bytes on the wire are in
// trainer/wire/frame_codec.h.
namespace downpour::core {

// The identity of one application of gradients; independent of RPCs, workers and retries.
struct UpdateId {
  std::uint32_t dataset_epoch = 0;
  std::uint32_t data_shard = 0;
  std::uint32_t group = 0;  // within the data shard
  friend bool operator==(const UpdateId& a, const UpdateId& b) {
    return a.dataset_epoch == b.dataset_epoch && a.data_shard == b.data_shard && a.group == b.group;
  }
  friend bool operator<(const UpdateId& a, const UpdateId& b) {
    return std::tie(a.dataset_epoch, a.data_shard, a.group) < std::tie(b.dataset_epoch, b.data_shard, b.group);
  }
};

enum class FrameKind : std::uint8_t {
  kPush = 1,        // a gradient of one slice
  kPull = 2,        // asks for the value of one slice
  kInitialise = 3,  // the initial value of one slice
  kVerdict = 4,     // the verdict on an update, for pushes that were sent before it was known; no slice
  kReply = 5,       // answers any of these, one for one; carries the slice's value where it was asked for
  kRecord = 6,      // from the primary of a slice to another replica: what it did; see RecordKind
  kCopy = 7,        // likewise: a part of the whole state of the slice; see replica_copy.h
};

// What changes the state of a slice, in the order in which its primary did it. A replica that does the same in the same
// order has the same bits.
enum class RecordKind : std::uint8_t {
  kNone = 0,          // not a record
  kUpdate = 1,        // a push was applied: its header and payload, with the learning rate in force
  kStepWidth = 2,     // updates a step, in `version`: of another mode
  kPulled = 3,        // the session got the value as it is, and its next gradient may be of that
  kSessionEnded = 4,  // what was kept of the session's pulled values is gone; session 0: of everybody's
  kVectors = 5,       // a VectorCommand, serialised in the payload
};

// Whether an update may be applied is decided once, for all its slices, by the worker. A push that leaves before the
// decision carries kPending and waits at the ps.
enum class Verdict : std::uint8_t { kPending = 0, kApply = 1, kSkip = 2 };

enum class ReplyStatus : std::uint8_t {
  kNone = 0,  // not a reply
  kApplied = 1,
  kDuplicate = 2,   // was applied before: success
  kValue = 3,       // answer to a pull
  kStaleView = 4,   // the layout epoch is older than the ps's: fetch the view, send again
  kBehind = 5,      // the ps has not seen that view yet: send again soon
  kWrongOwner = 6,  // this ps does not own the slice
  kRefused = 7,     // another job, generation or an ended session: fenced
  kNotReady = 8,    // the slice has no initial value yet
  // A pending push that its worker gave up, or in mode SANDBLASTER a pull for an update of an evaluation that is over:
  // send again if it is still wanted.
  kSuperseded = 9,
  kMalformed = 10,  // no such slice, update or size
  kCorrupt = 11,    // the payload's checksum is wrong: send again
};

// kBytes: `elements` bytes without a codec, in frames between ps.
enum class DataType : std::uint8_t { kNone = 0, kFloat32 = 1, kBytes = 2 };
// How the payload holds the elements; see trainer/core/codec.
enum class FrameCodec : std::uint8_t { kNone = 0, kFp32 = 1, kBf16 = 2, kInt8 = 3, kTopK = 4, kOneBit = 5 };

using JobUid = std::array<std::uint8_t, 16>;

struct FrameHeader {
  FrameKind kind = FrameKind::kPush;
  DataType type = DataType::kNone;
  FrameCodec codec = FrameCodec::kNone;
  Verdict verdict = Verdict::kPending;
  ReplyStatus status = ReplyStatus::kNone;
  bool want_value = false;     // a push that asks for the slice's value after the update
  bool begins_update = false;  // a pull for an update that begins with its value: it waits until the mode lets it
  bool want_bf16 = false;      // a pull or a push whose value may come in bf16
  JobUid job_uid{};
  std::uint64_t generation = 0;
  std::uint32_t incarnation = 0;
  std::uint32_t epoch = 0;    // of the layout
  std::uint64_t session = 0;  // of the worker
  std::uint32_t cut = 0;
  std::uint32_t slice = 0;
  UpdateId update;
  // Push: of the slice when it was pulled, and one for each update of the worker's own since. Reply: of the slice now.
  std::uint64_t version = 0;
  std::uint32_t elements = 0;
  // Multiplies the gradient before the optimizer sees it, 0 to 1. It is known with the verdict and travels with it: a
  // push that waits takes the factor that its verdict has. Buffers take no part.
  float factor = 1;
  // Of the session, in mode BOUNDED_STALENESS; push: with this update, reply: as far as the slice knows. Of a record
  // the number of the replica that it comes from.
  std::uint64_t clock = 0;
  // Of a push or a verdict: the mean over the update's samples. It is known with the verdict, and travels as the
  // factor.
  double loss = 0;

  // ---- between the replicas of a slice
  RecordKind record = RecordKind::kNone;
  std::uint64_t replica = 0;  // that the frame is meant for
  // Of a record: its number among those of the slice, from 1 on in a generation. Of a copy: the last that it has. Of
  // the reply: the last that the replica has.
  std::uint64_t sequence = 0;
  double learning_rate = 0;  // of a record: that the step is taken with
};

inline bool IsFactor(float factor) { return factor >= 0 && factor <= 1; }

// Bytes that belong to somebody else, kept alive by `owner`; immutable while anyone holds them.
class Payload {
 public:
  Payload() = default;
  Payload(std::vector<absl::Span<const std::uint8_t>> segments, std::shared_ptr<const void> owner)
      : segments_(std::move(segments)), owner_(std::move(owner)) {
    for (const auto& segment : segments_) size_ += segment.size();
  }
  // One contiguous run of floats.
  static Payload OfFloats(absl::Span<const float> values, std::shared_ptr<const void> owner) {
    return Payload({absl::Span<const std::uint8_t>(reinterpret_cast<const std::uint8_t*>(values.data()),
                                                   values.size() * sizeof(float))},
                   std::move(owner));
  }
  const std::vector<absl::Span<const std::uint8_t>>& segments() const { return segments_; }
  const std::shared_ptr<const void>& owner() const { return owner_; }
  std::size_t size() const { return size_; }

  // Calls visit(first_index, floats) over the payload as floats, in order; `values` of one call are aligned and
  // contiguous. A float that straddles two segments is visited through a copy.
  template <typename Visit>
  void ForEachFloats(Visit&& visit) const {
    std::size_t index = 0;
    std::uint32_t straddling = 0;  // the bytes of a float so far, little-endian
    std::uint32_t have = 0;
    std::array<float, 256> aligned{};
    for (absl::Span<const std::uint8_t> bytes : segments_) {
      while (have != 0 && !bytes.empty()) {
        straddling |= std::uint32_t{bytes.front()} << (8 * have++);
        bytes.remove_prefix(1);
        if (have == sizeof(float)) {
          const float value = std::bit_cast<float>(straddling);
          visit(index++, absl::Span<const float>(&value, 1));
          straddling = have = 0;
        }
      }
      const std::size_t count = bytes.size() / sizeof(float);
      if (count != 0 && reinterpret_cast<std::uintptr_t>(bytes.data()) % alignof(float) == 0) {
        visit(index, absl::Span<const float>(reinterpret_cast<const float*>(bytes.data()), count));
        index += count;
      } else {
        for (std::size_t done = 0; done < count;) {
          const std::size_t run = std::min(count - done, aligned.size());
          std::memcpy(aligned.data(), bytes.data() + done * sizeof(float), run * sizeof(float));
          visit(index, absl::Span<const float>(aligned.data(), run));
          index += run;
          done += run;
        }
      }
      bytes.remove_prefix(count * sizeof(float));
      for (std::uint8_t byte : bytes) straddling |= std::uint32_t{byte} << (8 * have++);
    }
  }

 private:
  std::vector<absl::Span<const std::uint8_t>> segments_;
  std::shared_ptr<const void> owner_;
  std::size_t size_ = 0;
};

struct Frame {
  FrameHeader header;
  Payload payload;
};

// What the header of a frame takes in a message.
inline constexpr std::size_t kFrameHeaderBytes = 152;
// The most that one message may carry, headers included. A slice of 4 MiB fits with its header, or 4 MiB in 512 frames.
inline constexpr std::size_t kMaxMessageBytes = (4u << 20) + (76u << 10);

// Whether it says that what was asked for is done.
inline bool IsSuccess(ReplyStatus status) {
  return status == ReplyStatus::kApplied || status == ReplyStatus::kDuplicate || status == ReplyStatus::kValue;
}

// What a request, or another answer to it, is answered with; without a value.
inline Frame ReplyTo(const FrameHeader& request, ReplyStatus status) {
  Frame reply;
  reply.header = request;
  reply.header.kind = FrameKind::kReply;
  reply.header.status = status;
  reply.header.type = DataType::kNone;
  reply.header.codec = FrameCodec::kNone;
  reply.header.elements = 0;
  reply.header.factor = 1;
  reply.header.loss = 0;
  reply.header.want_bf16 = false;
  reply.header.record = RecordKind::kNone;
  reply.header.sequence = 0;
  reply.header.learning_rate = 0;
  return reply;
}

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_FRAME_H_
