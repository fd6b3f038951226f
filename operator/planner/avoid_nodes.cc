#include "operator/planner/avoid_nodes.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace downpour::planner {
namespace {

constexpr std::size_t kMostNodes = 100;

const api::AvoidNodes* Policy(const Context& context) {
  const std::optional<api::SchedulingSpec>& scheduling = context.job.spec.scheduling;
  return scheduling.has_value() && scheduling->avoid_nodes.has_value() ? &*scheduling->avoid_nodes : nullptr;
}

void ForgetOldFaults(const Context& context, api::NodeStatus& node) {
  const int window = context.job.spec.failure_policy.window_seconds;
  if (window == 0) return;
  std::erase_if(node.fault_times, [&](double time) { return time <= context.now - window; });
}

}  // namespace

void RecordNodeFault(Context& context, const Instance& instance, const Cause& cause) {
  const api::AvoidNodes* policy = Policy(context);
  if (policy == nullptr || instance.node.empty() || !cause.node_fault) return;
  std::vector<api::NodeStatus>& nodes = context.status.nodes;
  auto node = std::find_if(nodes.begin(), nodes.end(),
                           [&instance](const api::NodeStatus& known) { return known.name == instance.node; });
  if (node == nodes.end()) {
    // The status must not grow with the cluster: the node whose only fault is the oldest goes first.
    if (nodes.size() >= kMostNodes) {
      const auto used = std::find_if(nodes.begin(), nodes.end(),
                                     [](const api::NodeStatus& known) { return !known.avoided_until.has_value(); });
      nodes.erase(used == nodes.end() ? nodes.begin() : used);
    }
    node = nodes.insert(nodes.end(), api::NodeStatus{instance.node, {}, std::nullopt});
  }
  const double until = context.now + policy->for_seconds;
  context.WakeAt(until);
  if (node->avoided_until.has_value()) {
    node->avoided_until = until;  // of a pod that was there already
    return;
  }
  ForgetOldFaults(context, *node);
  node->fault_times.push_back(context.now);
  const std::size_t faults = node->fault_times.size();
  if (faults < static_cast<std::size_t>(policy->after_failures)) return;
  node->fault_times.clear();
  node->avoided_until = until;
  context.Emit(true, "NodeAvoided",
               absl::StrCat("new pods keep away from node ", node->name, " for ", policy->for_seconds, " s: ", faults,
                            faults == 1 ? " pod" : " pods", " of this job failed there; the last was ",
                            InstanceName(instance.role, instance.index), ", ", cause.description));
}

void ForgetNodeFaults(Context& context) {
  bool any_expired = false;
  for (api::NodeStatus& node : context.status.nodes) {
    ForgetOldFaults(context, node);
    if (!node.avoided_until.has_value()) continue;
    if (context.now < *node.avoided_until) {
      context.WakeAt(*node.avoided_until);
      continue;
    }
    node.avoided_until.reset();
    any_expired = true;
    context.Emit(false, "NodeUsedAgain", absl::StrCat("new pods may run on node ", node.name, " again"));
  }
  for (const Instance& instance : context.observed.instances) {
    // What waits was made to keep away for good: it is replaced by what does not, and that is no failure.
    if (any_expired && instance.phase == InstancePhase::kPending && instance.node.empty()) context.Account(instance);
  }
  std::erase_if(context.status.nodes, [](const api::NodeStatus& node) {
    return node.fault_times.empty() && !node.avoided_until.has_value();
  });
}

std::vector<std::string> AvoidedNodes(const api::TrainingJobStatus& status) {
  std::vector<std::string> names;
  for (const api::NodeStatus& node : status.nodes) {
    if (node.avoided_until.has_value()) names.push_back(node.name);
  }
  return names;
}

}  // namespace downpour::planner
