#include "trainer/core/layout_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

namespace downpour::core {
namespace {

// Copies at one time, over all ps, and for each of them: each holds memory at its primary.
constexpr std::uint32_t kMostCopies = 16;
constexpr std::uint32_t kMostCopiesOfEach = 4;
// The fullest ps may have more than the mean by this part of it.
constexpr std::uint64_t kNotFelt = 20;

// Of a ps of the view, with the sessions of all of them.
bool Lives(const PsConditions& ps, std::uint32_t index, const std::set<std::uint64_t>& sessions) {
  const auto condition = ps.find(index);
  return condition != ps.end() && condition->second.lives && sessions.count(condition->second.member.session()) != 0;
}

// Likewise: it has ended, or another process has its place.
bool IsGone(const PsConditions& ps, std::uint32_t index, const std::set<std::uint64_t>& sessions) {
  const auto condition = ps.find(index);
  return condition != ps.end() && (condition->second.ended || sessions.count(condition->second.member.session()) == 0);
}

void ClearStandby(v1::SlicePlacement* placement) {
  placement->clear_standby();
  placement->clear_standby_replica();
}
void ClearJoining(v1::SlicePlacement* placement) {
  placement->clear_joining();
  placement->clear_joining_replica();
  placement->clear_joining_leads();
}

// The layout on its way to what is wanted.
class Planner {
 public:
  Planner(const v1::View& view, absl::Span<const Slice> slices, const PsConditions& ps, const MovesKnown& known,
          std::uint64_t replica)
      : view_(view), slices_(slices), ps_(ps), known_(known), replica_(replica) {
    next_.layout.assign(view.layout().begin(), view.layout().end());
    for (const auto& [index, condition] : ps_) {
      if (condition.lives) load_[index] = Load();
      if (condition.lives && !condition.leaving) eligible_.push_back(index);
    }
    for (const Slice& slice : slices_) largest_slice_ = std::max(largest_slice_, slice.bytes());
  }

  std::optional<NextLayout> Plan(bool may_begin, std::string* why) {
    for (std::uint32_t slice = 0; slice < next_.layout.size(); ++slice) Advance(slice);
    for (std::uint32_t slice = 0; slice < next_.layout.size(); ++slice) {
      const v1::SlicePlacement& placement = next_.layout[slice];
      load_[placement.primary()].primary += slices_[slice].bytes();
      if (placement.has_standby()) load_[placement.standby()].standby += slices_[slice].bytes();
      if (!placement.has_joining()) continue;
      ++copies_;
      Load& load = load_[placement.joining()];
      (placement.joining_leads() ? load.primary : load.standby) += slices_[slice].bytes();
      // What it takes the place of goes with it.
      if (placement.joining_leads()) load_[placement.primary()].primary -= slices_[slice].bytes();
    }
    for (std::uint32_t slice = 0; may_begin && slice < next_.layout.size(); ++slice) Begin(slice);
    if (may_begin && copies_ == 0 && moves_begun_ == 0) Balance();
    SetMembers();
    if (changed_) {
      next_.reason = absl::StrJoin(reasons_, ", ");
      return next_;
    }
    if (why != nullptr) {
      *why = copies_ > 0        ? absl::StrCat(copies_, " slices are being copied")
             : moves_begun_ > 0 ? "slices move"
                                : missing_;
    }
    return std::nullopt;
  }

 private:
  struct Load {
    std::uint64_t primary = 0, standby = 0;
  };

  void Because(const std::string& reason) {
    changed_ = true;
    if (std::find(reasons_.begin(), reasons_.end(), reason) == reasons_.end()) reasons_.push_back(reason);
  }
  bool IsEligible(std::uint32_t index) const { return std::binary_search(eligible_.begin(), eligible_.end(), index); }
  const std::string& NodeOf(std::uint32_t index) const { return ps_.at(index).member.node(); }
  bool OnOneNode(std::uint32_t a, std::uint32_t b) const { return !NodeOf(a).empty() && NodeOf(a) == NodeOf(b); }
  bool WantsStandby() const { return view_.replication_factor() > 1; }

  // What is under way goes as far as it can.
  void Advance(std::uint32_t slice) {
    v1::SlicePlacement& placement = next_.layout[slice];
    const bool level = placement.has_joining() && known_.level.count({slice, placement.joining_replica()}) != 0;
    if (placement.frozen()) {
      if (known_.frozen.count(slice) == 0) {
        ++moves_begun_;
        return;
      }
      // Every replica has all there is: any may go on.
      const std::uint32_t before = placement.primary();
      const std::uint64_t before_replica = placement.primary_replica();
      if (placement.has_joining()) {
        placement.set_primary(placement.joining());
        placement.set_primary_replica(placement.joining_replica());
        ClearJoining(&placement);
      } else {
        placement.set_primary(placement.standby());
        placement.set_primary_replica(placement.standby_replica());
        ClearStandby(&placement);
      }
      placement.clear_frozen();
      if (WantsStandby() && !placement.has_standby() && IsEligible(before)) {
        placement.set_standby(before);
        placement.set_standby_replica(before_replica);
      }
      ++next_.moved;
      Because("slices have moved");
    } else if (level && placement.joining_leads()) {
      placement.set_frozen(true);
      ++moves_begun_;
      Because("slices are about to move");
    } else if (level) {
      placement.set_standby(placement.joining());
      placement.set_standby_replica(placement.joining_replica());
      ClearJoining(&placement);
      ++next_.moved;
      Because("standbys are in sync");
    }
  }

  // What is not as wanted begins to change.
  void Begin(std::uint32_t slice) {
    v1::SlicePlacement& placement = next_.layout[slice];
    if (placement.frozen() || placement.has_joining()) return;
    if (!IsEligible(placement.primary())) {
      if (placement.has_standby() && IsEligible(placement.standby())) {
        Freeze(&placement, slice);
      } else {
        Copy(slice, /*leads=*/true, "a ps is to leave");
      }
      return;
    }
    if (!WantsStandby()) {
      if (!placement.has_standby()) return;
      ClearStandby(&placement);
      Because("standbys are not wanted");
    } else if (!placement.has_standby()) {
      Copy(slice, /*leads=*/false, "slices without a standby");
    } else if (!IsEligible(placement.standby())) {
      Copy(slice, /*leads=*/false, "a ps is to leave");
    } else if (OnOneNode(placement.primary(), placement.standby()) &&
               std::any_of(eligible_.begin(), eligible_.end(),
                           [&](std::uint32_t index) { return !OnOneNode(placement.primary(), index); })) {
      Copy(slice, /*leads=*/false, "standbys go to another node");
    }
  }

  void Freeze(v1::SlicePlacement* placement, std::uint32_t slice) {
    placement->set_frozen(true);
    load_[placement->primary()].primary -= slices_[slice].bytes();
    load_[placement->standby()].primary += slices_[slice].bytes();
    ++moves_begun_;
    Because("slices go over to their standbys");
  }

  void Copy(std::uint32_t slice, bool leads, const std::string& reason) {
    if (copies_ >= most_copies()) return;
    v1::SlicePlacement& placement = next_.layout[slice];
    std::optional<std::uint32_t> best;
    const auto rank = [&](std::uint32_t index) {
      return std::make_pair(!leads && OnOneNode(index, placement.primary()),
                            Felt(index, leads, slices_[slice].bytes()));
    };
    for (const std::uint32_t index : eligible_) {
      if (index == placement.primary() || (placement.has_standby() && placement.standby() == index)) continue;
      if (!best.has_value() || rank(index) < rank(*best)) best = index;
    }
    if (!best.has_value()) {
      missing_ = absl::StrCat("no other ps is there for ", reason);
      return;
    }
    CopyTo(slice, *best, leads, reason);
  }

  void CopyTo(std::uint32_t slice, std::uint32_t to, bool leads, const std::string& reason) {
    v1::SlicePlacement& placement = next_.layout[slice];
    placement.set_joining(to);
    placement.set_joining_replica(replica_);
    if (leads) placement.set_joining_leads(true);
    ++copies_;
    if (leads) load_[placement.primary()].primary -= slices_[slice].bytes();
    (leads ? load_[to].primary : load_[to].standby) += slices_[slice].bytes();
    Because(reason);
  }

  // From the fullest to the emptiest, as long as that makes them more alike.
  void Balance() {
    while (copies_ + moves_begun_ < most_copies() && BalanceOne(/*leads=*/true)) {
    }
    while (copies_ + moves_begun_ < most_copies() && WantsStandby() && BalanceOne(/*leads=*/false)) {
    }
  }

  // How long the ps would take for what it holds and so many bytes more, in bytes of the quickest.
  double Felt(std::uint32_t index, bool leads, std::uint64_t more = 0) const {
    const Load& load = load_.at(index);
    return static_cast<double>((leads ? load.primary : load.standby) + more) * ps_.at(index).slowness;
  }

  std::string SpreadAnew(std::uint32_t from) const {
    const double slowness = ps_.at(from).slowness;
    const std::string what = "slices are spread anew";
    return slowness == 1 ? what
                         : absl::StrFormat("%s, as ps-%d takes %.1f times as long as others", what, from, slowness);
  }

  bool BalanceOne(bool leads) {
    if (eligible_.size() < 2) return false;
    const auto fuller = [&](std::uint32_t a, std::uint32_t b) { return Felt(a, leads) < Felt(b, leads); };
    const auto fuller_then = [&](std::uint32_t a, std::uint32_t b) {
      return Felt(a, leads, largest_slice_) < Felt(b, leads, largest_slice_);
    };
    const std::uint32_t fullest = *std::max_element(eligible_.begin(), eligible_.end(), fuller);
    const std::uint32_t emptiest = *std::min_element(eligible_.begin(), eligible_.end(), fuller_then);
    if (emptiest == fullest) return false;
    double bytes = 0, quickness = 0;
    for (const std::uint32_t index : eligible_) {
      bytes += static_cast<double>(leads ? load_[index].primary : load_[index].standby);
      quickness += 1 / ps_.at(index).slowness;
    }
    const double mean = bytes / quickness;  // if slices could be cut anywhere
    const double most = Felt(fullest, leads);
    // Not for what is hardly felt, and is no more than a slice.
    const double over = most - mean;
    if (kNotFelt * over <= mean && over <= static_cast<double>(largest_slice_) * ps_.at(fullest).slowness) return false;
    // The one after which the fuller one of both is least full, which is less than before.
    std::optional<std::uint32_t> best;
    double least = most;
    for (std::uint32_t slice = 0; slice < next_.layout.size(); ++slice) {
      const v1::SlicePlacement& placement = next_.layout[slice];
      if (placement.frozen() || placement.has_joining()) continue;
      const bool there =
          leads ? placement.primary() == fullest
                : placement.has_standby() && placement.standby() == fullest && placement.primary() != emptiest &&
                      (OnOneNode(placement.primary(), fullest) || !OnOneNode(placement.primary(), emptiest));
      if (!there) continue;
      const std::uint64_t moved = slices_[slice].bytes();
      const double after =
          std::max(most - static_cast<double>(moved) * ps_.at(fullest).slowness, Felt(emptiest, leads, moved));
      if (after >= least) continue;
      least = after;
      best = slice;
    }
    if (!best.has_value()) return false;
    v1::SlicePlacement& placement = next_.layout[*best];
    if (leads && placement.has_standby() && placement.standby() == emptiest) {
      Freeze(&placement, *best);
    } else {
      CopyTo(*best, emptiest, leads, SpreadAnew(fullest));
      if (!leads) load_[fullest].standby -= slices_[*best].bytes();
    }
    return true;
  }

  // Who is there and may hold something, or still does.
  void SetMembers() {
    std::set<std::uint32_t> placed;
    for (const v1::SlicePlacement& placement : next_.layout) {
      placed.insert(placement.primary());
      if (placement.has_standby()) placed.insert(placement.standby());
      if (placement.has_joining()) placed.insert(placement.joining());
    }
    std::set<std::uint64_t> after;
    for (const auto& [index, condition] : ps_) {
      if (!condition.lives || (condition.leaving && placed.count(index) == 0)) continue;
      next_.ps.push_back(condition.member);
      after.insert(condition.member.session());
    }
    if (after != PsSessions(view_)) Because("another list of ps");
  }

  std::uint32_t most_copies() const {
    return std::max(kMostCopies, kMostCopiesOfEach * static_cast<std::uint32_t>(load_.size()));
  }

  const v1::View& view_;
  absl::Span<const Slice> slices_;
  const PsConditions& ps_;
  const MovesKnown& known_;
  std::uint64_t replica_;
  NextLayout next_;
  std::vector<std::uint32_t> eligible_;  // in order
  std::uint64_t largest_slice_ = 0;      // in bytes
  std::map<std::uint32_t, Load> load_;
  std::uint32_t copies_ = 0;       // under way
  std::uint32_t moves_begun_ = 0;  // slices that are frozen
  bool changed_ = false;
  std::vector<std::string> reasons_;
  std::string missing_;
};

}  // namespace

AfterLoss PlanAfterLoss(const v1::View& view, const PsConditions& ps, PlantedBug bug) {
  AfterLoss after;
  const std::set<std::uint64_t> sessions = PsSessions(view);
  std::set<std::uint32_t> lost;
  for (const v1::PsMember& member : view.ps()) {
    if (!Lives(ps, member.index(), sessions)) lost.insert(member.index());
  }
  if (lost.empty()) return after;
  NextLayout& next = after.next;
  next.layout.assign(view.layout().begin(), view.layout().end());
  for (std::size_t slice = 0; slice < next.layout.size(); ++slice) {
    v1::SlicePlacement& placement = next.layout[slice];
    if (placement.has_joining() && lost.count(placement.joining()) != 0) {
      if (placement.joining_leads()) placement.clear_frozen();
      ClearJoining(&placement);
    }
    if (placement.has_standby() && lost.count(placement.standby()) != 0) {
      // It was to take the slice over.
      if (!placement.has_joining()) placement.clear_frozen();
      ClearStandby(&placement);
    }
    if (lost.count(placement.primary()) == 0) continue;
    const bool early = bug == PlantedBug::kJoiningPromoted && !placement.has_standby() && placement.has_joining();
    if (placement.has_standby() || early) {
      placement.set_primary(early ? placement.joining() : placement.standby());
      placement.set_primary_replica(early ? placement.joining_replica() : placement.standby_replica());
      ClearStandby(&placement);
      ClearJoining(&placement);
      placement.clear_frozen();
      ++next.failovers;
      continue;
    }
    const bool gone = IsGone(ps, placement.primary(), sessions);
    const std::string where = absl::StrCat("ps-", placement.primary());
    if (gone || after.kind != AfterLoss::Kind::kLost) {
      after.kind = gone ? AfterLoss::Kind::kLost : AfterLoss::Kind::kWaits;
      after.reason = gone ? absl::StrCat(where, " is gone, and no other ps has slice ", slice)
                          : absl::StrCat("waiting for ", where, ", as no other ps has slice ", slice);
    }
  }
  if (after.kind != AfterLoss::Kind::kNothing) return after;
  after.kind = AfterLoss::Kind::kGoesOn;
  for (const v1::PsMember& member : view.ps()) {
    if (lost.count(member.index()) == 0) next.ps.push_back(ps.at(member.index()).member);
  }
  next.reason = absl::StrCat("without ", absl::StrJoin(lost, ", ", [](std::string* out, std::uint32_t index) {
                               absl::StrAppend(out, "ps-", index);
                             }));
  after.reason = next.reason;
  return after;
}

std::optional<NextLayout> PlanNextLayout(const v1::View& view, absl::Span<const Slice> slices, const PsConditions& ps,
                                         const MovesKnown& known, std::uint64_t replica, bool may_begin,
                                         std::string* why) {
  return Planner(view, slices, ps, known, replica).Plan(may_begin, why);
}

std::uint32_t SlicesInSync(const v1::View& view) {
  std::uint32_t count = 0;
  for (const v1::SlicePlacement& placement : view.layout()) {
    if (placement.has_standby() || view.replication_factor() <= 1) ++count;
  }
  return count;
}

}  // namespace downpour::core
