#ifndef DOWNPOUR_TRAINER_CORE_JOB_MODEL_H_
#define DOWNPOUR_TRAINER_CORE_JOB_MODEL_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"

namespace downpour::core {

// The tensors that are trained, the file they begin with and the size of the training set, as the first worker brought
// them or a view has them. The same for the whole job. Not thread-safe.
class JobModel {
 public:
  bool known() const { return !tensors_.empty(); }
  // Taken over from the first worker that is asked. Otherwise why this one cannot take part; empty: it can.
  std::string Check(const v1::WorkerSyncRequest& request);
  void TakeFrom(const v1::View& view);
  const std::vector<v1::TensorSpec>& tensors() const { return tensors_; }
  std::uint64_t sample_count() const { return sample_count_; }

  // The view that a history begins with, on these ps, with initial values. kInvalidArgument: the tensors cannot be cut,
  // or the data set cannot be planned.
  absl::StatusOr<v1::View> MakeView(const v1::TrainingConfig& config, const v1::ViewStamp& stamp,
                                    const std::vector<v1::PsMember>& ps) const;

 private:
  std::vector<v1::TensorSpec> tensors_;
  std::uint64_t sample_count_ = 0;
  std::optional<std::uint32_t> weights_crc_;  // of the file with initial weights, where the job has one
};

// The number of the history after `previous`, of a coordinator of this incarnation. If every ps of an earlier history
// is gone, its number is not known, but workers of it may live on. Each incarnation therefore numbers from a range of
// its own. kResourceExhausted: the range is used up.
absl::StatusOr<std::uint64_t> NextGeneration(std::uint64_t previous, std::uint32_t incarnation);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_JOB_MODEL_H_
