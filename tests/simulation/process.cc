#include "tests/simulation/process.h"

#include <algorithm>
#include <cstddef>
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
  if (searched_.count(number) != 0) {
    gradient->values = gradients_[number];
    gradient->point = computed_at_[number];
  }
  gradient->history = computed_with_[number].history;
  for (const auto& [slice, held] : computed_with_) gradient->steps[slice] = held.counter;
  gradient->generation = generation_;
  const absl::Span<const float> span(gradient->values);
  return core::Payload::OfFloats(span, std::move(gradient));
}

void WorkerShell::StoreValue(std::uint32_t number, const core::Slice& slice, const core::Payload& value) {
  if (searched_.count(number) != 0) {
    std::vector<float>& point = points_[number];
    point.resize(slice.elements);
    value.ForEachFloats([&](std::size_t first, absl::Span<const float> run) {
      std::copy(run.begin(), run.end(), point.begin() + static_cast<std::ptrdiff_t>(first));
    });
  }
  value.ForEachFloats([&](std::size_t first, absl::Span<const float> run) {
    if (first <= kHistory && kHistory < first + run.size()) held_[number].history = run[kHistory - first];
    if (first <= kCounter && kCounter < first + run.size()) held_[number].counter = run[kCounter - first];
  });
}

std::vector<float> GradientOf(const core::DataPlan& plan, const core::UpdateId& update, float weight, bool uneven) {
  std::vector<float> gradient(kSamples + plan.proto().sample_count(), 0.0f);
  gradient[kCounter] = -weight;  // the learning rate is one: the counter rises by one
  for (std::int64_t sample : plan.SampleIndices(update)) {
    const float amount = uneven ? static_cast<float>(1 + sample % 5) / 3 : 1;
    gradient[kSamples + static_cast<std::size_t>(sample)] -= amount * weight;
  }
  return gradient;
}

double WorkerShell::Compute(const core::DataPlan& plan, const core::UpdateId& update, std::vector<float> gradient,
                            std::uint64_t generation) {
  update_ = std::move(gradient);
  computed_with_ = held_;
  generation_ = generation;
  computed_at_ = points_;
  for (const auto& [number, point] : computed_at_)
    gradients_[number] = Objective::Gradient(plan, update, number, point);
  return searched_.empty() ? 1 : Objective::Loss(plan, update, computed_at_);
}

const char* NameOf(Kind kind) {
  return kind == Kind::kCoordinator ? "coordinator" : kind == Kind::kPs ? "ps" : "worker";
}

std::string Process::name() const { return absl::StrCat(NameOf(kind), "-", index, ".", incarnation); }

}  // namespace downpour::simulation
