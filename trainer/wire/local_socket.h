#ifndef DOWNPOUR_TRAINER_WIRE_LOCAL_SOCKET_H_
#define DOWNPOUR_TRAINER_WIRE_LOCAL_SOCKET_H_

#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "trainer/wire/descriptor.h"
#include "trainer/wire/local_record.h"

// Unix-domain sockets of packets, a record each. No call waits. Thread-safe.
namespace downpour::wire {

// Where the server of `address` listens in `directory`. kInvalidArgument: the directory's path is too long for any.
absl::StatusOr<std::string> LocalSocketPath(const std::string& directory, const std::string& job_uid,
                                            const std::string& address);

// What is left there by a process that is gone is replaced. kUnavailable: the system says why.
absl::StatusOr<Descriptor> ListenLocally(const std::string& path);
// A connection that waits there; nullopt: none does. kUnavailable: not now, say for lack of descriptors.
absl::StatusOr<std::optional<Descriptor>> AcceptLocally(const Descriptor& listener);
// kUnavailable: nobody listens there, or whoever does accepts nothing.
absl::StatusOr<Descriptor> ConnectLocally(const std::string& path);

// Whether the process at the other end is of the same user.
bool IsOfThisUser(const Descriptor& socket);

enum class Sent { kYes, kFull, kLost };
// With a descriptor, unless it is -1.
Sent SendRecord(const Descriptor& socket, const LocalRecord& record, int descriptor = -1);

struct ReceivedRecord {
  LocalRecord record;
  Descriptor descriptor;  // that came with a hello or a welcome
};
// nullopt: none is there. kUnavailable: the other end is gone. kDataLoss: that is no record, or has descriptors that it
// should not have (which are closed), or lacks one.
absl::StatusOr<std::optional<ReceivedRecord>> ReceiveRecord(const Descriptor& socket);

// Wakes a thread that polls descriptor().
class WakeEvent {
 public:
  // kUnavailable: the system has no descriptor left.
  static absl::StatusOr<WakeEvent> Create();
  int descriptor() const { return event_.get(); }
  void Set() const;
  void Clear() const;

 private:
  explicit WakeEvent(Descriptor event) : event_(std::move(event)) {}
  Descriptor event_;
};

}  // namespace downpour::wire

#endif  // DOWNPOUR_TRAINER_WIRE_LOCAL_SOCKET_H_
