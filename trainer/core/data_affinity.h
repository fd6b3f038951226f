#ifndef DOWNPOUR_TRAINER_CORE_DATA_AFFINITY_H_
#define DOWNPOUR_TRAINER_CORE_DATA_AFFINITY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>

namespace downpour::core {

// Which of the free data shards of an epoch a worker had best be given: those of windows (see BlockOrder) that it was
// the last to be given data of, as it has these samples in its cache. A preference alone: there is always an answer
// where something is free, and one that is forgotten costs a download. A call costs the logarithm of how many data
// shards are free, however many there are. Not thread-safe.
class DataAffinity {
 public:
  static constexpr std::uint32_t kNobody = UINT32_MAX;  // no index of a worker

  // The data shard of the epoch is free, or is no more; twice is as once. `window`: the same each time.
  void AddFree(std::uint32_t dataset_epoch, std::uint32_t shard, std::uint64_t window);
  void RemoveFree(std::uint32_t dataset_epoch, std::uint32_t shard, std::uint64_t window);
  // The epoch is over.
  void DropEpoch(std::uint32_t dataset_epoch) { epochs_.erase(dataset_epoch); }

  // The worker reads data of the window from now on. Nothing changes for kNobody.
  void SetHolder(std::uint64_t window, std::uint32_t worker);
  std::uint32_t HolderOf(std::uint64_t window) const;

  // Of what is free of the epoch, in this order: the first one of the worker's windows; the first one of a window that
  // nobody had; the last one of all, which others come to last. Absent: nothing is free.
  std::optional<std::uint32_t> Choose(std::uint32_t dataset_epoch, std::uint32_t worker) const;

 private:
  struct Epoch {
    std::map<std::uint64_t, std::set<std::uint32_t>> free;  // by window; none is empty
    // By holder: the first free data shard of each of its windows, and the window.
    std::map<std::uint32_t, std::set<std::pair<std::uint32_t, std::uint64_t>>> windows;
    std::set<std::uint32_t> all;
  };
  // Changes `free` of the window and what follows from it.
  template <typename Change>
  void ChangeWindow(Epoch& epoch, std::uint64_t window, Change change);
  static void Unlist(Epoch& epoch, std::uint32_t holder, std::uint64_t window);
  static void List(Epoch& epoch, std::uint32_t holder, std::uint64_t window);

  std::map<std::uint32_t, Epoch> epochs_;
  std::unordered_map<std::uint64_t, std::uint32_t> holders_;  // by window
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_DATA_AFFINITY_H_
