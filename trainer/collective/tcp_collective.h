#ifndef DOWNPOUR_TRAINER_COLLECTIVE_TCP_COLLECTIVE_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_TCP_COLLECTIVE_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/collective/collective.h"
#include "trainer/collective/rendezvous.h"

namespace downpour::collective {

// A group over connections that were made. One thread of its own moves everything.
absl::StatusOr<std::unique_ptr<Collective>> NewTcpCollective(int rank, int size, const std::string& view, Links links);

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_TCP_COLLECTIVE_H_
