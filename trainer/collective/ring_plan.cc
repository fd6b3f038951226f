#include "trainer/collective/ring_plan.h"

namespace downpour::collective {
namespace {

Piece PieceOf(std::size_t count, int rank, int size, bool add) {
  const Part part = PartOf(count, (rank % size + size) % size, size);
  return {part.begin, part.end, add};
}

}  // namespace

RingPlan PlanRing(const Operation& operation, int rank, int size) {
  RingPlan plan;
  if (size == 1) return plan;
  const std::size_t count = operation.values.size();
  if (operation.kind == OperationKind::kBroadcast) {
    const int behind_root = (rank - operation.peer + size) % size;
    const Piece all = {0, count, false};
    if (behind_root > 0) plan.receives.push_back(all);
    if (behind_root < size - 1) plan.sends.push_back(all);
    plan.ahead = behind_root == 0 ? count : 0;
    return plan;
  }
  const bool sums = operation.kind != OperationKind::kAllGather;
  plan.receives.reserve(2 * static_cast<std::size_t>(size));
  if (sums) {
    for (int step = 2; step <= size; ++step) {
      plan.receives.push_back(PieceOf(count, rank - step, size, true));
    }
  }
  if (operation.kind != OperationKind::kReduceScatter) {
    for (int step = 1; step < size; ++step) {
      plan.receives.push_back(PieceOf(count, rank - step, size, false));
    }
  }
  const Piece first = PieceOf(count, sums ? rank - 1 : rank, size, false);
  plan.sends.push_back(first);
  plan.sends.insert(plan.sends.end(), plan.receives.begin(), plan.receives.end() - 1);
  plan.ahead = first.end - first.begin;
  return plan;
}

}  // namespace downpour::collective
