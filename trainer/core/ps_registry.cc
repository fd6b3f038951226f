#include "trainer/core/ps_registry.h"

#include <algorithm>
#include <cstddef>
#include <set>

#include "trainer/core/layout.h"

namespace downpour::core {
namespace {

bool HoldsHistory(const v1::RegisterPsRequest& registration, const v1::View& view) {
  return registration.has_view() && registration.view().stamp().generation() == view.stamp().generation();
}

// The ps that are the primary or the standby of some slice.
std::set<std::uint32_t> Counting(const v1::View& view) {
  std::set<std::uint32_t> counting;
  for (const v1::SlicePlacement& placement : view.layout()) {
    counting.insert(placement.primary());
    if (placement.has_standby()) counting.insert(placement.standby());
  }
  return counting;
}

}  // namespace

const v1::RegisterPsRequest* PsRegistry::Registration(std::uint32_t index) const {
  const auto found = registrations_.find(index);
  return found == registrations_.end() ? nullptr : &found->second;
}

const v1::PsMember* PsRegistry::Find(std::uint32_t index) const {
  const v1::RegisterPsRequest* registration = Registration(index);
  return registration == nullptr ? nullptr : &registration->self();
}

bool PsRegistry::IsZombie(const v1::PsMember& self) const {
  const v1::PsMember* newest = Find(self.index());
  return newest != nullptr && self.process_incarnation() < newest->process_incarnation();
}

bool PsRegistry::Knows(const v1::PsMember& self) const {
  const v1::PsMember* member = Find(self.index());
  return member != nullptr && member->session() == self.session();
}

void PsRegistry::OnEnded(std::uint32_t index, std::uint32_t process_incarnation) {
  std::uint32_t& ended = ended_[index];
  ended = std::max(ended, process_incarnation);
}

bool PsRegistry::HasEnded(std::uint32_t index) const {
  const v1::PsMember* member = Find(index);
  return member != nullptr && HasEnded(*member);
}

bool PsRegistry::HasEnded(const v1::PsMember& process) const {
  const auto ended = ended_.find(process.index());
  return ended != ended_.end() && ended->second >= process.process_incarnation();
}

std::set<std::uint64_t> PsRegistry::live() const {
  std::set<std::uint64_t> live;
  for (const auto& [index, registration] : registrations_) {
    if (!HasEnded(index)) live.insert(registration.self().session());
  }
  return live;
}

void PsRegistry::ForgetViews() {
  for (auto& [index, registration] : registrations_) registration.clear_view();
}

void PsRegistry::SetAddress(const v1::PsMember& self) {
  registrations_.at(self.index()).mutable_self()->set_address(self.address());
}

std::vector<std::uint32_t> PsRegistry::missing() const {
  std::vector<std::uint32_t> missing;
  for (std::uint32_t index = 0; index < count(); ++index) {
    if (registrations_.count(index) == 0 || HasEnded(index)) missing.push_back(index);
  }
  return missing;
}

std::vector<v1::PsMember> PsRegistry::members() const {
  std::vector<v1::PsMember> members;
  members.reserve(registrations_.size());
  for (const auto& [index, registration] : registrations_) {
    if (index < count_ && !HasEnded(index)) members.push_back(registration.self());
  }
  return members;
}

std::set<std::uint64_t> PsRegistry::sessions() const {
  std::set<std::uint64_t> sessions;
  for (const auto& [index, registration] : registrations_) sessions.insert(registration.self().session());
  return sessions;
}

std::vector<std::uint32_t> PsRegistry::IndicesOf(const std::set<std::uint64_t>& sessions) const {
  std::vector<std::uint32_t> indices;
  for (const auto& [index, registration] : registrations_) {
    if (sessions.count(registration.self().session()) != 0) indices.push_back(index);
  }
  return indices;
}

std::uint32_t PsRegistry::HighestCut() const {
  std::uint32_t highest = 0;
  for (const auto& [index, registration] : registrations_) highest = std::max(highest, registration.highest_cut());
  return highest;
}

const v1::View* PsRegistry::Newest() const {
  const v1::View* newest = nullptr;
  for (const auto& [index, registration] : registrations_) {
    if (!registration.has_view()) continue;
    const v1::View& held = registration.view();
    if (newest == nullptr || CompareStamps(held.stamp(), newest->stamp()) > 0) newest = &held;
  }
  return newest;
}

bool PsRegistry::DropZombies(const v1::View& view) {
  for (const v1::PsMember& member : view.ps()) {
    const v1::PsMember* self = Find(member.index());
    if (self == nullptr || self->process_incarnation() >= member.process_incarnation()) continue;
    registrations_.erase(member.index());
    return true;
  }
  return false;
}

bool PsRegistry::HasBegun(const v1::View& view) const {
  const std::set<std::uint32_t> counting = Counting(view);
  return std::all_of(counting.begin(), counting.end(), [&](std::uint32_t index) {
    const v1::RegisterPsRequest* registration = Registration(index);
    return registration != nullptr && HoldsHistory(*registration, view) && !registration->restoring();
  });
}

std::map<std::uint64_t, bool> PsRegistry::SessionsOf(const v1::View& view) const {
  const std::set<std::uint32_t> counting = Counting(view);
  std::map<std::uint64_t, std::size_t> known_by;
  for (const auto& [index, registration] : registrations_) {
    const bool counts = counting.count(index) != 0 && HoldsHistory(registration, view);
    for (std::uint64_t session : registration.sessions()) known_by[session] += counts ? 1 : 0;
  }
  std::map<std::uint64_t, bool> sessions;
  for (const auto& [session, ps] : known_by) sessions[session] = ps == counting.size();
  return sessions;
}

Ledger PsRegistry::LedgerOf(const v1::View& view, const DataPlan& plan) const {
  // A ps that does not hold the view yet has no ledger either: then nothing can have been applied anywhere. One
  // without a slice that counts has no objection.
  std::vector<const v1::RegisterPsRequest*> counting;
  bool all_hold = true;
  for (const std::uint32_t index : Counting(view)) {
    const v1::RegisterPsRequest* registration = Registration(index);
    all_hold = all_hold && registration != nullptr && HoldsHistory(*registration, view);
    counting.push_back(registration);
  }
  Ledger agreed{.watermark = all_hold ? plan.epochs() : 0};
  if (!all_hold) return agreed;
  std::uint32_t end = 0;
  for (const v1::RegisterPsRequest* registration : counting) {
    agreed.watermark = std::min(agreed.watermark, registration->watermark());
    for (const v1::EpochLedger& ledger : registration->ledger()) end = std::max(end, ledger.dataset_epoch() + 1);
  }
  for (std::uint32_t epoch = agreed.watermark; epoch < std::min(end, plan.epochs()); ++epoch) {
    Bitmap& retired = agreed.retired.emplace(epoch, Bitmap(plan.shards_in_epoch(epoch), true)).first->second;
    for (const v1::RegisterPsRequest* registration : counting) {
      if (epoch < registration->watermark()) continue;
      Bitmap of_ps(plan.shards_in_epoch(epoch));
      for (const v1::EpochLedger& ledger : registration->ledger()) {
        if (ledger.dataset_epoch() == epoch) of_ps = Bitmap::FromBytes(plan.shards_in_epoch(epoch), ledger.retired());
      }
      retired.And(of_ps);
    }
  }
  return agreed;
}

}  // namespace downpour::core
