#ifndef DOWNPOUR_TRAINER_CORE_TRAINING_MONITOR_H_
#define DOWNPOUR_TRAINER_CORE_TRAINING_MONITOR_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"

// What evaluations on the test set mean for the training that goes on: whether it ends, how large its steps are, which
// of its states was the best. Pure functions of all evaluations so far, in the order of their epochs: so a coordinator
// that begins anew, or a job that resumes, decides as before. Whoever calls leaves out those behind one that is still
// awaited. An evaluation without the metric is passed over; a value that is not a number improves nothing.
namespace downpour::core {

// What is looked at, and when it has become better.
struct MonitoredMetric {
  std::string name = "Loss";  // or one of spec.model.metrics
  bool less_is_better = true;
  double min_delta = 0;  // by more than so much, at least 0
};

// Of losses and errors less is better, of everything else more.
bool LessIsBetter(absl::string_view metric);

// The value in an evaluation; nullopt: it has none.
std::optional<double> MeasuredValue(const v1::Evaluation& evaluation, const std::string& metric);

struct EarlyStopping {
  MonitoredMetric metric = {};
  std::uint32_t patience = 0;          // epochs without improvement after which training ends
  std::uint32_t start_from_epoch = 0;  // so many epochs are not looked at
};
struct StopDecision {
  bool stop = false;
  std::uint32_t epochs = 0;  // finished when it was decided; 0: it was not
  std::string reason;        // for people; empty: training goes on
};
EarlyStopping EarlyStoppingOf(const v1::EarlyStoppingConfig& config);
// As keras.callbacks.EarlyStopping decides, without a baseline: never after the first epoch.
StopDecision DecideToStop(absl::Span<const v1::Evaluation> evaluations, const EarlyStopping& rule);

struct ReduceOnPlateau {
  MonitoredMetric metric = {};
  double factor = 0.1;          // above 0, below 1
  std::uint32_t patience = 10;  // epochs without improvement that are let pass; with the next one the rate is reduced
  std::uint32_t cooldown = 0;   // epochs after a reduction that are not counted
  double min_learning_rate = 0;
  double learning_rate = 0;  // what the scale multiplies, greater than 0
};
struct ScaleDecision {
  double scale = 1;          // of the learning rate from now on
  std::uint32_t epochs = 0;  // finished when it became that; 0: at the beginning
  std::string reason;        // for people; empty: it was not reduced
};
ReduceOnPlateau ReduceOnPlateauOf(const v1::ReduceOnPlateauConfig& config, double learning_rate);
// As torch.optim.lr_scheduler.ReduceLROnPlateau decides, with threshold_mode "abs" and an eps of 1e-8: a change of the
// learning rate that is not greater is not made. keras.callbacks.ReduceLROnPlateau with a patience of one more does the
// same where there is no cooldown.
ScaleDecision DecideScale(absl::Span<const v1::Evaluation> evaluations, const ReduceOnPlateau& rule);

// For people: what FindBest says of it.
std::string DescribeBest(const std::string& metric, std::uint32_t epochs, double value);

struct BestDecision {
  std::optional<std::size_t> index;  // in the evaluations; nullopt: none has a value
  std::string reason;                // for people
};
// `metric`: a name, see MonitoredMetric.
MonitoredMetric MonitoredMetricOf(const std::string& metric, double min_delta = 0);
// The first of those that none is better than; `metric.min_delta` is not looked at.
BestDecision FindBest(absl::Span<const v1::Evaluation> evaluations, const MonitoredMetric& metric);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_TRAINING_MONITOR_H_
