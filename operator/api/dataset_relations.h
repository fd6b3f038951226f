#ifndef DOWNPOUR_OPERATOR_API_DATASET_RELATIONS_H_
#define DOWNPOUR_OPERATOR_API_DATASET_RELATIONS_H_

#include "operator/api/field_errors.h"
#include "operator/api/training_job.h"

namespace downpour::api {

// Of CheckRelations: what ties the fields of spec.dataset together. `evaluates`: the job needs a test set.
void CheckDataset(const DatasetSpec& dataset, bool evaluates, FieldErrors& errors);

}  // namespace downpour::api

#endif  // DOWNPOUR_OPERATOR_API_DATASET_RELATIONS_H_
