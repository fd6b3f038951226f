#ifndef DOWNPOUR_TRAINER_CORE_WORK_H_
#define DOWNPOUR_TRAINER_CORE_WORK_H_

#include <cstdint>

#include "downpour/v1/control.pb.h"
#include "trainer/core/frame.h"
#include "trainer/core/layout.h"

// What a worker computes, and where its values live.
namespace downpour::core {

// Where the worker's values live; called back on the thread that calls WorkerCore.
class WorkerHost {
 public:
  virtual ~WorkerHost() = default;
  virtual std::uint64_t NewSession() = 0;  // random, never repeated
  virtual Payload InitialValue(std::uint32_t number, const Slice& slice) = 0;
  // Of the update that is being computed; immutable until the returned owner is released. Nothing, if the encoder has
  // it elsewhere.
  virtual Payload Gradient(std::uint32_t number, const Slice& slice) = 0;
  // May come while an update is computed: to be used from the next work on.
  virtual void StoreValue(std::uint32_t number, const Slice& slice, const Payload& value) = 0;
};

// Something to compute, apart from the state machine; `token` names it in the answer.
struct Work {
  std::uint64_t token = 0;
  v1::TaskKind kind = v1::TASK_TRAIN;
  UpdateId update;                  // TASK_TRAIN
  std::uint32_t cut = 0;            // the newest that was known when it began
  std::uint32_t dataset_epoch = 0;  // finished epochs, for the other kinds
  std::uint64_t lease = 0;          // likewise; unique in the job
  bool fetched = true;              // with the values that came; false: with those that the update before ended with
  bool flushes = false;             // nothing is to be left in residuals; may become so later
};

struct ComputeResult {
  Verdict verdict = Verdict::kApply;  // kSkip: the loss or a gradient is not finite
  double loss = 0;
  std::uint64_t samples = 0;
  float factor = 1;  // of the gradient, see FrameHeader
  double data_seconds = 0, forward_seconds = 0, backward_seconds = 0;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_WORK_H_
