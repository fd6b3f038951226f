#ifndef DOWNPOUR_TRAINER_CORE_SHARD_FAILURES_H_
#define DOWNPOUR_TRAINER_CORE_SHARD_FAILURES_H_

#include <map>
#include <set>
#include <string>
#include <vector>

#include "downpour/v1/control.pb.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/keys.h"

namespace downpour::core {

// Which data shards end the workers that hold them. How a process ended is told by whoever started it, what it held is
// known when its newest session ends; in which order, and how often, does not matter. A failure that is not the
// platform's counts against each data shard that was held. Not thread-safe.
class ShardFailures {
 public:
  static constexpr int kMost = 3;  // of one data shard: it is guilty

  struct Verdict {
    std::vector<ShardKey> guilty;  // empty: nothing is to be done
    v1::MemberFailure last;        // the failure that decided it
  };

  // `in_session`: the process has a session. It took another one after one that expired, and what it holds is not
  // known before that one ends too.
  Verdict Report(const v1::MemberFailure& failure, bool in_session);
  // A session of the process ended, in which it was working on these.
  Verdict EndSession(const ProcessKey& process, std::vector<ShardKey> held, bool in_session);
  // All of it is applied: it cannot end anybody any more.
  void Retire(const ShardKey& shard) { failures_.erase(shard); }

 private:
  Verdict Judge(const ProcessKey& process, bool in_session);

  // What a process held when its newest session ended, and how it ended, until both are known.
  std::map<ProcessKey, std::vector<ShardKey>> held_;
  std::map<ProcessKey, v1::MemberFailure> reported_;
  std::set<ProcessKey> judged_;
  std::map<ShardKey, int> failures_;
};

// "data shard 0 of epoch 1 (samples 0 to 3 in the order of that epoch) or ... ended 3 workers that held it; ..."
std::string Describe(const ShardFailures::Verdict& verdict, const DataPlan& plan);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_SHARD_FAILURES_H_
