// Parts of copies of a slice: whatever they are, a copy that is put together is whole, and cut again it is the same.
#include <algorithm>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/replica_copy.h"

namespace {

using downpour::fuzz::Require;
namespace core = downpour::core;

constexpr std::uint32_t kNumber = 3;
constexpr core::Slice kSlice = {0, 0, 2};

std::vector<std::uint8_t> BytesOf(const core::Frame& frame) {
  std::vector<std::uint8_t> bytes;
  for (const auto& segment : frame.payload.segments()) bytes.insert(bytes.end(), segment.begin(), segment.end());
  return bytes;
}

std::vector<core::Frame> Cut(const core::ReplicaCopy& copy) {
  auto parts = core::CutCopy(copy);
  Require(parts.ok(), "a copy that was put together can be cut");
  return *std::move(parts);
}

void Check(const core::ReplicaCopy& copy) {
  const std::vector<core::Frame> parts = Cut(copy);
  core::CopyAssembly assembly(kNumber, kSlice);
  for (auto part = parts.rbegin(); part != parts.rend(); ++part) Require(assembly.Add(*part).ok(), "a cut's part fits");
  const auto again = assembly.Take();
  Require(again.ok() && again->has_value(), "all parts of a cut are a copy");
  const std::vector<core::Frame> parts_again = Cut(**again);
  Require(parts_again.size() == parts.size(), "a copy is cut the same way again");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    Require(BytesOf(parts_again[i]) == BytesOf(parts[i]), "a part is the same again");
  }
}

}  // namespace

// Parts one after another: four bytes, and the payload. The first byte has the sequence in its two lower bits, in the
// third whether type and codec are those of the other sort of parts; then number, number of parts, bytes of payload.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  core::CopyAssembly assembly(kNumber, kSlice);
  for (absl::Span<const std::uint8_t> rest(data, size); rest.size() >= 4;) {
    core::Frame part;
    part.header.kind = core::FrameKind::kCopy;
    part.header.slice = kNumber;
    part.header.sequence = rest[0] & 3;
    part.header.version = rest[1];
    part.header.clock = rest[2];
    const bool describes = (rest[1] == 0) != ((rest[0] & 4) != 0);
    part.header.type = describes ? core::DataType::kBytes : core::DataType::kFloat32;
    part.header.codec = describes ? core::FrameCodec::kNone : core::FrameCodec::kFp32;
    const std::size_t bytes = std::min<std::size_t>(rest[3], rest.size() - 4);
    part.header.elements = static_cast<std::uint32_t>(describes ? rest[3] : bytes / sizeof(float));
    const auto payload = rest.subspan(4, bytes);
    part.payload = core::OwningPayload({payload.begin(), payload.end()});
    rest.remove_prefix(4 + bytes);
    if (!assembly.Add(part).ok()) continue;
    const auto copy = assembly.Take();
    if (copy.ok() && copy->has_value()) Check(**copy);
  }
  return 0;
}
