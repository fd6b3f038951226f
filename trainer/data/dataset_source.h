#ifndef DOWNPOUR_TRAINER_DATA_DATASET_SOURCE_H_
#define DOWNPOUR_TRAINER_DATA_DATASET_SOURCE_H_

#include <memory>

#include "trainer/data/dataset.h"
#include "trainer/data/sample_source.h"

namespace downpour::data {

// The samples of a data set one by one, so that transforms can be made of it: a column each field.
std::unique_ptr<SampleSource> SourceOf(std::unique_ptr<Dataset> dataset);

}  // namespace downpour::data

#endif  // DOWNPOUR_TRAINER_DATA_DATASET_SOURCE_H_
