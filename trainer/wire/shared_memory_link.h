#ifndef DOWNPOUR_TRAINER_WIRE_SHARED_MEMORY_LINK_H_
#define DOWNPOUR_TRAINER_WIRE_SHARED_MEMORY_LINK_H_

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "trainer/wire/frame_codec.h"
#include "trainer/wire/local_socket.h"
#include "trainer/wire/shared_region.h"

// One end of a connection over shared memory: a socket of records, a region that this end writes, and one that the peer
// writes. What client and server have in common.
namespace downpour::wire {

// Payloads do not leave the memory of the machine, whose own means guard it, and computing their checksums twice takes
// half as much of the processor again as the whole exchange with the optimizer's step (docs/architecture.md).
inline constexpr PayloadChecksums kLocalChecksums = PayloadChecksums::kLeftOut;

class SharedMemoryLink : public std::enable_shared_from_this<SharedMemoryLink> {
 public:
  // `wake` is set when Flush has something to do that it had not before.
  SharedMemoryLink(Descriptor socket, std::unique_ptr<OwnRegion> own, std::shared_ptr<const WakeEvent> wake);

  int descriptor() const { return socket_.get(); }

  // ---- from any thread

  // A message that waits in its place to be sent; whoever has one sends or discards it.
  struct Outgoing {
    LocalRecord record;
    std::optional<std::uint64_t> place;
    std::size_t bytes = 0;
  };
  // Copies the message. nullopt: there is no space for it now.
  std::optional<Outgoing> Prepare(RecordPurpose purpose, const std::vector<MessagePart>& parts);
  void Discard(const Outgoing& outgoing);
  // kFull: the peer leaves too much unread. Unless it returns kYes the message is discarded. Of one purpose the numbers
  // of exchanges differ.
  Sent Send(Outgoing outgoing, std::uint64_t exchange);
  // As Send, but never kFull: what the socket does not take goes as soon as it does, and where too much waits for that
  // the link is closed.
  void Post(Outgoing outgoing, std::uint64_t exchange);
  void Post(LocalRecord record);
  // Both ends notice; what was received stays valid. Nothing is sent any more.
  void Close();

  // ---- from one thread, which polls descriptor()

  // With the greetings, whose descriptor comes once.
  absl::Status Greet(const LocalRecord& record);
  absl::Status SetPeer(Descriptor region, std::uint64_t bytes);
  // As ReceiveRecord, which see; places that are given back are dealt with here.
  absl::StatusOr<std::optional<ReceivedRecord>> Receive();
  // The frames of a message. Where they lie in the peer's region, the place is given back when their last payload is
  // gone.
  struct Received {
    absl::StatusOr<Frames> frames;  // as DecodeMessage
    std::size_t corrupt_payloads = 0;
    std::size_t bytes = 0;  // of the message
  };
  // An error: the peer does not keep the rules; close the link.
  absl::StatusOr<Received> Take(LocalRecord record);
  // Gives the place back unread.
  void Refuse(const LocalRecord& record);
  bool wants_to_write() const;
  void Flush();

 private:
  class Borrowed;
  absl::Status TakeBack(std::uint64_t exchange);
  // Under the lock.
  void PostLocked(LocalRecord record);
  void CloseLocked();

  const Descriptor socket_;
  const std::shared_ptr<const WakeEvent> wake_;
  std::shared_ptr<PeerRegion> peer_;  // of the thread that polls
  mutable std::mutex mutex_;
  // Under the lock. ThreadSanitizer does not see the locks of Abseil.
  const std::unique_ptr<OwnRegion> own_;
  absl::flat_hash_map<std::uint64_t, std::uint64_t> lent_;  // exchange to place
  std::deque<LocalRecord> queue_;
  bool closed_ = false;
};

}  // namespace downpour::wire

#endif  // DOWNPOUR_TRAINER_WIRE_SHARED_MEMORY_LINK_H_
