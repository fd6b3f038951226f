#ifndef DOWNPOUR_TRAINER_MODEL_TORCH_SCRIPT_NETWORK_H_
#define DOWNPOUR_TRAINER_MODEL_TORCH_SCRIPT_NETWORK_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/data/fields.h"
#include "trainer/model/network.h"

namespace downpour::model {

// The module of the archive at `path` (torch.jit.save), on the CPU, with parameters, buffers and training mode as they
// were saved: what was in evaluation mode then stays so. Its forward takes the input of the data set or, where that is
// ragged, (words, lengths). kNotFound: no such file; kInvalidArgument: no archive, no forward like this, or nothing in
// it that can be trained. Messages begin with spec.model.torchScript.path.
absl::StatusOr<std::shared_ptr<Network>> LoadTorchScript(const std::string& path, const data::Field& input);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_TORCH_SCRIPT_NETWORK_H_
