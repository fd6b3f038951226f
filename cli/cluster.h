#ifndef DOWNPOUR_CLI_CLUSTER_H_
#define DOWNPOUR_CLI_CLUSTER_H_

#include <functional>
#include <memory>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/why/situation.h"
#include "operator/controller/job_record.h"
#include "operator/controller/pod.h"
#include "operator/kube/client.h"

// TrainingJobs on a cluster, as whoever holds a kubeconfig sees them. Nothing but Scale and KillPod writes.
namespace downpour::cli {

struct ClusterOptions {
  std::string kubeconfig;      // empty: found as kubectl finds it
  std::string context;         // empty: the current one
  std::string namespace_name;  // empty: that of the context
  bool all_namespaces = false;
  bool exec_plugins = false;  // the kubeconfig's program for credentials may be run

  // What decides between a job on a cluster and a run of this machine: any of these was given.
  bool given() const { return all_namespaces || !kubeconfig.empty() || !context.empty() || !namespace_name.empty(); }
};

// Blocking, each request at most kDeadline; thread-safe. Errors are one line for people that names what is wrong
// and where: kInvalidArgument and kNotFound: what was asked for; kPermissionDenied names verb and resource;
// kUnavailable and kDeadlineExceeded name the server. kCancelled: see Stop.
class Cluster {
 public:
  static constexpr absl::Duration kDeadline = absl::Seconds(10);

  // Reads the kubeconfig, or the pod's service account where there is none, and runs its program for credentials, which
  // may ask at the terminal and take minutes; asks nothing of the server. Starts threads.
  static absl::StatusOr<std::unique_ptr<Cluster>> Open(const ClusterOptions& options);
  Cluster(const Cluster&) = delete;
  Cluster& operator=(const Cluster&) = delete;

  // Empty: all of them.
  const std::string& namespace_name() const { return namespace_; }

  // kNotFound says which names are like it.
  absl::StatusOr<controller::JobRecord> GetJob(const std::string& name);
  // Changes how many parameter servers and workers the job is to have; absent: that stays. kInvalidArgument: the server
  // refuses the number.
  absl::Status Scale(const controller::JobRecord& job, std::optional<int> ps, std::optional<int> workers);
  // Ordered by namespace and name.
  absl::StatusOr<std::vector<controller::JobRecord>> ListJobs();
  // Of the job with this uid; ordered by role, index and incarnation.
  absl::StatusOr<std::vector<controller::Pod>> ListPods(const controller::JobRecord& job);
  // Deletes this very pod with a grace period of 0: its object goes at once. kNotFound: it is gone already.
  absl::Status KillPod(const controller::Pod& pod);
  // Warnings about the job or a pod of its name and time.
  absl::StatusOr<std::vector<SituationEvent>> ListWarnings(const controller::JobRecord& job);
  // See kube::Client::ReadLog; of the container of Downpour. `stop` may end it earlier than its deadline.
  absl::Status ReadLog(const controller::Pod& pod, kube::LogOptions options, const std::stop_token& stop,
                       const std::function<bool(std::string_view time, std::string_view line)>& on_line);

  // Ends all requests, those to come too, with kCancelled. Does not block.
  void Stop() { client_.Stop(); }

 private:
  Cluster(std::string server, std::string namespace_name, std::shared_ptr<kube::Transport> transport);

  // The same error for people.
  absl::Status Explain(const absl::Status& status) const;
  absl::StatusOr<std::vector<kube::Json>> ListAll(const kube::Resource& resource, const std::string& namespace_name,
                                                  kube::ListOptions options);

  const std::string server_;
  const std::string namespace_;
  kube::Client client_;
};

// Names that somebody may have meant instead of `name`: few letters apart, or one the beginning of the other; the
// nearest first, at most three. Pure.
std::vector<std::string> SimilarNames(const std::string& name, const std::vector<std::string>& names);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_CLUSTER_H_
