#ifndef DOWNPOUR_TRAINER_WORKER_WORKER_H_
#define DOWNPOUR_TRAINER_WORKER_WORKER_H_

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "downpour/v1/config.pb.h"
#include "trainer/data/dataset.h"
#include "trainer/data/open_dataset.h"
#include "trainer/model/model.h"

namespace downpour::collective {
class NcclApi;
}
namespace downpour::cuda {
class DeviceKernels;
}

namespace downpour::worker {

struct WorkerProcessOptions {
  v1::TrainingConfig config;
  std::uint32_t index = 0;
  std::uint32_t process_incarnation = 1;
  std::string coordinator;     // host:port, or @FILE that holds it
  std::string metrics_listen;  // empty: none
  // Of a job without parameter servers. Its tables are read, and the other workers reach it, at these; port 0: any.
  std::string listen = "127.0.0.1:0";
  std::string ring_listen = "127.0.0.1:0";
  std::string advertise_host;                                          // where others reach it; empty: as it listens
  std::string local_data;                                              // see service::ProcessFlags
  data::ArrowReaders arrow;                                            // empty: data that need Apache Arrow are refused
  std::optional<std::uint32_t> initial_weights_crc32c = std::nullopt;  // of the file that the model has begun with
  // For tests: gradients go through these, on whatever device the model computes; with all-reduce values and what the
  // optimizer remembers are there too. Null: those of the GPU that it computes on, if it does.
  std::shared_ptr<cuda::DeviceKernels> kernels = nullptr;
  // For tests: what sums gradients that are there, instead of the machine's NCCL; outlives the worker.
  collective::NcclApi* nccl = nullptr;
};

class TrainingLoop;

// A worker, in whatever way the job trains. The model computes on the thread that calls Run.
class WorkerProcess {
 public:
  // Opens the data set and builds the model. Whatever will be read is read now (the test set where the job evaluates),
  // and where the model will go something is written: what fails at the end of training must fail before it. Errors
  // name the file or field.
  static absl::StatusOr<std::unique_ptr<WorkerProcess>> Create(WorkerProcessOptions options);
  // With a data set and a model of the caller's; no test set: `test` may be null unless the job evaluates.
  static absl::StatusOr<std::unique_ptr<WorkerProcess>> Create(WorkerProcessOptions options,
                                                               std::unique_ptr<data::Dataset> train,
                                                               std::unique_ptr<data::Dataset> test,
                                                               std::unique_ptr<model::Model> model);
  ~WorkerProcess();

  const std::string& metrics_address() const;
  // host:port at which its tables are read; empty: it has none.
  std::string address() const;

  // Works until the job is over or Leave was called and the leases were given back. Thread-compatible: once.
  absl::Status Run();
  // The model that this process wrote, empty if it did not; once Run returned.
  const std::string& written_model() const;
  // Finishes the update under way (and one more where a codec has left something out), gives the leases back and ends;
  // Run returns at once where nobody is left to answer, and at the latest after a grace of 5 s and the update. From any
  // thread.
  void Leave();

 private:
  explicit WorkerProcess(std::unique_ptr<TrainingLoop> training);
  std::unique_ptr<TrainingLoop> training_;
};

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_WORKER_H_
