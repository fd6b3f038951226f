#include "tests/simulation/rollback_checks.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "trainer/core/layout.h"

namespace downpour::simulation {
namespace {

constexpr std::size_t kFewPs = 3;  // fewer: the coordinator alone decides, and one that was restarted needs all of them

// Why it could not go on; empty: it could.
std::string CauseOf(const v1::View& view, bool same_coordinator, const std::function<bool(std::uint64_t)>& lives) {
  std::map<std::uint32_t, std::uint64_t> sessions;  // of ps that live, by index
  const std::set<std::uint64_t> all = core::PsSessions(view);
  for (const v1::PsMember& member : view.ps()) {
    if (lives(member.session())) sessions[member.index()] = member.session();
  }
  for (int slice = 0; slice < view.layout_size(); ++slice) {
    const v1::SlicePlacement& placement = view.layout(slice);
    if (sessions.contains(placement.primary())) continue;
    if (placement.has_standby() && sessions.contains(placement.standby())) continue;
    return absl::StrCat("slice ", slice);
  }
  if (all.size() >= kFewPs ? 2 * sessions.size() <= all.size() : sessions.size() < all.size() && !same_coordinator) {
    return "too few to decide";
  }
  if (same_coordinator || static_cast<std::size_t>(view.quorum_size()) < kFewPs) return "";
  const auto deciding = std::count_if(view.quorum().begin(), view.quorum().end(), lives);
  return 2 * deciding <= view.quorum_size() ? "too few know whether it counts" : "";
}

bool Counted(const v1::View& view, const std::set<std::uint64_t>& stored) {
  if (static_cast<std::size_t>(view.quorum_size()) < kFewPs) return true;
  const auto count = [&stored](std::uint64_t session) { return stored.contains(session); };
  return 2 * std::count_if(view.quorum().begin(), view.quorum().end(), count) > view.quorum_size();
}

}  // namespace

void RollbackChecks::OnApplied(const std::string& job_uid, std::uint64_t generation) {
  applied_.emplace(job_uid, generation);
}

void RollbackChecks::OnView(const std::string& job_uid, const v1::View& view, std::uint64_t session,
                            const std::function<bool(std::uint64_t)>& lives) {
  std::map<std::uint64_t, std::map<Stamp, Known>>& generations = views_[job_uid];
  const std::uint64_t generation = view.stamp().generation();
  const bool first = !generations.contains(generation);
  std::map<Stamp, Known>& views = generations[generation];
  Known& known = views[{view.stamp().incarnation(), view.stamp().epoch()}];
  known.view = view;
  known.stored.insert(session);
  if (!first) return;
  const auto here = generations.find(generation);
  if (here == generations.begin() || std::next(here) != generations.end()) return;
  // One that was replaced while it lived may come first to a new coordinator, and then nobody knows of the other.
  const std::set<std::uint64_t> now = core::PsSessions(view);
  if (!std::all_of(now.begin(), now.end(), lives)) return;
  // One of the views from the newest on that more than half of its ps stored is the one that counted.
  const std::map<Stamp, Known>& before = std::prev(here)->second;
  if (!applied_.contains({job_uid, std::prev(here)->first})) return;
  for (auto it = before.rbegin(); it != before.rend(); ++it) {
    const bool same_coordinator = it->first.first == view.stamp().incarnation();
    if (!CauseOf(it->second.view, same_coordinator, lives).empty()) return;
    if (Counted(it->second.view, it->second.stored)) break;
  }
  world_->Violation(absl::StrCat("generation ", generation, " began though all that is needed was there"));
}

}  // namespace downpour::simulation
