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

// spec.model. Exactly one of name, layers, plugin_name and torch_script is set.
struct ModelSpec {
  std::string name;               // of the zoo
  std::string parameters;         // JSON map: sizes of the network with that name; empty: as documented
  std::string layers;             // JSON list, see layers.h
  std::string plugin_path;        // a shared library, for its network, or losses and metrics alone; empty: none
  std::string plugin_name;        // of a network in it
  std::string plugin_parameters;  // JSON map, for that network; empty: none
  std::string torch_script;       // path of an archive that torch.jit.save wrote
  ObjectiveSpec objective;
  std::vector<std::string> frozen;  // names of parameters that are not trained; * stands for any text
};

struct ModelPlan {
  data::Field input;
  data::Field target;
  // Of a plug-in's network or of TorchScript, what they make is known only to LibTorch: these two stay empty.
  LayerPlan layers;
  Objective objective;
};

// `own`: what the plug-in at plugin_path has. kNotFound: no such network, with the known names. kInvalidArgument: what
// does not fit, by the path in the manifest, with both sides.
absl::StatusOr<ModelPlan> PlanModel(const ModelSpec& spec, const data::SampleFields& fields,
                                    const OwnMeasures& own = {});

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_MODEL_PLAN_H_
