#include "trainer/core/shard_completion.h"

namespace downpour::core {

void ShardCompletion::OnRestored(const AppliedTable& table) {
  if (table.watermark() > 0) ++began_at_[table.watermark()];
  for (std::uint32_t epoch = table.watermark(); epoch < table.end_epoch(); ++epoch) {
    for (std::uint32_t shard = 0; shard < table.plan().shards_in_epoch(epoch); ++shard) {
      if (table.IsComplete(epoch, shard)) OnComplete({epoch, shard});
    }
  }
}

bool ShardCompletion::Complete(const ShardKey& key, std::uint32_t slices) const {
  const auto found = slices_.find(key);
  std::uint32_t complete = found == slices_.end() ? 0 : found->second;
  for (auto began = began_at_.upper_bound(key.first); began != began_at_.end(); ++began) complete += began->second;
  return complete == slices;
}

}  // namespace downpour::core
