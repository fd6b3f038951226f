#include "trainer/core/replica_copy.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "trainer/core/codec/codec.h"

namespace downpour::core {
namespace {

using Vector = std::shared_ptr<const std::vector<float>>;

absl::string_view BytesOf(const std::vector<float>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float)};
}

// The vectors of a copy and which part each is.
class Parts {
 public:
  void Add(const Vector& vector) {
    const std::size_t part = vectors_.size() + 1;  // behind the description
    by_vector_.emplace(vector.get(), part);
    by_bytes_.emplace(BytesOf(*vector), part);
    vectors_.push_back(vector);
  }
  // The part with these bits, if need be a new one.
  std::size_t Find(const Vector& vector) {
    if (const auto found = by_vector_.find(vector.get()); found != by_vector_.end()) return found->second;
    if (const auto found = by_bytes_.find(BytesOf(*vector)); found != by_bytes_.end()) return found->second;
    Add(vector);
    return vectors_.size();
  }
  const std::vector<Vector>& vectors() const { return vectors_; }

 private:
  std::vector<Vector> vectors_;
  std::map<const std::vector<float>*, std::size_t> by_vector_;
  std::map<absl::string_view, std::size_t> by_bytes_;
};

absl::Status Misfit(std::uint32_t slice, absl::string_view problem) {
  return absl::InvalidArgumentError(absl::StrCat("copy of slice ", slice, ": ", problem));
}

}  // namespace

absl::StatusOr<std::vector<Frame>> CutCopy(const ReplicaCopy& copy) {
  const SliceSnapshot& snapshot = copy.snapshot;
  const auto fits = [&](const Vector& vector) {
    return vector != nullptr && vector->size() == snapshot.slice.elements;
  };
  const auto misfit = [&](const auto&... what) {
    return Misfit(snapshot.number, absl::StrCat(what..., ": expected ", snapshot.slice.elements, " elements"));
  };
  v1::ReplicaDescription description;
  *description.mutable_table() = snapshot.table;
  description.set_optimizer(snapshot.optimizer.type);
  description.set_step_width(copy.step_width);
  description.mutable_sums()->Add(copy.sums.begin(), copy.sums.end());
  Parts parts;
  if (!fits(snapshot.value)) return misfit("value");
  parts.Add(snapshot.value);
  for (const StateVector& vector : snapshot.optimizer.vectors) {
    if (!fits(vector.values)) return misfit("vector ", vector.name);
    description.add_vectors(vector.name);
    parts.Add(vector.values);
  }
  for (const StateScalar& scalar : snapshot.optimizer.scalars) {
    v1::ReplicaScalar* described = description.add_scalars();
    described->set_name(scalar.name);
    described->set_value(scalar.value);
  }
  for (const auto& [session, values] : copy.pulled) {
    v1::PulledBySession* pulled = description.add_pulled();
    pulled->set_session(session);
    for (const PulledValue& value : values) {
      if (!fits(value.value)) return misfit("value of session ", session);
      v1::PulledPart* described = pulled->add_values();
      described->set_version(value.version);
      described->set_part(static_cast<std::uint32_t>(parts.Find(value.value)));
    }
  }
  const std::size_t count = 1 + parts.vectors().size();
  if (count > kMostCopyParts) {
    return Misfit(snapshot.number, absl::StrCat("parts: found ", count, ", expected at most ", kMostCopyParts));
  }
  const std::size_t described = description.ByteSizeLong();
  if (described > kSliceBytes) {
    return Misfit(snapshot.number,
                  absl::StrCat("description: found ", described, " bytes, expected at most ", kSliceBytes));
  }
  std::vector<std::uint8_t> bytes(described);
  description.SerializeWithCachedSizesToArray(bytes.data());

  std::vector<Frame> frames;
  frames.reserve(count);
  const auto add = [&](DataType type, FrameCodec codec, std::size_t elements, Payload payload) {
    Frame frame;
    frame.header.kind = FrameKind::kCopy;
    frame.header.type = type;
    frame.header.codec = codec;
    frame.header.elements = static_cast<std::uint32_t>(elements);
    frame.header.slice = snapshot.number;
    frame.header.sequence = copy.sequence;
    frame.header.version = frames.size();
    frame.header.clock = count;
    frame.payload = std::move(payload);
    frames.push_back(std::move(frame));
  };
  add(DataType::kBytes, FrameCodec::kNone, described, OwningPayload(std::move(bytes)));
  for (const Vector& vector : parts.vectors()) {
    add(DataType::kFloat32, FrameCodec::kFp32, vector->size(), Payload::OfFloats(*vector, vector));
  }
  return frames;
}

std::string CopyAssembly::Problem(const Frame& part, v1::ReplicaDescription* description) const {
  const FrameHeader& header = part.header;
  if (header.kind != FrameKind::kCopy)
    return absl::StrCat("kind: found ", header.kind, ", expected ", FrameKind::kCopy);
  if (header.status != ReplyStatus::kNone) return absl::StrCat("status: found ", header.status, ", expected 0");
  if (header.slice != number_) return absl::StrCat("slice: found ", header.slice, ", expected ", number_);
  if (header.clock < 2 || header.clock > kMostCopyParts) {
    return absl::StrCat("number of parts: found ", header.clock, ", expected 2 to ", kMostCopyParts);
  }
  if (header.version >= header.clock) {
    return absl::StrCat("part: found ", header.version, ", expected less than ", header.clock);
  }
  const bool describes = header.version == 0;
  const auto type = describes ? DataType::kBytes : DataType::kFloat32;
  const auto codec = describes ? FrameCodec::kNone : FrameCodec::kFp32;
  if (header.type != type || header.codec != codec) {
    return absl::StrCat("type and codec of part ", header.version, ": found ", header.type, " and ", header.codec,
                        ", expected ", type, " and ", codec);
  }
  if (!describes) {
    if (header.elements == slice_.elements && part.payload.size() == slice_.bytes()) return {};
    return absl::StrCat("part ", header.version, ": found ", header.elements, " elements in ", part.payload.size(),
                        " bytes, expected ", slice_.elements, " in ", slice_.bytes());
  }
  if (part.payload.size() != header.elements || header.elements > kSliceBytes) {
    return absl::StrCat("description: found ", part.payload.size(), " bytes and ", header.elements,
                        " elements, expected as many, at most ", kSliceBytes);
  }
  std::string bytes;
  bytes.reserve(part.payload.size());
  for (const auto& segment : part.payload.segments()) bytes.append(segment.begin(), segment.end());
  return description->ParseFromString(bytes) ? "" : "description: found what is no ReplicaDescription";
}

void CopyAssembly::BeginAnew() {
  parts_ = 0;
  taken_ = false;
  description_.reset();
  vectors_.clear();
}

absl::Status CopyAssembly::Add(const Frame& part) {
  v1::ReplicaDescription description;
  const FrameHeader& header = part.header;
  std::string problem = Problem(part, &description);
  const bool same = parts_ != 0 && header.sequence == sequence_;
  if (problem.empty() && same && header.clock != parts_) {
    problem = absl::StrCat("number of parts: found ", header.clock, ", expected ", parts_, " as in the others");
  }
  if (!problem.empty()) return Misfit(number_, problem);
  if (header.sequence < sequence_ || (same && taken_)) return absl::OkStatus();
  if (header.sequence > sequence_) BeginAnew();
  sequence_ = header.sequence;
  parts_ = header.clock;
  if (header.version == 0) {
    if (!description_.has_value()) description_ = std::move(description);
    return absl::OkStatus();
  }
  if (vectors_.count(header.version) != 0) return absl::OkStatus();
  auto values = std::make_shared<std::vector<float>>(slice_.elements);
  if (!Decode(FrameCodec::kFp32, part.payload, absl::MakeSpan(*values))) {
    return absl::InternalError(absl::StrCat("part ", header.version, " fits, and cannot be decoded"));
  }
  vectors_.emplace(header.version, std::move(values));
  return absl::OkStatus();
}

absl::StatusOr<std::optional<ReplicaCopy>> CopyAssembly::Take() {
  if (taken_ || !description_.has_value() || vectors_.size() + 1 != parts_) return std::nullopt;
  v1::ReplicaDescription& described = *description_;
  const auto misfit = [&](const auto&... what) {
    absl::Status problem = Misfit(number_, absl::StrCat(what...));
    BeginAnew();
    return problem;
  };
  if (described.table().slice() != number_) {
    return misfit("table: found slice ", described.table().slice(), ", expected ", number_);
  }
  // Behind the vectors come those that are referred to, each new one when it is the first time.
  std::size_t known = 2 + static_cast<std::size_t>(described.vectors_size());
  if (known > parts_)
    return misfit("parts: found ", parts_, ", expected ", known, " or more for the vectors described");
  const v1::PulledBySession* before = nullptr;
  for (const v1::PulledBySession& pulled : described.pulled()) {
    if (before != nullptr && before->session() >= pulled.session()) {
      return misfit("session: found ", pulled.session(), " behind ", before->session(), ", expected them to rise");
    }
    before = &pulled;
    for (const v1::PulledPart& value : pulled.values()) {
      if (value.part() == known && known < parts_) ++known;
      if (value.part() == 0 || value.part() >= known) {
        return misfit("part of a value of session ", pulled.session(), ": found ", value.part(), ", expected 1 to ",
                      std::min(known, parts_ - 1));
      }
    }
  }
  if (known != parts_) return misfit("parts: found ", parts_, ", expected ", known, " as described");

  ReplicaCopy copy;
  copy.sequence = sequence_;
  copy.step_width = described.step_width();
  copy.sums.assign(described.sums().begin(), described.sums().end());
  for (const v1::PulledBySession& pulled : described.pulled()) {
    std::vector<PulledValue>& values = copy.pulled[pulled.session()];
    values.reserve(static_cast<std::size_t>(pulled.values_size()));
    for (const v1::PulledPart& value : pulled.values()) {
      values.push_back({value.version(), vectors_.at(value.part())});
    }
  }
  SliceSnapshot& snapshot = copy.snapshot;
  snapshot.number = number_;
  snapshot.slice = slice_;
  snapshot.value = vectors_.at(1);
  snapshot.optimizer.type = described.optimizer();
  std::size_t part = 2;
  for (const std::string& name : described.vectors()) {
    snapshot.optimizer.vectors.push_back({name, vectors_.at(part++)});
  }
  for (const v1::ReplicaScalar& scalar : described.scalars()) {
    snapshot.optimizer.scalars.push_back({scalar.name(), scalar.value()});
  }
  snapshot.table = std::move(*described.mutable_table());
  const std::size_t parts = parts_;
  BeginAnew();
  parts_ = parts;
  taken_ = true;
  return copy;
}

}  // namespace downpour::core
