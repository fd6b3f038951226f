#ifndef DOWNPOUR_TRAINER_COLLECTIVE_TCP_COLLECTIVE_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_TCP_COLLECTIVE_H_

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

// A group over connections that were made. One thread of its own moves everything.
absl::StatusOr<std::unique_ptr<Collective>> NewTcpCollective(int rank, int size, const std::string& view, Links links);

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_TCP_COLLECTIVE_H_
