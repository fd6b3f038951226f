#ifndef DOWNPOUR_TRAINER_MODEL_OWN_NETWORK_H_
#define DOWNPOUR_TRAINER_MODEL_OWN_NETWORK_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "downpour/plugin.h"
#include "trainer/data/fields.h"
#include "trainer/model/layers.h"
#include "trainer/model/network.h"
#include "trainer/model/objective.h"

// Networks, losses and metrics of the user's own cannot be planned: they are tried out. `where` is the path in the
// manifest, and the network's name; messages begin with it.
namespace downpour::model {

// Whether its tensors can be shared by workers: parameters are fp32, other buffers integers that fp32 holds, none is
// empty, and none is the memory of another. kInvalidArgument: the one that is not.
absl::Status CheckTensors(const Network& network, const std::string& where);

// What it makes of a sample, by a batch of two that is zero, without training. kInvalidArgument: what it threw, or made
// instead of one output a sample.
absl::StatusOr<Value> TryOut(Network& network, const data::Field& input, torch::Device device,
                             const std::string& where);

// What a loss or a metric of a plug-in measures, of a target as it is stored. Throws what it throws, or that there is
// no sum.
Sum MeasureOwn(const plugin::Measure& measure, const torch::Tensor& output, const torch::Tensor& target);

// Whether those that the objective names measure zeros of these shapes. kInvalidArgument: what was thrown, by the path.
absl::Status TryOut(const plugin::Registry& own, const Objective& objective, const Value& output,
                    const data::Field& target, torch::Device device);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_OWN_NETWORK_H_
