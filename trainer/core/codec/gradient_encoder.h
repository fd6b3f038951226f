#ifndef DOWNPOUR_TRAINER_CORE_CODEC_GRADIENT_ENCODER_H_
#define DOWNPOUR_TRAINER_CORE_CODEC_GRADIENT_ENCODER_H_

#include <cstdint>

#include "trainer/core/codec/encoded_gradient.h"
#include "trainer/core/frame.h"

namespace downpour::core {

struct CodecOptions {
  FrameCodec codec = FrameCodec::kFp32;
  double top_k = 0.01;  // of kTopK: the fraction of a slice that is kept
};

// Encodes a worker's gradients, and adds to each what the codec left out of those before (Seide et al. 2014, section
// 3.1; Karimireddy, Rebjock, Stich and Jaggi 2019, algorithm 2, without the learning rate): what is encoded is
// gradient + residual, and the new residual is that less what it decodes to. A residual changes only when it is certain
// that a ps has taken the step: see Keep, Undo and Forget, one of which ends the update of each slice that was encoded.
class GradientEncoder {
 public:
  virtual ~GradientEncoder() = default;

  // The gradient of the update under way, `elements` floats; the same bytes again until the update of the slice has
  // ended. `gradient` is read only now, and not by who has the gradient elsewhere. `flush`: in fp32 with the residual,
  // of which nothing is left then.
  virtual EncodedGradient Encode(std::uint32_t slice, std::uint32_t elements, const Payload& gradient, bool flush) = 0;

  // The step was taken with what was encoded.
  virtual void Keep(std::uint32_t slice) = 0;
  // No step was taken with it: the residual is what it was before.
  virtual void Undo(std::uint32_t slice) = 0;
  // Nobody knows: the residual is gone, so that nothing of it is applied twice.
  virtual void Forget(std::uint32_t slice) = 0;
  // Of all slices; others may follow.
  virtual void Clear() = 0;

  // Whether a residual is left that may not be zero.
  virtual bool HasResidual() const = 0;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_CODEC_GRADIENT_ENCODER_H_
