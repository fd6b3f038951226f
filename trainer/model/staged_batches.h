#ifndef DOWNPOUR_TRAINER_MODEL_STAGED_BATCHES_H_
#define DOWNPOUR_TRAINER_MODEL_STAGED_BATCHES_H_

#include <torch/types.h>

#include <array>
#include <memory>
#include <vector>

#include "trainer/data/fields.h"
#include "trainer/model/copy_queue.h"

namespace downpour::model {

// Minibatches on their way to a device: while it computes with one, the next is copied, each through page-locked memory
// that is kept. Not thread-safe. What LibTorch throws, its methods throw.
class StagedBatches {
 public:
  explicit StagedBatches(std::unique_ptr<CopyQueue> queue);

  // Begins to copy `arrays`, contiguous and of the host, which are read before this returns: those of `batch`, which is
  // computed with next. It is kept, so that no other is taken for it.
  void Stage(std::shared_ptr<const data::Batch> batch, const std::vector<at::Tensor>& arrays);
  bool IsStaged(const data::Batch& batch) const;

  // The arrays of `batch` on the device, for what it is given to compute from now on and until the next Begin: those
  // that were staged of the same object, or else `arrays`, copied now. What was staged of another is given up.
  const std::vector<at::Tensor>& Begin(const data::Batch& batch, const std::vector<at::Tensor>& arrays);

 private:
  // Memory of both sides, in bytes; as large as was needed so far.
  struct Buffer {
    at::Tensor host, device;
  };
  struct Slot {
    std::shared_ptr<const data::Batch> batch;  // until it is computed with
    std::vector<Buffer> buffers;
    std::vector<at::Tensor> arrays;  // views of them on the device
    std::unique_ptr<CopyQueue::Mark> copied;
    std::unique_ptr<CopyQueue::Mark> computed;  // what reads the arrays
  };
  Slot& next() { return slots_[1 - taken_]; }
  void Copy(const std::vector<at::Tensor>& arrays, Slot* slot);

  const std::unique_ptr<CopyQueue> queue_;
  std::array<Slot, 2> slots_;
  std::size_t taken_ = 0;  // the other one is free, or staged
};

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_STAGED_BATCHES_H_
