#include "trainer/core/shard_failures.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace downpour::core {

ShardFailures::Verdict ShardFailures::Report(const v1::MemberFailure& failure, bool in_session) {
  const ProcessKey process{failure.index(), failure.process_incarnation()};
  if (failure.role() != "worker" || judged_.count(process) != 0) return {};
  reported_[process] = failure;
  return Judge(process, in_session);
}

ShardFailures::Verdict ShardFailures::EndSession(const ProcessKey& process, std::vector<ShardKey> held,
                                                 bool in_session) {
  if (judged_.count(process) != 0) return {};
  held_[process] = std::move(held);
  return Judge(process, in_session);
}

ShardFailures::Verdict ShardFailures::Judge(const ProcessKey& process, bool in_session) {
  const auto reported = reported_.find(process);
  const auto held = held_.find(process);
  if (reported == reported_.end() || held == held_.end() || in_session) return {};
  Verdict verdict;
  verdict.last = std::move(reported->second);
  const std::vector<ShardKey> shards = std::move(held->second);
  reported_.erase(reported);
  held_.erase(held);
  judged_.insert(process);
  if (verdict.last.platform()) return verdict;
  for (const ShardKey& shard : shards) {
    if (++failures_[shard] >= kMost) verdict.guilty.push_back(shard);
  }
  return verdict;
}

std::string Describe(const ShardFailures::Verdict& verdict, const DataPlan& plan) {
  std::string text;
  for (const auto& [epoch, shard] : verdict.guilty) {
    const UpdateId first{epoch, shard, 0};
    const UpdateId last{epoch, shard, plan.updates_in_shard(epoch, shard) - 1};
    absl::StrAppend(&text, text.empty() ? "" : " or ", "data shard ", shard, " of epoch ", epoch + 1, " (samples ",
                    plan.first_position(first), " to ", plan.first_position(last) + plan.samples_in_update(last) - 1,
                    " in the order of that epoch)");
  }
  absl::StrAppend(&text, " ended ", ShardFailures::kMost, " workers that held it; the last was worker-",
                  verdict.last.index(), ": ", verdict.last.cause());
  return text;
}

}  // namespace downpour::core
