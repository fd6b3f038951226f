#ifndef DOWNPOUR_TRAINER_CORE_KEYS_H_
#define DOWNPOUR_TRAINER_CORE_KEYS_H_

#include <cstdint>
#include <utility>

namespace downpour::core {

// What the parts of the coordinator call things by.

using ShardKey = std::pair<std::uint32_t, std::uint32_t>;    // dataset epoch, data shard
using ProcessKey = std::pair<std::uint32_t, std::uint32_t>;  // index and process incarnation of a worker

// Numbers for leases, of data shards and of tasks alike: unique over all incarnations of the coordinator.
class LeaseNumbers {
 public:
  explicit LeaseNumbers(std::uint32_t incarnation) : next_((std::uint64_t{incarnation} << 32) + 1) {}
  std::uint64_t Next() { return next_++; }

 private:
  std::uint64_t next_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_KEYS_H_
