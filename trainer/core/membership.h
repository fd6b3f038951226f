#ifndef DOWNPOUR_TRAINER_CORE_MEMBERSHIP_H_
#define DOWNPOUR_TRAINER_CORE_MEMBERSHIP_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <queue>
#include <set>
#include <utility>
#include <vector>

#include "downpour/v1/control.pb.h"
#include "trainer/core/keys.h"
#include "trainer/core/time.h"

namespace downpour::core {

// One session of a worker.
struct Member {
  std::uint32_t index = 0;
  std::uint32_t process_incarnation = 0;
  bool known = false;         // it has synchronised with this incarnation of the coordinator
  bool training = false;      // it may hold data shards, as far as the list says
  std::uint64_t version = 0;  // of the list, from which on it is on it, and trains if it does
  std::uint64_t sequence = 0;
  Time last_heard = absl::ZeroDuration();
  Time expires = absl::ZeroDuration();
  v1::WorkerStats stats;
  ProcessKey process() const { return {index, process_incarnation}; }
};

// The sessions of the workers: a list with a version, which every change raises by one. A session is on it once: what
// is over stays over. Not thread-safe.
class Membership {
 public:
  explicit Membership(absl::Duration lease) : lease_(lease) {}

  std::uint64_t version() const { return version_; }
  std::size_t size() const { return members_.size(); }
  // Null: not a member. Valid until the session ends.
  const Member* Find(std::uint64_t session) const;
  bool ended(std::uint64_t session) const { return ended_.count(session) != 0; }
  // A member with the same index is of a later start.
  bool IsZombie(const ProcessKey& process) const;
  bool InSession(const ProcessKey& process) const;
  // Each of them has synchronised with this incarnation.
  bool all_known() const { return unknown_ == 0; }
  // Indices of those that take work.
  const std::set<std::uint32_t>& available() const { return available_; }
  std::vector<std::uint64_t> sessions() const;

  // A new session; it must neither be a member nor have ended.
  void Add(std::uint64_t session);
  // One that every ps knew before this incarnation. Its lease begins now.
  void Adopt(std::uint64_t session, Time now);
  // Changes what the list says of a member.
  void SetTraining(std::uint64_t session, bool training);
  // A member calls. The session that it replaces, as it has the same index, is still a member then.
  std::optional<std::uint64_t> Hear(const v1::WorkerSyncRequest& request, Time now);
  // What it was; nothing: it was no member. It has ended in both cases.
  std::optional<Member> End(std::uint64_t session);

  // No lease ends before `now` and a whole lease.
  void Extend(Time now) { extended_until_ = now + lease_; }
  // Those whose lease has run out, each once: to be ended.
  std::vector<std::uint64_t> Expired(Time now);

  // Puts the list into a directive for a ps that has version `since` of it (0: none): what has changed, or the whole
  // list where that is not longer.
  void Tell(std::uint64_t since, v1::DirectRequest* directive) const;
  void Report(Time now, v1::ProgressReply* progress) const;

  // How many members Expired has looked at so far.
  std::uint64_t looked_at() const { return looked_at_; }

 private:
  struct Change {
    std::uint64_t session = 0;
    bool ended = false;
  };
  // Raises the version.
  void Note(std::uint64_t session, bool ended);
  Time ExpiryOf(const Member& member) const { return std::max(member.expires, extended_until_); }

  absl::Duration lease_;
  std::uint64_t version_ = 1;
  std::map<std::uint64_t, Member> members_;
  std::set<std::uint64_t> ended_;
  std::map<std::uint32_t, std::uint64_t> by_index_;  // of those that are known
  std::set<std::uint32_t> available_;
  std::size_t unknown_ = 0;
  std::deque<Change> changes_;  // the newest, up to this version
  // One entry for each member, at its expiry or before: a lease that was extended is put back when it comes first.
  using Deadline = std::pair<Time, std::uint64_t>;
  std::priority_queue<Deadline, std::vector<Deadline>, std::greater<Deadline>> deadlines_;
  Time extended_until_ = absl::ZeroDuration();
  std::uint64_t looked_at_ = 0;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_MEMBERSHIP_H_
