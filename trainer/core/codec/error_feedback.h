#ifndef DOWNPOUR_TRAINER_CORE_CODEC_ERROR_FEEDBACK_H_
#define DOWNPOUR_TRAINER_CORE_CODEC_ERROR_FEEDBACK_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "trainer/core/codec/encoded_gradient.h"
#include "trainer/core/codec/gradient_encoder.h"
#include "trainer/core/frame.h"

namespace downpour::core {

// On the host: takes twice the memory of the slices, and the bytes. Not thread-safe.
class ErrorFeedback final : public GradientEncoder {
 public:
  explicit ErrorFeedback(const CodecOptions& options) : options_(options) {}

  EncodedGradient Encode(std::uint32_t slice, std::uint32_t elements, const Payload& gradient, bool flush) override;
  void Keep(std::uint32_t slice) override;
  void Undo(std::uint32_t slice) override;
  void Forget(std::uint32_t slice) override;
  void Clear() override { slices_.clear(); }
  // Looks at every value.
  bool HasResidual() const override;

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
