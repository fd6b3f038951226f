#ifndef DOWNPOUR_TRAINER_CORE_PS_STATES_H_
#define DOWNPOUR_TRAINER_CORE_PS_STATES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>

#include "downpour/v1/control.pb.h"

namespace downpour::core {

// The least of one value for each ps that counts, without a look at all of them.
template <typename Value>
class Least {
 public:
  // Of those that count; a default value where there are none.
  Value least() const { return counts_.empty() ? Value{} : counts_.begin()->first; }
  Value of(std::uint32_t index) const {
    const auto value = values_.find(index);
    return value == values_.end() ? Value{} : value->second;
  }
  // One that does not count yet does from now on.
  void Set(std::uint32_t index, Value value) {
    const auto [entry, first] = values_.try_emplace(index, value);
    if (!first) {
      if (entry->second == value) return;
      Take(entry->second);
      entry->second = value;
    }
    ++counts_[value];
  }
  void Erase(std::uint32_t index) {
    const auto entry = values_.find(index);
    if (entry == values_.end()) return;
    Take(entry->second);
    values_.erase(entry);
  }

 private:
  void Take(const Value& value) {
    const auto count = counts_.find(value);
    if (--count->second == 0) counts_.erase(count);
  }

  std::map<std::uint32_t, Value> values_;
  std::map<Value, std::size_t> counts_;
};

// What each ps says that it has of what it should have in the history at hand. Not thread-safe.
class PsStates {
 public:
  // Those that have a place in the view, by index: who was there before keeps what it has, the others have nothing yet.
  void SetPs(const std::set<std::uint32_t>& ps);
  // A process that has none of it, in place of the one before.
  void Forget(std::uint32_t index);
  // Another history.
  void ForgetAll();
  // Another view of this one: whether a ps has it is not known yet, nor, where they begin anew, its list of sessions.
  void ForgetViews(bool sessions);
  // A reply under the view in force.
  void Confirm(std::uint32_t index, const v1::DirectReply& reply);
  void SetStats(std::uint32_t index, const v1::PsStats& stats);

  bool has_view(std::uint32_t index) const { return has_view_.of(index); }
  bool initialised(std::uint32_t index) const { return initialised_.of(index); }
  std::uint64_t members_version(std::uint32_t index) const { return members_version_.of(index); }
  std::uint32_t watermark(std::uint32_t index) const { return watermark_.of(index); }
  // It knows that the view counts.
  bool committed(std::uint32_t index) const { return committed_.count(index) != 0; }
  const v1::PsStats& stats(std::uint32_t index) const;
  // Of those that have a place.
  const std::map<std::uint32_t, v1::PsStats>& all_stats() const { return stats_; }

  // ---- what every ps has
  bool all_have_view() const { return has_view_.least(); }
  bool all_initialised() const { return initialised_.least(); }
  // And later ones: the lists of sessions up to this version, each refuses who is not on it.
  std::uint64_t least_members_version() const { return members_version_.least(); }
  std::uint32_t least_watermark() const { return watermark_.least(); }

 private:
  Least<bool> has_view_;
  Least<bool> initialised_;
  Least<std::uint64_t> members_version_;
  Least<std::uint32_t> watermark_;
  std::set<std::uint32_t> committed_;
  std::map<std::uint32_t, v1::PsStats> stats_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_PS_STATES_H_
