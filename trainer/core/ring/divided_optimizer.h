#ifndef DOWNPOUR_TRAINER_CORE_RING_DIVIDED_OPTIMIZER_H_
#define DOWNPOUR_TRAINER_CORE_RING_DIVIDED_OPTIMIZER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/core/optimizer.h"
#include "trainer/core/ring/gradient_layout.h"

namespace downpour::core {

// The update rule of one slice of which this member has pieces, each a rule of its own; for rules that go value by
// value. Steps are taken in two parts: UpdateHeld computes the new values of its pieces, and once those of the others
// are known as well, Step takes them all. Between two divisions it has the pieces of both. Not thread-safe.
class DividedOptimizer final : public Optimizer {
 public:
  using MakeRule = std::function<std::unique_ptr<Optimizer>(std::uint32_t elements)>;
  struct Piece {
    Range values;  // of the slice
    std::unique_ptr<Optimizer> rule;
  };

  // Without pieces. `type`: of the rules that `make` makes, none of which looks at the whole slice.
  DividedOptimizer(std::string type, std::uint32_t elements, MakeRule make);

  // The state of a slice that was never stepped.
  void Begin();
  // `gradient` is of the whole slice, of which the values of pieces are looked at,
  // and becomes the new values there.
  void UpdateHeld(absl::Span<const float> value, const EncodedGradient& gradient, const StepContext& context,
                  absl::Span<float> updated);
  // The next Step is given the new values in place of a gradient.
  void ExpectValues() { expects_values_ = true; }

  // Values that lie in one piece.
  OptimizerState ExportRange(const Range& values) const;
  // What `state` says of neighbouring values. kInvalidArgument: of another rule, or of another shape.
  absl::StatusOr<Piece> MakePiece(const Range& values, const OptimizerState& state) const;
  void Drop() { held_.clear(); }
  void DropSecond() { held_.erase(std::next(held_.begin())); }
  // Those of one more division.
  void Hold(std::vector<Piece> pieces) { held_.push_back(std::move(pieces)); }
  // The newest division is the only one from now on.
  void Settle();

  // ---- Optimizer. Without ExpectValues, of what it has: with all pieces the same as the rule itself.
  void Step(absl::Span<const float> value, const EncodedGradient& gradient, const StepContext& context,
            absl::Span<float> updated) override;
  void Skip() override;
  std::string type() const override { return type_; }
  // None of the state: ExportRange.
  OptimizerState Export() const override { return {}; }
  // None: it stays as it was. Of the whole slice: all pieces.
  absl::Status Import(const OptimizerState& state) override;
  std::unique_ptr<Optimizer> Clone() const override;

 private:
  static void UpdatePieces(std::vector<Piece>& pieces, absl::Span<const float> value, absl::Span<const float> gradient,
                           const StepContext& context, absl::Span<float> updated);

  const std::string type_;
  const std::uint32_t elements_;
  const MakeRule make_;
  bool expects_values_ = false;
  std::vector<std::vector<Piece>> held_;  // by division, oldest first
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_RING_DIVIDED_OPTIMIZER_H_
