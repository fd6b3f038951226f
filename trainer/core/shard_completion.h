#ifndef DOWNPOUR_TRAINER_CORE_SHARD_COMPLETION_H_
#define DOWNPOUR_TRAINER_CORE_SHARD_COMPLETION_H_

#include <cstdint>
#include <map>

#include "trainer/core/applied_table.h"
#include "trainer/core/keys.h"

namespace downpour::core {

// On how many slices of a ps all updates of a data shard are: so that a ps that is asked whether it is complete need
// not look at each slice's table. Not thread-safe.
class ShardCompletion {
 public:
  // A slice has taken in the last update of the data shard.
  void OnComplete(const ShardKey& key) { ++slices_[key]; }
  // A slice came with this table. Of epochs before its watermark every data shard is complete.
  void OnRestored(const AppliedTable& table);
  // Of the number of slices that there are.
  bool Complete(const ShardKey& key, std::uint32_t slices) const;
  // Every slice's watermark is there: nobody asks about epochs before it any more.
  void Forget(std::uint32_t watermark) { slices_.erase(slices_.begin(), slices_.lower_bound({watermark, 0})); }

 private:
  std::map<ShardKey, std::uint32_t> slices_;
  std::map<std::uint32_t, std::uint32_t> began_at_;  // how many slices came with which watermark, if not 0
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_SHARD_COMPLETION_H_
