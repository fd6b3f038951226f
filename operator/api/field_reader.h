#ifndef DOWNPOUR_OPERATOR_API_FIELD_READER_H_
#define DOWNPOUR_OPERATOR_API_FIELD_READER_H_

#include "operator/api/document.h"
#include "operator/api/field_errors.h"
#include "operator/api/manifest.h"
#include "operator/api/training_job.h"

// Moves a tree into the structs, field by field as fields.h describes them, and notes what is wrong.
namespace downpour::api {

// Fields that it does not know are errors. A field that is not there, or is wrong, keeps the value that it has in
// `job`.
void ReadFields(const DocumentNode& root, TrainingJob& job, FieldErrors& errors);

// Fields of a later version are passed over.
void ReadFields(const DocumentNode& root, TimeFormat times, TrainingJobStatus& status, FieldErrors& errors);

}  // namespace downpour::api

#endif  // DOWNPOUR_OPERATOR_API_FIELD_READER_H_
