#include "trainer/worker/batch_loader.h"

#include <utility>

namespace downpour::worker {

BatchLoader::Planned BatchLoader::Plan(const core::DataPlan& plan, const Minibatch& minibatch) const {
  const auto& [update, number] = minibatch;
  const std::uint64_t position = plan.first_position(update);
  const std::uint32_t samples = plan.samples_in_update(update);
  for (const Planned& known : planned_) {
    if (known.minibatch == minibatch && known.position == position && known.samples == samples) return known;
  }
  return {minibatch, position, samples, {plan.SampleIndices(update, number, size_), plan.UpdateSeed(update, number)}};
}

void BatchLoader::Prefetch(const core::DataPlan& plan, const Minibatch& from,
                           const std::vector<core::UpdateId>& updates) {
  if (most_ == 0) return;
  std::vector<Planned> planned;
  planned.reserve(most_);
  const auto add = [&](const core::UpdateId& update, std::uint32_t number) {
    const std::uint32_t count = plan.minibatches_in_update(update, size_);
    for (; number < count && planned.size() < most_; ++number) planned.push_back(Plan(plan, {update, number}));
  };
  add(from.update, from.number);
  for (const core::UpdateId& update : updates) {
    if (plan.Contains(update)) add(update, 0);  // they may be those of a newer plan
  }
  planned_ = std::move(planned);
  std::vector<data::BatchRequest> next;
  next.reserve(planned_.size());
  for (const Planned& one : planned_) next.push_back(one.request);
  prefetcher_.Want(std::move(next));
}

}  // namespace downpour::worker
