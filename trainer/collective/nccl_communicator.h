#ifndef DOWNPOUR_TRAINER_COLLECTIVE_NCCL_COMMUNICATOR_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_NCCL_COMMUNICATOR_H_

#include <chrono>
#include <deque>
#include <functional>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/collective/collective.h"
#include "trainer/collective/nccl_api.h"
#include "trainer/collective/nccl_launch.h"

namespace downpour::collective {

// By which limits go.
using NcclClock = std::function<std::chrono::steady_clock::time_point()>;

// How often it is looked whether something that is under way is done.
constexpr std::chrono::microseconds kNcclLookPeriod(50);

// One communicator and its stream, from the first call to the last, with what is under way on them. Everything is begun
// and asked after; no call waits for other ranks. Of one thread. It was given back, in one of two ways, before it is
// destroyed.
class NcclCommunicator {
 public:
  NcclCommunicator(NcclApi* api, NcclClock now) : now_(std::move(now)) { place_.api = api; }
  NcclCommunicator(const NcclCommunicator&) = delete;
  NcclCommunicator& operator=(const NcclCommunicator&) = delete;

  // Begins it; then Form, until it says true. To be given back whatever they say.
  absl::Status Begin(int rank, int size, const NcclUniqueId& id);
  absl::StatusOr<bool> Form();

  // Puts it behind what there is. The values belong to it until Advance has said that it is complete, or Abort is over.
  void Add(const Operation& operation) { waiting_.push_back(operation); }
  bool busy() const { return !waiting_.empty() || launch_.has_value() || !flying_.empty(); }
  // Goes on with all of it. How many more are complete: the first of those that were added.
  absl::StatusOr<int> Advance();

  // Gives it back where all ranks have everything complete and do the same; for no longer than `limit`, then as Abort.
  absl::Status Leave(absl::Duration limit);
  // Ends what is under way and gives it back. kFailedPrecondition: the device still has not stopped after `limit`.
  absl::Status Abort(absl::Duration limit);

 private:
  void Release();

  const NcclClock now_;
  NcclPlace place_;
  std::deque<Operation> waiting_;
  std::optional<NcclLaunch> launch_;  // being put onto the stream
  std::deque<NcclEvent> flying_;      // on the stream, in order
};

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_NCCL_COMMUNICATOR_H_
