#include "trainer/core/data_plan.h"

#include <algorithm>
#include <bit>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace downpour::core {
namespace {

// SplitMix64 (Steele, Lea and Flood 2014): a bijective mixer.
std::uint64_t Mix(std::uint64_t value) {
  value += 0x9e3779b97f4a7c15u;
  value = (value ^ (value >> 30)) * 0xbf58476d1ce4e5b9u;
  value = (value ^ (value >> 27)) * 0x94d049bb133111ebu;
  return value ^ (value >> 31);
}

constexpr int kFeistelRounds = 6;

}  // namespace

std::uint64_t PermutedIndex(std::uint64_t seed, std::uint32_t epoch, std::uint64_t count, std::uint64_t position) {
  if (count <= 1) return 0;
  const int half_bits = (static_cast<int>(std::bit_width(count - 1)) + 1) / 2;
  const std::uint64_t mask = (std::uint64_t{1} << half_bits) - 1;
  const std::uint64_t key = Mix(Mix(seed) ^ epoch);
  std::uint64_t value = position;
  do {
    std::uint64_t left = value >> half_bits;
    std::uint64_t right = value & mask;
    for (int round = 0; round < kFeistelRounds; ++round) {
      const std::uint64_t next = left ^ (Mix(right ^ (key + static_cast<std::uint64_t>(round))) & mask);
      left = right;
      right = next;
    }
    value = (left << half_bits) | right;
  } while (value >= count);
  return value;
}

std::uint32_t DefaultUpdatesPerShard(std::uint64_t sample_count, std::uint32_t batch_size) {
  const std::uint64_t updates = (sample_count + batch_size - 1) / std::max(batch_size, 1u);
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>((updates + 63) / 64, 1, 32));
}

absl::StatusOr<DataPlan> DataPlan::Create(const v1::DataPlan& plan) {
  if (plan.sample_count() == 0 || plan.batch_size() == 0 || plan.updates_per_shard() == 0 || plan.epochs() == 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("data plan: every count must be at least 1, got ", plan.ShortDebugString()));
  }
  if (plan.sample_count() > (std::uint64_t{1} << 48) || plan.updates_per_shard() > (1u << 20)) {
    return absl::InvalidArgumentError(absl::StrCat("data plan: a count is too large: ", plan.ShortDebugString()));
  }
  DataPlan result;
  result.plan_ = plan;
  result.updates_per_epoch_ = (plan.sample_count() + plan.batch_size() - 1) / plan.batch_size();
  const std::uint64_t shards = (result.updates_per_epoch_ + plan.updates_per_shard() - 1) / plan.updates_per_shard();
  if (shards > (std::uint64_t{1} << 31)) {
    return absl::InvalidArgumentError(absl::StrCat("data plan: too many data shards: ", plan.ShortDebugString()));
  }
  result.shards_per_epoch_ = static_cast<std::uint32_t>(shards);
  return result;
}

std::uint32_t DataPlan::updates_in_shard(std::uint32_t shard) const {
  if (shard >= shards_per_epoch_) return 0;
  const std::uint64_t first = std::uint64_t{shard} * plan_.updates_per_shard();
  return static_cast<std::uint32_t>(std::min<std::uint64_t>(plan_.updates_per_shard(), updates_per_epoch_ - first));
}

bool DataPlan::Contains(const UpdateId& update) const {
  return update.dataset_epoch < plan_.epochs() && update.group < updates_in_shard(update.data_shard);
}

std::uint64_t DataPlan::first_position(const UpdateId& update) const {
  return (std::uint64_t{update.data_shard} * plan_.updates_per_shard() + update.group) * plan_.batch_size();
}

std::uint32_t DataPlan::samples_in_update(const UpdateId& update) const {
  return static_cast<std::uint32_t>(
      std::min<std::uint64_t>(plan_.batch_size(), plan_.sample_count() - first_position(update)));
}

std::vector<std::int64_t> DataPlan::SampleIndices(const UpdateId& update) const {
  const std::uint64_t first = first_position(update);
  std::vector<std::int64_t> indices(samples_in_update(update));
  for (std::size_t i = 0; i < indices.size(); ++i) {
    indices[i] =
        static_cast<std::int64_t>(PermutedIndex(plan_.seed(), update.dataset_epoch, plan_.sample_count(), first + i));
  }
  return indices;
}

std::uint64_t DataPlan::UpdateSeed(const UpdateId& update) const {
  return Mix(Mix(Mix(Mix(plan_.seed()) ^ update.dataset_epoch) ^ update.data_shard) ^ update.group);
}

}  // namespace downpour::core
