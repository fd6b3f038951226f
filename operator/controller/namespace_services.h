#ifndef DOWNPOUR_OPERATOR_CONTROLLER_NAMESPACE_SERVICES_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_NAMESPACE_SERVICES_H_

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "operator/kube/client.h"

namespace downpour::controller {

// The headless service of each namespace with jobs, under whose name their coordinators are found (MakeService): one
// for all of them, which selects nothing. Nobody watches it, so that it is there is believed for a minute. It belongs
// to no job and is removed after the last one. Thread-safe; calls about one namespace take turns, so that none makes
// what another removes.
//
// Why not one for each job: for each pod the scheduler and the controllers of endpoints go through all services of its
// namespace that select anything.
class NamespaceServices {
 public:
  // `client` outlives it. `clock`: seconds since 1970.
  NamespaceServices(kube::Client* client, std::function<double()> clock);

  // Makes it unless it is there. kAlreadyExists: the name is somebody else's. Whoever waits for another's call takes
  // its failure: where the server takes long to refuse, they would do so one after the other.
  absl::Status Ensure(const std::string& namespace_name);
  // Removes it, if it is ours, unless `is_used` says, once it is this call's turn, that the namespace has jobs.
  absl::Status Remove(const std::string& namespace_name, const std::function<bool()>& is_used);

 private:
  struct Known {
    absl::Mutex turn;
    enum class State { kUnknown, kMissing, kThere };
    State state ABSL_GUARDED_BY(turn) = State::kUnknown;
    std::string uid ABSL_GUARDED_BY(turn);
    double seen ABSL_GUARDED_BY(turn) = 0;
    absl::Status failure ABSL_GUARDED_BY(turn);  // the last of Ensure
    double failed ABSL_GUARDED_BY(turn) = 0;
  };
  std::shared_ptr<Known> Of(const std::string& namespace_name);
  // Forgets what was known, as nobody else is about to use it.
  void Drop(const std::string& namespace_name);
  absl::Status RemoveInTurn(const std::string& namespace_name, const std::function<bool()>& is_used, Known& known)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(known.turn);
  absl::Status EnsureInTurn(const std::string& namespace_name, double now, Known& known)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(known.turn);
  absl::Status Look(const std::string& namespace_name, Known& known) ABSL_EXCLUSIVE_LOCKS_REQUIRED(known.turn);

  kube::Client* const client_;
  const std::function<double()> clock_;
  absl::Mutex mutex_;
  std::unordered_map<std::string, std::shared_ptr<Known>> known_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_NAMESPACE_SERVICES_H_
