#ifndef DOWNPOUR_TESTS_SUPPORT_TRAINING_JOB_H_
#define DOWNPOUR_TESTS_SUPPORT_TRAINING_JOB_H_

#include <string>

#include "operator/api/training_job.h"
#include "operator/kube/object.h"

namespace downpour {

// A job as a user makes it, with no more than it needs.
inline kube::Json TrainingJobObject(const std::string& namespace_name, const std::string& name,
                                    int parameter_servers = 1, int workers = 1) {
  return {{"apiVersion", api::kApiVersion},
          {"kind", api::kKind},
          {"metadata", {{"name", name}, {"namespace", namespace_name}}},
          {"spec",
           {{"parameterServer", {{"replicas", parameter_servers}}},
            {"worker", {{"replicas", workers}}},
            {"model", {{"name", "LeNet"}}},
            {"dataset", {{"format", "IDX"}, {"path", "/data"}}}}}};
}

}  // namespace downpour

#endif  // DOWNPOUR_TESTS_SUPPORT_TRAINING_JOB_H_
