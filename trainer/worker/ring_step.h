#ifndef DOWNPOUR_TRAINER_WORKER_RING_STEP_H_
#define DOWNPOUR_TRAINER_WORKER_RING_STEP_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/collective/collective.h"
#include "trainer/core/ring/ring_replica.h"
#include "trainer/core/ring/ring_worker.h"
#include "trainer/model/model.h"
#include "trainer/worker/batch_loader.h"
#include "trainer/worker/gradient_buckets.h"

namespace downpour::worker {

// The two sides of one group, in which things are started in one order.
struct RingGroup {
  collective::Collective* values = nullptr;  // of the memory that gradients are added up in
  collective::Collective* words = nullptr;   // of the memory of the host
  bool waits_for_device = false;             // to start something with values is to wait until they have been copied
};

// One step of a ring: the gradients of this rank's updates, their sum over all ranks while backward goes on, and what
// every rank does with it alike. On the thread that owns the model. Given things outlive it, and the group of a step
// that failed ends before it does: until then it may write here.
//
// Gradients are added up where the buckets are, which is the memory of the host, to which the model gives them. With
// `on_device` it is the memory that the model computes in, and the kernels of the buckets work in its stream: the model
// leaves its gradients there, the replica's vectors are there (RingReplica::vectors), and so the model's new parameters
// come from there.
class RingStep {
 public:
  struct Options {
    bool on_device = false;
    std::uint32_t batch_size = 1;
    double clip_norm = 0;                                             // 0: gradients are not clipped
    collective::Precision travels = collective::Precision::kFloat32;  // gradients; buffers always do as float32
    absl::Duration limit;                                             // of waiting for the others
  };
  // `buckets` are those of LayoutOf(model->tensors()).
  RingStep(const Options& options, model::Model* model, BatchLoader* loader, GradientBuckets buckets);

  // What is to be taken, and what this rank computed for it.
  struct Sums {
    core::RingReplica::Step step;
    core::RingWorkerCore::StepResult result;
  };
  // `failed_here` says of an error whether it is this worker's own: its data, model or device, not the group's. Of the
  // replica nothing is changed but that, with a divided state, it is prepared: once this is OK the step counts.
  absl::StatusOr<Sums> Compute(const core::RingWork& work, const RingGroup& group, core::RingReplica* replica,
                               bool* failed_here);
  // Then, with a divided state: the new values of all. The step is to be taken whatever this returns.
  absl::Status Exchange(const Sums& sums, collective::Collective& group, core::RingReplica* replica);
  // The replica takes it, and the model has its values then. Where an epoch is whole with it, the result says what the
  // replica is. An error is of the device: then this worker is of no use any more.
  absl::Status Take(core::RingReplica* replica, Sums* sums);
  // The step that the replica is prepared for turned out to count. The values of other shares are not there.
  void Finish(const core::TakenStep& as, core::RingReplica* replica);

 private:
  struct Computed;
  absl::Status ComputeOwn(const core::RingWork& work, const core::RingReplica& replica, const RingGroup& sides,
                          Computed* computed);
  // The gradient of one minibatch comes to what is there.
  absl::Status AddGradient(const core::RingReplica& replica, const core::UpdateId& update, std::size_t tensor,
                           const float* gradient, float weight);
  // Starts the sums of what is there, or, if it `waits`, of all that is complete.
  void SendReady(collective::Collective& group, bool waits, Computed* computed);
  void WaitAll(Computed* computed);
  // Copies of the sums of this rank's part, at the ranks behind it.
  absl::Status ShareSums(collective::Collective& group, std::uint32_t copies);
  // Of all gradients, as the sums of buckets and their parts in turn: with the same bits whether state is divided or
  // not.
  absl::StatusOr<double> SumSquares(collective::Collective& words, bool divided, bool* failed_here);
  // `copies`: that a rank sends of the sums of its part.
  void CountSent(const collective::Collective& group, std::uint64_t copies,
                 core::RingWorkerCore::StepResult* result) const;
  absl::Span<float> SliceOf(const core::RingReplica& replica, std::uint32_t slice);

  const Options options_;
  model::Model* const model_;
  BatchLoader* const loader_;
  GradientBuckets buckets_;
  bool divided_ = false;  // in the step at hand
  std::vector<float> said_;
};

// Of all values, and of what the optimizers remember, as the host has them.
std::uint32_t DigestOf(const core::RingReplica& replica);

// The model's values become those of the replica. Nothing fails but a device.
absl::Status LoadModel(core::RingReplica* replica, model::Model* model);

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_RING_STEP_H_
