#ifndef DOWNPOUR_TESTS_SIMULATION_EVALUATION_CHECKS_H_
#define DOWNPOUR_TESTS_SIMULATION_EVALUATION_CHECKS_H_

#include <cstdint>
#include <map>
#include <string>

#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"
#include "tests/simulation/world.h"
#include "trainer/core/data_plan.h"

namespace downpour::simulation {

// A job that heeds its evaluations: what a history has counted it never forgets, everything that its views say follows
// from that alone, and where it ends it has done what is before the end, all of it and nothing else.
class EvaluationChecks {
 public:
  EvaluationChecks(World* world, v1::TrainingConfig config, std::uint64_t seed)
      : world_(world), config_(std::move(config)), seed_(seed) {}

  // What each evaluation after so many epochs comes to.
  double Loss(std::uint32_t epoch) const;
  // A ps has taken up the view.
  void OnView(const HistoryKey& key, const v1::View& view);
  // The slice at the end.
  void CheckEnd(const std::string& where, const core::DataPlan& plan, const v1::ShardId& end,
                const v1::SliceLedger& table);

 private:
  World* world_;
  v1::TrainingConfig config_;
  std::uint64_t seed_;
  std::map<HistoryKey, v1::View> newest_;
};

}  // namespace downpour::simulation

#endif  // DOWNPOUR_TESTS_SIMULATION_EVALUATION_CHECKS_H_
