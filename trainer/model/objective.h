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

struct Objective {
  LossType loss = LossType::kCrossEntropy;
  double label_smoothing = 0;
  double delta = 1;
  std::vector<MetricType> metrics;
};

// Whether loss and metrics fit what the network makes (`output`) and what it is compared with (`target`);
// kInvalidArgument names the field of spec.model, and both shapes.
absl::StatusOr<Objective> PlanObjective(const ObjectiveSpec& spec, const Value& output, const data::Field& target);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_OBJECTIVE_H_
