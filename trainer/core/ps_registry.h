#ifndef DOWNPOUR_TRAINER_CORE_PS_REGISTRY_H_
#define DOWNPOUR_TRAINER_CORE_PS_REGISTRY_H_

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "downpour/v1/control.pb.h"
#include "trainer/core/data_plan.h"
#include "trainer/core/ledger.h"

namespace downpour::core {

// Which process is which ps, and what each held when it came to this coordinator: the pictures out of which a history
// is taken up. A picture stays true, as its ps has refused older coordinators since it was made. Not thread-safe.
class PsRegistry {
 public:
  explicit PsRegistry(std::uint32_t count) : count_(count) {}

  // How many there are to be: those with indices below it. Others may still be there.
  std::uint32_t count() const { return count_; }
  void SetCount(std::uint32_t count) { count_ = count; }
  // Null: nobody has come yet.
  const v1::PsMember* Find(std::uint32_t index) const;
  bool IsZombie(const v1::PsMember& self) const;
  // This process has registered.
  bool Knows(const v1::PsMember& self) const;
  // A process comes that is not known yet, and says all that it holds.
  void Register(const v1::RegisterPsRequest& request) { registrations_[request.self().index()] = request; }
  // The process of this start has ended, and all before it.
  void OnEnded(std::uint32_t index, std::uint32_t process_incarnation);
  // The process is known to have; that which came.
  bool HasEnded(const v1::PsMember& process) const;
  bool HasEnded(std::uint32_t index) const;
  // Sessions of those that have come and not ended.
  std::set<std::uint64_t> live() const;
  // Nobody needs what they held any more: a newer view is in force.
  void ForgetViews();
  // Nobody has to know any more who it was.
  void Forget(std::uint32_t index) { registrations_.erase(index); }
  // A process that is known comes again.
  void SetAddress(const v1::PsMember& self);

  // Every ps that there is to be has come, and not ended.
  bool complete() const { return missing().empty(); }
  std::vector<std::uint32_t> missing() const;
  // Of those that there are to be, in order.
  std::vector<v1::PsMember> members() const;
  // Whoever has come, by index.
  const std::map<std::uint32_t, v1::RegisterPsRequest>& registrations() const { return registrations_; }
  // Sessions of the processes that have come.
  std::set<std::uint64_t> sessions() const;
  // Of the processes that have come with these, in order.
  std::vector<std::uint32_t> IndicesOf(const std::set<std::uint64_t>& sessions) const;
  // Of the cuts that any of them was told of.
  std::uint32_t HighestCut() const;

  // The newest view that one of them holds; null: none does.
  const v1::View* Newest() const;
  // Forgets a process that came although the view has a later start of its index. Whether there was one.
  bool DropZombies(const v1::View& view);

  // ---- of a view whose ps are processes that have come
  // Each that counts with a slice holds the view's history, with all that it began with.
  bool HasBegun(const v1::View& view) const;
  // The sessions that some ps accepts, and whether each that counts with a slice does.
  std::map<std::uint64_t, bool> SessionsOf(const v1::View& view) const;
  // What all of them hold of the view's history.
  Ledger LedgerOf(const v1::View& view, const DataPlan& plan) const;

 private:
  const v1::RegisterPsRequest* Registration(std::uint32_t index) const;

  std::uint32_t count_;
  std::map<std::uint32_t, v1::RegisterPsRequest> registrations_;
  std::map<std::uint32_t, std::uint32_t> ended_;  // process incarnations
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_PS_REGISTRY_H_
