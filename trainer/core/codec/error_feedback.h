#ifndef DOWNPOUR_TRAINER_CORE_CODEC_ERROR_FEEDBACK_H_
#define DOWNPOUR_TRAINER_CORE_CODEC_ERROR_FEEDBACK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

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
// Takes twice the memory of the slices, and the bytes. Not thread-safe.
class ErrorFeedback {
 public:
  explicit ErrorFeedback(const CodecOptions& options) : options_(options) {}

  // The gradient of the update under way, `elements` floats that are read only now; the same bytes again until the
  // update of the slice has ended. `flush`: in fp32 with the residual, of which nothing is left then.
  EncodedGradient Encode(std::uint32_t slice, std::uint32_t elements, const Payload& gradient, bool flush);

  // The step was taken with what was encoded.
  void Keep(std::uint32_t slice);
  // No step was taken with it: the residual is what it was before.
  void Undo(std::uint32_t slice);
  // Nobody knows: the residual is gone, so that nothing of it is applied twice.
  void Forget(std::uint32_t slice);
  void Clear() { slices_.clear(); }

  // Whether a residual is left that is not zero.
  bool HasResidual() const;

 private:
  struct Slice {
    std::vector<float> residual;  // empty: zero
    std::vector<float> next;      // the residual if the step is taken
    std::optional<EncodedGradient> encoded;
    std::shared_ptr<std::uint8_t[]> bytes;  // of the newest
    std::size_t size = 0;                   // of them
  };

  CodecOptions options_;
  std::map<std::uint32_t, Slice> slices_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_CODEC_ERROR_FEEDBACK_H_
