#ifndef DOWNPOUR_TRAINER_COLLECTIVE_TCP_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_TCP_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/collective/collective.h"

namespace downpour::collective {

// A member whose groups are rings of TCP connections. It listens on `address` (host:port; empty: any port of all
// addresses of this machine, IPv6 and IPv4) for its whole life, for the members that it is rank 0 of and for its peers.
// A name that the system's resolver is slow to find makes Form late; nothing else does. Who can connect can take part,
// as with the rest of the data plane. kUnavailable: it cannot listen there.
absl::StatusOr<std::unique_ptr<Member>> NewTcpMember(const std::string& address = "");

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_TCP_H_
