#ifndef DOWNPOUR_TRAINER_COLLECTIVE_LOCAL_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_LOCAL_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "trainer/collective/collective.h"
#include "trainer/collective/nccl_collective.h"
#include "trainer/collective/rendezvous.h"

// Groups all of whose members are inside one process, as where it has several devices. They meet in memory: nothing
// listens, and nothing leaves the process.
namespace downpour::collective {

// Where such members meet. Outlives them. Thread-safe.
class LocalNetwork {
 public:
  LocalNetwork();
  ~LocalNetwork();

  // One whose values are in the memory of the host, where the threads that wait for an operation do it: there is no
  // thread beside those, and nothing goes on while nobody waits. A sum is made in the order of ranks, with the same
  // bits each time. `store` of GroupOptions is any host with the port() of rank 0; `host` is not looked at.
  std::unique_ptr<Member> NewMember();
  // For NewNcclMember. Its connections are socket pairs between all members, none around the ring.
  std::unique_ptr<Rendezvous> NewRendezvous();

  struct State;

 private:
  const std::unique_ptr<State> state_;
};

// All members of groups inside one process; each has a rank for life. Outlives the groups. One thread at a time.
class LocalMembers {
 public:
  // Values in the memory of the host, as of LocalNetwork::NewMember.
  static LocalMembers OfHost(int size);  // at least 1
  // Rank r's values in the memory of the device of devices[r], moved by NCCL: nccl_collective.h says what it asks of
  // those who use it. Each is of another device (LoadNccl with its number), and outlives this. What waits for a whole
  // device, as cudaMalloc and cudaFree may, is not to be called while an operation is under way: it can keep another
  // device's part of it from starting.
  static LocalMembers OfNccl(const std::vector<NcclApi*>& devices, const NcclOptions& options = {});

  LocalMembers(LocalMembers&&) = default;

  int size() const { return static_cast<int>(members_.size()); }

  // A new group of all of them: its ends by rank. Each end is for a thread of its own, which starts operations there
  // and waits for them; for a single operation of each end one thread may do all, if it starts all before it waits. As
  // often as one likes: after an error or an Abort all ends are let go of, and the next group is formed. `limit` and
  // `stop` (may be nullptr) are for all of it. The first error of a Member::Form ends it, and then nobody has an end.
  absl::StatusOr<std::vector<std::unique_ptr<Collective>>> Form(absl::Duration limit,
                                                                const absl::Notification* stop = nullptr);

 private:
  LocalMembers() = default;

  std::unique_ptr<LocalNetwork> network_ = std::make_unique<LocalNetwork>();
  std::vector<std::unique_ptr<Member>> members_;  // by rank
  std::int64_t views_ = 0;                        // so far
};

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_LOCAL_H_
