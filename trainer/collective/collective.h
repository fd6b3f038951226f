#ifndef DOWNPOUR_TRAINER_COLLECTIVE_COLLECTIVE_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_COLLECTIVE_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "trainer/collective/part.h"

// What the members of one ring view do together: sums, copies from one to all, pieces from all to all, messages from
// one to another. No header of a library that does it is seen here.
namespace downpour::collective {

enum class OperationKind : std::uint8_t { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kSend, kReceive };

// In what the values of a sum travel. kBfloat16 (trainer/core/codec/bf16.h) takes half the bytes: a rank adds to what
// it gets in float32 and rounds what it passes on, and the sum is a bfloat16. Whether it rounds its own values before
// it adds them as well is the implementation's. In a group of one nothing travels, and nothing is rounded.
enum class Precision : std::uint8_t { kFloat32, kBfloat16 };

struct Operation {
  OperationKind kind = OperationKind::kAllReduce;
  absl::Span<float> values;  // kSend only reads them
  int peer = 0;              // the root of kBroadcast, whom kSend sends to and kReceive receives from
  Precision travels = Precision::kFloat32;
};

// For people: "all-reduce of 1000 values", "send of 5 values to rank 2".
std::string Describe(const Operation& operation);
// "rank 1 of 3, view v7"
std::string DescribeMember(int rank, int size, const std::string& view);

// What an operation that was started is waited for by.
using Handle = std::int64_t;

// One member's end of the group of one view. The group is never changed: another view is another group.
//
// Operations are started, go on by themselves, and are waited for. All members start the same all-reduces,
// reduce-scatters, all-gathers and broadcasts, of as many values, in the same order; they are done in that order. Sends
// to a member meet its receives from the sender in the order in which both were started, and need no place in the order
// of the rest. But for sums in another precision values move bit for bit, so anything of four bytes can be sent as one.
//
// Values are in the memory of the host, or in that of a device where the implementation says so; then nothing here
// reads or writes them but the device.
//
// The values of an operation belong to the group from its start until Wait returned for it, whatever Wait returned, or
// until the group is destroyed. They may then be used again; after an error their content is not specified.
//
// The first error breaks the group: whatever is not complete then, and whatever is started afterwards, fails at once
// with the same code, and the other members notice. Then there is nothing to do but to form another group. Errors:
//   kAborted           Abort was called here.
//   kUnavailable       a member is lost: its process ended, it left the group, its connection broke.
//   kDeadlineExceeded  a Wait took longer than its limit, because a member does not take part or is slow.
//   kInternal          the members disagree on what is done: other kinds, precisions or numbers of values. Or what
//                      moves the values failed here.
//   kInvalidArgument   a rank that the group has not, a handle that was waited for already.
//   kUnimplemented     a precision that the implementation cannot do.
// The last two leave the group whole, all others break it.
// Each message names operation, rank, size and view.
//
// Thread-safe; two threads that start operations at once must settle the order between themselves.
class Collective {
 public:
  Collective(const Collective&) = delete;
  Collective& operator=(const Collective&) = delete;
  // Aborts what is not complete, and lets go of all values.
  virtual ~Collective() = default;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& view() const { return view_; }

  // Everybody's `values` become the sum over all ranks, with the same bits on all of them.
  absl::StatusOr<Handle> StartAllReduce(absl::Span<float> values, Precision travels = Precision::kFloat32);
  // The part of `values` that is this rank's (PartOf) becomes the sum over all ranks, with the bits that an all-reduce
  // gives it; the rest is used as working memory.
  absl::StatusOr<Handle> StartReduceScatter(absl::Span<float> values, Precision travels = Precision::kFloat32);
  // Each part of `values` becomes what the rank whose it is has there.
  absl::StatusOr<Handle> StartAllGather(absl::Span<float> values);
  // Everybody's `values` become those of `root`.
  absl::StatusOr<Handle> StartBroadcast(absl::Span<float> values, int root);
  // A send is complete when the values may be changed, which says nothing about the receiver; it may wait until the
  // receive was started.
  absl::StatusOr<Handle> StartSend(absl::Span<const float> values, int to);
  absl::StatusOr<Handle> StartReceive(absl::Span<float> values, int from);

  // Until the operation is complete, for no longer than `limit`. Each handle is waited for once.
  virtual absl::Status Wait(Handle handle, absl::Duration limit) = 0;

  // Breaks the group. From any thread, at any time, as often as one likes; a Wait elsewhere returns within moments.
  virtual void Abort() = 0;

  // Start and wait.
  absl::Status AllReduce(absl::Span<float> values, absl::Duration limit, Precision travels = Precision::kFloat32);
  absl::Status ReduceScatter(absl::Span<float> values, absl::Duration limit, Precision travels = Precision::kFloat32);
  absl::Status AllGather(absl::Span<float> values, absl::Duration limit);
  absl::Status Broadcast(absl::Span<float> values, int root, absl::Duration limit);
  absl::Status Send(absl::Span<const float> values, int to, absl::Duration limit);
  absl::Status Receive(absl::Span<float> values, int from, absl::Duration limit);

 protected:
  Collective(int rank, int size, std::string view);

  // `status` with what failed before it.
  absl::Status About(const Operation& operation, const absl::Status& status) const;

 private:
  // `operation` is valid.
  virtual absl::StatusOr<Handle> Start(const Operation& operation) = 0;

  absl::StatusOr<Handle> CheckAndStart(const Operation& operation);
  absl::Status Finish(const absl::StatusOr<Handle>& handle, absl::Duration limit);

  const int rank_;
  const int size_;
  const std::string view_;
};

struct GroupOptions {
  std::string view;   // not empty, never used before for another group of the same rank 0
  int rank = 0;       // of this member, below size
  int size = 1;       // how many members the view has
  std::string store;  // host:port of the rendezvous of rank 0 (Member::port there); not needed for size 1
  std::string host;   // name or address of this member, IPv4 or IPv6, at which the others reach it
  absl::Duration limit = absl::Seconds(30);
  // Ends the forming with kAborted when notified; nullptr: nothing does. Outlives the call.
  const absl::Notification* stop = nullptr;
};

// kInvalidArgument: what is wrong with them.
absl::Status CheckGroupOptions(const GroupOptions& options);

// A process's part in all its groups, for its whole life: the rendezvous of those in which it is rank 0, and the way
// into each. Outlives its groups. Where the implementation says so it has one at a time. Thread-safe.
class Member {
 public:
  Member() = default;
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  virtual ~Member() = default;

  // Where its rendezvous listens, on all addresses of this machine.
  virtual int port() const = 0;

  // The group of a view, once all its members form it. A member that comes again with the same view, or with another
  // size of it, is not let in. kDeadlineExceeded: a member did not come within the limit. kAborted: `stop`.
  // kUnavailable: rank 0 or another member was there, and is lost. What moves the values may fail as in an operation.
  virtual absl::StatusOr<std::unique_ptr<Collective>> Form(const GroupOptions& options) = 0;
};

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_COLLECTIVE_H_
