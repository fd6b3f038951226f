#ifndef DOWNPOUR_OPERATOR_API_RELATIONS_H_
#define DOWNPOUR_OPERATOR_API_RELATIONS_H_

#include "operator/api/field_errors.h"
#include "operator/api/training_job.h"

namespace downpour::api {

// What ties several fields together. Speaks only of fields that are right by themselves.
void CheckRelations(const TrainingJobSpec& spec, FieldErrors& errors);
void CheckRelations(const Metadata& metadata, FieldErrors& errors);

}  // namespace downpour::api

#endif  // DOWNPOUR_OPERATOR_API_RELATIONS_H_
