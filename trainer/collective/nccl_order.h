#ifndef DOWNPOUR_TRAINER_COLLECTIVE_NCCL_ORDER_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_NCCL_ORDER_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "trainer/collective/collective.h"

namespace downpour::collective {

// An operation without its values.
struct OperationShape {
  OperationKind kind = OperationKind::kAllReduce;
  Precision travels = Precision::kFloat32;
  std::uint64_t count = 0;
  int peer = 0;

  bool operator==(const OperationShape&) const = default;
};
OperationShape ShapeOf(const Operation& operation);
std::string Describe(const OperationShape& shape);

// In which order the ranks hand their operations to the device, decided at rank 0. A device does one after the other,
// and each keeps it busy until all who take part are there. So an operation goes to the devices once all who take part
// have started it, and everywhere in one order: the first that is not done then has all of them, and nobody waits for
// what cannot come. A message needs no place among the rest for that, and members that disagree are found out before
// their devices wait for each other. Not thread-safe.
class NcclOrder {
 public:
  explicit NcclOrder(int size) : started_(static_cast<std::size_t>(size)), left_(static_cast<std::size_t>(size)) {}

  struct Turn {
    int rank = 0;
    OperationShape shape;
  };
  // `rank` has started an operation. What goes to the devices now is put behind `turns`. kInternal: the members
  // disagree. kUnavailable: who has left would have to take part.
  absl::Status Started(int rank, const OperationShape& shape, std::vector<Turn>* turns);
  // `rank` starts nothing more. kUnavailable: it would have to take part in what others have started.
  absl::Status Left(int rank);
  bool all_left() const;

 private:
  // Sends and receives that have not met, by number of values, from one rank to another.
  struct Messages {
    std::deque<std::uint64_t> sends, receives;
  };

  absl::Status CheckThatAllCome() const;

  std::vector<std::deque<OperationShape>> started_;  // but messages, by rank
  std::vector<bool> left_;                           // by rank
  std::map<std::pair<int, int>, Messages> messages_;
};

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_NCCL_ORDER_H_
