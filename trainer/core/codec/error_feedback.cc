#include "trainer/core/codec/error_feedback.h"

#if defined(__SSE__)
#include <xmmintrin.h>
#endif

#include <algorithm>
#include <cstddef>
#include <memory>
#include <utility>

#include "absl/types/span.h"
#include "trainer/core/codec/bf16.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/codec/int8.h"
#include "trainer/core/codec/wide_vectors.h"
#include "trainer/core/sole_owner.h"

namespace downpour::core {
namespace {

// What comes so much later is asked for already: memory is slower than what is done with it here.
constexpr std::size_t kAhead = 2 * kCodecBlock;

DOWNPOUR_WIDE_VECTORS
void Add(const float* a, const float* b, std::size_t count, float* sum) {
  for (std::size_t i = 0; i < count; ++i) sum[i] = a[i] + b[i];
}

DOWNPOUR_WIDE_VECTORS
void Subtract(const float* subtrahend, std::size_t count, float* difference) {
  for (std::size_t i = 0; i < count; ++i) difference[i] -= subtrahend[i];
}

void Prefetch(absl::Span<const float> values) {
  constexpr std::size_t kCacheLine = 64 / sizeof(float);
  for (std::size_t i = 0; i < values.size(); i += kCacheLine) __builtin_prefetch(&values[i]);
}

// Past the caches, in which nobody looks for it before the next update. `to` is aligned to 16 bytes.
void WriteToMemory(absl::Span<const float> values, float* to) {
  std::size_t i = 0;
#if defined(__SSE__)
  for (; i + 4 <= values.size(); i += 4) _mm_stream_ps(to + i, _mm_loadu_ps(&values[i]));
#endif
  std::copy(values.begin() + i, values.end(), to + i);
}

// What was written is there for whoever comes after this thread.
void FinishWrites() {
#if defined(__SSE__)
  _mm_sfence();
#endif
}

}  // namespace

EncodedGradient ErrorFeedback::Encode(std::uint32_t number, std::uint32_t elements, const Payload& gradient,
                                      bool flush) {
  if (options_.codec == FrameCodec::kFp32) return {FrameCodec::kFp32, gradient};
  Slice& slice = slices_[number];
  if (slice.encoded.has_value()) return *slice.encoded;

  slice.next.resize(elements);
  const std::size_t size = EncodedBytes(options_.codec, options_.top_k, elements);
  // Few values, or most of them, are no larger in fp32, which is exact.
  const bool exact = flush || size >= elements * sizeof(float);
  // What was sent last is used again when nobody reads it any more: new memory costs as much as to write it.
  if (!exact && (slice.bytes == nullptr || slice.size != size || !SoleOwner(slice.bytes))) {
    slice.bytes = std::make_shared_for_overwrite<std::uint8_t[]>(size);
    slice.size = size;
  }
  const absl::Span<std::uint8_t> bytes(slice.bytes.get(), exact ? 0 : size);
  const bool in_place = options_.codec == FrameCodec::kBf16 || options_.codec == FrameCodec::kInt8;
  const std::size_t part = options_.codec == FrameCodec::kTopK ? elements : in_place ? kCodecBlock : kCodecPart;
  // Gradient + residual first, and then less what was encoded of it: part by part, while it is in the cache.
  std::vector<float> sums(std::min<std::size_t>(part, elements));
  std::vector<float> decoded(exact || in_place ? 0 : sums.size());
  std::size_t at = 0;
  const auto encode = [&](absl::Span<float> values) {
    const std::size_t count = EncodedBytes(options_.codec, options_.top_k, values.size());
    std::uint8_t* const out = bytes.data() + at;
    at += count;
    if (options_.codec == FrameCodec::kBf16) return EncodeBf16LeavingRest(values, out);
    if (options_.codec == FrameCodec::kInt8) return EncodeInt8LeavingRest(values, out);
    core::Encode(options_.codec, options_.top_k, values, out);
    Decode(options_.codec, Payload({{out, count}}, nullptr), absl::MakeSpan(decoded).first(values.size()));
    Subtract(decoded.data(), values.size(), values.data());
  };
  const absl::Span<const float> residual = slice.residual;
  gradient.ForEachFloats([&](std::size_t first, absl::Span<const float> run) {
    while (!run.empty()) {
      const std::size_t done = first % part;  // of the part
      const std::size_t count = std::min(run.size(), part - done);
      Prefetch(run.subspan(std::min(kAhead, run.size()), count));
      Prefetch(residual.subspan(std::min(first + kAhead, residual.size()), count));
      if (residual.empty()) {
        std::copy_n(run.data(), count, sums.data() + done);
      } else {
        Add(run.data(), residual.data() + first, count, sums.data() + done);
      }
      run.remove_prefix(count);
      first += count;
      if (first % part != 0 && first != elements) continue;
      const absl::Span<float> sum = absl::MakeSpan(sums).first(done + count);
      if (!exact) encode(sum);
      WriteToMemory(sum, slice.next.data() + first - sum.size());
    }
  });
  FinishWrites();
  if (exact) {
    auto values = std::make_shared<const std::vector<float>>(std::exchange(slice.next, {}));
    slice.encoded = EncodedGradient{FrameCodec::kFp32, Payload::OfFloats(*values, values)};
  } else {
    slice.encoded = EncodedGradient{options_.codec, Payload({bytes}, slice.bytes)};
  }
  return *slice.encoded;
}

void ErrorFeedback::Keep(std::uint32_t number) {
  const auto found = slices_.find(number);
  if (found == slices_.end() || !found->second.encoded.has_value()) return;
  std::swap(found->second.residual, found->second.next);
  found->second.encoded.reset();
}

void ErrorFeedback::Undo(std::uint32_t number) {
  const auto found = slices_.find(number);
  if (found != slices_.end()) found->second.encoded.reset();
}

void ErrorFeedback::Forget(std::uint32_t number) { slices_.erase(number); }

bool ErrorFeedback::HasResidual() const {
  return std::any_of(slices_.begin(), slices_.end(), [](const auto& entry) {
    const std::vector<float>& residual = entry.second.residual;
    return std::any_of(residual.begin(), residual.end(), [](float value) { return value != 0; });
  });
}

}  // namespace downpour::core
