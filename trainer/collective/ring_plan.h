#ifndef DOWNPOUR_TRAINER_COLLECTIVE_RING_PLAN_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_RING_PLAN_H_

#include <cstddef>
#include <vector>

#include "trainer/collective/collective.h"

namespace downpour::collective {

// Values that pass between a rank and a neighbour on the ring, one stretch after the other.
struct Piece {
  std::size_t begin = 0;
  std::size_t end = 0;
  bool add = false;  // what is received is added to what is there; else it takes its place
};

// What one rank sends to the next and receives from the one before. The n-th value that it sends may leave once
// n - ahead values were received and added: the pieces that are sent are those that were received, after a first one.
// So each value of a sum is added up in one order, from rank to rank, and then copied: all ranks get the same bits.
struct RingPlan {
  std::vector<Piece> sends;
  std::vector<Piece> receives;
  std::size_t ahead = 0;
};

// Not of messages.
RingPlan PlanRing(const Operation& operation, int rank, int size);

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_RING_PLAN_H_
