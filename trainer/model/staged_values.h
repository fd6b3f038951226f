#ifndef DOWNPOUR_TRAINER_MODEL_STAGED_VALUES_H_
#define DOWNPOUR_TRAINER_MODEL_STAGED_VALUES_H_

#include <torch/types.h>

#include <cstddef>
#include <exception>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "trainer/model/copy_queue.h"

namespace downpour::model {

// New values of a model's tensors on their way to its device, each through page-locked memory of its own that is kept:
// nothing is allocated but for the first of a tensor, and nobody waits for a copy but what is computed with it. Not
// thread-safe.
class StagedValues {
 public:
  // `tensors` are fp32, on the device of the queue, in any layout.
  StagedValues(std::unique_ptr<CopyQueue> queue, std::vector<at::Tensor> tensors);

  // Row-major, as many as the tensor has; they are read before this returns. What is thrown is kept for the next Use.
  void Set(std::size_t tensor, absl::Span<const float> values);

  // What the device is given to compute from now on finds the new values of this tensor, or of all.
  void Use(std::size_t tensor);
  void UseAll();

 private:
  struct Staged {
    at::Tensor value;
    at::Tensor host;  // page-locked, row-major
    std::unique_ptr<CopyQueue::Mark> copied;
    bool used = true;  // or nobody waits for the copy yet
  };
  void Copy(Staged* staged, absl::Span<const float> values);
  // Row-major memory on the device for the values of a tensor that is in another order there. Copies are made one after
  // another, so that one is enough for all.
  at::Tensor Scratch(const at::Tensor& like);

  const std::unique_ptr<CopyQueue> queue_;
  std::vector<Staged> staged_;
  at::Tensor scratch_;
  const std::unique_ptr<CopyQueue::Mark> computed_;
  std::exception_ptr thrown_;
};

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_STAGED_VALUES_H_
