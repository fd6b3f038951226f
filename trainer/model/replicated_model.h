#ifndef DOWNPOUR_TRAINER_MODEL_REPLICATED_MODEL_H_
#define DOWNPOUR_TRAINER_MODEL_REPLICATED_MODEL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/model/gradient_sum.h"
#include "trainer/model/model.h"

// One model on several devices of a machine, as TensorFlow's MirroredStrategy and PyTorch's DataParallel train it: each
// device has a replica, with the same values and a thread of its own, and computes its part of a batch (batch_parts.h).
//
// - Loss and gradients are the sum of those of the replicas, weighted by their samples: the mean over the batch, as one
//   device computes it, but for rounding. So are the loss of evaluations and metrics. A loss of a plug-in's own that is
//   not a mean over samples is weighted by samples all the same.
// - BatchNorm normalises by the samples of its own device, as with MirroredStrategy; what its buffers change by is
//   averaged likewise.
// - Replicas draw (dropout) by seeds of their own, functions of the step's. The first has the step's own.
// - A step or evaluation in which a replica fails fails with the first such error, once the others are done.
// - There are no steps of the model's own (TakeStep).
namespace downpour::model {

struct ReplicaOptions {
  int replicas = 1;
  std::string suffix;  // of the description, for people: ", 2 GPUs"
  // Makes what adds up gradients, for the tensors of the model; empty: the host does (HostGradientSum).
  std::function<absl::StatusOr<std::unique_ptr<GradientSum>>(const std::vector<Tensor>& tensors)> create_sum = nullptr;
};

// Makes a replica, on the thread that it will be used on; one after another, the first first.
using CreateReplica = std::function<absl::StatusOr<std::unique_ptr<Model>>(int replica)>;

// They are all the same model: tensors and initial values are those of the first. Errors are those of `create` and
// `create_sum`.
absl::StatusOr<std::unique_ptr<Model>> CreateReplicatedModel(const ReplicaOptions& options,
                                                             const CreateReplica& create);

// What a replica draws in a step with this seed.
std::uint64_t ReplicaSeed(std::uint64_t update_seed, std::size_t replica);

}  // namespace downpour::model

#endif  // DOWNPOUR_TRAINER_MODEL_REPLICATED_MODEL_H_
