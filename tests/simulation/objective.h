#ifndef DOWNPOUR_TESTS_SIMULATION_OBJECTIVE_H_
#define DOWNPOUR_TESTS_SIMULATION_OBJECTIVE_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/data_plan.h"

namespace downpour::simulation {

// What jobs of mode SANDBLASTER minimise: of each sample a convex function of all parameters. Losses and gradients are
// whole multiples of a power of two, so that sums of them are exact in any order, and so is the end of the search.
class Objective {
 public:
  using Values = std::map<std::uint32_t, std::vector<float>>;  // by slice

  // Of one update, the mean over its samples. What is no parameter of it, of kSamples elements, has no gradient.
  static double Loss(const core::DataPlan& plan, const core::UpdateId& update, const Values& values);
  static std::vector<float> Gradient(const core::DataPlan& plan, const core::UpdateId& update, std::uint32_t slice,
                                     const std::vector<float>& value);

  struct Minimum {
    Values values;
    std::uint32_t evaluations = 0;
    std::uint32_t iterations = 0;
    std::string outcome;
  };
  // Without a protocol. `view`: with tensors, data and optimizer.
  static Minimum Search(const v1::View& view, const v1::LbfgsConfig& config);
};

}  // namespace downpour::simulation

#endif  // DOWNPOUR_TESTS_SIMULATION_OBJECTIVE_H_
