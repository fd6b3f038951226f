#include "trainer/core/buffer_update.h"

namespace downpour::core {
namespace {

class BufferUpdate final : public Optimizer {
 public:
  void Step(absl::Span<const float> value, const EncodedGradient& difference, const StepContext& /*context*/,
            absl::Span<float> updated) override {
    difference.ForEachFloats(value.size(), [&](std::size_t first, absl::Span<const float> run) {
      for (std::size_t i = 0; i < run.size(); ++i) updated[first + i] = value[first + i] - run[i];
    });
  }
  std::string type() const override { return "BufferUpdate"; }
  std::unique_ptr<Optimizer> Clone() const override { return std::make_unique<BufferUpdate>(); }
};

}  // namespace

std::unique_ptr<Optimizer> CreateBufferUpdate() { return std::make_unique<BufferUpdate>(); }

}  // namespace downpour::core
