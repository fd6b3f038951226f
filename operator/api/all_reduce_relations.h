#ifndef DOWNPOUR_OPERATOR_API_ALL_REDUCE_RELATIONS_H_
#define DOWNPOUR_OPERATOR_API_ALL_REDUCE_RELATIONS_H_

#include "operator/api/field_errors.h"
#include "operator/api/training_job.h"

namespace downpour::api {

// Of a job of the strategy AllReduce: what it has no use for, or cannot do yet. Part of CheckRelations.
void CheckAllReduce(const TrainingJobSpec& spec, FieldErrors& errors);

}  // namespace downpour::api

#endif  // DOWNPOUR_OPERATOR_API_ALL_REDUCE_RELATIONS_H_
