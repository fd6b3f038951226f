#ifndef DOWNPOUR_TRAINER_COLLECTIVE_NCCL_GROUP_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_NCCL_GROUP_H_

#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/collective/collective.h"
#include "trainer/collective/nccl_communicator.h"
#include "trainer/collective/nccl_notes.h"
#include "trainer/collective/nccl_order.h"

namespace downpour::collective {

struct NcclGroupOptions {
  NcclApi* api = nullptr;
  NcclClock now;
  absl::Duration leave_limit, stop_limit;  // as NcclOptions
  int rank = 0;
  int size = 1;
  std::string view;
  std::vector<Socket> peers;  // by rank, none to itself
  Socket wake;                // an eventfd
  Patience patience;          // of the forming; what it refers to outlives AwaitFormed
};

// One member's end of the group of one view: its communicator, and a thread of its own that alone uses it, forms it and
// gives it back. It outlives the Collective that it is behind, for as long as leaving in peace takes. Thread-safe.
class NcclGroup {
 public:
  explicit NcclGroup(NcclGroupOptions options);
  NcclGroup(const NcclGroup&) = delete;
  NcclGroup& operator=(const NcclGroup&) = delete;
  ~NcclGroup();

  const NcclGroupOptions& options() const { return options_; }

  // OK: formed. Else it is over when this returns.
  absl::Status AwaitFormed();

  absl::StatusOr<Handle> Start(const Operation& operation);
  // The operation of a handle and how it ended.
  struct Outcome {
    Operation operation;
    absl::Status status;
  };
  // kInvalidArgument: no such handle.
  absl::StatusOr<Outcome> Wait(Handle handle, absl::Duration limit);
  void Break(const absl::Status& status);
  // Nothing is started any more, and what is not complete is aborted. The thread leaves in peace where it can.
  void Retire();
  // The same, and then no value is touched when this returns.
  void Leave();

  // Whether there is nothing left of it, within `limit`.
  bool AwaitEnd(std::chrono::milliseconds limit);
  // Once it is over: OK, or why the device cannot be used any more.
  absl::Status device() const;

 private:
  struct Work {
    Operation operation;
    bool complete = false;
    absl::Status status;
  };
  using WorkPointer = std::shared_ptr<Work>;

  void BreakLocked(const absl::Status& status);
  void RetireLocked();

  // The rest is the thread's.
  void Run();
  absl::Status Form();
  absl::Status ShareId(NcclUniqueId* id);
  bool Turn();
  void Announce(WorkPointer work);
  void Hear(const NcclHeard& heard);
  void Started(int rank, const OperationShape& shape);
  void Left(int rank);
  void Tell(const absl::Status& status, const OperationShape& shape);
  void TakeTurn(const OperationShape& shape);
  void Complete(int count);
  void End();

  NcclGroupOptions options_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  absl::Status broken_;  // why nothing more is done
  bool formed_ = false;
  bool leaving_ = false;
  bool ended_ = false;
  absl::Status device_;
  Handle next_handle_ = 1;
  std::map<Handle, WorkPointer> started_;  // and not waited for
  std::vector<WorkPointer> inbox_;
  std::set<WorkPointer> incomplete_;

  NcclNotes notes_;
  NcclCommunicator communicator_;
  NcclOrder order_;                 // of rank 0
  std::deque<NcclHeard> early_;     // came before the group was formed here
  std::deque<WorkPointer> rounds_;  // announced and not at turn, but messages
  std::map<int, std::deque<WorkPointer>> sends_, receives_;
  std::deque<WorkPointer> flying_;  // at the communicator
  bool said_goodbye_ = false;
  bool all_left_ = false;
  std::chrono::steady_clock::time_point leave_until_;

  std::thread thread_;
};

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_NCCL_GROUP_H_
