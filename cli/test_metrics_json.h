#ifndef DOWNPOUR_CLI_TEST_METRICS_JSON_H_
#define DOWNPOUR_CLI_TEST_METRICS_JSON_H_

#include <limits>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/run_history.h"

// Metrics of the test set in the files of a run: an object of name -> value. What is not finite is null there.
namespace downpour::cli {

inline nlohmann::ordered_json MetricsToJson(const std::vector<TestMetric>& metrics) {
  nlohmann::ordered_json object = nlohmann::ordered_json::object();
  for (const TestMetric& metric : metrics) object[metric.name] = metric.value;
  return object;
}

// Of anything but such an object, nothing.
inline std::vector<TestMetric> MetricsFromJson(const nlohmann::ordered_json& object) {
  std::vector<TestMetric> metrics;
  if (!object.is_object()) return metrics;
  for (const auto& [name, value] : object.items()) {
    metrics.push_back({name, value.is_number() ? value.get<double>() : std::numeric_limits<double>::quiet_NaN()});
  }
  return metrics;
}

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_TEST_METRICS_JSON_H_
