#ifndef DOWNPOUR_TRAINER_WORKER_RING_FORMING_H_
#define DOWNPOUR_TRAINER_WORKER_RING_FORMING_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/collective/collective.h"
#include "trainer/collective/nccl_api.h"
#include "trainer/worker/ring_device.h"
#include "trainer/worker/ring_step.h"

namespace downpour::worker {

// What a member has, as it tells the others.
struct RankNccl {
  int port = 0;              // at which its NCCL is met; 0: it has none
  std::uint32_t device = 0;  // the same where two have the same device
};

// By what the members of a view sum their gradients, and why, for people. All of them decide the same.
struct RingTransport {
  bool nccl = false;
  std::string why;
};
RingTransport DecideTransport(const std::vector<RankNccl>& ranks);

// The ways into the groups of one process, for its whole life.
struct RingMembers {
  std::unique_ptr<collective::Member> tcp;
  std::unique_ptr<collective::NcclApi> nccl_api;
  std::unique_ptr<collective::Member> nccl;  // null: it has none
  std::uint32_t device = 0;                  // RankNccl::device
  std::string why_no_nccl;                   // of gradients that are on a device; otherwise empty
};

// `listen`: where others come, host:port; by NCCL at any port of that host. `given`: instead of the machine's NCCL;
// null: that, where gradients are on the GPU of `model`. Outlives the members. kUnavailable: it cannot listen there.
absl::StatusOr<RingMembers> MakeRingMembers(const std::string& listen, const RingDevice& device,
                                            const model::Model& model, collective::NcclApi* given);

// The group of a view. What the host has always travels by TCP; so do gradients, and those of a device are copied to
// the host for that and back, but where all members have NCCL, which sums them where they are. Aborted by any thread.
class FormedRing {
 public:
  // Errors of Member::Form, whatever moves the values.
  static absl::StatusOr<FormedRing> Form(const RingMembers& members, const RingDevice& device,
                                         const collective::GroupOptions& options);
  FormedRing() = default;
  FormedRing(FormedRing&&) = default;
  FormedRing& operator=(FormedRing&& other) noexcept;

  const RingGroup& sides() const { return sides_; }
  const RingTransport& transport() const { return transport_; }
  void Abort() const;

 private:
  // What is staged ends after its group.
  std::unique_ptr<collective::Collective> staged_, tcp_, nccl_;
  RingGroup sides_;
  RingTransport transport_;
};

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_RING_FORMING_H_
