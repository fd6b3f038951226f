#ifndef DOWNPOUR_OPERATOR_KUBE_REFLECTOR_PLAN_H_
#define DOWNPOUR_OPERATOR_KUBE_REFLECTOR_PLAN_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace downpour::kube {

// What a reflector does next, after how what it did before ended. Pure; times are of a clock that does not go back.
class ReflectorPlan {
 public:
  struct Limits {
    absl::Duration first_backoff = absl::Milliseconds(800);
    absl::Duration most_backoff = absl::Seconds(30);
    absl::Duration healthy = absl::Minutes(2);  // so long without a failure, the back-off begins anew
    // Some servers end a watch from a forgotten version at once, without a word. So many in a row that lived no longer
    // than this and brought nothing mean that.
    absl::Duration short_watch = absl::Seconds(1);
    int short_watches = 3;
  };

  enum class Action { kListFirstPage, kListNextPage, kWatch };
  struct Step {
    Action action = Action::kListFirstPage;
    absl::Duration wait;  // before it
    // Of a watch. Lists ask for the newest: for what the server has cached ("0") it takes no notice of the page size,
    // and the pods of a large cluster are more than fits in one answer.
    std::string resource_version;
    std::string continue_token;  // of a next page
  };

  explicit ReflectorPlan(Limits limits) : limits_(limits) {}

  // 0 <= random < 1.
  Step Next(double random) const;

  void OnPage(const std::string& resource_version, const std::string& continue_token);
  void OnListFailed(const absl::Status& status, absl::Duration now);

  // An event or a bookmark came.
  void OnWatchProgress(const std::string& resource_version);
  enum class WatchEnd {
    kClosed,      // by the server, in good order
    kBroken,      // the connection broke, or was silent for too long
    kRefused,     // another status than 200 and 410, or an error as an event
    kExpired,     // 410, as a status or as an event
    kUnreadable,  // an event that could not be decoded
  };
  // `status`: the reason, if it is not kClosed.
  void OnWatchEnded(WatchEnd end, const absl::Status& status, absl::Duration lived, absl::Duration now);

 private:
  void Failed(const absl::Status& status, absl::Duration now);
  void ListAgain();

  const Limits limits_;
  Action action_ = Action::kListFirstPage;
  std::string continue_token_;
  std::string page_version_;  // of the first page
  std::string watch_version_;
  bool progress_ = false;  // of this watch
  int short_watches_ = 0;
  int failures_ = 0;
  bool failed_ = false;  // the newest outcome
  std::optional<absl::Duration> failed_at_;
  std::optional<absl::Duration> asked_wait_;
};

}  // namespace downpour::kube

#endif  // DOWNPOUR_OPERATOR_KUBE_REFLECTOR_PLAN_H_
