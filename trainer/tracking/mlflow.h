#ifndef DOWNPOUR_TRAINER_TRACKING_MLFLOW_H_
#define DOWNPOUR_TRAINER_TRACKING_MLFLOW_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "trainer/tracking/tracker.h"

namespace downpour::tracking {

struct MlflowOptions {
  std::string uri;         // http(s)://HOST[:PORT][/PREFIX] of the tracking server
  std::string experiment;  // made where there is none of this name
  std::string run_name;    // empty: that of the job
  // A token, or a user and a password, or neither.
  std::string token;
  std::string user;
  std::string password;
  std::string ca_bundle;  // a file in place of the system's certificate authorities; empty: the system's
};

// From MLFLOW_TRACKING_TOKEN, MLFLOW_TRACKING_USERNAME and MLFLOW_TRACKING_PASSWORD, MLFLOW_TRACKING_SERVER_CERT_PATH,
// and MLFLOW_TRACKING_URI where `uri` is empty. kInvalidArgument: no URI, or one that cannot be. Errors show no
// secrets.
absl::StatusOr<MlflowOptions> MlflowOptionsFromEnvironment(std::string uri, std::string experiment,
                                                           std::string run_name);

// Speaks MLflow's REST API. A run of MLflow has the job's uid as its tag "downpour.job_uid", by which it is found again
// after a restart of the coordinator. Hyperparameters become its parameters, scalars its metrics, texts its tags
// "downpour.NAME"; it has no histograms. A call that is repeated writes the same points again, which MLflow, on a
// database, keeps once. No request is repeated here: TrackerThread does that. kInvalidArgument: as above.
absl::StatusOr<std::unique_ptr<Tracker>> MakeMlflowTracker(MlflowOptions options);

}  // namespace downpour::tracking

#endif  // DOWNPOUR_TRAINER_TRACKING_MLFLOW_H_
