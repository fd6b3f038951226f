#ifndef DOWNPOUR_TRAINER_MODEL_BATCH_PARTS_H_
#define DOWNPOUR_TRAINER_MODEL_BATCH_PARTS_H_

#include <cstdint>
#include <vector>

#include "trainer/data/fields.h"

// A batch cut by samples, for several devices. Pure functions.
namespace downpour::model {

struct BatchPart {
  std::int64_t first = 0;
  std::int64_t samples = 0;  // 0: there is none left for this one
  friend bool operator==(const BatchPart&, const BatchPart&) = default;
};

// One for each of `parts`, which is at least 1, in the order of the samples: each has its share, rounded up, until none
// are left. None has a single sample where others have more: it is added to the part before, as BatchNorm cannot
// compute with one. A batch whose fields have no common number of samples is all of the first part: a model refuses it.
std::vector<BatchPart> PartsOf(const data::Batch& batch, int parts);

// Copies the samples of `part`, which is one of those above.
data::Batch CopyPart(const data::Batch& batch, const BatchPart& part);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_BATCH_PARTS_H_
