#include "cli/run_comparison.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "cli/recorded_run.h"
#include "cli/render/format.h"
#include "cli/render/test_metrics.h"
#include "cli/test_metrics_json.h"
#include "operator/api/manifest.h"
#include "operator/planner/context.h"
#include "operator/planner/ring.h"
#include "trainer/core/training_monitor.h"

namespace downpour::cli {
namespace {

using json = nlohmann::ordered_json;
using core::LessIsBetter;

constexpr std::size_t kMaxPoints = 1000;  // of one curve
constexpr char kTestLoss[] = "loss";      // among the metrics of an evaluation
constexpr double kGap = std::numeric_limits<double>::quiet_NaN();

// What an evaluation measured, the loss last; each label once.
std::vector<TestMetric> MeasuredBy(const EvaluationPoint& evaluation) {
  std::vector<TestMetric> measured = evaluation.metrics;
  if (evaluation.loss.has_value()) measured.push_back({kTestLoss, *evaluation.loss});
  std::set<std::string> labels;
  std::erase_if(measured, [&](const TestMetric& metric) { return !labels.insert(MetricLabel(metric.name)).second; });
  return measured;
}

bool IsMeant(const MetricTarget& target, const TestMetric& metric) {
  return absl::EqualsIgnoreCase(target.metric, metric.name) ||
         absl::EqualsIgnoreCase(target.metric, MetricLabel(metric.name));
}

double FirstUpdate(const RecordedRun& run) {
  const std::vector<CurvePoint>& curve = run.metrics.curve;
  return run.first_update_seconds.value_or(curve.empty() ? 0 : curve.front().seconds);
}

// ---- figures

std::string TextAt(const json& manifest, const char* pointer) {
  const json::json_pointer place(pointer);
  return manifest.contains(place) && manifest.at(place).is_string() ? manifest.at(place).get<std::string>() : "";
}

std::optional<double> NewestLoss(const std::vector<CurvePoint>& curve) {
  const auto known =
      std::find_if(curve.rbegin(), curve.rend(), [](const CurvePoint& point) { return point.loss.has_value(); });
  return known == curve.rend() ? std::nullopt : known->loss;
}

// Of a run without a summary: the mean over what its newest generation has trained.
std::optional<double> RateOf(const std::vector<CurvePoint>& curve) {
  if (curve.empty()) return std::nullopt;
  const CurvePoint& last = curve.back();
  const auto first = std::find_if(curve.begin(), curve.end(),
                                  [&](const CurvePoint& point) { return point.generation == last.generation; });
  if (last.seconds <= first->seconds || last.samples < first->samples) return std::nullopt;
  return static_cast<double>(last.samples - first->samples) / (last.seconds - first->seconds);
}

std::vector<TestMetric> BestOf(const std::vector<EvaluationPoint>& evaluations) {
  std::vector<TestMetric> best;
  for (const EvaluationPoint& evaluation : evaluations) {
    for (const TestMetric& metric : evaluation.metrics) {
      if (!std::isfinite(metric.value)) continue;
      const auto known =
          std::find_if(best.begin(), best.end(), [&](const TestMetric& one) { return one.name == metric.name; });
      if (known == best.end()) {
        best.push_back(metric);
      } else {
        known->value =
            LessIsBetter(metric.name) ? std::min(known->value, metric.value) : std::max(known->value, metric.value);
      }
    }
  }
  return best;
}

std::optional<double> SecondsTo(const RecordedRun& run, const MetricTarget& target) {
  for (const EvaluationPoint& evaluation : run.metrics.evaluations) {
    for (const TestMetric& metric : MeasuredBy(evaluation)) {
      if (!IsMeant(target, metric)) continue;
      const bool reached = LessIsBetter(metric.name) ? metric.value <= target.value : metric.value >= target.value;
      if (reached) return std::max(0.0, evaluation.seconds - FirstUpdate(run));
    }
  }
  return std::nullopt;
}

ComparedRun FiguresOf(const RecordedRun& run, const json& manifest, const std::vector<MetricTarget>& targets) {
  const std::vector<CurvePoint>& curve = run.metrics.curve;
  const api::TrainingJobSpec& spec = run.job.spec;
  ComparedRun row;
  row.name = run.name;
  row.directory = run.directory;
  row.job = run.job.metadata.name;
  row.phase = run.phase;
  const bool ring = planner::IsAllReduce(spec);
  row.mode = ring ? "AllReduce" : TextAt(manifest, "/spec/update/mode");
  row.optimizer = TextAt(manifest, "/spec/update/optimizer/type");
  row.codec = TextAt(manifest, "/spec/update/codec");
  row.workers = spec.worker.replicas;
  if (!ring) row.ps = planner::DesiredReplicas(spec, api::Role::kParameterServer);
  row.loss = NewestLoss(curve);
  row.best = BestOf(run.metrics.evaluations);
  row.samples_per_second = run.samples_per_second.has_value() ? run.samples_per_second : RateOf(curve);
  for (const MetricTarget& target : targets) row.seconds_to.push_back(SecondsTo(run, target));
  row.lost_updates = run.lost_updates;
  row.bytes = run.bytes.has_value() || curve.empty() ? run.bytes : curve.back().bytes;
  return row;
}

// kInvalidArgument: no run has it.
absl::Status CheckTarget(const std::vector<RecordedRun>& runs, const MetricTarget& target) {
  std::set<std::string> known;
  for (const RecordedRun& run : runs) {
    std::vector<TestMetric> metrics;
    for (const std::string& name : run.job.spec.model.metrics) metrics.push_back({name, 0});
    for (const EvaluationPoint& evaluation : run.metrics.evaluations) {
      for (TestMetric& metric : MeasuredBy(evaluation)) metrics.push_back(std::move(metric));
    }
    for (const TestMetric& metric : metrics) {
      if (IsMeant(target, metric)) return absl::OkStatus();
      known.insert(MetricLabel(metric.name));
    }
  }
  return absl::InvalidArgumentError(
      absl::StrCat("--target ", target.text, ": no run has the metric ", target.metric,
                   known.empty() ? "; none was evaluated yet" : "; there are " + absl::StrJoin(known, ", ")));
}

// ---- curves

std::optional<double> TotalBytes(const CurvePoint& point) {
  if (!point.bytes.has_value()) return std::nullopt;
  return static_cast<double>(point.bytes->received) + static_cast<double>(point.bytes->sent);
}

std::optional<double> Between(std::optional<double> before, std::optional<double> after, double fraction) {
  if (!before.has_value() || !after.has_value()) return after;
  return *before + (*after - *before) * fraction;
}

// Samples and bytes when the epochs of the evaluation were done, which is before its result was there.
ComparedPoint PointOf(const EvaluationPoint& evaluation, const std::vector<CurvePoint>& curve) {
  ComparedPoint point;
  const CurvePoint* before = nullptr;
  const CurvePoint* after = nullptr;
  for (const CurvePoint& candidate : curve) {
    if (candidate.generation != evaluation.generation) continue;
    before = after;
    after = &candidate;
    if (after->epochs >= evaluation.epochs) break;
  }
  if (after == nullptr) return point;
  double fraction = 1;
  if (before != nullptr && after->epochs > before->epochs) {
    fraction = std::clamp((evaluation.epochs - before->epochs) / (after->epochs - before->epochs), 0.0, 1.0);
  }
  const auto samples = [](const CurvePoint* at) {
    return at == nullptr ? std::nullopt : std::optional(static_cast<double>(at->samples));
  };
  point.samples = Between(samples(before), samples(after), fraction);
  point.bytes = Between(before == nullptr ? std::nullopt : TotalBytes(*before), TotalBytes(*after), fraction);
  return point;
}

std::vector<ComparedPoint> LossCurve(const RecordedRun& run) {
  const std::vector<CurvePoint>& curve = run.metrics.curve;
  const std::size_t stride = curve.size() / kMaxPoints + 1;
  const double start = FirstUpdate(run);
  std::vector<ComparedPoint> points;
  for (std::size_t i = 0; i < curve.size(); ++i) {
    const bool begins_again = i > 0 && curve[i].generation != curve[i - 1].generation;
    if (begins_again) points.push_back({kGap, 0, std::nullopt, std::nullopt});
    if (i % stride != 0 && !begins_again && i + 1 < curve.size()) continue;
    points.push_back({curve[i].loss.value_or(kGap), std::max(0.0, curve[i].seconds - start),
                      static_cast<double>(curve[i].samples), TotalBytes(curve[i])});
  }
  return points;
}

bool HasValue(const std::vector<ComparedPoint>& points) {
  return std::any_of(points.begin(), points.end(),
                     [](const ComparedPoint& point) { return std::isfinite(point.value); });
}

// By label, in the order in which they are first seen; the loss is the last.
std::vector<ComparedQuantity> TestQuantities(const std::vector<RecordedRun>& runs) {
  std::vector<ComparedQuantity> quantities;
  for (std::size_t run = 0; run < runs.size(); ++run) {
    const std::vector<EvaluationPoint>& evaluations = runs[run].metrics.evaluations;
    for (std::size_t i = 0; i < evaluations.size(); ++i) {
      ComparedPoint point = PointOf(evaluations[i], runs[run].metrics.curve);
      point.seconds = std::max(0.0, evaluations[i].seconds - FirstUpdate(runs[run]));
      for (const TestMetric& metric : MeasuredBy(evaluations[i])) {
        const std::string label = MetricLabel(metric.name);
        auto quantity = std::find_if(quantities.begin(), quantities.end(),
                                     [&](const ComparedQuantity& one) { return one.unit == label; });
        if (quantity == quantities.end()) {
          quantities.push_back({"test " + label, label, label == kTestLoss, {}});
          quantity = std::prev(quantities.end());
        }
        std::vector<ComparedSeries>& series = quantity->series;
        if (series.empty() || series.back().run != run) series.push_back({run, {}});
        std::vector<ComparedPoint>& points = series.back().points;
        if (!points.empty() && evaluations[i].generation != evaluations[i - 1].generation) {
          points.push_back({kGap, 0, std::nullopt, std::nullopt});
        }
        point.value = metric.value;
        point.title = absl::StrCat(runs[run].name, " after epoch ", evaluations[i].epochs, ": ", label, " ",
                                   FormatDecimal(metric.value, 4));
        points.push_back(point);
      }
    }
  }
  for (ComparedQuantity& quantity : quantities) {
    std::erase_if(quantity.series, [](const ComparedSeries& series) { return !HasValue(series.points); });
  }
  std::erase_if(quantities, [](const ComparedQuantity& quantity) { return quantity.series.empty(); });
  std::stable_partition(quantities.begin(), quantities.end(),
                        [](const ComparedQuantity& quantity) { return !quantity.is_loss; });
  return quantities;
}

std::vector<ComparedQuantity> QuantitiesOf(const std::vector<RecordedRun>& runs) {
  ComparedQuantity loss{"training loss", "loss", true, {}};
  for (std::size_t run = 0; run < runs.size(); ++run) {
    std::vector<ComparedPoint> points = LossCurve(runs[run]);
    if (HasValue(points)) loss.series.push_back({run, std::move(points)});
  }
  std::vector<ComparedQuantity> quantities = {std::move(loss)};
  for (ComparedQuantity& quantity : TestQuantities(runs)) quantities.push_back(std::move(quantity));
  return quantities;
}

// ---- manifests

using Field = std::pair<std::string, std::string>;  // path, value

void ListFields(const json& value, const std::string& path, std::vector<Field>* fields) {
  if (value.is_object() && !value.empty()) {
    for (const auto& [key, inner] : value.items()) {
      ListFields(inner, path.empty() ? key : absl::StrCat(path, ".", key), fields);
    }
  } else if (value.is_array() && !value.empty()) {
    for (std::size_t i = 0; i < value.size(); ++i) ListFields(value[i], absl::StrCat(path, "[", i, "]"), fields);
  } else {
    const bool plain = value.is_string() && !value.get_ref<const std::string&>().empty();
    fields->emplace_back(path,
                         plain ? value.get<std::string>() : value.dump(-1, ' ', false, json::error_handler_t::replace));
  }
}

// In the order of the first manifest; what it lacks comes last.
std::vector<ManifestDifference> DifferencesOf(const std::vector<json>& manifests) {
  std::vector<ManifestDifference> all;
  std::map<std::string, std::size_t> places;
  for (std::size_t run = 0; run < manifests.size(); ++run) {
    std::vector<Field> fields;
    ListFields(manifests[run], "", &fields);
    for (Field& field : fields) {
      if (field.first == "metadata.uid") continue;  // made by the run
      const auto [place, is_new] = places.try_emplace(field.first, all.size());
      if (is_new) all.push_back({field.first, std::vector<std::optional<std::string>>(manifests.size())});
      all[place->second].values[run] = std::move(field.second);
    }
  }
  std::erase_if(all, [](const ManifestDifference& field) {
    return std::all_of(field.values.begin(), field.values.end(),
                       [&](const std::optional<std::string>& value) { return value == field.values.front(); });
  });
  return all;
}

template <typename T>
json OrNull(const std::optional<T>& value) {
  return value.has_value() ? json(*value) : json(nullptr);
}

json QuantitiesToJson(const Comparison& comparison) {
  json quantities = json::array();
  for (const ComparedQuantity& quantity : comparison.quantities) {
    json all = json::array();
    for (const ComparedSeries& series : quantity.series) {
      json points = json::array();
      for (const ComparedPoint& point : series.points) {
        points.push_back({{"value", point.value},  // a gap, which is no number, becomes null
                          {"seconds", point.seconds},
                          {"samples", OrNull(point.samples)},
                          {"bytes", OrNull(point.bytes)}});
      }
      all.push_back({{"run", comparison.runs[series.run].name}, {"points", std::move(points)}});
    }
    quantities.push_back({{"name", quantity.name}, {"unit", quantity.unit}, {"series", std::move(all)}});
  }
  return quantities;
}

}  // namespace

absl::StatusOr<MetricTarget> ParseMetricTarget(const std::string& text) {
  const std::size_t equals = text.find('=');
  MetricTarget target{text, text.substr(0, equals), 0};
  if (equals == std::string::npos || target.metric.empty() ||
      !absl::SimpleAtod(text.substr(equals + 1), &target.value) || !std::isfinite(target.value)) {
    return absl::InvalidArgumentError(
        absl::StrCat("--target ", text, ": expected METRIC=NUMBER, such as accuracy=0.85"));
  }
  return target;
}

absl::StatusOr<Comparison> CompareRuns(const std::vector<RecordedRun>& runs, const std::vector<MetricTarget>& targets) {
  std::map<std::string, int> names;
  std::set<std::string> directories;
  for (const RecordedRun& run : runs) {
    ++names[run.name];
    if (directories.insert(run.directory).second) continue;
    return absl::InvalidArgumentError(absl::StrCat(run.directory, ": is named twice"));
  }
  for (const MetricTarget& target : targets) {
    if (const absl::Status status = CheckTarget(runs, target); !status.ok()) return status;
  }
  std::vector<RecordedRun> named = runs;
  for (RecordedRun& run : named) {
    if (names[run.name] > 1) run.name = run.directory;
    if (run.job.spec.strategy != api::Strategy::kAllReduce) continue;
    run.bytes.reset();  // it was parameter servers that counted them
    for (CurvePoint& point : run.metrics.curve) point.bytes.reset();
  }
  Comparison comparison;
  for (const MetricTarget& target : targets) comparison.targets.push_back(target.text);
  std::vector<json> manifests;
  for (const RecordedRun& run : named) {
    manifests.push_back(json::parse(api::ToJson(run.job)));
    comparison.runs.push_back(FiguresOf(run, manifests.back(), targets));
  }
  comparison.quantities = QuantitiesOf(named);
  comparison.differences = DifferencesOf(manifests);
  return comparison;
}

std::string ComparisonToJson(const Comparison& comparison, bool curves) {
  json runs = json::array();
  for (const ComparedRun& run : comparison.runs) {
    json seconds_to = json::object();
    for (std::size_t i = 0; i < comparison.targets.size(); ++i) {
      seconds_to[comparison.targets[i]] = OrNull(run.seconds_to[i]);
    }
    runs.push_back({{"name", run.name},
                    {"directory", run.directory},
                    {"job", run.job},
                    {"phase", run.phase},
                    {"mode", run.mode},
                    {"optimizer", run.optimizer},
                    {"codec", run.codec},
                    {"workers", run.workers},
                    {"ps", OrNull(run.ps)},
                    {"loss", OrNull(run.loss)},
                    {"bestMetrics", MetricsToJson(run.best)},
                    {"samplesPerSecond", OrNull(run.samples_per_second)},
                    {"secondsTo", std::move(seconds_to)},
                    {"lostUpdates", OrNull(run.lost_updates)},
                    {"receivedBytes", run.bytes.has_value() ? json(run.bytes->received) : json(nullptr)},
                    {"sentBytes", run.bytes.has_value() ? json(run.bytes->sent) : json(nullptr)}});
  }
  json differences = json::array();
  for (const ManifestDifference& difference : comparison.differences) {
    json values = json::object();
    for (std::size_t i = 0; i < comparison.runs.size(); ++i) {
      values[comparison.runs[i].name] = OrNull(difference.values[i]);
    }
    differences.push_back({{"path", difference.path}, {"values", std::move(values)}});
  }
  json document = {{"runs", std::move(runs)}, {"differences", std::move(differences)}};
  if (curves) document["quantities"] = QuantitiesToJson(comparison);
  return document.dump(2, ' ', false, json::error_handler_t::replace) + "\n";
}

}  // namespace downpour::cli
