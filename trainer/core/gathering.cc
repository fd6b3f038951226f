#include "trainer/core/gathering.h"

#include <set>
#include <utility>

#include "trainer/core/counted_evaluations.h"
#include "trainer/core/layout.h"
#include "trainer/core/quorum.h"

namespace downpour::core {
namespace {

// Those of the view's ps that have not come and are not known to be gone: each may decide yet.
std::set<std::uint64_t> Awaited(const v1::View& view, const PsRegistry& registry) {
  std::set<std::uint64_t> awaited;
  for (const v1::PsMember& member : view.ps()) {
    if (registry.Find(member.index()) == nullptr && !registry.HasEnded(member)) awaited.insert(member.session());
  }
  return awaited;
}

}  // namespace

Gathered PlanGathered(const v1::View& newest, const PsRegistry& registry, PsConditions ps, std::uint32_t incarnation,
                      PlantedBug bug) {
  Gathered gathered;
  gathered.own = newest.stamp().incarnation() == incarnation;
  gathered.view = newest;
  for (auto& [index, condition] : ps) condition.lives = !condition.ended;
  for (const v1::PsMember& member : newest.ps()) {
    if (ps.count(member.index()) != 0 || !registry.HasEnded(member)) continue;
    ps[member.index()] = {.member = member, .lives = false, .ended = true};
  }
  const AfterLoss after = PlanAfterLoss(newest, ps, bug);
  const bool all_there = after.kind == AfterLoss::Kind::kNothing;
  const bool others_take_over = after.kind == AfterLoss::Kind::kGoesOn && !gathered.own;
  // Enough of those that decide on it have to be there to make it count.
  const auto decide = [&](const std::set<std::uint64_t>& sessions, const std::set<std::uint64_t>& live) {
    if (all_there) return gathered.own ? IsCommittedBy(newest, live) : true;
    return others_take_over && MayTakeOver(newest, sessions) && MayGoOn(newest, live);
  };
  bool goes_on = decide(registry.sessions(), registry.live());
  if (others_take_over) {
    goes_on = goes_on || bug == PlantedBug::kMajoritySkipped;
    v1::View& rest = gathered.view;
    rest.mutable_layout()->Assign(after.next.layout.begin(), after.next.layout.end());
    rest.mutable_ps()->Assign(after.next.ps.begin(), after.next.ps.end());
    if (after.next.failovers > 0 && rest.replication_lag() > 0) rest.set_lost_epoch(rest.stamp().epoch() + 1);
  }
  if (!goes_on) {
    const bool somewhere = all_there || after.kind == AfterLoss::Kind::kGoesOn;
    gathered.reason = somewhere ? "too few of the ps that decide on the view are there" : after.reason;
    if (!registry.complete() || after.kind == AfterLoss::Kind::kWaits) return gathered;
    // Also with more ps than are wanted by now.
    std::set<std::uint64_t> awaited = Awaited(newest, registry);
    std::set<std::uint64_t> sessions = registry.sessions(), live = registry.live();
    sessions.insert(awaited.begin(), awaited.end());
    live.insert(awaited.begin(), awaited.end());
    if (!decide(sessions, live)) gathered.kind = Gathered::Kind::kLost;
    return gathered;
  }
  // What a ps holds that has not loaded its checkpoint says nothing of what is applied: then it is begun with again.
  if (gathered.view.has_restore() && !gathered.own && !registry.HasBegun(gathered.view)) {
    gathered.kind = Gathered::Kind::kLost;
    gathered.reason = "a ps has not loaded the checkpoint that the history begins with";
    return gathered;
  }
  gathered.kind = Gathered::Kind::kGoesOn;
  gathered.reason = after.next.reason;
  if (others_take_over) gathered.change = after.next;
  return gathered;
}

v1::View ResumedView(const v1::View& gathered, const v1::View& newest, const PsRegistry& registry, const DataPlan& plan,
                     const UpdateMode& mode, std::uint32_t incarnation, PlantedBug bug) {
  v1::View view = gathered;
  v1::ViewStamp& stamp = *view.mutable_stamp();
  stamp.set_incarnation(incarnation);
  SetQuorum(PsSessions(newest), &view);
  const bool lost = view.lost_epoch() > stamp.epoch();
  const bool another_mode = mode != ModeOf(view);
  // Whatever the coordinator before made of this view and nobody knows any more had the next number.
  if (another_mode || view.ps_size() != newest.ps_size()) stamp.set_epoch(stamp.epoch() + 1);
  if (another_mode || lost) view.set_mode_epoch(stamp.epoch());
  if (another_mode) {
    SetMode(mode, &view);
    FitEnd(plan, &view);
  }
  if (bug == PlantedBug::kEvaluationsForgotten) view.clear_evaluations();
  for (v1::PsMember& member : *view.mutable_ps()) member = *registry.Find(member.index());
  return view;
}

}  // namespace downpour::core
