#ifndef DOWNPOUR_TRAINER_MODEL_COPIED_MODEL_H_
#define DOWNPOUR_TRAINER_MODEL_COPIED_MODEL_H_

#include <functional>
#include <memory>

#include "absl/status/statusor.h"
#include "trainer/model/copy_queue.h"
#include "trainer/model/model.h"

namespace downpour::model {

// A model that is given its values and minibatches through such queues, as one on a GPU is through MakeCopyQueue: for
// tests without one. Errors as of CreateModel.
using MakeQueue = std::function<std::unique_ptr<CopyQueue>()>;
absl::StatusOr<std::unique_ptr<Model>> CreateCopiedModel(const ModelOptions& options, const MakeQueue& make_queue);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_COPIED_MODEL_H_
