#include "trainer/core/data_plan.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace downpour::core {
std::uint32_t SamplesOfUpdate(const v1::TrainingConfig& config) {
  return config.batch_size() * std::max({config.accumulate(), config.local_steps().count(), 1u});
}

std::uint32_t DefaultUpdatesPerShard(std::uint64_t sample_count, std::uint32_t batch_size) {
  const std::uint64_t updates = (sample_count + batch_size - 1) / std::max(batch_size, 1u);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>((updates + 63) / 64, 1, 32));
}

absl::StatusOr<DataPlan> DataPlan::Create(const v1::DataPlan& plan) {
  const auto refuse = [&plan](const char* why) {
    return absl::InvalidArgumentError(absl::StrCat("data plan: ", why, ": ", plan.ShortDebugString()));
  };
  if (plan.sample_count() == 0 || plan.batch_size() == 0 || plan.updates_per_shard() == 0 || plan.epochs() == 0) {
    return refuse("every count must be at least 1");
  }
  if (plan.sample_count() > (std::uint64_t{1} << 48) || plan.updates_per_shard() > (1u << 20)) {
    return refuse("a count is too large");
  }
  if ((plan.shuffle_block() == 0) != (plan.shuffle_window() == 0)) {
    return refuse("a block and a window are to be given, or none");
  }
  if (std::max(plan.shuffle_block(), plan.shuffle_window()) > std::uint64_t{1} << 60) {
    return refuse("a block or window is too large");
  }
  DataPlan result;
  result.plan_ = plan;
  if (plan.shuffle_block() != 0) {
    result.order_.emplace(plan.seed(), plan.sample_count(), plan.shuffle_block(), plan.shuffle_window());
  }
  result.segments_ = {{0, 0, 0, plan.batch_size()}};
  const auto too_many = [&result](std::uint32_t epoch, const Segment& segment) {
    const std::uint64_t samples = std::uint64_t{segment.batch} * result.plan_.updates_per_shard();
    const std::uint64_t first = segment.epoch == epoch ? segment.shard : 0;
    return first + result.plan_.sample_count() / samples >= (std::uint64_t{1} << 31);
  };
  if (too_many(0, result.segments_[0])) return refuse("too many data shards");
  for (const v1::BatchChange& change : plan.changes()) {
    const Segment& before = result.segments_.back();
    const bool later = std::pair(change.dataset_epoch(), change.shard()) > std::pair(before.epoch, before.shard);
    if (change.batch_size() == 0 || !later) return refuse("the changes of the batch size are not in order");
    const Range range = result.RangeOf(change.dataset_epoch(), change.shard());
    if (range.first == range.end) return refuse("the batch size changes at a data shard that does not exist");
    result.segments_.push_back({change.dataset_epoch(), change.shard(), range.first, change.batch_size()});
    if (too_many(change.dataset_epoch(), result.segments_.back())) return refuse("too many data shards");
  }
  return result;
}

const DataPlan::Segment& DataPlan::SegmentOf(std::uint32_t dataset_epoch, std::uint32_t shard) const {
  const auto behind = std::upper_bound(segments_.begin() + 1, segments_.end(), std::pair(dataset_epoch, shard),
                                       [](const std::pair<std::uint32_t, std::uint32_t>& at, const Segment& segment) {
                                         return at < std::pair(segment.epoch, segment.shard);
                                       });
  return *(behind - 1);
}

DataPlan::Range DataPlan::RangeOf(std::uint32_t dataset_epoch, std::uint32_t shard) const {
  const Segment& segment = SegmentOf(dataset_epoch, shard);
  const std::uint64_t samples = std::uint64_t{segment.batch} * plan_.updates_per_shard();
  const bool here = segment.epoch == dataset_epoch;
  const std::uint64_t first =
      here ? segment.position + (shard - segment.shard) * samples : std::uint64_t{shard} * samples;
  const std::uint64_t count = plan_.sample_count();
  return {std::min(first, count), std::min(first + samples, count), segment.batch};
}

std::uint32_t DataPlan::shards_in_epoch(std::uint32_t dataset_epoch) const {
  const Segment& segment = SegmentOf(dataset_epoch, UINT32_MAX);
  const std::uint64_t samples = std::uint64_t{segment.batch} * plan_.updates_per_shard();
  const bool here = segment.epoch == dataset_epoch;
  const std::uint64_t rest = plan_.sample_count() - (here ? segment.position : 0);
  return static_cast<std::uint32_t>((here ? segment.shard : 0) + (rest + samples - 1) / samples);
}

std::uint64_t DataPlan::updates_in_epoch(std::uint32_t dataset_epoch) const {
  return UpdatesTo(dataset_epoch, plan_.sample_count());
}

std::uint64_t DataPlan::UpdatesTo(std::uint32_t dataset_epoch, std::uint64_t position) const {
  std::uint64_t updates = 0;
  std::uint64_t end = position;
  // From its last segment to its first; between two there are whole data shards.
  for (auto segment = segments_.rbegin(); segment != segments_.rend(); ++segment) {
    if (segment->epoch > dataset_epoch) continue;
    const std::uint64_t first = segment->epoch == dataset_epoch ? segment->position : 0;
    if (first < end) {
      updates += (end - first + segment->batch - 1) / segment->batch;
      end = first;
    }
    if (first == 0) break;
  }
  return updates;
}

std::uint64_t DataPlan::updates_before(std::uint32_t dataset_epoch) const {
  std::uint64_t updates = 0;
  std::uint32_t epoch = 0;
  // An epoch in which something changes is counted by itself, those between two such alike.
  for (const Segment& segment : segments_) {
    if (segment.epoch >= dataset_epoch) break;
    if (segment.epoch > epoch) {
      updates += (segment.epoch - epoch) * updates_in_epoch(epoch);
      epoch = segment.epoch;
    }
    if (segment.epoch == epoch) {
      updates += updates_in_epoch(epoch);
      ++epoch;
    }
  }
  return epoch < dataset_epoch ? updates + (dataset_epoch - epoch) * updates_in_epoch(epoch) : updates;
}

absl::StatusOr<DataPlan> DataPlan::WithBatchSize(std::uint32_t dataset_epoch, std::uint32_t shard,
                                                 std::uint32_t batch_size) const {
  const std::pair<std::uint32_t, std::uint32_t> from(dataset_epoch, shard);
  v1::DataPlan plan = plan_;
  plan.clear_changes();
  if (from == std::pair<std::uint32_t, std::uint32_t>(0, 0)) {
    plan.set_batch_size(batch_size);
    return Create(plan);
  }
  std::uint32_t batch = plan.batch_size();
  for (const v1::BatchChange& change : plan_.changes()) {
    if (std::pair(change.dataset_epoch(), change.shard()) >= from) break;
    *plan.add_changes() = change;
    batch = change.batch_size();
  }
  if (batch != batch_size) {
    v1::BatchChange* change = plan.add_changes();
    change->set_dataset_epoch(dataset_epoch);
    change->set_shard(shard);
    change->set_batch_size(batch_size);
  }
  return Create(plan);
}

std::uint32_t DataPlan::updates_in_shard(std::uint32_t dataset_epoch, std::uint32_t shard) const {
  const Range range = RangeOf(dataset_epoch, shard);
  return static_cast<std::uint32_t>((range.end - range.first + range.batch - 1) / range.batch);
}

bool DataPlan::Contains(const UpdateId& update) const {
  return update.dataset_epoch < plan_.epochs() &&
         update.group < updates_in_shard(update.dataset_epoch, update.data_shard);
}

std::uint64_t DataPlan::first_position(const UpdateId& update) const {
  const Range range = RangeOf(update.dataset_epoch, update.data_shard);
  return range.first + std::uint64_t{update.group} * range.batch;
}

std::uint32_t DataPlan::samples_in_update(const UpdateId& update) const {
  const Range range = RangeOf(update.dataset_epoch, update.data_shard);
  const std::uint64_t first = range.first + std::uint64_t{update.group} * range.batch;
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(range.batch, range.end - first));
}

std::vector<std::int64_t> DataPlan::SampleIndices(const UpdateId& update) const {
  return SampleIndices(update, 0, samples_in_update(update));
}

std::vector<std::int64_t> DataPlan::SampleIndices(const UpdateId& update, std::uint32_t minibatch,
                                                  std::uint32_t size) const {
  const std::uint64_t skipped = std::uint64_t{minibatch} * size;
  const std::uint64_t first = first_position(update) + skipped;
  std::vector<std::int64_t> indices(std::min<std::uint64_t>(size, samples_in_update(update) - skipped));
  for (std::size_t i = 0; i < indices.size(); ++i) {
    const std::uint64_t sample =
        order_.has_value() ? order_->SampleAt(update.dataset_epoch, first + i)
                           : PermutedIndex(plan_.seed(), update.dataset_epoch, plan_.sample_count(), first + i);
    indices[i] = static_cast<std::int64_t>(sample);
  }
  return indices;
}

std::uint64_t DataPlan::WindowOf(std::uint32_t dataset_epoch, std::uint32_t shard) const {
  return order_->WindowAt(dataset_epoch, RangeOf(dataset_epoch, shard).first);
}

std::uint64_t DataPlan::UpdateSeed(const UpdateId& update, std::uint32_t minibatch) const {
  const std::uint64_t seed =
      MixBits(MixBits(MixBits(MixBits(plan_.seed()) ^ update.dataset_epoch) ^ update.data_shard) ^ update.group);
  return minibatch == 0 ? seed : MixBits(seed ^ minibatch);
}

}  // namespace downpour::core
