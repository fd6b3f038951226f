#ifndef DOWNPOUR_TRAINER_DATA_INDEX_DATASET_H_
#define DOWNPOUR_TRAINER_DATA_INDEX_DATASET_H_

#include <cstdint>
#include <memory>

#include "trainer/data/dataset.h"

namespace downpour::data {

// Batches that say which samples they are of and have nothing of them: for a model that holds them (Model::TakeData).
std::unique_ptr<Dataset> MakeIndexDataset(std::int64_t size, SampleFields fields);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_INDEX_DATASET_H_
