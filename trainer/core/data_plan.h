#ifndef DOWNPOUR_TRAINER_CORE_DATA_PLAN_H_
#define DOWNPOUR_TRAINER_CORE_DATA_PLAN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/block_order.h"
#include "trainer/core/frame.h"
#include "trainer/core/permutation.h"

namespace downpour::core {

// How the samples of a data set become updates and data shards: a pure function of the plan, known to every role.
// Every update has `batch_size` samples but the last of an epoch, every data shard `updates_per_shard` updates but the
// last of an epoch. An epoch is all samples; but the last one is cut short where the plan has a number of `steps`, and
// so is one in the middle with which a job had ended before it was resumed. Where the plan changes the batch size, this
// holds on either side of the change, which is between two data shards.
class DataPlan {
 public:
  DataPlan() = default;
  // kInvalidArgument: a count is zero, the products do not fit, or `steps` do not end in the last epoch.
  static absl::StatusOr<DataPlan> Create(const v1::DataPlan& plan);
  // The same with the end that the configuration says: of so many updates, or of so many epochs.
  static absl::StatusOr<DataPlan> CreateEnding(v1::DataPlan plan, const v1::TrainingConfig& config);

  const v1::DataPlan& proto() const { return plan_; }
  std::uint32_t epochs() const { return plan_.epochs(); }
  // Of any epoch, also behind the last: its data shards go on being numbered as the plan says.
  std::uint32_t shards_in_epoch(std::uint32_t dataset_epoch) const;
  std::uint64_t updates_in_epoch(std::uint32_t dataset_epoch) const;
  std::uint64_t samples_in_epoch(std::uint32_t dataset_epoch) const;
  // 0: no such shard.
  std::uint32_t updates_in_shard(std::uint32_t dataset_epoch, std::uint32_t shard) const;
  std::uint64_t samples_before(std::uint32_t dataset_epoch) const;
  // Of all epochs before this one.
  std::uint64_t updates_before(std::uint32_t dataset_epoch) const;
  // And of the data shards of this epoch before that one.
  std::uint64_t updates_before(std::uint32_t dataset_epoch, std::uint32_t shard) const {
    return updates_before(dataset_epoch) + UpdatesTo(dataset_epoch, RangeOf(dataset_epoch, shard).first);
  }
  std::uint64_t updates() const { return updates_before(epochs()); }
  // Of the last epoch.
  std::uint32_t batch_size() const { return segments_.back().batch; }
  bool Contains(const UpdateId& update) const;

  // Positions of the update's samples in the order of its epoch.
  std::uint64_t first_position(const UpdateId& update) const;
  std::uint32_t samples_in_update(const UpdateId& update) const;

  // The update's samples: indices into the data set, in the order of (seed, dataset_epoch).
  std::vector<std::int64_t> SampleIndices(const UpdateId& update) const;
  // Of these, one minibatch: an update is cut into such of `size` samples, of which the last may have fewer.
  std::vector<std::int64_t> SampleIndices(const UpdateId& update, std::uint32_t minibatch, std::uint32_t size) const;
  std::uint32_t minibatches_in_update(const UpdateId& update, std::uint32_t size) const {
    return (samples_in_update(update) + size - 1) / size;
  }

  // For dropout and augmentation: a function of (seed, update, minibatch).
  std::uint64_t UpdateSeed(const UpdateId& update, std::uint32_t minibatch = 0) const;

  // Whether samples are shuffled in windows of blocks.
  bool has_windows() const { return order_.has_value(); }
  // The window that the data shard begins in, see BlockOrder; the same samples have the same one in every epoch. Only
  // with windows, and of a data shard that there is.
  std::uint64_t WindowOf(std::uint32_t dataset_epoch, std::uint32_t shard) const;
  // For a job that is resumed behind the data shards before (dataset_epoch, shard): an epoch that was cut short within
  // these stays so, another one is whole again. The end is that of the configuration. kInvalidArgument as of
  // CreateEnding; kFailedPrecondition: the end is before that data shard.
  absl::StatusOr<DataPlan> Resumed(std::uint32_t dataset_epoch, std::uint32_t shard,
                                   const v1::TrainingConfig& config) const;

  // The same from the data shard (dataset_epoch, shard) on with another batch size; changes behind it are dropped.
  // kInvalidArgument: no such shard.
  absl::StatusOr<DataPlan> WithBatchSize(std::uint32_t dataset_epoch, std::uint32_t shard,
                                         std::uint32_t batch_size) const;

 private:
  // From the data shard (epoch, shard) on, which begins at `position` of its epoch.
  struct Segment {
    std::uint32_t epoch = 0;
    std::uint32_t shard = 0;
    std::uint64_t position = 0;
    std::uint32_t batch = 1;
  };
  struct Range {
    std::uint64_t first = 0, end = 0;  // positions
    std::uint32_t batch = 1;
  };
  // An epoch that is cut short.
  struct Cut {
    std::uint32_t epoch = 0;
    std::uint64_t samples = 0;  // that it has
  };
  const Segment& SegmentOf(std::uint32_t dataset_epoch, std::uint32_t shard) const;
  // Of a data shard; empty: no such shard.
  Range RangeOf(std::uint32_t dataset_epoch, std::uint32_t shard) const;
  // Of an epoch, up to the position at which a data shard begins or the epoch ends.
  std::uint64_t UpdatesTo(std::uint32_t dataset_epoch, std::uint64_t position) const;
  // The position behind the first so many updates of an epoch, or its end.
  std::uint64_t PositionBehind(std::uint32_t dataset_epoch, std::uint64_t updates) const;
  // Of all epochs before this one, were none cut short.
  std::uint64_t UncutUpdatesBefore(std::uint32_t dataset_epoch) const;

  v1::DataPlan plan_;
  std::vector<Segment> segments_ = {{}};  // in order; the first is of (0, 0)
  std::optional<BlockOrder> order_;       // absent: the order of an epoch is a permutation of all samples
  std::vector<Cut> cuts_;                 // in order
};

// Samples of an update: of all its minibatches.
std::uint32_t SamplesOfUpdate(const v1::TrainingConfig& config);

// Updates a data shard so that an epoch has about 64 of them and a shard at most 32 updates.
std::uint32_t DefaultUpdatesPerShard(std::uint64_t sample_count, std::uint32_t batch_size);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_DATA_PLAN_H_
