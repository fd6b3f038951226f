// Messages of the data plane: whatever decodes encodes to the same bytes, and cuts in the message change nothing.
#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/fuzz/fuzz_target.h"
#include "trainer/core/codec/codec.h"
#include "trainer/wire/crc32c.h"
#include "trainer/wire/frame_codec.h"

namespace {

using downpour::fuzz::Require;
namespace core = downpour::core;
namespace wire = downpour::wire;
using Span = absl::Span<const std::uint8_t>;

std::vector<std::uint8_t> Encode(const wire::Frames& frames) {
  const auto parts = wire::EncodeMessage(frames);
  Require(parts.ok(), "a decoded message encodes");
  std::vector<std::uint8_t> bytes;
  for (const wire::MessagePart& part : *parts) bytes.insert(bytes.end(), part.bytes.begin(), part.bytes.end());
  return bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const Span message(data, size);
  const auto whole = wire::DecodeMessage({message}, nullptr);

  std::vector<Span> segments;
  std::uint32_t step = wire::Crc32c(message);
  for (Span rest = message; !rest.empty();) {
    step = step * 1664525 + 1013904223;
    const auto run = rest.first(std::min<std::size_t>(rest.size(), (step >> 16) % 97));
    segments.push_back(run);
    rest.remove_prefix(run.size());
  }
  const auto cut = wire::DecodeMessage(segments, nullptr);
  Require(cut.status() == whole.status(), "cuts change no status");
  if (!whole.ok()) return 0;
  Require(cut->corrupt_payloads == whole->corrupt_payloads, "cuts corrupt nothing");
  for (const auto& frame : whole->frames) {
    if (frame.payload.size() == 0) continue;
    if (frame.header.type == core::DataType::kBytes) {
      Require(frame.payload.size() == frame.header.elements, "bytes are as many as the header says");
      continue;
    }
    Require(core::PayloadFits(frame.header.codec, frame.payload.size(), frame.header.elements), "a payload fits");
    if (frame.header.elements > 1 << 16) continue;
    std::vector<float> values(frame.header.elements);
    core::Decode(frame.header.codec, frame.payload, absl::MakeSpan(values));
  }
  if (whole->corrupt_payloads != 0) return 0;
  const std::vector<std::uint8_t> again = Encode(whole->frames);
  Require(Span(again) == message, "a message has one encoding");
  Require(Encode(cut->frames) == again, "cuts change no frame");
  return 0;
}

#ifdef DOWNPOUR_LIBFUZZER

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

// Without this every mutation would end at a checksum: signs the frames anew, now and then.
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size, std::size_t max_size,
                                               unsigned int seed) {
  size = LLVMFuzzerMutate(data, size, max_size);
  if (seed % 8 == 0) return size;
  const auto put = [&](std::size_t at, std::uint32_t value) { std::memcpy(data + at, &value, sizeof(value)); };
  for (std::size_t at = 0; size - at >= wire::kFrameHeaderBytes;) {
    const Span header(data + at, wire::kFrameHeaderBytes);
    std::uint32_t payload_bytes;
    std::memcpy(&payload_bytes, data + at + 8, sizeof(payload_bytes));
    const std::size_t rest = size - at - wire::kFrameHeaderBytes;
    if (payload_bytes <= rest && seed % 8 != 1) {
      put(at + 12, wire::Crc32c(Span(data + at + wire::kFrameHeaderBytes, payload_bytes)));
    }
    put(at + 16, wire::Crc32c(header.subspan(20), wire::Crc32c(header.first(16))));
    if (payload_bytes > rest) break;
    at += wire::kFrameHeaderBytes + payload_bytes;
  }
  return size;
}

#endif
