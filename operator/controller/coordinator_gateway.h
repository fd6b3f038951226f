#ifndef DOWNPOUR_OPERATOR_CONTROLLER_COORDINATOR_GATEWAY_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_COORDINATOR_GATEWAY_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"
#include "downpour/v1/control.pb.h"
#include "operator/api/training_job.h"
#include "operator/planner/plan.h"

namespace downpour::controller {

// The operator's side of the control plane of jobs. Thread-safe; nothing here blocks its caller.
class CoordinatorGateway {
 public:
  struct Answer {
    v1::ProgressReply reply;   // of its members only which start of which role and index
    double received_time = 0;  // seconds since 1970
    planner::ToldOfPs told;    // with the question
  };

  virtual ~CoordinatorGateway() = default;

  struct Periods {
    absl::Duration ask;   // between two questions
    absl::Duration tell;  // between two calls about nothing but progress
  };

  // Asks the coordinator at `address` (host:port) about the job from now on; another address replaces the one before.
  // `key`: the job's, told to whoever listens for answers. `question`: what it is asked each time, and at once when it
  // has changed.
  virtual void Follow(const std::string& job_uid, const std::string& key, const std::string& address, Periods periods,
                      v1::ProgressRequest question) = 0;
  virtual void Forget(const std::string& job_uid) = 0;
  // The newest answer, however old.
  virtual std::optional<Answer> Latest(const std::string& job_uid) const = 0;
  // Tells a coordinator or a ps that the outcome is stored. Whether it heard is seen from its pod.
  virtual void Finish(api::Role role, const std::string& job_uid, const std::string& address) = 0;
};

struct GatewayOptions {
  absl::Duration deadline = absl::Seconds(2);  // of one question
  int most_in_flight = 64;
  // Seconds since 1970: when an answer came, for whoever decides by its age with the same clock.
  std::function<double()> clock;
};

// Over gRPC. `on_change` is called from any thread with the key of a job whose answer says something that a reconciler
// must know: another phase, generation or set of members, lost parameters, what became of a checkpoint, who holds the
// slices, or now and then progress.
std::unique_ptr<CoordinatorGateway> MakeCoordinatorGateway(GatewayOptions options,
                                                           std::function<void(const std::string& key)> on_change);

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_COORDINATOR_GATEWAY_H_
