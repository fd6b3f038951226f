#ifndef DOWNPOUR_TRAINER_CORE_REPLICA_H_
#define DOWNPOUR_TRAINER_CORE_REPLICA_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "trainer/core/frame.h"
#include "trainer/core/replica_copy.h"
#include "trainer/core/slice_state.h"

namespace downpour::core {

// One slice at one ps, with all that its primary and its standby have to agree on. Whatever changes it is a record: the
// primary makes it and does it, the others do the same in the same order, and have the same bits then. Not thread-safe.
class Replica {
 public:
  // `number`: of the replica, see SlicePlacement. `buffer`: its differences are no gradients.
  Replica(std::uint64_t number, SliceState state, bool buffer)
      : number_(number), buffer_(buffer), state_(std::move(state)) {}

  std::uint64_t number() const { return number_; }
  std::uint64_t sequence() const { return sequence_; }  // of the newest record
  bool buffer() const { return buffer_; }
  SliceState& state() { return state_; }
  const SliceState& state() const { return state_; }

  struct Done {
    bool completes_shard = false;  // with the update every one of its data shard is here
    // What the step was taken with, for a fork that takes it too.
    StepContext context;
    std::shared_ptr<const std::vector<float>> pulled;  // that the context points to
  };
  // Carries a record out, whatever its sequence says. An update must not be in the table (but for a planted bug), and
  // what its payload holds must be sound; kInvalidArgument: a command on vectors that cannot be carried out. Then
  // nothing has changed.
  absl::StatusOr<Done> Do(const Frame& record);
  // Of an update, without its pulled value, if it were done now.
  StepContext ContextOf(const FrameHeader& record) const;
  // Whether Do can: what a record says that comes from elsewhere.
  absl::Status Check(const Frame& record) const;

  // Whether anything is kept of the session (0: of any), or the value as it is already.
  bool keeps(std::uint64_t session) const { return session == 0 ? !pulled_.empty() : pulled_.count(session) != 0; }
  bool has_pulled(std::uint64_t session) const;
  std::vector<std::uint64_t> pulled_sessions() const;

  ReplicaCopy Export() const;
  // Becomes the copy. kInvalidArgument: it does not fit; then nothing has changed.
  absl::Status Import(const ReplicaCopy& copy);

 private:
  void KeepPulled(std::uint64_t session);
  std::shared_ptr<const std::vector<float>> TakePulled(const FrameHeader& header);

  std::uint64_t number_;
  bool buffer_;
  SliceState state_;
  PulledValues pulled_;
  std::uint64_t sequence_ = 0;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_REPLICA_H_
