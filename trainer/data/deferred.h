#ifndef DOWNPOUR_TRAINER_DATA_DEFERRED_H_
#define DOWNPOUR_TRAINER_DATA_DEFERRED_H_

#include <cstdint>
#include <vector>

#include "trainer/data/fields.h"
#include "trainer/data/random.h"

namespace downpour::data {

// A transform (transforms/transform.h) that can be made of all samples of a minibatch at once, where they lie: on a
// GPU.
struct BatchStep {
  enum class Type { kCrop, kFlip, kNormalise, kCast };
  Type type = Type::kCast;
  std::int64_t height = 0, width = 0, padding = 0;  // of kCrop
  double probability = 0;                           // of kFlip
  std::vector<float> mean = {}, deviation = {};     // of kNormalise
  ElementType element_type = ElementType::kF32;     // of kCast: to this
  bool random = false;
  std::uint64_t number = 0;  // among the steps of its field: what is random is drawn by it
};

// The first row or column that a crop keeps, of `extent` of them; negative: in the padding. Null: the middle.
inline std::int64_t DrawCrop(std::int64_t extent, std::int64_t kept, std::int64_t padding, Random* random) {
  const std::int64_t room = extent + 2 * padding - kept;
  return (random != nullptr ? random->Between(0, room) : room / 2) - padding;
}

// Whether an image is flipped.
inline bool DrawFlip(double probability, Random* random) {
  return random != nullptr && random->Fraction() < probability;
}

// What a data set leaves to whoever computes with its samples.
struct Deferred {
  struct Of {
    Field stored;                  // what Read gives
    std::vector<BatchStep> steps;  // from there to the field of the data set
  };
  std::vector<Of> inputs = {}, targets = {};  // in the order of SampleFields; none: nothing is left
  bool fixed = false;                         // what Read gives is a function of the index alone
};

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_DEFERRED_H_
