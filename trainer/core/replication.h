#ifndef DOWNPOUR_TRAINER_CORE_REPLICATION_H_
#define DOWNPOUR_TRAINER_CORE_REPLICATION_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/frame.h"
#include "trainer/core/planted_bug.h"
#include "trainer/core/replica_copy.h"
#include "trainer/core/time.h"

namespace downpour::core {

// Frames from one ps to another.
struct ReplicationCall {
  std::uint64_t call = 0;
  std::string address;
  std::vector<Frame> frames;
  absl::Duration deadline;
};

// The logs of the slices that a ps is the primary of: what their other replicas do not hold yet, and what is on its way
// to them. A follower begins with a copy and then gets every record, in order. From the end of its copy on it is waited
// for: held() says up to which record all that is waited for have. What of a log nobody needs any more is dropped.
//
// Of a slice one call at a time is on its way to a follower, so that its records cannot overtake each other; records
// that come meanwhile go together. Not thread-safe.
class Replication {
 public:
  struct Options {
    absl::Duration deadline = absl::Seconds(1);
    std::size_t message_bytes = 4u << 20;  // payload of a call; see FitsMessage
    int calls_in_flight = 8;               // to one ps
    PlantedBug bug = PlantedBug::kNone;
  };
  // The state of a slice as it is, for a copy; nullopt: it has none yet.
  using MakeCopy = std::function<std::optional<ReplicaCopy>(std::uint32_t slice)>;

  explicit Replication(Options options) : options_(options) {}

  // ---- what the view says
  // The frames are for ps of this view.
  void SetView(const v1::View& view, const JobUid& uid);
  // Forgets all followers.
  void Clear();
  // This ps is the primary of the slice, which is at `sequence`, and a replica is to follow: from the beginning, or, if
  // `has_all`, from there.
  void Follow(std::uint32_t slice, std::uint32_t ps, std::uint64_t replica, bool has_all, std::uint64_t sequence);
  // It follows no more; that of a slice which is not here is none.
  void Unfollow(std::uint32_t slice, std::uint64_t replica);
  // Of the slice. In the order of their numbers.
  std::vector<std::uint64_t> Followers(std::uint32_t slice) const;

  // ---- what happens
  // Somebody needs the records of the slice.
  bool Wants(std::uint32_t slice) const;
  // The record that was just done, with its sequence.
  void Append(std::uint32_t slice, Frame record);
  // What is due. To be called after every other call, and at next_timer().
  std::vector<ReplicationCall> Take(Time now, const MakeCopy& copy);
  Time next_timer() const { return next_timer_; }
  // Slices of which held() has changed.
  std::vector<std::uint32_t> OnReply(std::uint64_t call, const absl::StatusOr<std::vector<Frame>>& reply, Time now);

  // ---- what is known
  // The newest record of the slice that every replica which is waited for has; UINT64_MAX: none is.
  std::uint64_t held(std::uint32_t slice) const;
  // See ReplicaState.
  bool level(std::uint32_t slice, std::uint64_t replica) const;
  // Every follower of the slice has all up to `sequence`.
  bool AllHave(std::uint32_t slice, std::uint64_t sequence) const;
  // Payloads that are kept for somebody.
  std::uint64_t log_bytes() const { return log_bytes_; }
  // Payloads sent.
  std::uint64_t copied_bytes() const { return copied_bytes_; }
  std::uint64_t logged_bytes() const { return logged_bytes_; }

 private:
  struct Follower {
    std::uint32_t ps = 0;
    // The copy: its parts, and which the replica has; none: the copy is not made yet, or all of it is there.
    std::vector<Frame> parts;
    std::vector<bool> has_part;
    bool copied = false;         // it is waited for
    std::uint64_t has = 0;       // the newest record that it has
    std::uint64_t level_at = 0;  // what had been acknowledged when the copy was there
    bool in_flight = false;
    // Later records are needed besides the copy.
    bool begun() const { return copied || !parts.empty(); }
  };
  struct Log {
    std::uint64_t end = 0;      // of the newest record
    std::deque<Frame> records;  // up to `end`
    std::map<std::uint64_t, Follower> followers;
    std::uint64_t first() const { return end + 1 - records.size(); }
  };
  struct Sent {
    std::uint32_t slice = 0;
    std::uint64_t replica = 0;
    std::size_t frames = 0;
    std::optional<std::size_t> part;  // of a copy
  };
  struct Call {
    std::uint32_t ps = 0;
    std::vector<Sent> sent;
  };
  using Key = std::pair<std::uint32_t, std::uint64_t>;  // slice and replica
  struct Link {
    std::string address;
    std::set<Key> ready;         // followers there that may have something to be sent, and nothing on its way
    std::optional<Key> copying;  // one at a time
    int in_flight = 0;
    Time retry_at = absl::ZeroDuration();
    absl::Duration backoff = absl::ZeroDuration();
  };

  Follower* Find(const Key& key);
  // What is to be sent to a follower now, as much as fits; nothing: there is nothing.
  std::optional<Sent> FramesFor(const Key& key, Link& link, const MakeCopy& copy, std::size_t* bytes,
                                std::vector<Frame>* frames);
  bool BeginCopy(const Key& key, Link& link, Follower& follower, const MakeCopy& copy);
  void Address(std::uint64_t replica, Frame* frame) const;
  // Whether it has to be sent again.
  bool OnAnswers(const Sent& sent, absl::Span<const Frame> answers);
  void EndCopy(const Key& key, Follower& follower);
  void Trim(Log& log);

  Options options_;
  FrameHeader stamp_;  // what all frames have of the view
  std::map<std::uint32_t, Log> logs_;
  std::map<std::uint32_t, Link> links_;
  std::map<std::uint64_t, Call> calls_;
  std::uint64_t next_call_ = 1;
  Time next_timer_ = absl::InfiniteDuration();
  std::uint64_t log_bytes_ = 0, copied_bytes_ = 0, logged_bytes_ = 0;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_REPLICATION_H_
