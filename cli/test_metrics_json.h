#ifndef DOWNPOUR_CLI_TEST_METRICS_JSON_H_
#define DOWNPOUR_CLI_TEST_METRICS_JSON_H_

#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "cli/run_history.h"

// What several files of a run have. Metrics of the test set: an object of name -> value; what is not finite is null.
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

// "receivedBytes" and "sentBytes" of a line or a summary; absent: an earlier version did not write them. Throws
// json::exception where they are no numbers.
inline std::optional<NetworkBytes> BytesFromJson(const nlohmann::ordered_json& object) {
  if (!object.contains("receivedBytes") || !object.contains("sentBytes")) return std::nullopt;
  return NetworkBytes{object.at("receivedBytes").get<std::uint64_t>(), object.at("sentBytes").get<std::uint64_t>()};
}

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_TEST_METRICS_JSON_H_
