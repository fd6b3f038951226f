#ifndef DOWNPOUR_TRAINER_MODEL_DEVICE_COPIES_H_
#define DOWNPOUR_TRAINER_MODEL_DEVICE_COPIES_H_

#include <c10/core/Event.h>
#include <torch/types.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "absl/time/time.h"
#include "absl/types/span.h"

namespace downpour::model {

// Tensors on their way from a device to the host while the device still computes: each is copied, on a stream of its
// own, into page-locked memory as soon as it is complete there. Nothing waits for the device but Next. One round at a
// time: any number of Start, then Next until there is none. Not thread-safe, but Start may be called by another thread
// than Next, if one has ended before the other begins. What LibTorch throws, its methods throw.
class DeviceCopies {
 public:
  // `elements`: of the tensor with each number. Each has 4 bytes an element from its first Start on.
  DeviceCopies(at::Device device, const std::vector<std::int64_t>& elements);

  // A tensor of that number, of any type and layout, which the current stream computes. It is kept until its copy is
  // made.
  void Start(std::size_t number, const at::Tensor& tensor);

  struct Copy {
    std::size_t number = 0;
    absl::Span<const float> values;  // row-major; until the next Start of this number
  };
  // The next in the order of Start, once it is here. Throws if that takes longer than `limit`: the device hangs.
  std::optional<Copy> Next(absl::Duration limit);

  // Waits for what was started, and gives it away.
  void Drop(absl::Duration limit);

 private:
  struct Pending {
    std::size_t number;
    at::Tensor source;
    c10::Event copied;
  };
  void Await(const c10::Event& event, absl::Duration limit) const;

  const at::Device device_;
  const c10::Stream stream_;
  const std::vector<std::int64_t> elements_;
  std::vector<at::Tensor> host_;  // by number; page-locked
  std::vector<Pending> pending_;
  std::size_t next_ = 0;
};

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_DEVICE_COPIES_H_
