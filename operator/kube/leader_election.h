#ifndef DOWNPOUR_OPERATOR_KUBE_LEADER_ELECTION_H_
#define DOWNPOUR_OPERATOR_KUBE_LEADER_ELECTION_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "operator/kube/client.h"

namespace downpour::kube {

struct LeaderElectionOptions {
  std::string namespace_name;
  std::string name = "downpour-operator";
  std::string identity;  // hostname_random: unique for each process
  // After an outage that is longer than `renew_deadline`, another process waits for the whole lease before it leads:
  // this is most of the time until somebody acts again.
  absl::Duration lease = absl::Seconds(10);
  absl::Duration renew_deadline = absl::Seconds(7);
  absl::Duration retry_period = absl::Seconds(1);
};

// The Lease object as the elector saw it last.
struct LeaseRecord {
  std::string holder;
  std::string renew_time;        // as text: only whether it changes counts, clocks differ
  std::string resource_version;  // empty: there is no Lease
  std::string uid;
  int lease_seconds = 0;
  int transitions = 0;
};

// What an elector knows; times are of a clock that does not go back.
struct ElectionState {
  std::optional<LeaseRecord> seen;
  absl::Duration seen_since = absl::ZeroDuration();  // when `seen` last changed
  bool leading = false;
  absl::Duration renewed_at = absl::ZeroDuration();  // the newest renewal that was stored, as of its start
};

struct ElectionDecision {
  enum class Action { kWait, kCreate, kAcquire, kRenew, kLost };
  Action action = Action::kWait;
  std::string reason;  // for people
};

// Pure. Expiry is counted from when the record last changed, on this process's clock (client-go's rule).
ElectionDecision DecideElection(const ElectionState& state, const LeaderElectionOptions& options, absl::Duration now);

// Runs the election on threads of its own. `client` should be its own, with a timeout of half the renew deadline.
// Losing leadership calls `on_lost` once, from one of them and in time even if a request hangs; the process must then
// end at once. Both callbacks should return soon: `on_elected` holds up the renewals.
class LeaderElector {
 public:
  LeaderElector(LeaderElectionOptions options, std::unique_ptr<Client> client, std::function<void()> on_elected,
                std::function<void(const std::string& reason)> on_lost);
  // Gives the Lease back if it leads. Waits for a running request, so for at most the client's timeout, twice.
  ~LeaderElector();
  void Start();
  bool leading() const;
  // Who holds the Lease, as seen last.
  std::string holder() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_LEADER_ELECTION_H_
