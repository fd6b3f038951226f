#ifndef DOWNPOUR_OPERATOR_CONTROLLER_OBSTACLES_H_
#define DOWNPOUR_OPERATOR_CONTROLLER_OBSTACLES_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "operator/kube/object.h"
#include "operator/planner/plan.h"

// What the platform refuses: what that means for the job, and for how long it is not asked again. Pure functions.
namespace downpour::controller {

inline constexpr char kQuotaExceeded[] = "QuotaExceeded";
inline constexpr char kNamespaceTerminating[] = "NamespaceTerminating";

// What `status`, the answer to asking for something new, means for the job; nothing if it was not refused, or if trying
// again soon may help. `what` failed, in words; `before`: how many refusals came before it in a row.
std::optional<planner::Obstacle> ToObstacle(const absl::Status& status, const std::string& what, int before);

// Of a request to make something: a conflict there is somebody's refusal, such as a webhook's, and no sign of a cache
// that is behind.
absl::Status AsRefusal(const absl::Status& status);

// It went between two of our requests; kUnavailable, as a 404 says more elsewhere.
absl::Status Vanished(const kube::Resource& resource, const std::string& name);

// One kind of thing that is asked for, and refused or not.
struct Hold {
  std::optional<planner::Obstacle> obstacle;
  int refusals = 0;  // in a row
  double until = 0;  // it is not asked for before

  // What came of asking for it, `what` in words should it have failed. What stood in the way before still does if the
  // failure says nothing else. A conflict changes nothing: somebody was quicker, and the queue's own back-off will do.
  void Note(const absl::Status& status, const std::string& what, double now);
  // A clock may have been ahead when `until` was set.
  void BoundAt(double now);
};

}  // namespace downpour::controller

#endif  // DOWNPOUR_OPERATOR_CONTROLLER_OBSTACLES_H_
