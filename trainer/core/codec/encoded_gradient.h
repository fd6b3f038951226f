#ifndef DOWNPOUR_TRAINER_CORE_CODEC_ENCODED_GRADIENT_H_
#define DOWNPOUR_TRAINER_CORE_CODEC_ENCODED_GRADIENT_H_

#include <cstddef>
#include <utility>

#include "absl/functional/function_ref.h"
#include "absl/types/span.h"
#include "trainer/core/frame.h"

namespace downpour::core {

// A gradient as it travels.
struct EncodedGradient {
  EncodedGradient() = default;
  EncodedGradient(Payload floats) : payload(std::move(floats)) {}  // NOLINT(google-explicit-constructor)
  EncodedGradient(FrameCodec used, Payload bytes) : codec(used), payload(std::move(bytes)) {}

  // As Payload::ForEachFloats, of `elements` values that were found sound (IsSound). They are decoded part by part on
  // their way: as a whole they would go to memory and back.
  template <typename Visit>
  void ForEachFloats(std::size_t elements, Visit&& visit) const {
    if (codec == FrameCodec::kFp32) return payload.ForEachFloats(visit);
    ForEachDecoded(elements, visit);
  }

  FrameCodec codec = FrameCodec::kFp32;
  Payload payload;

 private:
  void ForEachDecoded(std::size_t elements,
                      absl::FunctionRef<void(std::size_t first, absl::Span<const float> run)> visit) const;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_CODEC_ENCODED_GRADIENT_H_
