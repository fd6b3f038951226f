#include "trainer/worker/ring_heal.h"

#include <array>
#include <bit>
#include <cstdint>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "trainer/core/replica_copy.h"

namespace downpour::worker {
namespace {

using collective::Collective;

// A position in words of four bytes.
constexpr std::size_t kWords = 20 + 2 * core::RingReplica::kMostShares;

class WordWriter {
 public:
  explicit WordWriter(float* to) : to_(to) {}
  void Put(std::uint32_t value) { *to_++ = std::bit_cast<float>(value); }
  void Put(std::uint64_t value) {
    Put(static_cast<std::uint32_t>(value));
    Put(static_cast<std::uint32_t>(value >> 32));
  }
  void Put(const v1::ViewStamp& stamp) {
    Put(std::uint64_t{stamp.generation()});
    Put(std::uint32_t{stamp.incarnation()});
    Put(std::uint32_t{stamp.epoch()});
  }

 private:
  float* to_;
};

class WordReader {
 public:
  explicit WordReader(const float* from) : from_(from) {}
  std::uint32_t Word() { return std::bit_cast<std::uint32_t>(*from_++); }
  std::uint64_t Long() {
    const std::uint64_t low = Word();
    return low | std::uint64_t{Word()} << 32;
  }
  v1::ViewStamp Stamp() {
    v1::ViewStamp stamp;
    stamp.set_generation(Long());
    stamp.set_incarnation(Word());
    stamp.set_epoch(Word());
    return stamp;
  }

 private:
  const float* from_;
};

void Write(const core::RingPosition& position, float* words) {
  WordWriter writer(words);
  writer.Put(std::uint32_t{position.known ? 1u : 0u});
  writer.Put(position.took);
  writer.Put(position.updates);
  writer.Put(std::uint32_t{position.whole ? 1u : 0u});
  writer.Put(std::uint32_t{position.prepared.has_value() ? 1u : 0u});
  writer.Put(position.prepared.value_or(v1::ViewStamp()));
  writer.Put(position.prepared_updates);
  writer.Put(std::uint32_t{position.last.verdict == core::Verdict::kSkip ? 1u : 0u});
  writer.Put(std::bit_cast<std::uint64_t>(position.last.factor));
  writer.Put(position.last.updates);
  writer.Put(static_cast<std::uint32_t>(position.shares.size()));
  for (const core::StateShare& share : position.shares) {
    writer.Put(share.rank);
    writer.Put(share.holders);
  }
}

absl::StatusOr<core::RingPosition> Read(const float* words) {
  WordReader reader(words);
  core::RingPosition position;
  position.known = reader.Word() != 0;
  if (!position.known) return position;
  position.took = reader.Stamp();
  position.updates = reader.Long();
  position.whole = reader.Word() != 0;
  const bool prepared = reader.Word() != 0;
  const v1::ViewStamp stamp = reader.Stamp();
  if (prepared) position.prepared = stamp;
  position.prepared_updates = reader.Long();
  position.last.verdict = reader.Word() != 0 ? core::Verdict::kSkip : core::Verdict::kApply;
  position.last.factor = std::bit_cast<double>(reader.Long());
  position.last.updates = reader.Word();
  const std::uint32_t shares = reader.Word();
  if (shares > core::RingReplica::kMostShares) return absl::InternalError(absl::StrCat(shares, " shares of a member"));
  for (std::uint32_t i = 0; i < shares; ++i) {
    const std::uint32_t rank = reader.Word(), holders = reader.Word();
    if (rank >= holders) return absl::InternalError(absl::StrCat("the share of rank ", rank, " of ", holders));
    position.shares.push_back({rank, holders});
  }
  return position;
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

// ---- fragments of a divided state

// Brings values from whoever has them to whoever is to have them.
using Carry = absl::FunctionRef<absl::Status(absl::Span<float> values)>;

struct CarriedFragment {
  std::vector<float> values;
  core::OptimizerState state;
};

// As it travels: how long the description is, the description, the values, then each vector.
absl::Status GiveFragment(const core::RingReplica& replica, const core::StateFragment& fragment, Carry carry) {
  CarriedFragment own{{}, replica.ExportFragment(fragment)};
  v1::ReplicaDescription description;
  description.set_optimizer(own.state.type);
  for (const core::StateVector& vector : own.state.vectors) description.add_vectors(vector.name);
  for (const core::StateScalar& scalar : own.state.scalars) {
    v1::ReplicaScalar* const added = description.add_scalars();
    added->set_name(scalar.name);
    added->set_value(scalar.value);
  }
  const std::string bytes = description.SerializeAsString();
  std::array<float, 1> head = {std::bit_cast<float>(static_cast<std::uint32_t>(bytes.size()))};
  absl::Status told = carry(absl::MakeSpan(head));
  std::vector<float> words((bytes.size() + 3) / 4);
  std::memcpy(words.data(), bytes.data(), bytes.size());
  if (told.ok()) told = carry(absl::MakeSpan(words));
  const std::shared_ptr<const std::vector<float>> value = replica.value(fragment.slice);
  const auto first = value->begin() + static_cast<std::ptrdiff_t>(fragment.offset);
  words.assign(first, first + static_cast<std::ptrdiff_t>(fragment.values.size()));
  if (told.ok()) told = carry(absl::MakeSpan(words));
  for (std::size_t i = 0; told.ok() && i < own.state.vectors.size(); ++i) {
    words = *own.state.vectors[i].values;
    told = carry(absl::MakeSpan(words));
  }
  return told;
}

absl::StatusOr<CarriedFragment> HearFragment(const core::StateFragment& fragment, Carry carry) {
  std::array<float, 1> head{};
  if (absl::Status told = carry(absl::MakeSpan(head)); !told.ok()) return told;
  const auto size = std::bit_cast<std::uint32_t>(head[0]);
  if (size > core::kSliceBytes) return absl::InternalError(absl::StrCat("a description of ", size, " bytes came"));
  std::vector<float> words((size + 3) / 4);
  if (absl::Status told = carry(absl::MakeSpan(words)); !told.ok()) return told;
  v1::ReplicaDescription description;
  if (!description.ParseFromArray(words.data(), static_cast<int>(size))) {
    return absl::InternalError(absl::StrCat("of a fragment of slice ", fragment.slice, " no description came"));
  }
  CarriedFragment heard;
  heard.state.type = description.optimizer();
  for (const v1::ReplicaScalar& scalar : description.scalars()) {
    heard.state.scalars.push_back({scalar.name(), scalar.value()});
  }
  heard.values.resize(fragment.values.size());
  if (absl::Status told = carry(absl::MakeSpan(heard.values)); !told.ok()) return told;
  for (const std::string& name : description.vectors()) {
    auto vector = std::make_shared<std::vector<float>>(fragment.values.size());
    if (absl::Status told = carry(absl::MakeSpan(*vector)); !told.ok()) return told;
    heard.state.vectors.push_back({name, std::move(vector)});
  }
  return heard;
}

absl::Status AddFragment(const core::RingReplica& replica, const core::StateFragment& fragment, bool own, Carry carry,
                         core::RingReplica::Assembly* assembly) {
  if (!own) {
    const absl::StatusOr<CarriedFragment> heard = HearFragment(fragment, carry);
    if (!heard.ok()) return heard.status();
    return assembly->Add(fragment, heard->values, heard->state);
  }
  if (absl::Status given = GiveFragment(replica, fragment, carry); !given.ok()) return given;
  const std::shared_ptr<const std::vector<float>> value = replica.value(fragment.slice);
  return assembly->Add(fragment, absl::MakeConstSpan(*value).subspan(fragment.offset, fragment.values.size()),
                       replica.ExportFragment(fragment));
}

}  // namespace

absl::StatusOr<std::vector<core::RingPosition>> TellPositions(Collective& group, const core::RingPosition& position,
                                                              absl::Duration limit) {
  const auto size = static_cast<std::size_t>(group.size());
  std::vector<float> words(kWords * size);
  Write(position, words.data() + kWords * static_cast<std::size_t>(group.rank()));
  if (absl::Status told = group.AllGather(absl::MakeSpan(words), limit); !told.ok()) return told;
  std::vector<core::RingPosition> positions;
  for (std::size_t rank = 0; rank < size; ++rank) {
    absl::StatusOr<core::RingPosition> of_rank = Read(words.data() + kWords * rank);
    if (!of_rank.ok()) return of_rank.status();
    positions.push_back(*std::move(of_rank));
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

absl::Status ShareDivided(Collective& group, int source, absl::Span<const core::StateFragment> fragments,
                          absl::Duration limit, const core::RingReplica& replica,
                          core::RingReplica::Assembly* assembly) {
  absl::StatusOr<std::vector<core::SliceSnapshot>> slices = ShareState(group, source, limit, replica);
  if (!slices.ok()) return slices.status();
  if (group.rank() == source) {
    for (std::uint32_t slice = 0; slice < replica.slices().size(); ++slice) assembly->Add(replica.Export(slice));
  }
  for (core::SliceSnapshot& slice : *slices) assembly->Add(std::move(slice));
  for (const core::StateFragment& fragment : fragments) {
    const auto carry = [&](absl::Span<float> values) { return group.Broadcast(values, fragment.source, limit); };
    absl::Status added = AddFragment(replica, fragment, group.rank() == fragment.source, carry, assembly);
    if (!added.ok()) return added;
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<core::SliceSnapshot>> GatherState(Collective& group, std::uint32_t cut, absl::Duration limit,
                                                             const core::RingReplica& replica) {
  // Messages need no place in the order of the rest: that all are at the same place is seen by what does.
  std::vector<float> cuts(static_cast<std::size_t>(group.size()));
  cuts[static_cast<std::size_t>(group.rank())] = std::bit_cast<float>(cut);
  if (absl::Status told = group.AllGather(absl::MakeSpan(cuts), limit); !told.ok()) return told;
  for (const float other : cuts) {
    if (std::bit_cast<std::uint32_t>(other) != cut) {
      return absl::InternalError(absl::StrCat("the state for checkpoint ", cut, " and that for ",
                                              std::bit_cast<std::uint32_t>(other), " at once"));
    }
  }
  const std::uint32_t holders = replica.view().state_holders();
  std::vector<std::vector<core::StateShare>> shares;
  for (std::uint32_t rank = 0; rank < holders; ++rank) shares.push_back({{rank, holders}});
  const absl::StatusOr<std::vector<core::StateFragment>> fragments =
      core::PlanFragments(replica.layout(), replica.slices(), replica.view().state_copies(), shares);
  if (!fragments.ok()) return fragments.status();
  std::optional<core::RingReplica::Assembly> all;
  if (group.rank() == 0) {
    all.emplace(replica, core::StateShare());
    for (std::uint32_t slice = 0; slice < replica.slices().size(); ++slice) all->Add(replica.Export(slice));
  }
  for (const core::StateFragment& fragment : *fragments) {
    absl::Status carried;
    if (all.has_value()) {
      const auto carry = [&](absl::Span<float> values) {
        return fragment.source == 0 ? absl::OkStatus() : group.Receive(values, fragment.source, limit);
      };
      carried = AddFragment(replica, fragment, fragment.source == 0, carry, &*all);
    } else if (group.rank() == fragment.source) {
      carried = GiveFragment(replica, fragment, [&](absl::Span<float> values) { return group.Send(values, 0, limit); });
    }
    if (!carried.ok()) return carried;
  }
  return all.has_value() ? all->TakeSlices() : std::vector<core::SliceSnapshot>();
}

}  // namespace downpour::worker
