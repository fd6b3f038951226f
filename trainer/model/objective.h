#ifndef DOWNPOUR_TRAINER_MODEL_OBJECTIVE_H_
#define DOWNPOUR_TRAINER_MODEL_OBJECTIVE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/data/fields.h"
#include "trainer/model/layers.h"

namespace downpour::model {

// What is minimised, and what is measured beside it.
enum class LossType {
  kCrossEntropy,        // of the softmax of [classes] with a label
  kBinaryCrossEntropy,  // of the sigmoid of [1] with a label of 0 or 1, or of any shape with targets in [0, 1]
  kMeanSquaredError,
  kHuber,  // Huber 1964: quadratic up to delta, linear beyond
};
enum class MetricType { kAccuracy, kTop5Accuracy, kBinaryAccuracy, kMeanAbsoluteError };

const char* Name(LossType type);
const char* Name(MetricType type);

// As the manifest has it; an empty type: what fits the target.
struct ObjectiveSpec {
  std::string loss;
  double label_smoothing = 0;        // of cross-entropy: Szegedy et al. 2016, section 7
  double delta = 1;                  // of Huber's loss
  std::vector<std::string> metrics;  // empty: the loss's usual one
};

// Names of losses and metrics that a plug-in has. They hide those above.
struct OwnMeasures {
  std::vector<std::string> losses;
  std::vector<std::string> metrics;
};

struct Metric {
  MetricType type = MetricType::kAccuracy;
  std::string own;  // of the plug-in, by this name; empty: `type`
  friend bool operator==(const Metric&, const Metric&) = default;
};

struct Objective {
  LossType loss = LossType::kCrossEntropy;
  std::string own_loss;  // of the plug-in, by this name; empty: `loss`
  double label_smoothing = 0;
  double delta = 1;
  std::vector<Metric> metrics;
};

// Whether loss and metrics fit what the network makes (`output`) and what it is compared with (`target`);
// kInvalidArgument names the field of spec.model, and both shapes. What a plug-in's own fit only they know. With an own
// loss and no metrics in the manifest, the metric is the target's usual one if it fits, else none.
absl::StatusOr<Objective> PlanObjective(const ObjectiveSpec& spec, const Value& output, const data::Field& target,
                                        const OwnMeasures& own = {});

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_OBJECTIVE_H_
