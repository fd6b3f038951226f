#include "tests/simulation/process.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace downpour::simulation {

core::Payload WorkerShell::InitialValue(std::uint32_t, const core::Slice& slice) {
  auto values = std::make_shared<std::vector<float>>(slice.elements, 0.0f);
  (*values)[kHistory] = numbers_->history++;
  const absl::Span<const float> span(*values);
  return core::Payload::OfFloats(span, std::move(values));
}

core::Payload WorkerShell::Gradient(std::uint32_t number, const core::Slice&) {
  auto gradient = std::make_shared<simulation::Gradient>();
  gradient->values = update_;
  gradient->history = computed_with_[number].history;
  for (const auto& [slice, held] : computed_with_) gradient->steps[slice] = held.counter;
  gradient->generation = generation_;
  const absl::Span<const float> span(gradient->values);
  return core::Payload::OfFloats(span, std::move(gradient));
}

void WorkerShell::StoreValue(std::uint32_t number, const core::Slice&, const core::Payload& value) {
  value.ForEachFloats([&](std::size_t first, absl::Span<const float> run) {
    if (first <= kHistory && kHistory < first + run.size()) held_[number].history = run[kHistory - first];
    if (first <= kCounter && kCounter < first + run.size()) held_[number].counter = run[kCounter - first];
  });
}

void WorkerShell::Compute(const core::DataPlan& plan, const core::UpdateId& update, std::uint64_t generation) {
  update_.assign(kSamples + plan.proto().sample_count(), 0.0f);
  update_[kCounter] = -1;  // the learning rate is one: the counter rises by one
  for (std::int64_t sample : plan.SampleIndices(update)) update_[kSamples + static_cast<std::size_t>(sample)] -= 1;
  computed_with_ = held_;
  generation_ = generation;
}

const char* NameOf(Kind kind) {
  return kind == Kind::kCoordinator ? "coordinator" : kind == Kind::kPs ? "ps" : "worker";
}

std::string Process::name() const { return absl::StrCat(NameOf(kind), "-", index, ".", incarnation); }

}  // namespace downpour::simulation
