#include "trainer/core/ring/divided_optimizer.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace downpour::core {

DividedOptimizer::DividedOptimizer(std::string type, std::uint32_t elements, MakeRule make)
    : type_(std::move(type)), elements_(elements), make_(std::move(make)) {}

void DividedOptimizer::Begin() {
  held_.clear();
  held_.emplace_back().push_back({{0, elements_}, make_(elements_)});
}

void DividedOptimizer::UpdateHeld(absl::Span<const float> value, const EncodedGradient& gradient,
                                  const StepContext& context, absl::Span<float> updated) {
  std::vector<float> copied;
  absl::Span<const float> floats;
  gradient.ForEachFloats(elements_, [&](std::size_t, absl::Span<const float> run) {
    if (run.size() == elements_) {
      floats = run;  // as it nearly always comes
    } else {
      copied.insert(copied.end(), run.begin(), run.end());
    }
  });
  if (floats.empty()) floats = copied;
  for (auto& pieces : held_) UpdatePieces(pieces, value, floats, context, updated);
}

void DividedOptimizer::UpdatePieces(std::vector<Piece>& pieces, absl::Span<const float> value,
                                    absl::Span<const float> gradient, const StepContext& context,
                                    absl::Span<float> updated) {
  std::vector<float> result;
  for (Piece& piece : pieces) {
    const auto of_piece = [&piece](auto span) { return span.subspan(piece.values.begin, piece.values.size()); };
    const Payload payload = Payload::OfFloats(of_piece(gradient), nullptr);
    result.resize(piece.values.size());
    piece.rule->Step(of_piece(value), EncodedGradient(payload), context, absl::MakeSpan(result));
    std::copy(result.begin(), result.end(), of_piece(updated).begin());
  }
}

void DividedOptimizer::Step(absl::Span<const float> value, const EncodedGradient& gradient, const StepContext& context,
                            absl::Span<float> updated) {
  if (!std::exchange(expects_values_, false)) {
    if (updated.data() != value.data()) std::copy(value.begin(), value.end(), updated.begin());
    return UpdateHeld(value, gradient, context, updated);
  }
  gradient.ForEachFloats(elements_, [&](std::size_t first, absl::Span<const float> run) {
    std::copy(run.begin(), run.end(), updated.begin() + static_cast<std::ptrdiff_t>(first));
  });
}

void DividedOptimizer::Skip() {
  for (auto& pieces : held_) {
    for (Piece& piece : pieces) piece.rule->Skip();
  }
}

OptimizerState DividedOptimizer::ExportRange(const Range& values) const {
  for (const auto& pieces : held_) {
    for (const Piece& piece : pieces) {
      if (piece.values.begin > values.begin || piece.values.end < values.end) continue;
      OptimizerState state = piece.rule->Export();
      if (piece.values == values) return state;
      const auto first = static_cast<std::ptrdiff_t>(values.begin - piece.values.begin);
      for (StateVector& vector : state.vectors) {
        const auto begin = vector.values->begin() + first;
        vector.values =
            std::make_shared<const std::vector<float>>(begin, begin + static_cast<std::ptrdiff_t>(values.size()));
      }
      return state;
    }
  }
  return {};
}

absl::StatusOr<DividedOptimizer::Piece> DividedOptimizer::MakePiece(const Range& values,
                                                                    const OptimizerState& state) const {
  Piece piece{values, make_(static_cast<std::uint32_t>(values.size()))};
  if (absl::Status taken = piece.rule->Import(state); !taken.ok()) return taken;
  return piece;
}

void DividedOptimizer::Settle() {
  if (held_.size() > 1) held_.erase(held_.begin(), std::prev(held_.end()));
}

absl::Status DividedOptimizer::Import(const OptimizerState& state) {
  if (state.type.empty() && state.vectors.empty()) return absl::OkStatus();
  absl::StatusOr<Piece> whole = MakePiece({0, elements_}, state);
  if (!whole.ok()) return whole.status();
  held_.clear();
  held_.emplace_back().push_back(*std::move(whole));
  return absl::OkStatus();
}

std::unique_ptr<Optimizer> DividedOptimizer::Clone() const {
  auto clone = std::make_unique<DividedOptimizer>(type_, elements_, make_);
  for (const auto& pieces : held_) {
    auto& copies = clone->held_.emplace_back();
    for (const Piece& piece : pieces) copies.push_back({piece.values, piece.rule->Clone()});
  }
  return clone;
}

}  // namespace downpour::core
