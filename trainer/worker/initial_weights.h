#ifndef DOWNPOUR_TRAINER_WORKER_INITIAL_WEIGHTS_H_
#define DOWNPOUR_TRAINER_WORKER_INITIAL_WEIGHTS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "downpour/v1/config.pb.h"
#include "trainer/model/model.h"

namespace downpour::worker {

// Gives the parameters and buffers of the model, frozen ones as well, the values that the file has for them, and
// answers its CRC-32C. Says in the log what it has not, or too much, where that is allowed. Errors as of
// checkpoint::ReadInitialWeights, with the field before them; the model is then as before.
absl::StatusOr<std::uint32_t> TakeInitialWeights(const v1::InitialWeightsConfig& config, model::Model& model);

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_INITIAL_WEIGHTS_H_
