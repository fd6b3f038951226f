#ifndef DOWNPOUR_TRAINER_MODEL_MODEL_PLAN_H_
#define DOWNPOUR_TRAINER_MODEL_MODEL_PLAN_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/fields.h"
#include "trainer/model/layers.h"
#include "trainer/model/objective.h"

// A model of the manifest, checked against a data set and planned; nothing is built yet, and no LibTorch is needed.
namespace downpour::model {

// spec.model. Exactly one of name and layers is set.
struct ModelSpec {
  std::string name;        // of the zoo
  std::string parameters;  // JSON map: sizes of the network with that name; empty: as documented
  std::string layers;      // JSON list, see layers.h
  ObjectiveSpec objective;
  std::vector<std::string> frozen;  // names of parameters that are not trained; * stands for any text
};

struct ModelPlan {
  data::Field input;
  data::Field target;
  LayerPlan layers;
  Objective objective;
};

// kNotFound: no such network, with the known names. kInvalidArgument: what does not fit, by the path in the manifest,
// with both sides.
absl::StatusOr<ModelPlan> PlanModel(const ModelSpec& spec, const data::SampleFields& fields);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_MODEL_PLAN_H_
