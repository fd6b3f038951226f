#ifndef DOWNPOUR_TRAINER_CORE_PS_REGISTRY_H_
#define DOWNPOUR_TRAINER_CORE_PS_REGISTRY_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "downpour/v1/control.pb.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/ledger.h"

namespace downpour::core {

// Which process is which ps, and what each held when it came to this coordinator: the pictures out of which a history
// is taken up. A picture stays true, as its ps has refused older coordinators since it was made. Not thread-safe.
class PsRegistry {
 public:
  explicit PsRegistry(std::uint32_t count) : registrations_(count) {}

  std::uint32_t count() const { return static_cast<std::uint32_t>(registrations_.size()); }
  // Null: nobody has come yet. For an index below count(), as everywhere.
  const v1::PsMember* Find(std::uint32_t index) const;
  bool IsZombie(const v1::PsMember& self) const;
  // This process has registered.
  bool Knows(const v1::PsMember& self) const;
  // A process comes that is not known yet, and says all that it holds.
  void Register(const v1::RegisterPsRequest& request) { registrations_[request.self().index()] = request; }
  // A process that is known comes again.
  void SetAddress(const v1::PsMember& self);

  // Every ps has come.
  bool complete() const { return missing().empty(); }
  std::vector<std::uint32_t> missing() const;
  std::vector<v1::PsMember> members() const;
  // Of the cuts that any of them was told of.
  std::uint32_t HighestCut() const;

  // ---- once it is complete
  // The newest view that one of them holds; null: none does.
  const v1::View* Newest() const;
  // Forgets a process that came although the view has a later start of its index. Whether there was one.
  bool DropZombies(const v1::View& view);
  // Each ps of the view is the process that is registered.
  bool IsWhole(const v1::View& view) const;
  // Each of them holds the view's history, with all that it began with.
  bool HasBegun(const v1::View& view) const;
  // The sessions that some ps accepts, and whether each that holds the view's history does, and all hold it.
  std::map<std::uint64_t, bool> SessionsOf(const v1::View& view) const;
  // What all of them hold of the view's history.
  Ledger LedgerOf(const v1::View& view, const DataPlan& plan) const;

 private:
  std::vector<std::optional<v1::RegisterPsRequest>> registrations_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_PS_REGISTRY_H_
