#include "trainer/core/ring/ring_plan.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "trainer/core/keys.h"
#include "trainer/core/layout.h"

namespace downpour::core {
namespace {

RingDecision Decide(RingDecision::Kind kind, std::string reason, std::vector<std::uint64_t> members = {}) {
  RingDecision decision;
  decision.kind = kind;
  decision.members = std::move(members);
  decision.reason = std::move(reason);
  return decision;
}

}  // namespace

int ComparePositions(const RingPosition& a, const RingPosition& b) {
  if (a.known != b.known) return a.known ? 1 : -1;
  if (!a.known) return 0;
  if (const int order = CompareStamps(a.took, b.took); order != 0) return order;
  return a.updates == b.updates ? 0 : a.updates < b.updates ? -1 : 1;
}

int NewestOf(const std::vector<RingPosition>& positions) {
  int newest = -1;
  for (std::size_t rank = 0; rank < positions.size(); ++rank) {
    if (newest < 0 || ComparePositions(positions[rank], positions[static_cast<std::size_t>(newest)]) > 0) {
      newest = static_cast<int>(rank);
    }
  }
  return newest;
}

bool CanFinish(const RingPosition& position, const RingPosition& newest) {
  return position.known && position.prepared.has_value() && CompareStamps(*position.prepared, newest.took) == 0 &&
         position.prepared_updates == newest.updates;
}

absl::StatusOr<RingRecovery> PlanRecovery(const std::vector<RingPosition>& positions, const GradientLayout& layout,
                                          absl::Span<const Slice> slices, std::uint32_t copies) {
  std::vector<int> newest_first;
  for (std::size_t rank = 0; rank < positions.size(); ++rank) {
    if (positions[rank].known) newest_first.push_back(static_cast<int>(rank));
  }
  const auto of = [&positions](int rank) -> const RingPosition& { return positions[static_cast<std::size_t>(rank)]; };
  std::stable_sort(newest_first.begin(), newest_first.end(),
                   [&](int a, int b) { return ComparePositions(of(a), of(b)) > 0; });
  absl::Status lost = absl::DataLossError("no worker that is left has a state");
  for (const int source : newest_first) {
    const RingPosition& newest = of(newest_first.front());
    if (of(source).updates + newest.last.updates < newest.updates) break;
    std::vector<std::vector<StateShare>> shares;
    for (const RingPosition& position : positions) {
      const bool there = ComparePositions(position, of(source)) == 0 || CanFinish(position, of(source));
      shares.push_back(there ? position.shares : std::vector<StateShare>());
    }
    absl::StatusOr<std::vector<StateFragment>> fragments = PlanFragments(layout, slices, copies, shares);
    if (fragments.ok()) return RingRecovery{source, *std::move(fragments)};
    lost = fragments.status();
  }
  return lost;
}

bool AllSettled(const std::vector<RingPosition>& positions, std::uint32_t holders) {
  for (std::uint32_t rank = 0; rank < positions.size(); ++rank) {
    const RingPosition& position = positions[rank];
    if (!position.known || !position.whole || ComparePositions(position, positions.front()) != 0) return false;
    if (rank < holders && position.shares != std::vector<StateShare>{{rank, holders}}) return false;
  }
  return true;
}

RingDecision PlanRing(const RingSituation& situation, Time now) {
  using Kind = RingDecision::Kind;
  std::map<std::uint64_t, const RingCandidate*> live;
  for (const RingCandidate& candidate : situation.candidates) live[candidate.session] = &candidate;
  std::vector<std::string> causes;
  std::vector<const RingCandidate*> members;  // of the next ring
  std::vector<const RingCandidate*> leavers;
  bool broken = false, all_broken = true;
  const RingCandidate* busy = nullptr;
  for (std::size_t rank = 0; rank < situation.ring.size(); ++rank) {
    const auto found = live.find(situation.ring[rank]);
    if (found == live.end()) {
      causes.push_back(absl::StrCat("rank ", rank, " is gone"));
      continue;
    }
    const RingCandidate& candidate = *found->second;
    live.erase(found);
    if (candidate.leaving) {
      causes.push_back(absl::StrCat("worker-", candidate.index, " leaves"));
      leavers.push_back(&candidate);
      broken = broken || candidate.broken;
      continue;
    }
    if (candidate.busy) busy = &candidate;
    broken = broken || candidate.broken;
    all_broken = all_broken && candidate.broken;
    members.push_back(&candidate);
  }
  const bool had_ring = !situation.ring.empty();
  if (had_ring && situation.of_another_coordinator) causes.push_back("the coordinator began anew");
  if (broken && causes.empty()) {
    // Whoever is dead has not noticed anything: its session ends soon, and then it is not in the next ring.
    if (!all_broken && now - situation.broken_since < kRingNotices) {
      return Decide(Kind::kKeep, "the group of the ring has failed: the others are to notice");
    }
    causes.push_back("the group of the ring has failed");
  }
  std::vector<const RingCandidate*> joiners;
  for (const RingCandidate& candidate : situation.candidates) {
    if (live.count(candidate.session) != 0 && !candidate.leaving) joiners.push_back(&candidate);
  }
  if (had_ring && causes.empty()) {
    if (joiners.empty()) return Decide(Kind::kKeep, "");
    if (now - situation.since < kRingSettles) return Decide(Kind::kKeep, "others may come");
    causes.push_back("workers have come");
  }
  if (busy != nullptr) return Decide(Kind::kKeep, absl::StrCat("worker-", busy->index, " has a task"));
  members.insert(members.end(), joiners.begin(), joiners.end());
  const auto has_state = [](const RingCandidate* member) { return member->has_state; };
  const bool lost = !situation.state_lost.empty();
  if (lost) causes.push_back(situation.state_lost);
  bool known = !lost && std::any_of(members.begin(), members.end(), has_state);
  const bool lacks = situation.incomplete || (!known && std::none_of(leavers.begin(), leavers.end(), has_state));
  if (had_ring && !lost && lacks && now < situation.may_return_until) {
    return Decide(Kind::kAwait, "those who have the rest of the state are not heard of, and may come back");
  }
  bool hands_over = false;
  if (!lost && (!known || situation.hand_over) && !members.empty() &&
      std::any_of(leavers.begin(), leavers.end(), has_state)) {
    // Nobody else has what they have: they go on until somebody does.
    const std::size_t staying = members.size();
    members.insert(members.end(), leavers.begin(), leavers.end());
    known = true;
    hands_over = situation.hand_over;
    const bool same =
        !broken && (situation.holders == 0 || situation.holders == staying) &&
        std::equal(members.begin(), members.end(), situation.ring.begin(), situation.ring.end(),
                   [](const RingCandidate* member, std::uint64_t session) { return member->session == session; });
    if (same) return Decide(Kind::kKeep, "those who leave hand over what they have");
  }
  // Who hands over what he has takes no step.
  if (!hands_over && members.size() < std::max<std::uint32_t>(1, situation.wish.least)) {
    return Decide(Kind::kWait,
                  absl::StrCat(members.size(), " of at least ", situation.wish.least, " workers are there"));
  }
  if (!had_ring && members.size() < situation.wish.expected && now - situation.since < kRingPatience) {
    return Decide(Kind::kWait, absl::StrCat(members.size(), " of ", situation.wish.expected, " workers are there"));
  }
  if (!had_ring) causes.push_back("the ring begins");
  std::vector<std::uint64_t> sessions;
  sessions.reserve(members.size());
  for (const RingCandidate* member : members) sessions.push_back(member->session);
  std::string reason =
      absl::StrCat(absl::StrJoin(causes, ", "), ": ", sessions.size(), sessions.size() == 1 ? " worker" : " workers");
  return Decide(known ? Kind::kForm : Kind::kBegin, std::move(reason), std::move(sessions));
}

}  // namespace downpour::core
