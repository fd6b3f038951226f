#include "trainer/core/data_plan.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace downpour::core {
namespace {

constexpr std::uint64_t kMostSteps = std::uint64_t{1} << 40;

}  // namespace

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
    if (change.previous_samples() > 0) {
      const bool behind = before.epoch + 1 < change.dataset_epoch() || before.position < change.previous_samples();
      if (change.shard() != 0 || !behind || change.previous_samples() >= plan.sample_count()) {
        return refuse("it cuts an epoch short where there is none");
      }
      result.cuts_.push_back({change.dataset_epoch() - 1, change.previous_samples()});
    }
    result.segments_.push_back({change.dataset_epoch(), change.shard(), range.first, change.batch_size()});
    if (too_many(change.dataset_epoch(), result.segments_.back())) return refuse("too many data shards");
  }
  if (plan.steps() == 0) return result;
  const std::uint32_t last = plan.epochs() - 1;
  const std::uint64_t before = result.updates_before(last);
  if (plan.steps() <= before || plan.steps() > before + result.updates_in_epoch(last)) {
    return refuse("the steps do not end in the last epoch");
  }
  const std::uint64_t samples = result.PositionBehind(last, plan.steps() - before);
  const Segment& begun = result.segments_.back();
  if (begun.epoch > last || (begun.epoch == last && begun.position >= samples)) {
    return refuse("the batch size changes behind the last step");
  }
  if (samples < plan.sample_count()) result.cuts_.push_back({last, samples});
  return result;
}

absl::StatusOr<DataPlan> DataPlan::CreateEnding(v1::DataPlan plan, const v1::TrainingConfig& config) {
  plan.set_epochs(config.epochs());
  plan.set_steps(config.steps());
  if (config.steps() == 0) return Create(plan);
  if (config.steps() > kMostSteps) {
    return absl::InvalidArgumentError(absl::StrCat("data plan: ", config.steps(), " steps are too many"));
  }
  plan.set_steps(0);
  plan.set_epochs(1);
  absl::StatusOr<DataPlan> endless = Create(plan);
  while (endless.ok() && plan.changes_size() > 0) {
    const v1::BatchChange& last = plan.changes(plan.changes_size() - 1);
    if (endless->updates_before(last.dataset_epoch(), last.shard()) < config.steps()) break;
    plan.mutable_changes()->RemoveLast();  // it changes nothing
    endless = Create(plan);
  }
  if (!endless.ok()) return endless;
  std::uint32_t most = 1;  // epochs; the least that have all of the steps
  while (endless->updates_before(most) < config.steps()) {
    if (most > UINT32_MAX / 4) return absl::InvalidArgumentError("data plan: the steps are of too many epochs");
    most *= 2;
  }
  std::uint32_t least = most / 2 + 1;
  while (least < most) {
    const std::uint32_t middle = least + (most - least) / 2;
    if (endless->updates_before(middle) < config.steps()) {
      least = middle + 1;
    } else {
      most = middle;
    }
  }
  plan.set_epochs(most);
  plan.set_steps(config.steps());
  return Create(plan);
}

absl::StatusOr<DataPlan> DataPlan::Resumed(std::uint32_t dataset_epoch, std::uint32_t shard,
                                           const v1::TrainingConfig& config) const {
  v1::DataPlan plan = plan_;
  plan.set_steps(0);
  const std::uint32_t last = epochs() - 1;
  const bool cut = plan_.steps() > 0 && samples_in_epoch(last) < plan_.sample_count();
  const bool begun = dataset_epoch > last || (dataset_epoch == last && shard >= shards_in_epoch(last));
  if (shard >= shards_in_epoch(dataset_epoch)) {
    ++dataset_epoch;
    shard = 0;
  }
  const std::uint64_t done = updates_before(dataset_epoch, shard);
  if (config.steps() > 0 && config.steps() < done) {
    return absl::FailedPreconditionError(
        absl::StrCat("it has begun the first ", done, " updates, spec.training.steps is ", config.steps()));
  }
  if (cut && begun) {
    v1::BatchChange* const change = plan.add_changes();
    change->set_dataset_epoch(last + 1);
    change->set_batch_size(batch_size());
    change->set_previous_samples(samples_in_epoch(last));
  }
  absl::StatusOr<DataPlan> whole = Create(plan);
  if (!whole.ok()) return whole;
  const absl::StatusOr<DataPlan> resumed = whole->WithBatchSize(dataset_epoch, shard, SamplesOfUpdate(config));
  return resumed.ok() ? CreateEnding(resumed->plan_, config) : resumed;
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
  const std::uint64_t count = samples_in_epoch(dataset_epoch);
  return {std::min(first, count), std::min(first + samples, count), segment.batch};
}

std::uint32_t DataPlan::shards_in_epoch(std::uint32_t dataset_epoch) const {
  const Segment& segment = SegmentOf(dataset_epoch, UINT32_MAX);
  const std::uint64_t samples = std::uint64_t{segment.batch} * plan_.updates_per_shard();
  const bool here = segment.epoch == dataset_epoch;
  const std::uint64_t rest = samples_in_epoch(dataset_epoch) - (here ? segment.position : 0);
  return static_cast<std::uint32_t>((here ? segment.shard : 0) + (rest + samples - 1) / samples);
}

std::uint64_t DataPlan::updates_in_epoch(std::uint32_t dataset_epoch) const {
  return UpdatesTo(dataset_epoch, samples_in_epoch(dataset_epoch));
}

std::uint64_t DataPlan::samples_in_epoch(std::uint32_t dataset_epoch) const {
  for (const Cut& cut : cuts_) {
    if (cut.epoch == dataset_epoch) return cut.samples;
  }
  return plan_.sample_count();
}

std::uint64_t DataPlan::samples_before(std::uint32_t dataset_epoch) const {
  std::uint64_t samples = dataset_epoch * plan_.sample_count();
  for (const Cut& cut : cuts_) {
    if (cut.epoch < dataset_epoch) samples -= plan_.sample_count() - cut.samples;
  }
  return samples;
}

std::uint64_t DataPlan::PositionBehind(std::uint32_t dataset_epoch, std::uint64_t updates) const {
  std::uint64_t position = 0;
  std::uint64_t counted = 0;  // updates before `position`
  std::uint64_t batch = SegmentOf(dataset_epoch, 0).batch;
  for (const Segment& segment : segments_) {
    if (segment.epoch != dataset_epoch || segment.position == 0) continue;
    const std::uint64_t of_part = UpdatesTo(dataset_epoch, segment.position) - counted;
    if (counted + of_part >= updates) break;
    counted += of_part;
    position = segment.position;
    batch = segment.batch;
  }
  return std::min(position + (updates - counted) * batch, samples_in_epoch(dataset_epoch));
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
  std::uint64_t updates = UncutUpdatesBefore(dataset_epoch);
  for (const Cut& cut : cuts_) {
    if (cut.epoch >= dataset_epoch) break;
    updates -= UpdatesTo(cut.epoch, plan_.sample_count()) - UpdatesTo(cut.epoch, cut.samples);
  }
  return updates;
}

std::uint64_t DataPlan::UncutUpdatesBefore(std::uint32_t dataset_epoch) const {
  std::uint64_t updates = 0;
  std::uint32_t epoch = 0;
  const auto of_epoch = [this](std::uint32_t number) { return UpdatesTo(number, plan_.sample_count()); };
  // An epoch in which something changes is counted by itself, those between two such alike.
  for (const Segment& segment : segments_) {
    if (segment.epoch >= dataset_epoch) break;
    if (segment.epoch > epoch) {
      updates += (segment.epoch - epoch) * of_epoch(epoch);
      epoch = segment.epoch;
    }
    if (segment.epoch == epoch) {
      updates += of_epoch(epoch);
      ++epoch;
    }
  }
  return epoch < dataset_epoch ? updates + (dataset_epoch - epoch) * of_epoch(epoch) : updates;
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
  std::uint64_t previous_samples = 0;
  for (const v1::BatchChange& change : plan_.changes()) {
    const std::pair<std::uint32_t, std::uint32_t> at(change.dataset_epoch(), change.shard());
    if (at == from) previous_samples = change.previous_samples();
    if (at >= from) break;
    *plan.add_changes() = change;
    batch = change.batch_size();
  }
  if (batch != batch_size || previous_samples > 0) {
    v1::BatchChange* change = plan.add_changes();
    change->set_dataset_epoch(dataset_epoch);
    change->set_shard(shard);
    change->set_batch_size(batch_size);
    if (previous_samples > 0) change->set_previous_samples(previous_samples);
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
