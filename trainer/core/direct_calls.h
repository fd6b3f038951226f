#ifndef DOWNPOUR_TRAINER_CORE_DIRECT_CALLS_H_
#define DOWNPOUR_TRAINER_CORE_DIRECT_CALLS_H_

#include <cstdint>
#include <map>
#include <optional>

#include "trainer/core/time.h"

namespace downpour::core {

// When each ps is told what it should have: one call at a time to each, soon after the last while something is not as
// it should be, now and then otherwise. Not thread-safe.
class DirectCalls {
 public:
  // `pace`: from an answer to the next call while something is unsettled; `period`: from call to call otherwise.
  DirectCalls(absl::Duration pace, absl::Duration period) : pace_(pace), period_(period) {}

  // The ps has registered: it may be told at once. A `new_process` is owed no answer to what was asked before it.
  void Hear(std::uint32_t index, bool new_process, Time now);
  // What is under way is about another history: its answers do not count.
  void ForgetAll();

  // Nothing: a call is under way.
  std::optional<Time> Due(std::uint32_t index, bool settled) const;
  // The number of the call.
  std::uint64_t Begin(std::uint32_t index, Time now);
  // Which ps it was; nothing: its answer does not count.
  std::optional<std::uint32_t> End(std::uint64_t call);
  // It answered.
  void Answered(std::uint32_t index, Time now);
  // Nobody was there: the connection broke, or none could be made.
  void Broken(std::uint32_t index, Time now);
  void Postpone(std::uint32_t index, Time until) { ps_[index].unsettled = ps_[index].settled = until; }

  // In an answer or a registration; of one that never was, the beginning.
  Time last_heard(std::uint32_t index) const;
  // Whether it was not there at several calls in a row, over a moment at least.
  bool broken(std::uint32_t index, Time now) const;

 private:
  struct Ps {
    Time last_heard = absl::ZeroDuration();
    Time unsettled = absl::ZeroDuration();  // when the next call is due
    Time settled = absl::ZeroDuration();    // likewise, while all is as it should be
    std::optional<std::uint64_t> call;
    int broken = 0;  // calls in a row
    Time broken_since = absl::ZeroDuration();
  };

  absl::Duration pace_;
  absl::Duration period_;
  std::map<std::uint32_t, Ps> ps_;
  std::map<std::uint64_t, std::uint32_t> under_way_;  // the ps, by call
  std::uint64_t next_call_ = 1;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_DIRECT_CALLS_H_
