#ifndef DOWNPOUR_TRAINER_CORE_RING_GRADIENT_LAYOUT_H_
#define DOWNPOUR_TRAINER_CORE_RING_GRADIENT_LAYOUT_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/layout.h"

namespace downpour::core {

// [begin, end)
struct Range {
  std::size_t begin = 0;
  std::size_t end = 0;
  std::size_t size() const { return end - begin; }
  bool operator==(const Range& other) const = default;
};

// How the gradients of a model lie side by side where workers sum them: in the order in which backward completes them,
// later layers first, buffers behind all parameters; and the buckets in which they are summed, neither of which has
// both. A function of the tensors alone, so that it is the same at every member. Thread-safe.
class GradientLayout {
 public:
  struct Tensor {
    std::size_t elements = 0;
    bool buffer = false;
  };
  struct Bucket {
    Range values;
    Range places;  // in `order`
  };
  static constexpr std::size_t kBucketBytes = std::size_t{1} << 20;

  // `bytes`: of a bucket, or more where a tensor has more.
  explicit GradientLayout(absl::Span<const Tensor> tensors, std::size_t bytes = kBucketBytes);

  std::size_t size() const { return size_; }
  std::size_t parameters() const { return parameters_; }  // values, before those of buffers
  const Range& tensor(std::size_t tensor) const { return tensors_[tensor]; }
  const std::vector<std::size_t>& order() const { return order_; }  // tensors as they lie
  const std::vector<Bucket>& buckets() const { return buckets_; }
  std::size_t parameter_buckets() const { return parameter_buckets_; }  // before those of buffers

 private:
  std::size_t size_ = 0, parameters_ = 0, parameter_buckets_ = 0;
  std::vector<Range> tensors_;
  std::vector<std::size_t> order_;
  std::vector<Bucket> buckets_;
};

// Of the tensors of a view, which were cut into these slices.
GradientLayout LayoutOf(const v1::View& view, absl::Span<const Slice> slices);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_RING_GRADIENT_LAYOUT_H_
