#ifndef DOWNPOUR_OPERATOR_CONTROLLER_OPERATOR_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_OPERATOR_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "operator/controller/reconciler.h"
#include "operator/controller/work_queue.h"
#include "operator/kube/leader_election.h"
#include "operator/kube/transport.h"
#include "trainer/service/metrics.h"

namespace downpour::controller {

struct OperatorOptions {
  std::string namespace_name;  // of the jobs; empty: all
  std::string api_server;      // host and port; a label of metrics
  WorkQueueOptions queue{.at_once = 4};
  kube::ClientOptions client;
  ReconcilerOptions reconciler;
  kube::ReflectorOptions watch;  // times; what it watches is filled in
  bool elect_leader = false;
  kube::LeaderElectionOptions election;
  // A cache that heard nothing for so long makes the process unready.
  absl::Duration stale_watch = absl::Minutes(5);
  // So long may go on what is under way when it is stopped. Then its writes are cut off: they are seen, or made again,
  // by whoever leads next.
  absl::Duration longest_drain = absl::Seconds(5);
  // A pass over one job that takes longer will not end any more: ten thousand pods that are made slowly take less.
  absl::Duration longest_pass = absl::Hours(1);
};

// Watches, queue and workers of one process.
class Operator {
 public:
  // Makes a transport to the API server; called several times, as watches, writes and the election have one each.
  using MakeTransport = std::function<std::shared_ptr<kube::Transport>()>;

  // Outlived by `metrics`.
  Operator(OperatorOptions options, const MakeTransport& make_transport, service::Metrics* metrics);
  ~Operator();

  // Begins to watch and, once it leads, to work.
  void Start();
  // OK: Stop was called. kAborted: leadership is lost; the process must end at once.
  absl::Status Wait();
  // Nothing new is begun. The destructor lets what is under way come to its end, at most `longest_drain`, and gives
  // leadership back once nothing writes any more.
  void Stop();

  // Whether it is of use, and whether only a new process would be. Empty: well; else why not.
  std::string Unready() const;
  std::string Stuck() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_OPERATOR_H_
