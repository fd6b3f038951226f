#include "trainer/model/objective.h"

#include <algorithm>
#include <iterator>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace downpour::model {
namespace {

constexpr LossType kLosses[] = {LossType::kCrossEntropy, LossType::kBinaryCrossEntropy, LossType::kMeanSquaredError,
                                LossType::kHuber};
constexpr MetricType kMetrics[] = {MetricType::kAccuracy, MetricType::kTop5Accuracy, MetricType::kBinaryAccuracy,
                                   MetricType::kMeanAbsoluteError};

bool Contains(const std::vector<std::string>& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

template <typename Type, std::size_t count>
absl::StatusOr<Type> Find(const Type (&types)[count], const std::vector<std::string>& own, const std::string& name,
                          const std::string& path) {
  const auto found = std::find_if(std::begin(types), std::end(types), [&](Type type) { return name == Name(type); });
  if (found != std::end(types)) return *found;
  std::vector<std::string> known(std::begin(own), std::end(own));
  for (const Type type : types) known.emplace_back(Name(type));
  return absl::InvalidArgumentError(
      absl::StrCat(path, ": expected one of ", absl::StrJoin(known, ", "), ", got \"", name, "\""));
}

bool IsLabel(const data::Field& target) { return target.type != data::ElementType::kF32 && target.shape.empty(); }

// [classes], one number for each class that the label may have.
bool IsOneForEachClass(const Value& output, const data::Field& target) {
  return IsLabel(target) && output.shape.size() == 1 && target.classes > 1 && output.shape[0] == target.classes;
}

bool IsOneNumberForALabel(const Value& output, const data::Field& target) {
  return IsLabel(target) && target.classes == 2 &&
         (output.shape.empty() || output.shape == std::vector<std::int64_t>{1});
}

bool IsOfOneShape(const Value& output, const data::Field& target) {
  return target.type == data::ElementType::kF32 && !target.ragged() && output.shape == target.shape;
}

}  // namespace

const char* Name(LossType type) {
  switch (type) {
    case LossType::kBinaryCrossEntropy:
      return "BinaryCrossEntropy";
    case LossType::kMeanSquaredError:
      return "MeanSquaredError";
    case LossType::kHuber:
      return "Huber";
    case LossType::kCrossEntropy:
      break;
  }
  return "CrossEntropy";
}

const char* Name(MetricType type) {
  switch (type) {
    case MetricType::kTop5Accuracy:
      return "Top5Accuracy";
    case MetricType::kBinaryAccuracy:
      return "BinaryAccuracy";
    case MetricType::kMeanAbsoluteError:
      return "MeanAbsoluteError";
    case MetricType::kAccuracy:
      break;
  }
  return "Accuracy";
}

absl::StatusOr<Objective> PlanObjective(const ObjectiveSpec& spec, const Value& output, const data::Field& target,
                                        const OwnMeasures& own) {
  Objective objective;
  objective.label_smoothing = spec.label_smoothing;
  objective.delta = spec.delta;
  const bool binary = IsOneNumberForALabel(output, target);
  const bool same_shape = IsOfOneShape(output, target);
  if (Contains(own.losses, spec.loss)) objective.own_loss = spec.loss;
  if (!spec.loss.empty() && objective.own_loss.empty()) {
    const absl::StatusOr<LossType> loss = Find(kLosses, own.losses, spec.loss, "spec.model.loss.type");
    if (!loss.ok()) return loss.status();
    objective.loss = *loss;
  } else {
    objective.loss = binary       ? LossType::kBinaryCrossEntropy
                     : same_shape ? LossType::kMeanSquaredError
                                  : LossType::kCrossEntropy;
  }
  const auto refuse = [&](const std::string& path, const char* name, const char* needs) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", name, " needs ", needs, "; the network makes ",
                                                   ToString(output), " and the target of the data set is ",
                                                   data::ToString(target)));
  };
  const char* needs = "an output of the target's shape and a target of fp32";
  bool fits = same_shape;
  MetricType usual = MetricType::kMeanAbsoluteError;
  if (objective.loss == LossType::kCrossEntropy) {
    needs = "one output for each class of an integer label";
    fits = IsOneForEachClass(output, target);
    usual = MetricType::kAccuracy;
  } else if (objective.loss == LossType::kBinaryCrossEntropy) {
    needs = "one output and a label of two classes, or fp32 targets in the output's shape";
    fits = binary || same_shape;
    usual = MetricType::kBinaryAccuracy;
  }
  fits = fits && !output.integers;
  if (!fits && objective.own_loss.empty()) return refuse("spec.model.loss", Name(objective.loss), needs);
  if (spec.metrics.empty() && fits) objective.metrics = {{usual, ""}};
  for (std::size_t i = 0; i < spec.metrics.size(); ++i) {
    const std::string path = absl::StrCat("spec.model.metrics[", i, "]");
    if (Contains(own.metrics, spec.metrics[i])) {
      objective.metrics.push_back({MetricType::kAccuracy, spec.metrics[i]});
      continue;
    }
    const absl::StatusOr<MetricType> metric = Find(kMetrics, own.metrics, spec.metrics[i], path);
    if (!metric.ok()) return metric.status();
    const bool of_classes = *metric == MetricType::kAccuracy || *metric == MetricType::kTop5Accuracy;
    if (of_classes && !IsOneForEachClass(output, target)) {
      return refuse(path, Name(*metric), "one output for each class of an integer label");
    }
    if (!of_classes && !same_shape && !(binary && *metric == MetricType::kBinaryAccuracy)) {
      return refuse(path, Name(*metric), "an output of the target's shape");
    }
    objective.metrics.push_back({*metric, ""});
  }
  return objective;
}

}  // namespace downpour::model
