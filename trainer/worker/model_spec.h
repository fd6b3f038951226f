#ifndef DOWNPOUR_TRAINER_WORKER_MODEL_SPEC_H_
#define DOWNPOUR_TRAINER_WORKER_MODEL_SPEC_H_

#include <string>

#include "downpour/v1/config.pb.h"
#include "trainer/model/model_plan.h"

namespace downpour::worker {

// spec.model as the worker is told it.
model::ModelSpec MakeModelSpec(const v1::ModelConfig& config);

// For people: the name of the network and the file that it is from, or that it is a list of layers.
std::string ModelName(const v1::ModelConfig& config);

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_MODEL_SPEC_H_
