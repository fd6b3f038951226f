// The operator and the trainer meet in the configuration alone: the names that a manifest may have, and those that the
// trainer knows, are two lists.
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "operator/api/field_names.h"
#include "trainer/model/objective.h"
#include "trainer/model/zoo/zoo.h"

namespace downpour {
namespace {

template <typename Table>
std::vector<std::string> NamesOf(const Table& table) {
  std::vector<std::string> names;
  for (const auto& entry : table) names.emplace_back(entry.name);
  return names;
}

TEST(ManifestNamesTest, EveryNetworkOfTheZooHasAName) {
  EXPECT_EQ(NamesOf(api::schema::kModels), NamesOf(model::Zoo()));
}

TEST(ManifestNamesTest, EveryLossAndMetricIsKnown) {
  using model::LossType;
  using model::MetricType;
  std::vector<std::string> losses, metrics;
  for (const LossType type :
       {LossType::kCrossEntropy, LossType::kBinaryCrossEntropy, LossType::kMeanSquaredError, LossType::kHuber}) {
    losses.emplace_back(model::Name(type));
  }
  for (const MetricType type : {MetricType::kAccuracy, MetricType::kTop5Accuracy, MetricType::kBinaryAccuracy,
                                MetricType::kMeanAbsoluteError}) {
    metrics.emplace_back(model::Name(type));
  }
  EXPECT_EQ(NamesOf(api::schema::kLosses), losses);
  EXPECT_EQ(NamesOf(api::schema::kMetrics), metrics);
}

}  // namespace
}  // namespace downpour
