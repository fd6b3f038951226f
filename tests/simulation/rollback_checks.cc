#include "tests/simulation/rollback_checks.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "trainer/core/layout.h"

namespace downpour::simulation {
namespace {

constexpr std::size_t kFewPs = 3;  // fewer: the coordinator alone decides, and one that was restarted needs all of them

// The rules of trainer/core/layout_keeper.h once more, as what is checked must not check itself.

// Whether those with which it holds are enough to know that the view counts.
bool Counts(const v1::View& view, const std::function<bool(std::uint64_t)>& holds) {
  if (static_cast<std::size_t>(view.quorum_size()) < kFewPs) return true;
  return 2 * std::count_if(view.quorum().begin(), view.quorum().end(), holds) > view.quorum_size();
}

bool CouldGoOn(const v1::View& view, bool same_coordinator, const std::function<bool(std::uint64_t)>& lives) {
  std::set<std::uint32_t> living;  // ps
  for (const v1::PsMember& member : view.ps()) {
    if (lives(member.session())) living.insert(member.index());
  }
  const bool has_all =
      std::all_of(view.layout().begin(), view.layout().end(), [&living](const v1::SlicePlacement& placement) {
        return living.contains(placement.primary()) ||
               (placement.has_standby() && living.contains(placement.standby()));
      });
  if (!has_all) return false;
  const std::size_t all = static_cast<std::size_t>(view.ps_size());
  if (all >= kFewPs ? 2 * living.size() <= all : living.size() < all && !same_coordinator) return false;
  return same_coordinator || Counts(view, lives);
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
  const std::set<std::uint64_t> sessions = core::PsSessions(view);
  if (!std::all_of(sessions.begin(), sessions.end(), lives)) return;
  // One of the views from the newest on that more than half of its ps stored is the one that counted.
  const std::map<Stamp, Known>& before = std::prev(here)->second;
  if (!applied_.contains({job_uid, std::prev(here)->first})) return;
  for (auto it = before.rbegin(); it != before.rend(); ++it) {
    const Known& last = it->second;
    const bool same_coordinator = it->first.first == view.stamp().incarnation();
    if (!CouldGoOn(last.view, same_coordinator, lives)) return;
    if (Counts(last.view, [&last](std::uint64_t by) { return last.stored.contains(by); })) break;
  }
  world_->Violation(absl::StrCat("generation ", generation, " began though all that is needed was there"));
}

}  // namespace downpour::simulation
