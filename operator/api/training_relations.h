#ifndef DOWNPOUR_OPERATOR_API_TRAINING_RELATIONS_H_
#define DOWNPOUR_OPERATOR_API_TRAINING_RELATIONS_H_

#include "operator/api/field_errors.h"
#include "operator/api/training_job.h"

namespace downpour::api {

// Of CheckRelations: what earlyStopping, reduceOnPlateau and keepBest of spec.training need of the other fields.
void CheckMonitors(const TrainingJobSpec& spec, FieldErrors& errors);

// Likewise: what spec.worker.gpus needs.
void CheckGpus(const TrainingJobSpec& spec, FieldErrors& errors);

}  // namespace downpour::api

#endif  // DOWNPOUR_OPERATOR_API_TRAINING_RELATIONS_H_
