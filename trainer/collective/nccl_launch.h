#ifndef DOWNPOUR_TRAINER_COLLECTIVE_NCCL_LAUNCH_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_NCCL_LAUNCH_H_

#include <deque>
#include <functional>

#include "absl/status/status.h"
#include "trainer/collective/collective.h"
#include "trainer/collective/nccl_api.h"

namespace downpour::collective {

// What `call` returned, where only success is none; and where it may still be going on.
absl::Status NcclDone(NcclApi* api, const char* call, NcclResult result);
absl::Status NcclBegun(NcclApi* api, const char* call, NcclResult result);

// One rank's place: where its operations are put.
struct NcclPlace {
  NcclApi* api = nullptr;
  int rank = 0;
  int size = 1;
  NcclComm comm = NcclComm::kNone;
  NcclStream stream = NcclStream::kNone;
};

// The calls that put one operation onto the stream, in steps: after each the communicator has to be ready again.
//
// A sum is a reduce-scatter, and of an all-reduce an all-gather after it. NCCL promises that its all-reduce leaves the
// same bits on all ranks, but not that they are those of its reduce-scatter, which adds in another order. So both are
// one here: the parts are added up by the same calls, and are copied. As NCCL's reduce-scatter wants equal parts, and
// PartOf gives some ranks a value more where the number is no multiple of the size, each part is then reduced to its
// owner, and broadcast by it, in one group of calls: NCCL puts such a group onto the stream as one, without memory of
// its own and without copies, which padding would need.
//
// As bfloat16 a sum is made in memory beside the values, rounded before and widened after.
class NcclLaunch {
 public:
  // The values outlive it.
  NcclLaunch(const NcclPlace& place, const Operation& operation);
  NcclLaunch(const NcclLaunch&) = delete;
  NcclLaunch& operator=(const NcclLaunch&) = delete;
  ~NcclLaunch();

  bool done() const { return steps_.empty(); }
  // The next step. Not when done.
  absl::Status Next();

 private:
  absl::Status Prepare();
  absl::Status Scatter();
  absl::Status Gather();
  absl::Status Widen(std::size_t begin, std::size_t end);
  // `call` for the part of each rank, as one.
  absl::Status ForAll(const char* name, const std::function<NcclResult(int rank, const Part& part)>& call);
  char* At(std::size_t value) const { return memory_ + value * width_; }

  const NcclPlace place_;
  const Operation operation_;
  const std::size_t count_;
  NcclElement element_ = NcclElement::kFloat32;
  std::size_t width_ = sizeof(float);
  char* memory_ = nullptr;  // the values, or what stands for them
  void* scratch_ = nullptr;
  std::deque<std::function<absl::Status()>> steps_;
};

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_NCCL_LAUNCH_H_
