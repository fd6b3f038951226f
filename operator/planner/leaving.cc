#include "operator/planner/leaving.h"

#include <algorithm>
#include <set>

#include "operator/planner/status.h"

namespace downpour::planner {
namespace {

constexpr auto kPs = api::Role::kParameterServer;
// A coordinator that something waits for is asked every second, or every ten where many jobs are.
constexpr double kFreshSeconds = 30;

bool Contains(const std::vector<int>& indices, int index) {
  return std::find(indices.begin(), indices.end(), index) != indices.end();
}

// nullptr: it does not leave.
const api::LeavingParameterServer* FindLeaving(const Context& context, int index) {
  for (const api::LeavingParameterServer& ps : context.status.leaving_parameter_servers) {
    if (ps.index == index) return &ps;
  }
  return nullptr;
}

int Wanted(const Context& context) { return DesiredReplicas(context.job.spec, kPs); }

// Of the wanted ones, those with a process on a node that is drained, also one that ends.
std::set<int> OnDrainedNodes(const Context& context) {
  const std::vector<std::string>& cordoned = *context.observed.cordoned_nodes;
  std::set<int> indices;
  for (const Instance& instance : context.observed.instances) {
    if (instance.role != kPs || instance.index >= Wanted(context) || !IsLive(instance)) continue;
    if (std::find(cordoned.begin(), cordoned.end(), instance.node) != cordoned.end()) indices.insert(instance.index);
  }
  return indices;
}

}  // namespace

bool HoldsNothing(const Context& context, int index) {
  const CoordinatorReport* report = TrainingReport(context);
  if (report == nullptr || report->placed_ps.empty() || Contains(report->placed_ps, index)) return false;
  if (context.now - report->received_time > kFreshSeconds) return false;
  if (index >= Wanted(context)) return report->told.revision == context.job.metadata.generation;
  // An answer from before may be about another drain, and the ps hold something again.
  const api::LeavingParameterServer* const leaving = FindLeaving(context, index);
  return leaving != nullptr && report->received_time > leaving->since && Contains(report->told.leaving_ps, index);
}

void ChooseLeaving(Context& context) {
  std::vector<api::LeavingParameterServer>& leaving = context.status.leaving_parameter_servers;
  if (!HasStandbys(context.job.spec) || IsSettled(context.status) || IsTrue(context.status, kSuspended) ||
      !TrainingHasBegun(context)) {
    leaving.clear();
    return;
  }
  if (!context.observed.cordoned_nodes.has_value()) return;
  const std::set<int> drained = OnDrainedNodes(context);
  std::erase_if(leaving, [&drained](const auto& ps) { return !drained.contains(ps.index); });
  int staying = 0;
  for (int index = 0; index < Wanted(context); ++index) {
    if (IsWorking(context.LiveInstance(kPs, index)) && FindLeaving(context, index) == nullptr) ++staying;
  }
  const int least = std::max(1, std::min(context.job.spec.parameter_server->replication_factor, Wanted(context) - 1));
  for (const int index : drained) {
    if (staying <= least) break;
    if (FindLeaving(context, index) != nullptr || !IsWorking(context.LiveInstance(kPs, index))) continue;
    leaving.push_back({index, context.now});
    --staying;
  }
  std::sort(leaving.begin(), leaving.end(), [](const auto& a, const auto& b) { return a.index < b.index; });
}

std::vector<int> FreeParameterServers(const Context& context) {
  std::vector<int> free;
  for (const api::LeavingParameterServer& ps : context.status.leaving_parameter_servers) {
    if (HoldsNothing(context, ps.index)) free.push_back(ps.index);
  }
  return free;
}

int CountProtected(const Context& context) {
  std::set<int> indices;
  for (int index = 0; index < Wanted(context); ++index) indices.insert(index);
  for (const Instance& instance : context.observed.instances) {
    if (instance.role != kPs || !IsLive(instance) || instance.index < Wanted(context)) continue;
    if (!HoldsNothing(context, instance.index)) indices.insert(instance.index);
  }
  for (const int index : FreeParameterServers(context)) indices.erase(index);
  return static_cast<int>(indices.size());
}

}  // namespace downpour::planner
