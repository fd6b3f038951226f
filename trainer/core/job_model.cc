#include "trainer/core/job_model.h"

#include <algorithm>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "trainer/core/block_order.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/layout.h"
#include "trainer/core/layout_plan.h"
#include "trainer/core/optimizer.h"
#include "trainer/core/update_mode.h"

namespace downpour::core {
namespace {

constexpr std::uint64_t kGenerationsOfIncarnation = 1u << 20;
constexpr std::uint64_t kBandsOfAnEpoch = 8;  // of mode SYNCHRONOUS, at least

// Of a request or a view.
template <typename Message>
std::optional<std::uint32_t> CrcIn(const Message& message) {
  return message.has_initial_weights_crc32c() ? std::optional(message.initial_weights_crc32c()) : std::nullopt;
}

std::string CrcText(std::optional<std::uint32_t> crc) {
  return crc.has_value() ? absl::StrCat("CRC-32C ", absl::Hex(*crc, absl::kZeroPad8)) : "none was read";
}

}  // namespace

std::string JobModel::Check(const v1::WorkerSyncRequest& request) {
  if (!known()) {
    tensors_.assign(request.tensors().begin(), request.tensors().end());
    sample_count_ = request.sample_count();
    weights_crc_ = CrcIn(request);
    return "";
  }
  if (request.sample_count() != sample_count_) {
    return absl::StrCat("worker-", request.index(), " sees ", request.sample_count(), " training samples, the job has ",
                        sample_count_);
  }
  const std::string difference = TensorDifference(tensors_, request.tensors());
  if (!difference.empty()) {
    return absl::StrCat("worker-", request.index(), " has another model than the job: ", difference);
  }
  const std::optional<std::uint32_t> crc = CrcIn(request);
  if (crc == weights_crc_) return "";
  return absl::StrCat("worker-", request.index(),
                      " sees another file at spec.model.initialWeights.path than the job: ", CrcText(crc),
                      ", expected ", CrcText(weights_crc_));
}

void JobModel::TakeFrom(const v1::View& view) {
  tensors_.assign(view.tensors().begin(), view.tensors().end());
  sample_count_ = view.data().sample_count();
  weights_crc_ = CrcIn(view);
}

absl::StatusOr<v1::View> JobModel::MakeView(const v1::TrainingConfig& config, const v1::ViewStamp& stamp,
                                            const std::vector<v1::PsMember>& ps) const {
  absl::StatusOr<std::vector<Slice>> slices = CutTensors(tensors_);
  if (!slices.ok()) return slices.status();
  v1::View view;
  *view.mutable_stamp() = stamp;
  for (const v1::TensorSpec& tensor : tensors_) *view.add_tensors() = tensor;
  if (weights_crc_.has_value()) view.set_initial_weights_crc32c(*weights_crc_);
  const bool placed = !ps.empty();  // otherwise every worker has all of them
  for (std::uint32_t place :
       placed ? PlaceSlices(*slices, static_cast<std::uint32_t>(ps.size())) : std::vector<std::uint32_t>()) {
    v1::SlicePlacement* placement = view.add_layout();
    placement->set_primary(ps[place].index());
    placement->set_primary_replica(ReplicaNumber(stamp.incarnation(), stamp.epoch()));
  }
  view.set_mode_epoch(stamp.epoch());
  view.set_replication_factor(std::max<std::uint32_t>(1, config.replication_factor()));
  view.set_replication_lag(config.replication_lag());
  for (const v1::PsMember& member : ps) *view.add_ps() = member;
  v1::DataPlan* data = view.mutable_data();
  data->set_sample_count(sample_count_);
  data->set_batch_size(SamplesOfUpdate(config));
  data->set_seed(config.seed());
  data->set_updates_per_shard(config.updates_per_shard() != 0
                                  ? config.updates_per_shard()
                                  : DefaultUpdatesPerShard(sample_count_, data->batch_size()));
  const UpdateMode mode = WantedMode(config, view);
  if (config.mode() == v1::SYNCHRONOUS && config.updates_per_shard() == 0) {
    // The last band of an epoch may be narrower than the others: so there are to be many of them.
    const std::uint64_t updates = sample_count_ / data->batch_size();
    data->set_updates_per_shard(static_cast<std::uint32_t>(
        std::clamp<std::uint64_t>(updates / (kBandsOfAnEpoch * mode.updates_per_step), 1, data->updates_per_shard())));
  }
  if (const std::uint64_t block = config.dataset().shuffle_block(); block != 0) {
    data->set_shuffle_block(block);
    data->set_shuffle_window(WindowFor(block, std::uint64_t{data->batch_size()} * data->updates_per_shard()));
  }
  if (config.mode() == v1::SANDBLASTER && config.steps() > 0) {
    return absl::InvalidArgumentError("spec.training.steps is not for the mode Sandblaster, which counts evaluations");
  }
  const absl::StatusOr<DataPlan> plan = DataPlan::CreateEnding(*data, config);
  if (!plan.ok()) return plan.status();
  *data = plan->proto();
  if (absl::Status names = CheckNoDecay(config.optimizer(), tensors_); !names.ok()) return names;
  *view.mutable_optimizer() = config.optimizer();
  SetMode(mode, &view);
  return view;
}

absl::StatusOr<std::uint64_t> NextGeneration(std::uint64_t previous, std::uint32_t incarnation) {
  const std::uint64_t first = (std::uint64_t{incarnation} - 1) * kGenerationsOfIncarnation + 1;
  const std::uint64_t next = std::max(previous + 1, first);
  if (next < first + kGenerationsOfIncarnation) return next;
  return absl::ResourceExhaustedError(absl::StrCat("the parameters were lost ", kGenerationsOfIncarnation, " times"));
}

}  // namespace downpour::core
