#ifndef DOWNPOUR_OPERATOR_CONTROLLER_DISCOVERY_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_DISCOVERY_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "operator/controller/job_record.h"
#include "operator/controller/namespace_services.h"
#include "operator/controller/obstacles.h"
#include "operator/controller/pod.h"
#include "operator/kube/client.h"

namespace downpour::controller {

// Where the coordinator of one job is found by name: its EndpointSlice, under the service of the namespace. Nobody
// watches slices, so that ours is there is believed for a minute. Not thread-safe.
class Discovery {
 public:
  // Of a job in its first status, or of one that may have a slice.
  static Discovery OfNewJob();
  Discovery() = default;

  // What the slice is to say that it does not say, as far as is known or worth a question: the coordinator's address;
  // empty: that it is nowhere, as its address may be given to somebody else. Absent: nothing is to be done.
  // `status`: the planned one.
  std::optional<std::string> Due(const JobRecord& record, const api::TrainingJobStatus& status, const Pods& pods) const;
  // Says it. Waits for the server. What is refused becomes an obstacle, unless it was that the coordinator is nowhere.
  absl::Status Publish(const JobRecord& record, const std::string& address, kube::Client& client,
                       NamespaceServices& services, double now);
  // Pods are about to start and need it: what was seen long ago is looked for again.
  void DoubtAfterAMinute(double now);

  const Hold& hold() const { return hold_; }
  Hold& hold() { return hold_; }

 private:
  absl::Status Write(const JobRecord& record, const std::string& address, kube::Client& client, double now);

  enum class Slice { kUnknown, kMissing, kThere };
  Slice slice_ = Slice::kUnknown;
  std::string published_;    // the address that it says, if it is there; empty: none
  double published_at_ = 0;  // or seen there
  Hold hold_;
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_DISCOVERY_H_
