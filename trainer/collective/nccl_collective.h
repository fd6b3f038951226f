#ifndef DOWNPOUR_TRAINER_COLLECTIVE_NCCL_COLLECTIVE_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_NCCL_COLLECTIVE_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/collective/collective.h"
#include "trainer/collective/nccl_api.h"
#include "trainer/collective/rendezvous.h"

namespace downpour::collective {

struct NcclOptions {
  std::string address;  // as of NewTcpMember
  // How long who leaves a group with everything complete waits for the others to leave it too; then it aborts.
  absl::Duration leave_limit = absl::Seconds(5);
  // How long the device may go on after an abort. Then nobody can say what it still writes, and this member forms no
  // more groups.
  absl::Duration stop_limit = absl::Seconds(10);
  // By which all limits go but those of the rendezvous.
  std::function<std::chrono::steady_clock::time_point()> now = [] { return std::chrono::steady_clock::now(); };
};

// A member whose values are in the memory of one device and travel by NCCL. Values are addresses of the device's
// memory: nothing on the host reads or writes there, and whatever writes them on the device is over before an
// operation with them is started.
//
// Members meet as those of NewTcpMember do, and keep their connections: NCCL says nothing reliable about who is lost,
// and nothing about members that disagree. Each view has a communicator of its own, with a unique id of its own that
// rank 0 gives out. It does not block, and one thread of the group alone uses it. Whoever breaks closes its
// connections, so that all abort theirs; when all leave with everything complete, it is finalized and destroyed. Rank 0
// says in which order operations go to the devices (nccl_order.h), which takes a message there and back before each.
//
// A member has one group at a time, as two communicators on one device may wait for each other for ever: forming
// another ends the one before, and waits until its communicator is given back. Form: kFailedPrecondition: the device
// did not stop after an abort; this process has to end.
//
// kBfloat16: values are rounded on the device before they are added, NCCL adds two of them in float32 and rounds.
// kUnimplemented where `api` has no kernels for it.
//
// Errors of NCCL and CUDA are kUnavailable where they are of other ranks or the network, else kInternal. `api` outlives
// the member. kUnavailable: it cannot listen there.
absl::StatusOr<std::unique_ptr<Member>> NewNcclMember(NcclApi* api, const NcclOptions& options = {});
// One that meets the others there, of whose connections it uses those between all members.
std::unique_ptr<Member> NewNcclMember(NcclApi* api, const NcclOptions& options, std::unique_ptr<Rendezvous> rendezvous);

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_NCCL_COLLECTIVE_H_
