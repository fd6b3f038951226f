#ifndef DOWNPOUR_TRAINER_WIRE_DESCRIPTOR_H_
#define DOWNPOUR_TRAINER_WIRE_DESCRIPTOR_H_

#include <unistd.h>

#include <utility>

namespace downpour::wire {

// Owns a file descriptor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor() {
    if (valid()) close(descriptor_);
  }

  int get() const { return descriptor_; }
  bool valid() const { return descriptor_ >= 0; }

 private:
  int descriptor_ = -1;
};

}  // namespace downpour::wire

#endif  // DOWNPOUR_TRAINER_WIRE_DESCRIPTOR_H_
