#include "trainer/wire/frame_codec.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "trainer/core/codec/codec.h"
#include "trainer/wire/crc32c.h"

namespace downpour::wire {
namespace {

using core::DataType;
using core::Frame;
using core::FrameCodec;
using core::FrameHeader;
using core::FrameKind;
using core::RecordKind;
using core::ReplyStatus;
using core::Verdict;

constexpr std::uint32_t kMagic = 0x46525044;  // "DPRF"
// Of the flags.
constexpr std::uint8_t kWantValue = 0x01;
constexpr std::uint8_t kBeginsUpdate = 0x02;
constexpr std::uint8_t kWantBf16 = 0x04;

// Offsets of the fields, as in docs/formats.md.
enum Offset : std::size_t {
  kMagicAt = 0,
  kVersionAt = 4,
  kHeaderBytesAt = 6,
  kPayloadBytesAt = 8,
  kPayloadCrcAt = 12,
  kHeaderCrcAt = 16,
  kKindAt = 20,
  kTypeAt = 21,
  kCodecAt = 22,
  kVerdictAt = 23,
  kStatusAt = 24,
  kFlagsAt = 25,
  kReservedAt = 26,
  kIncarnationAt = 28,
  kJobUidAt = 32,
  kGenerationAt = 48,
  kSessionAt = 56,
  kSliceVersionAt = 64,
  kEpochAt = 72,
  kCutAt = 76,
  kSliceAt = 80,
  kDatasetEpochAt = 84,
  kDataShardAt = 88,
  kGroupAt = 92,
  kElementsAt = 96,
  kFactorAt = 100,
  kClockAt = 104,
  kLossAt = 112,
  kReplicaAt = 120,
  kSequenceAt = 128,
  kLearningRateAt = 136,
  kRecordAt = 144,
  kReservedTailAt = 145,
};

using HeaderBytes = std::array<std::uint8_t, kFrameHeaderBytes>;

template <typename T>
void Put(std::uint8_t* header, std::size_t offset, T value) {
  for (std::size_t i = 0; i < sizeof(T); ++i) {
    header[offset + i] = static_cast<std::uint8_t>(std::uint64_t{value} >> (8 * i));
  }
}

template <typename T>
T Get(const std::uint8_t* header, std::size_t offset) {
  std::uint64_t value = 0;
  for (std::size_t i = 0; i < sizeof(T); ++i) value |= std::uint64_t{header[offset + i]} << (8 * i);
  return static_cast<T>(value);
}

std::uint32_t HeaderCrc(const std::uint8_t* header) {
  const absl::Span<const std::uint8_t> bytes(header, kFrameHeaderBytes);
  return Crc32c(bytes.subspan(kHeaderCrcAt + 4), Crc32c(bytes.first(kHeaderCrcAt)));
}

std::uint32_t PayloadCrc(const core::Payload& payload) {
  std::uint32_t crc = 0;
  for (const auto& segment : payload.segments()) crc = Crc32c(segment, crc);
  return crc;
}

// What sender and receiver both hold a header to: empty if it is sound.
std::string Inconsistency(const FrameHeader& header, std::size_t payload_bytes) {
  if ((header.kind == FrameKind::kReply) != (header.status != ReplyStatus::kNone)) {
    return absl::StrCat("status: found ", header.status, " in a frame of kind ", header.kind,
                        ", expected one in every reply and 0 in any other frame");
  }
  if (!core::IsFactor(header.factor)) {
    return absl::StrCat("factor: found ", header.factor, ", expected 0 to 1");
  }
  if ((header.kind == FrameKind::kRecord) != (header.record != RecordKind::kNone)) {
    return absl::StrCat("record kind: found ", header.record, " in a frame of kind ", header.kind,
                        ", expected one in every record and 0 in any other frame");
  }
  if (!std::isfinite(header.learning_rate)) {
    return absl::StrCat("learning rate: found ", header.learning_rate, ", expected a finite number");
  }
  if (header.type == DataType::kBytes) {
    if (header.codec != FrameCodec::kNone ||
        (header.kind != FrameKind::kCopy && header.record != RecordKind::kVectors)) {
      return absl::StrCat("type and codec: found ", header.type, " and ", header.codec, " in a frame of kind ",
                          header.kind, ", expected 2 and 0, in copies and in records of vectors alone");
    }
    if (payload_bytes == header.elements) return {};
    return absl::StrCat("payload length: found ", payload_bytes, ", expected as many bytes as elements, ",
                        header.elements);
  }
  if (payload_bytes == 0) return {};
  if (header.type != DataType::kFloat32 || header.codec == FrameCodec::kNone) {
    return absl::StrCat("type and codec: found ", header.type, " and ", header.codec,
                        " with a payload, expected 1 and 1 to 5");
  }
  if (!core::PayloadFits(header.codec, payload_bytes, header.elements)) {
    return absl::StrCat("payload length: found ", payload_bytes, ", expected 0 or what codec ", header.codec,
                        " makes of ", header.elements, " elements");
  }
  return {};
}

void WriteHeader(const Frame& frame, PayloadChecksums checksums, std::uint8_t* out) {
  const FrameHeader& header = frame.header;
  std::fill_n(out, kFrameHeaderBytes, std::uint8_t{0});
  Put<std::uint32_t>(out, kMagicAt, kMagic);
  Put<std::uint16_t>(out, kVersionAt, kFrameVersion);
  Put<std::uint16_t>(out, kHeaderBytesAt, kFrameHeaderBytes);
  Put<std::uint32_t>(out, kPayloadBytesAt, static_cast<std::uint32_t>(frame.payload.size()));
  Put<std::uint32_t>(out, kPayloadCrcAt, checksums == PayloadChecksums::kUsed ? PayloadCrc(frame.payload) : 0);
  out[kKindAt] = static_cast<std::uint8_t>(header.kind);
  out[kTypeAt] = static_cast<std::uint8_t>(header.type);
  out[kCodecAt] = static_cast<std::uint8_t>(header.codec);
  out[kVerdictAt] = static_cast<std::uint8_t>(header.verdict);
  out[kStatusAt] = static_cast<std::uint8_t>(header.status);
  out[kFlagsAt] =
      static_cast<std::uint8_t>((header.want_value ? kWantValue : 0) | (header.begins_update ? kBeginsUpdate : 0) |
                                (header.want_bf16 ? kWantBf16 : 0));
  Put<std::uint32_t>(out, kIncarnationAt, header.incarnation);
  std::copy(header.job_uid.begin(), header.job_uid.end(), out + kJobUidAt);
  Put<std::uint64_t>(out, kGenerationAt, header.generation);
  Put<std::uint64_t>(out, kSessionAt, header.session);
  Put<std::uint64_t>(out, kSliceVersionAt, header.version);
  Put<std::uint32_t>(out, kEpochAt, header.epoch);
  Put<std::uint32_t>(out, kCutAt, header.cut);
  Put<std::uint32_t>(out, kSliceAt, header.slice);
  Put<std::uint32_t>(out, kDatasetEpochAt, header.update.dataset_epoch);
  Put<std::uint32_t>(out, kDataShardAt, header.update.data_shard);
  Put<std::uint32_t>(out, kGroupAt, header.update.group);
  Put<std::uint32_t>(out, kElementsAt, header.elements);
  Put<std::uint32_t>(out, kFactorAt, std::bit_cast<std::uint32_t>(header.factor));
  Put<std::uint64_t>(out, kClockAt, header.clock);
  Put<std::uint64_t>(out, kLossAt, std::bit_cast<std::uint64_t>(header.loss));
  Put<std::uint64_t>(out, kReplicaAt, header.replica);
  Put<std::uint64_t>(out, kSequenceAt, header.sequence);
  Put<std::uint64_t>(out, kLearningRateAt, std::bit_cast<std::uint64_t>(header.learning_rate));
  out[kRecordAt] = static_cast<std::uint8_t>(header.record);
  Put<std::uint32_t>(out, kHeaderCrcAt, HeaderCrc(out));
}

// Reads an enumeration whose values run from `first` to `last`.
template <typename Enum>
absl::Status GetEnum(const std::uint8_t* bytes, std::size_t offset, absl::string_view field, Enum first, Enum last,
                     Enum& value) {
  const std::uint8_t found = bytes[offset];
  if (found < static_cast<std::uint8_t>(first) || found > static_cast<std::uint8_t>(last)) {
    return absl::DataLossError(absl::StrCat(field, ": found ", found, ", expected ", first, " to ", last));
  }
  value = static_cast<Enum>(found);
  return absl::OkStatus();
}

template <typename T>
absl::Status Expect(const std::uint8_t* bytes, std::size_t offset, absl::string_view field,
                    std::type_identity_t<T> expected) {
  const T found = Get<T>(bytes, offset);
  if (found == expected) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(field, ": found 0x", absl::Hex(found), ", expected 0x", absl::Hex(expected)));
}

struct PayloadFacts {
  std::uint32_t bytes = 0;
  std::uint32_t crc = 0;
};

absl::Status ReadHeader(const std::uint8_t* bytes, FrameHeader& header, PayloadFacts& payload) {
  absl::Status status = Expect<std::uint32_t>(bytes, kMagicAt, "magic", kMagic);
  if (status.ok()) status = Expect<std::uint16_t>(bytes, kVersionAt, "format version", kFrameVersion);
  if (status.ok()) status = Expect<std::uint16_t>(bytes, kHeaderBytesAt, "header length", kFrameHeaderBytes);
  if (status.ok()) status = Expect<std::uint32_t>(bytes, kHeaderCrcAt, "header checksum", HeaderCrc(bytes));
  if (status.ok()) {
    status = GetEnum(bytes, kKindAt, "kind", FrameKind::kPush, FrameKind::kCopy, header.kind);
  }
  if (status.ok()) {
    status = GetEnum(bytes, kTypeAt, "type", DataType::kNone, DataType::kBytes, header.type);
  }
  if (status.ok()) {
    status = GetEnum(bytes, kCodecAt, "codec", FrameCodec::kNone, FrameCodec::kOneBit, header.codec);
  }
  if (status.ok()) {
    status = GetEnum(bytes, kVerdictAt, "verdict", Verdict::kPending, Verdict::kSkip, header.verdict);
  }
  if (status.ok()) {
    status = GetEnum(bytes, kStatusAt, "status", ReplyStatus::kNone, ReplyStatus::kCorrupt, header.status);
  }
  if (status.ok()) {
    status = GetEnum(bytes, kRecordAt, "record kind", RecordKind::kNone, RecordKind::kVectors, header.record);
  }
  if (!status.ok()) return status;
  if ((bytes[kFlagsAt] & ~(kWantValue | kBeginsUpdate | kWantBf16)) != 0) {
    return absl::DataLossError(absl::StrCat("flags: found ", bytes[kFlagsAt], ", expected 0 to 7"));
  }
  const auto is_zero = [](std::uint8_t byte) { return byte == 0; };
  if (!std::all_of(bytes + kReservedAt, bytes + kIncarnationAt, is_zero) ||
      !std::all_of(bytes + kReservedTailAt, bytes + kFrameHeaderBytes, is_zero)) {
    return absl::DataLossError("reserved bytes: found some set, expected zeros");
  }
  header.want_value = (bytes[kFlagsAt] & kWantValue) != 0;
  header.begins_update = (bytes[kFlagsAt] & kBeginsUpdate) != 0;
  header.want_bf16 = (bytes[kFlagsAt] & kWantBf16) != 0;
  header.incarnation = Get<std::uint32_t>(bytes, kIncarnationAt);
  std::copy_n(bytes + kJobUidAt, header.job_uid.size(), header.job_uid.begin());
  header.generation = Get<std::uint64_t>(bytes, kGenerationAt);
  header.session = Get<std::uint64_t>(bytes, kSessionAt);
  header.version = Get<std::uint64_t>(bytes, kSliceVersionAt);
  header.epoch = Get<std::uint32_t>(bytes, kEpochAt);
  header.cut = Get<std::uint32_t>(bytes, kCutAt);
  header.slice = Get<std::uint32_t>(bytes, kSliceAt);
  header.update.dataset_epoch = Get<std::uint32_t>(bytes, kDatasetEpochAt);
  header.update.data_shard = Get<std::uint32_t>(bytes, kDataShardAt);
  header.update.group = Get<std::uint32_t>(bytes, kGroupAt);
  header.elements = Get<std::uint32_t>(bytes, kElementsAt);
  header.factor = std::bit_cast<float>(Get<std::uint32_t>(bytes, kFactorAt));
  header.clock = Get<std::uint64_t>(bytes, kClockAt);
  header.loss = std::bit_cast<double>(Get<std::uint64_t>(bytes, kLossAt));
  header.replica = Get<std::uint64_t>(bytes, kReplicaAt);
  header.sequence = Get<std::uint64_t>(bytes, kSequenceAt);
  header.learning_rate = std::bit_cast<double>(Get<std::uint64_t>(bytes, kLearningRateAt));
  payload.bytes = Get<std::uint32_t>(bytes, kPayloadBytesAt);
  payload.crc = Get<std::uint32_t>(bytes, kPayloadCrcAt);
  if (const std::string problem = Inconsistency(header, payload.bytes); !problem.empty()) {
    return absl::DataLossError(problem);
  }
  return absl::OkStatus();
}

// The bytes of a message in order, over segments cut anywhere.
class Reader {
 public:
  explicit Reader(absl::Span<const absl::Span<const std::uint8_t>> segments) : segments_(segments) {
    for (const auto& segment : segments_) left_ += segment.size();
  }

  std::size_t left() const { return left_; }

  // Calls visit(run) for the next `count` bytes, run by run; count <= left().
  template <typename Visit>
  void Take(std::size_t count, Visit&& visit) {
    left_ -= count;
    while (count != 0) {
      const auto rest = segments_[index_].subspan(offset_);
      const auto run = rest.first(std::min(count, rest.size()));
      if (!run.empty()) visit(run);
      count -= run.size();
      offset_ += run.size();
      if (run.size() == rest.size()) {
        ++index_;
        offset_ = 0;
      }
    }
  }

 private:
  absl::Span<const absl::Span<const std::uint8_t>> segments_;
  std::size_t index_ = 0;
  std::size_t offset_ = 0;
  std::size_t left_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<MessagePart>> EncodeMessage(const Frames& frames, PayloadChecksums checksums) {
  std::size_t message_bytes = 0;
  std::size_t copied_bytes = 0;
  for (std::size_t i = 0; i < frames.size(); ++i) {
    const std::size_t payload_bytes = frames[i].payload.size();
    if (const std::string problem = Inconsistency(frames[i].header, payload_bytes); !problem.empty()) {
      return absl::InvalidArgumentError(absl::StrCat("frame ", i, ": ", problem));
    }
    message_bytes += kFrameHeaderBytes + payload_bytes;
    copied_bytes += kFrameHeaderBytes + (payload_bytes <= kCopiedPayloadBytes ? payload_bytes : 0);
  }
  if (message_bytes > kMaxMessageBytes) {
    return absl::InvalidArgumentError(absl::StrCat("message: ", frames.size(), " frames make ", message_bytes,
                                                   " bytes, more than the limit of ", kMaxMessageBytes));
  }
  // All headers and small payloads lie in one buffer; a run of them between two large payloads is one part.
  const std::shared_ptr<std::uint8_t[]> buffer = std::make_shared_for_overwrite<std::uint8_t[]>(copied_bytes);
  std::vector<MessagePart> parts;
  std::uint8_t* run = buffer.get();
  std::uint8_t* end = run;
  const auto finish_run = [&] {
    if (run != end) parts.push_back({absl::MakeConstSpan(run, end), buffer});
    run = end;
  };
  for (const Frame& frame : frames) {
    WriteHeader(frame, checksums, end);
    end += kFrameHeaderBytes;
    if (frame.payload.size() <= kCopiedPayloadBytes) {
      for (const auto& segment : frame.payload.segments()) end = std::copy(segment.begin(), segment.end(), end);
    } else {
      finish_run();
      for (const auto& segment : frame.payload.segments()) {
        if (!segment.empty()) parts.push_back({segment, frame.payload.owner()});
      }
    }
  }
  finish_run();
  return parts;
}

absl::StatusOr<DecodedMessage> DecodeMessage(absl::Span<const absl::Span<const std::uint8_t>> segments,
                                             const std::shared_ptr<const void>& owner, PayloadChecksums checksums) {
  Reader reader(segments);
  if (reader.left() > kMaxMessageBytes) {
    return absl::ResourceExhaustedError(
        absl::StrCat("message: found ", reader.left(), " bytes, expected at most ", kMaxMessageBytes));
  }
  DecodedMessage message;
  while (reader.left() != 0) {
    const auto lost = [&](absl::string_view problem) {
      return absl::DataLossError(absl::StrCat("frame ", message.frames.size(), ": ", problem));
    };
    if (reader.left() < kFrameHeaderBytes) {
      return lost(absl::StrCat("header: found ", reader.left(), " bytes, expected ", kFrameHeaderBytes));
    }
    HeaderBytes bytes;
    std::uint8_t* end = bytes.data();
    reader.Take(kFrameHeaderBytes,
                [&](absl::Span<const std::uint8_t> run) { end = std::copy(run.begin(), run.end(), end); });
    Frame frame;
    PayloadFacts payload;
    if (const absl::Status status = ReadHeader(bytes.data(), frame.header, payload); !status.ok()) {
      return lost(status.message());
    }
    if (payload.bytes > reader.left()) {
      return lost(absl::StrCat("payload: found ", reader.left(), " bytes, expected ", payload.bytes));
    }
    std::vector<absl::Span<const std::uint8_t>> runs;
    std::uint32_t crc = 0;
    reader.Take(payload.bytes, [&](absl::Span<const std::uint8_t> run) {
      if (checksums == PayloadChecksums::kUsed) crc = Crc32c(run, crc);
      runs.push_back(run);
    });
    if (crc != payload.crc) {
      frame.header.status = ReplyStatus::kCorrupt;
      ++message.corrupt_payloads;
    } else if (!runs.empty()) {
      frame.payload = core::Payload(std::move(runs), owner);
    }
    message.frames.push_back(std::move(frame));
  }
  return message;
}

}  // namespace downpour::wire
