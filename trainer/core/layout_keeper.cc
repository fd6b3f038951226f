#include "trainer/core/layout_keeper.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "trainer/core/quorum.h"

namespace downpour::core {
namespace {

constexpr absl::Duration kLookPeriod = absl::Milliseconds(10);

bool Alike(const PsConditions& a, const PsConditions& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& one, const auto& other) {
    return one.first == other.first && one.second.member.session() == other.second.member.session() &&
           one.second.lives == other.second.lives && one.second.ended == other.second.ended &&
           one.second.leaving == other.second.leaving && one.second.slowness == other.second.slowness;
  });
}

// Of the ps that decide on the next view.
struct Deciders {
  std::size_t live = 0;
  std::size_t silent = 0;  // they may come back, or come
};

Deciders CountDeciders(const v1::View& view, const std::set<std::uint64_t>& quorum, const PsConditions& conditions,
                       const PsRegistry& registry) {
  Deciders deciders;
  std::set<std::uint64_t> strangers = quorum;
  for (const auto& [index, condition] : conditions) {
    if (strangers.erase(condition.member.session()) == 0) continue;
    if (condition.lives) ++deciders.live;
    if (!condition.lives && !condition.ended) ++deciders.silent;
  }
  // Others may not have come to this coordinator yet, unless another process is in their place.
  for (const v1::PsMember& member : view.ps()) {
    if (conditions.count(member.index()) != 0 || registry.HasEnded(member)) strangers.erase(member.session());
  }
  std::size_t absent = 0;
  for (std::uint32_t index = 0; index < registry.count(); ++index) absent += conditions.count(index) == 0 ? 1 : 0;
  deciders.silent += std::min(strangers.size(), absent);
  return deciders;
}

}  // namespace

void LayoutKeeper::OnWish(const v1::ProgressRequest& request) {
  if (request.has_ps() && request.ps().revision() >= wanted_revision_ && request.ps().count() > 0) {
    wanted_revision_ = request.ps().revision();
    wanted_ = request.ps().count();
  }
  // Whoever only asks for progress wishes nothing.
  if (!request.has_ps()) return;
  leaving_ = {request.leaving_ps().begin(), request.leaving_ps().end()};
  heard_ = true;
}

void LayoutKeeper::OnView(const v1::View& view) {
  const absl::StatusOr<std::vector<Slice>> slices = CutTensors(view);
  if (slices.ok()) slices_ = *slices;
  known_ = MovesKnown();
  moving_.clear();
  has_frozen_ = false;
  std::map<std::uint32_t, std::uint64_t> held;
  for (const v1::PsMember& member : view.ps()) held[member.index()] = 0;
  for (int slice = 0; slice < view.layout_size(); ++slice) {
    const v1::SlicePlacement& placement = view.layout(slice);
    const auto number = static_cast<std::size_t>(slice);
    const std::uint64_t bytes = number < slices_.size() ? slices_[number].bytes() : 0;
    has_frozen_ = has_frozen_ || placement.frozen();
    if (placement.frozen() || placement.has_joining()) moving_.insert(placement.primary());
    held[placement.primary()] += bytes;
    if (placement.has_standby()) held[placement.standby()] += bytes;
  }
  loads_.OnLayout(held);
  reconsider_ = true;
}

void LayoutKeeper::OnReply(std::uint32_t ps, std::uint64_t session, const v1::DirectReply& reply, Time now) {
  loads_.OnStats(ps, session, reply.stats().busy_seconds(), now);
  if (moving_.count(ps) == 0) return;
  for (const v1::ReplicaState& state : reply.replicas()) {
    if (state.level()) reconsider_ = known_.level.emplace(state.slice(), state.replica()).second || reconsider_;
    if (state.frozen()) {
      reconsider_ = known_.frozen.insert(state.slice()).second || reconsider_;
    } else {
      known_.frozen.erase(state.slice());
    }
  }
}

PsConditions LayoutKeeper::Conditions(const PsRegistry& registry, const DirectCalls& calls, Time now) const {
  PsConditions conditions;
  for (const auto& [index, registration] : registry.registrations()) {
    PsCondition condition;
    condition.member = registration.self();
    const Time heard = std::max(calls.last_heard(index), heard_from_);
    condition.ended = registry.HasEnded(index);
    condition.lives = !condition.ended && now - heard <= options_.patience && !calls.broken(index, now);
    condition.leaving = leaving_.count(index) != 0 || index >= registry.count();
    condition.slowness = loads_.slowness(index);
    conditions.emplace(index, std::move(condition));
  }
  return conditions;
}

LayoutKeeper::Decision LayoutKeeper::Decide(const v1::View& view, const std::set<std::uint64_t>& quorum, bool committed,
                                            const PsRegistry& registry, const DirectCalls& calls, Moves moves,
                                            Time now) {
  Decision decision;
  next_look_ = now + kLookPeriod;
  PsConditions conditions = Conditions(registry, calls, now);
  const bool news = std::exchange(reconsider_, false) || !Alike(conditions, conditions_) || moves > moves_then_;
  conditions_ = std::move(conditions);
  moves_then_ = moves;
  decision.why = message_;
  if (!news) return decision;
  AfterLoss after = PlanAfterLoss(view, conditions_, options_.bug);
  const bool decides = after.kind == AfterLoss::Kind::kGoesOn || !committed;
  if (decides && after.kind != AfterLoss::Kind::kLost && quorum.size() >= kFewPs) {
    const Deciders deciders = CountDeciders(view, quorum, conditions_, registry);
    if (2 * deciders.live <= quorum.size()) {
      const bool lost = 2 * (deciders.live + deciders.silent) <= quorum.size();
      after.kind = lost ? AfterLoss::Kind::kLost : AfterLoss::Kind::kWaits;
      after.reason = "too few ps are left to decide who has the slices";
    }
  }
  message_ = decision.why = after.reason;
  switch (after.kind) {
    case AfterLoss::Kind::kLost:
      decision.kind = Decision::Kind::kLost;
      return decision;
    case AfterLoss::Kind::kWaits:
      return decision;
    case AfterLoss::Kind::kGoesOn:
      decision.kind = Decision::Kind::kChange;
      decision.loss = true;
      decision.next = std::move(after.next);
      return decision;
    case AfterLoss::Kind::kNothing:
      break;
  }
  if (moves == Moves::kNone) return decision;
  std::optional<NextLayout> next =
      PlanNextLayout(view, slices_, conditions_, known_, ReplicaNumber(options_.incarnation, view.stamp().epoch() + 1),
                     moves == Moves::kAll, &message_);
  decision.why = message_;
  if (!next.has_value()) return decision;
  decision.kind = Decision::Kind::kChange;
  decision.next = *std::move(next);
  decision.why = decision.next.reason;
  return decision;
}

void LayoutKeeper::OnChange(const NextLayout& next) {
  failovers_ += next.failovers;
  moves_ += next.moved;
  message_ = next.reason;
}

void LayoutKeeper::Report(const v1::View& view, v1::ProgressReply* progress) const {
  v1::ReplicationProgress& replication = *progress->mutable_replication();
  replication.set_factor(std::max<std::uint32_t>(1, view.replication_factor()));
  replication.set_slices(static_cast<std::uint32_t>(view.layout_size()));
  replication.set_in_sync(SlicesInSync(view));
  for (const v1::SlicePlacement& placement : view.layout()) {
    if (placement.has_joining()) replication.set_moving(replication.moving() + 1);
  }
  replication.set_message(message_);
  replication.set_failovers(failovers_);
  replication.set_moves(moves_);
  for (const v1::PsMember& member : view.ps()) progress->add_placed_ps(member.index());
}

}  // namespace downpour::core
