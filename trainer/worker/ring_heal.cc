#include "trainer/worker/ring_heal.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "trainer/core/replica_copy.h"

namespace downpour::worker {
namespace {

using collective::Collective;

// A position in words of four bytes.
constexpr std::size_t kWords = 7;

void Put(std::uint64_t value, float* words) {
  words[0] = std::bit_cast<float>(static_cast<std::uint32_t>(value));
  words[1] = std::bit_cast<float>(static_cast<std::uint32_t>(value >> 32));
}
std::uint64_t Get(const float* words) {
  return std::bit_cast<std::uint32_t>(words[0]) | std::uint64_t{std::bit_cast<std::uint32_t>(words[1])} << 32;
}

// A slice's frames as they travel: how many parts and how long the description is, then the description, then vectors.
absl::Status GiveSlice(Collective& group, int source, absl::Duration limit, const core::RingReplica& replica,
                       std::uint32_t slice) {
  core::ReplicaCopy copy;
  copy.snapshot = replica.Export(slice);
  const absl::StatusOr<std::vector<core::Frame>> frames = core::CutCopy(copy);
  if (!frames.ok()) return frames.status();
  std::array<float, 2> head = {std::bit_cast<float>(static_cast<std::uint32_t>(frames->size())),
                               std::bit_cast<float>(static_cast<std::uint32_t>(frames->front().payload.size()))};
  absl::Status told = group.Broadcast(absl::MakeSpan(head), source, limit);
  for (std::size_t part = 0; told.ok() && part < frames->size(); ++part) {
    const core::Payload& payload = (*frames)[part].payload;
    std::vector<float> values((payload.size() + 3) / 4);
    std::size_t at = 0;
    for (const auto& segment : payload.segments()) {
      std::memcpy(reinterpret_cast<std::uint8_t*>(values.data()) + at, segment.data(), segment.size());
      at += segment.size();
    }
    told = group.Broadcast(absl::MakeSpan(values), source, limit);
  }
  return told;
}

absl::StatusOr<core::SliceSnapshot> HearSlice(Collective& group, int source, absl::Duration limit,
                                              const core::Slice& slice, std::uint32_t number) {
  std::array<float, 2> head{};
  if (absl::Status told = group.Broadcast(absl::MakeSpan(head), source, limit); !told.ok()) return told;
  const auto parts = std::bit_cast<std::uint32_t>(head[0]);
  const auto described = std::bit_cast<std::uint32_t>(head[1]);
  if (parts < 2 || parts > core::kMostCopyParts || described > core::kSliceBytes) {
    return absl::InternalError(
        absl::StrCat("slice ", number, ": ", parts, " parts and a description of ", described, " bytes came"));
  }
  core::CopyAssembly assembly(number, slice);
  for (std::uint32_t part = 0; part < parts; ++part) {
    const bool describes = part == 0;
    std::vector<float> values(describes ? (described + 3) / 4 : slice.elements);
    if (absl::Status told = group.Broadcast(absl::MakeSpan(values), source, limit); !told.ok()) return told;
    core::Frame frame;
    frame.header.kind = core::FrameKind::kCopy;
    frame.header.type = describes ? core::DataType::kBytes : core::DataType::kFloat32;
    frame.header.codec = describes ? core::FrameCodec::kNone : core::FrameCodec::kFp32;
    frame.header.elements = describes ? described : slice.elements;
    frame.header.slice = number;
    frame.header.version = part;
    frame.header.clock = parts;
    const auto* const bytes = reinterpret_cast<const std::uint8_t*>(values.data());
    frame.payload = core::Payload({{bytes, describes ? described : std::size_t{slice.bytes()}}}, nullptr);
    if (absl::Status taken = assembly.Add(frame); !taken.ok()) return absl::InternalError(taken.message());
  }
  absl::StatusOr<std::optional<core::ReplicaCopy>> copy = assembly.Take();
  if (!copy.ok()) return absl::InternalError(copy.status().message());
  if (!copy->has_value()) return absl::InternalError(absl::StrCat("slice ", number, ": parts are missing"));
  return std::move((*copy)->snapshot);
}

}  // namespace

absl::StatusOr<std::vector<core::RingPosition>> TellPositions(Collective& group, const core::RingPosition& position,
                                                              absl::Duration limit) {
  const auto size = static_cast<std::size_t>(group.size());
  std::vector<float> words(kWords * size);
  float* const own = words.data() + kWords * static_cast<std::size_t>(group.rank());
  own[0] = std::bit_cast<float>(std::uint32_t{position.known ? 1u : 0u});
  Put(position.took.generation(), own + 1);
  own[3] = std::bit_cast<float>(position.took.incarnation());
  own[4] = std::bit_cast<float>(position.took.epoch());
  Put(position.updates, own + 5);
  if (absl::Status told = group.AllGather(absl::MakeSpan(words), limit); !told.ok()) return told;
  std::vector<core::RingPosition> positions(size);
  for (std::size_t rank = 0; rank < size; ++rank) {
    const float* const from = words.data() + kWords * rank;
    core::RingPosition& of_rank = positions[rank];
    of_rank.known = std::bit_cast<std::uint32_t>(from[0]) != 0;
    if (!of_rank.known) continue;
    of_rank.took.set_generation(Get(from + 1));
    of_rank.took.set_incarnation(std::bit_cast<std::uint32_t>(from[3]));
    of_rank.took.set_epoch(std::bit_cast<std::uint32_t>(from[4]));
    of_rank.updates = Get(from + 5);
  }
  return positions;
}

absl::StatusOr<std::vector<core::SliceSnapshot>> ShareState(Collective& group, int source, absl::Duration limit,
                                                            const core::RingReplica& replica) {
  std::vector<core::SliceSnapshot> heard;
  for (std::uint32_t slice = 0; slice < replica.slices().size(); ++slice) {
    if (group.rank() == source) {
      if (absl::Status given = GiveSlice(group, source, limit, replica, slice); !given.ok()) return given;
      continue;
    }
    absl::StatusOr<core::SliceSnapshot> snapshot = HearSlice(group, source, limit, replica.slices()[slice], slice);
    if (!snapshot.ok()) return snapshot.status();
    heard.push_back(*std::move(snapshot));
  }
  return heard;
}

}  // namespace downpour::worker
