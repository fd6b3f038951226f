#include "trainer/core/ring/replica_mirror.h"

#include <utility>

namespace downpour::core {

ReplicaMirror::ReplicaMirror(std::unique_ptr<ReplicaVectors> vectors, std::size_t slices)
    : vectors_(std::move(vectors)), newest_(slices, Newest::kHost) {}

absl::Status ReplicaMirror::ToHost(SliceState* state) {
  if (on_host(state->number())) return absl::OkStatus();
  auto value = std::make_shared<std::vector<float>>(state->slice().elements);
  OptimizerState remembered;
  absl::Status got = vectors_->Get(state->number(), absl::MakeSpan(*value), &remembered);
  if (got.ok()) got = state->Replace(std::move(value), remembered);
  if (got.ok()) newest_[state->number()] = Newest::kBoth;
  return got;
}

absl::Status ReplicaMirror::FromHost(absl::Span<const SliceState> states) {
  bool any = false;
  for (const SliceState& state : states) {
    Newest& newest = newest_[state.number()];
    if (newest != Newest::kHost) continue;
    if (absl::Status put = vectors_->Put(state.number(), *state.value(), state.ExportOptimizer()); !put.ok())
      return put;
    newest = Newest::kBoth;
    any = true;
  }
  return any ? vectors_->Finish() : absl::OkStatus();
}

absl::Status ReplicaMirror::Step(absl::Span<const ReplicaVectors::SliceStep> steps) {
  if (steps.empty()) return absl::OkStatus();
  for (const ReplicaVectors::SliceStep& step : steps) newest_[step.slice] = Newest::kElsewhere;
  return vectors_->Step(steps);
}

}  // namespace downpour::core
