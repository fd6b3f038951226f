#ifndef DOWNPOUR_TRAINER_COLLECTIVE_RENDEZVOUS_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_RENDEZVOUS_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/collective/collective.h"
#include "trainer/collective/socket.h"

namespace downpour::collective {

// The connections of one member of a group; none of a group of one.
struct Links {
  Socket to_next;  // to the rank after this one, which receives by it as its from_previous
  Socket from_previous;
  std::vector<Socket> peers;  // by rank, none to itself: for messages, and to notice who is lost
};

// `status` of a forming, with what was to be formed before it.
absl::Status AboutForming(const GroupOptions& options, const absl::Status& status);

// Where the members of a view find each other and connect, for all groups of one member. Thread-safe.
class Rendezvous {
 public:
  Rendezvous() = default;
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;
  virtual ~Rendezvous() = default;

  // Where it listens.
  virtual int port() const = 0;

  // The connections of a view, once all its members are there. Errors as of Member::Form.
  virtual absl::StatusOr<Links> Meet(const GroupOptions& options) = 0;
};

// It listens on `address` (host:port; empty: any port of all addresses of this machine, IPv6 and IPv4) for its whole
// life. kUnavailable: it cannot listen there.
absl::StatusOr<std::unique_ptr<Rendezvous>> NewRendezvous(const std::string& address);

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_RENDEZVOUS_H_
