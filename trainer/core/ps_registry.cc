#include "trainer/core/ps_registry.h"

#include <algorithm>

#include "trainer/core/layout.h"

namespace downpour::core {
namespace {

bool HoldsHistory(const v1::RegisterPsRequest& registration, const v1::View& view) {
  return registration.has_view() && registration.view().stamp().generation() == view.stamp().generation();
}

}  // namespace

const v1::PsMember* PsRegistry::Find(std::uint32_t index) const {
  return registrations_[index].has_value() ? &registrations_[index]->self() : nullptr;
}

bool PsRegistry::IsZombie(const v1::PsMember& self) const {
  const v1::PsMember* newest = Find(self.index());
  return newest != nullptr && self.process_incarnation() < newest->process_incarnation();
}

bool PsRegistry::Knows(const v1::PsMember& self) const {
  const v1::PsMember* member = Find(self.index());
  return member != nullptr && member->session() == self.session();
}

void PsRegistry::SetAddress(const v1::PsMember& self) {
  registrations_[self.index()]->mutable_self()->set_address(self.address());
}

std::vector<std::uint32_t> PsRegistry::missing() const {
  std::vector<std::uint32_t> missing;
  for (std::uint32_t index = 0; index < count(); ++index) {
    if (!registrations_[index].has_value()) missing.push_back(index);
  }
  return missing;
}

std::vector<v1::PsMember> PsRegistry::members() const {
  std::vector<v1::PsMember> members;
  for (const auto& registration : registrations_) {
    if (registration.has_value()) members.push_back(registration->self());
  }
  return members;
}

std::uint32_t PsRegistry::HighestCut() const {
  std::uint32_t highest = 0;
  for (const auto& registration : registrations_) {
    if (registration.has_value()) highest = std::max(highest, registration->highest_cut());
  }
  return highest;
}

const v1::View* PsRegistry::Newest() const {
  const v1::View* newest = nullptr;
  for (const auto& registration : registrations_) {
    if (!registration->has_view()) continue;
    const v1::View& held = registration->view();
    if (newest == nullptr || CompareStamps(held.stamp(), newest->stamp()) > 0) newest = &held;
  }
  return newest;
}

bool PsRegistry::DropZombies(const v1::View& view) {
  for (const v1::PsMember& member : view.ps()) {
    if (member.index() >= count()) continue;
    std::optional<v1::RegisterPsRequest>& registration = registrations_[member.index()];
    if (registration->self().process_incarnation() >= member.process_incarnation()) continue;
    registration.reset();
    return true;
  }
  return false;
}

bool PsRegistry::IsWhole(const v1::View& view) const {
  return static_cast<std::uint32_t>(view.ps_size()) == count() &&
         std::all_of(view.ps().begin(), view.ps().end(),
                     [this](const v1::PsMember& member) { return member.index() < count() && Knows(member); });
}

bool PsRegistry::HasBegun(const v1::View& view) const {
  return std::all_of(registrations_.begin(), registrations_.end(), [&view](const auto& registration) {
    return HoldsHistory(*registration, view) && !registration->restoring();
  });
}

std::map<std::uint64_t, bool> PsRegistry::SessionsOf(const v1::View& view) const {
  std::map<std::uint64_t, std::uint32_t> known_by;
  for (const auto& registration : registrations_) {
    for (std::uint64_t session : registration->sessions()) {
      known_by[session] += HoldsHistory(*registration, view) ? 1 : 0;
    }
  }
  std::map<std::uint64_t, bool> sessions;
  for (const auto& [session, ps] : known_by) sessions[session] = ps == count();
  return sessions;
}

Ledger PsRegistry::LedgerOf(const v1::View& view, const DataPlan& plan) const {
  // A ps that does not hold the view yet has no ledger either: then nothing can have been applied anywhere.
  Ledger agreed{.watermark = plan.epochs()};
  std::uint32_t end = 0;
  for (const auto& registration : registrations_) {
    agreed.watermark = std::min(agreed.watermark, HoldsHistory(*registration, view) ? registration->watermark() : 0u);
    for (const v1::EpochLedger& ledger : registration->ledger()) end = std::max(end, ledger.dataset_epoch() + 1);
  }
  for (std::uint32_t epoch = agreed.watermark; epoch < std::min(end, plan.epochs()); ++epoch) {
    Bitmap& retired = agreed.retired.emplace(epoch, Bitmap(plan.shards_in_epoch(epoch), true)).first->second;
    for (std::uint32_t index = 0; index < count(); ++index) {
      const v1::RegisterPsRequest& registration = *registrations_[index];
      const bool holds = HoldsHistory(registration, view);
      // A ps without a slice of the model has no objection.
      const bool owns = std::any_of(view.layout().begin(), view.layout().end(),
                                    [index](const v1::SlicePlacement& place) { return place.primary() == index; });
      if (!owns || (holds && epoch < registration.watermark())) continue;
      Bitmap of_ps(plan.shards_in_epoch(epoch));
      for (const v1::EpochLedger& ledger : registration.ledger()) {
        if (holds && ledger.dataset_epoch() == epoch) {
          of_ps = Bitmap::FromBytes(plan.shards_in_epoch(epoch), ledger.retired());
        }
      }
      retired.And(of_ps);
    }
  }
  return agreed;
}

}  // namespace downpour::core
