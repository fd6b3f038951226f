#ifndef DOWNPOUR_TRAINER_WORKER_DATASET_SPEC_H_
#define DOWNPOUR_TRAINER_WORKER_DATASET_SPEC_H_

#include "downpour/v1/config.pb.h"
#include "trainer/data/dataset_spec.h"

namespace downpour::worker {

// spec.dataset as the worker is told it.
data::DatasetSpec MakeDatasetSpec(const v1::DatasetConfig& config);

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_DATASET_SPEC_H_
