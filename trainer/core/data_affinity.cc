#include "trainer/core/data_affinity.h"

namespace downpour::core {

void DataAffinity::Unlist(Epoch& epoch, std::uint32_t holder, std::uint64_t window) {
  const auto free = epoch.free.find(window);
  if (free == epoch.free.end()) return;
  const auto listed = epoch.windows.find(holder);
  listed->second.erase({*free->second.begin(), window});
  if (listed->second.empty()) epoch.windows.erase(listed);
}

void DataAffinity::List(Epoch& epoch, std::uint32_t holder, std::uint64_t window) {
  const auto free = epoch.free.find(window);
  if (free != epoch.free.end()) epoch.windows[holder].insert({*free->second.begin(), window});
}

template <typename Change>
void DataAffinity::ChangeWindow(Epoch& epoch, std::uint64_t window, Change change) {
  const std::uint32_t holder = HolderOf(window);
  Unlist(epoch, holder, window);
  std::set<std::uint32_t>& free = epoch.free[window];
  change(free);
  if (free.empty()) epoch.free.erase(window);
  List(epoch, holder, window);
}

void DataAffinity::AddFree(std::uint32_t dataset_epoch, std::uint32_t shard, std::uint64_t window) {
  Epoch& epoch = epochs_[dataset_epoch];
  if (!epoch.all.insert(shard).second) return;
  ChangeWindow(epoch, window, [shard](std::set<std::uint32_t>& free) { free.insert(shard); });
}

void DataAffinity::RemoveFree(std::uint32_t dataset_epoch, std::uint32_t shard, std::uint64_t window) {
  const auto epoch = epochs_.find(dataset_epoch);
  if (epoch == epochs_.end() || epoch->second.all.erase(shard) == 0) return;
  ChangeWindow(epoch->second, window, [shard](std::set<std::uint32_t>& free) { free.erase(shard); });
}

void DataAffinity::SetHolder(std::uint64_t window, std::uint32_t worker) {
  const std::uint32_t before = HolderOf(window);
  if (worker == kNobody || worker == before) return;
  for (auto& [number, epoch] : epochs_) {
    Unlist(epoch, before, window);
    List(epoch, worker, window);
  }
  holders_[window] = worker;
}

std::uint32_t DataAffinity::HolderOf(std::uint64_t window) const {
  const auto holder = holders_.find(window);
  return holder == holders_.end() ? kNobody : holder->second;
}

std::optional<std::uint32_t> DataAffinity::Choose(std::uint32_t dataset_epoch, std::uint32_t worker) const {
  const auto found = epochs_.find(dataset_epoch);
  if (found == epochs_.end() || found->second.all.empty()) return std::nullopt;
  const Epoch& epoch = found->second;
  for (const std::uint32_t holder : {worker, kNobody}) {
    const auto windows = epoch.windows.find(holder);
    if (windows != epoch.windows.end()) return windows->second.begin()->first;
  }
  return *epoch.all.rbegin();
}

}  // namespace downpour::core
