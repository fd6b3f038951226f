#ifndef DOWNPOUR_TRAINER_COLLECTIVE_LOCAL_PLACE_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_LOCAL_PLACE_H_

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "proto/host_port.h"
#include "trainer/collective/collective.h"
#include "trainer/collective/rendezvous.h"
#include "trainer/collective/socket.h"

namespace downpour::collective {

// Where members inside one process meet, as TcpRendezvous has it between processes: each has a number that stands for a
// port, at which those meet of whose view it is rank 0. Once all are there each gets its End. Thread-safe.
template <typename End>
class LocalPlace {
 public:
  // By rank, for the group of a view. It is called once for each group.
  using MakeEnds = std::function<absl::StatusOr<std::vector<End>>(const std::string& view, int size)>;

  explicit LocalPlace(MakeEnds make_ends) : make_ends_(std::move(make_ends)) {}

  // Of a member, and once it is gone.
  int Open() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ports_.insert(++last_port_);
    return last_port_;
  }
  void Shut(int port) {
    const std::lock_guard<std::mutex> lock(mutex_);
    ports_.erase(port);
    changed_.notify_all();
  }

  // Of the member at `own_port`. Errors are those of Member::Form.
  absl::StatusOr<End> Meet(const GroupOptions& options, int own_port) {
    if (absl::Status status = CheckGroupOptions(options); !status.ok()) return status;
    const Patience patience = {MomentIn(options.limit), options.stop};
    const Key key = {options.size > 1 ? SplitHostPort(options.store)->port : own_port, options.view};
    std::unique_lock<std::mutex> lock(mutex_);
    if (std::find(given_up_.begin(), given_up_.end(), key) != given_up_.end()) {
      return AboutForming(options, MemberLost());
    }
    const std::shared_ptr<Meeting> meeting = meetings_.try_emplace(key, NewMeeting(options.size)).first->second;
    if (meeting->here.size() != static_cast<std::size_t>(options.size)) {
      return AboutForming(options,
                          absl::UnavailableError(absl::StrCat("there it has ", meeting->here.size(), " members")));
    }
    if (meeting->here[static_cast<std::size_t>(options.rank)]) {
      return AboutForming(options, absl::UnavailableError("that rank is there already"));
    }
    meeting->here[static_cast<std::size_t>(options.rank)] = true;
    for (;;) {
      const bool reachable = ports_.count(key.first) > 0;
      if (reachable) Advance(key, meeting.get());
      if (!meeting->ends.empty()) return std::move(meeting->ends[static_cast<std::size_t>(options.rank)]);
      absl::Status status = meeting->failed;
      if (status.ok() && !reachable) status = absl::UnavailableError("rank 0 is lost");
      if (status.ok()) status = patience.Check();
      if (!status.ok()) {
        GiveUp(key, meeting.get());
        return AboutForming(options, status);
      }
      changed_.wait_until(lock, std::min(patience.until, std::chrono::steady_clock::now() + kLookPeriod));
    }
  }

 private:
  using Key = std::pair<int, std::string>;  // rank 0's port, and the view
  struct Meeting {
    std::vector<bool> here;  // by rank
    std::vector<End> ends;   // by rank, once all are here
    absl::Status failed;     // there will be none
  };

  // How often a forming looks whether it was stopped.
  static constexpr std::chrono::milliseconds kLookPeriod{20};
  // Of views that a member gave up; those that come later are told.
  static constexpr std::size_t kRememberedViews = 64;

  static absl::Status MemberLost() { return absl::UnavailableError("a member that was there is lost"); }

  static std::shared_ptr<Meeting> NewMeeting(int size) {
    auto meeting = std::make_shared<Meeting>();
    meeting->here.resize(static_cast<std::size_t>(size));
    return meeting;
  }

  void Advance(const Key& key, Meeting* meeting) {
    const bool all = std::find(meeting->here.begin(), meeting->here.end(), false) == meeting->here.end();
    if (!all || !meeting->ends.empty() || !meeting->failed.ok()) return;
    absl::StatusOr<std::vector<End>> ends = make_ends_(key.second, static_cast<int>(meeting->here.size()));
    if (ends.ok()) {
      meeting->ends = *std::move(ends);
    } else {
      meeting->failed = ends.status();
    }
    meetings_.erase(key);
    changed_.notify_all();
  }

  // By who is there and does not wait any longer.
  void GiveUp(const Key& key, Meeting* meeting) {
    if (!meeting->failed.ok()) return;
    meeting->failed = MemberLost();
    given_up_.push_back(key);
    if (given_up_.size() > kRememberedViews) given_up_.pop_front();
    meetings_.erase(key);
    changed_.notify_all();
  }

  const MakeEnds make_ends_;
  std::mutex mutex_;
  std::condition_variable changed_;
  int last_port_ = 0;
  std::set<int> ports_;
  std::map<Key, std::shared_ptr<Meeting>> meetings_;  // at which not all are
  std::deque<Key> given_up_;
};

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_LOCAL_PLACE_H_
