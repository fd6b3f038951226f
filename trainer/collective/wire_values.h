#ifndef DOWNPOUR_TRAINER_COLLECTIVE_WIRE_VALUES_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_WIRE_VALUES_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "trainer/collective/collective.h"

namespace downpour::collective {

// What is kept between operations, so that it is not allocated for each.
struct WireMemory {
  std::vector<std::uint8_t> values;
  std::vector<float> decoded;
};

// The values of one operation beside what they are on their way. As float32 they are the same bytes. Not thread-safe;
// values and memory outlive it.
class WireValues {
 public:
  WireValues() = default;
  WireValues(const Operation& operation, WireMemory* memory);

  std::size_t width() const { return travels_ == Precision::kFloat32 ? sizeof(float) : kBfloat16Bytes; }
  // All of them as they travel, width() bytes each: what is sent is read here, what is copied is received here.
  char* bytes() { return bytes_; }

  // Of values that are sent first: they and their bytes become what the others get.
  void Encode(std::size_t begin, std::size_t end);
  // These were received into bytes().
  void Received(std::size_t begin, std::size_t end);
  // So many values were received at `bytes`, which are added to those from `begin` on, and passed on.
  void Add(std::size_t begin, std::size_t count, const char* bytes);

 private:
  static constexpr std::size_t kBfloat16Bytes = 2;

  Precision travels_ = Precision::kFloat32;
  absl::Span<float> values_;
  char* bytes_ = nullptr;
  WireMemory* memory_ = nullptr;
};

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_WIRE_VALUES_H_
