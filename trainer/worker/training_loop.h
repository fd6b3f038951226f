#ifndef DOWNPOUR_TRAINER_WORKER_TRAINING_LOOP_H_
#define DOWNPOUR_TRAINER_WORKER_TRAINING_LOOP_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/data/prefetcher.h"
#include "trainer/model/model.h"

namespace downpour::worker {

// What a worker does from its first call to its coordinator to its end; see WorkerProcess.
class TrainingLoop {
 public:
  virtual ~TrainingLoop() = default;
  virtual const std::string& metrics_address() const = 0;
  // Where others read its tables; empty: nowhere.
  virtual std::string address() const { return ""; }
  virtual absl::Status Run() = 0;
  virtual const std::string& written_model() const = 0;
  // From any thread.
  virtual void Leave() = 0;
};

// What the model shares, as it is told to the coordinator.
std::vector<v1::TensorSpec> TensorSpecsOf(const model::Model& model);
// What it computes on, and of device Auto without a GPU why.
std::string DeviceOf(const model::Model& model);
data::PrefetchOptions PrefetchOf(const v1::DatasetConfig& config);

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_TRAINING_LOOP_H_
