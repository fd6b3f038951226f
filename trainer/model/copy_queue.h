#ifndef DOWNPOUR_TRAINER_MODEL_COPY_QUEUE_H_
#define DOWNPOUR_TRAINER_MODEL_COPY_QUEUE_H_

#include <torch/types.h>

#include <cstdint>
#include <memory>

#include "absl/time/time.h"
#include "trainer/model/copy_meter.h"

namespace downpour::model {

// Copies to a device, one after another, while it computes. What is handed to either side is begun at once, unless it
// is told to come behind a mark in the work of the other; the host waits for neither but in Await. Not thread-safe.
// What LibTorch throws, its methods throw.
class CopyQueue {
 public:
  // A point in the work of a device, set anew as often as one likes. It has been reached before it is first set.
  class Mark {
   public:
    virtual ~Mark() = default;
  };
  virtual ~CopyQueue() = default;

  virtual at::Device device() const = 0;
  // One-dimensional memory of the host that a device copies from by itself; never reused while one does.
  virtual at::Tensor HostMemory(std::int64_t elements, at::ScalarType type) const = 0;
  virtual std::unique_ptr<Mark> NewMark() const = 0;

  // Both tensors have to stay as they are until a mark behind the copy is reached.
  virtual void Copy(const at::Tensor& to, const at::Tensor& from) = 0;
  // Reached when all copies are made, or all is computed, that have been handed over until now.
  virtual void MarkCopies(Mark* mark) = 0;
  virtual void MarkComputing(Mark* mark) = 0;
  // What is handed over from now on waits for the mark.
  virtual void CopyBehind(const Mark& mark) = 0;
  virtual void ComputeBehind(const Mark& mark) = 0;
  // The host waits. Throws if that takes longer than `limit`: the device hangs.
  virtual void Await(const Mark& mark, absl::Duration limit) const = 0;
};

// On a stream of its own of a device that has streams; computing is what goes to the current stream of the caller.
// `meter`, which outlives it, is told of each copy.
std::unique_ptr<CopyQueue> MakeCopyQueue(at::Device device, CopyMeter* meter);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_COPY_QUEUE_H_
