#ifndef DOWNPOUR_TRAINER_CORE_PS_STATES_H_
#define DOWNPOUR_TRAINER_CORE_PS_STATES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "downpour/v1/control.pb.h"

namespace downpour::core {

// The least of one value for each ps, without a look at all of them.
template <typename Value>
class Least {
 public:
  explicit Least(std::size_t count) : values_(count), counts_{{Value{}, count}} {}
  Value least() const { return counts_.begin()->first; }
  Value of(std::size_t index) const { return values_[index]; }
  void Set(std::size_t index, Value value) {
    if (values_[index] == value) return;
    const auto before = counts_.find(values_[index]);
    if (--before->second == 0) counts_.erase(before);
    ++counts_[value];
    values_[index] = value;
  }

 private:
  std::vector<Value> values_;
  std::map<Value, std::size_t> counts_;
};

// What each ps says that it has of what it should have in the history at hand. Not thread-safe.
class PsStates {
 public:
  explicit PsStates(std::uint32_t count);

  // A process that has none of it, in place of the one before.
  void Forget(std::uint32_t index);
  // Another history.
  void ForgetAll();
  // Another view of this one: whether a ps has it, and its list of sessions, is not known yet.
  void ForgetViews();
  // A reply under the view in force.
  void Confirm(std::uint32_t index, const v1::DirectReply& reply);
  void SetStats(std::uint32_t index, const v1::PsStats& stats) { stats_[index] = stats; }

  bool has_view(std::uint32_t index) const { return has_view_.of(index); }
  bool initialised(std::uint32_t index) const { return initialised_.of(index); }
  std::uint64_t members_version(std::uint32_t index) const { return members_version_.of(index); }
  std::uint32_t watermark(std::uint32_t index) const { return watermark_.of(index); }
  const v1::PsStats& stats(std::uint32_t index) const { return stats_[index]; }

  std::uint32_t count() const { return static_cast<std::uint32_t>(stats_.size()); }

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
  std::vector<v1::PsStats> stats_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_PS_STATES_H_
