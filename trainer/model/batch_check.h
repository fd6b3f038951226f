#ifndef DOWNPOUR_TRAINER_MODEL_BATCH_CHECK_H_
#define DOWNPOUR_TRAINER_MODEL_BATCH_CHECK_H_

#include "absl/status/status.h"
#include "trainer/data/fields.h"

namespace downpour::model {

// kInvalidArgument: the batch is not one of at least one sample with this input and this target, or a value is outside
// its classes.
absl::Status CheckBatch(const data::Field& input, const data::Field& target, const data::Batch& batch);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_BATCH_CHECK_H_
