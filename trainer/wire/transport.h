#ifndef DOWNPOUR_TRAINER_WIRE_TRANSPORT_H_
#define DOWNPOUR_TRAINER_WIRE_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/core/frame.h"

// The data plane: one exchange carries frames there and one reply frame for each back. Implementations: gRPC raw
// ByteBuffers (grpc_transport.h), memory of the machine that both are on (shared_memory_transport.h), and what takes
// the latter where it can (local_first_client.h).
namespace downpour::wire {

using Frames = std::vector<core::Frame>;

using core::kMaxMessageBytes;

struct TransportCounters {
  std::uint64_t sent_bytes = 0;
  std::uint64_t received_bytes = 0;
  // Of these, what went through shared memory.
  std::uint64_t sent_locally = 0;
  std::uint64_t received_locally = 0;
  TransportCounters& operator+=(const TransportCounters& other) {
    sent_bytes += other.sent_bytes;
    received_bytes += other.received_bytes;
    sent_locally += other.sent_locally;
    received_locally += other.received_locally;
    return *this;
  }
};

// Thread-safe.
class DataClient {
 public:
  virtual ~DataClient() = default;
  // Calls `done` exactly once, from any thread (also from inside Exchange), at the latest a little after the deadline:
  // with the reply frames, or kDeadlineExceeded, kUnavailable (cannot reach), kDataLoss (a reply that does not decode
  // or whose checksum is wrong). The request's payloads are held until the transport no longer needs them.
  // Several exchanges to one address may be in flight.
  virtual void Exchange(const std::string& address, Frames request, absl::Duration deadline,
                        std::function<void(absl::StatusOr<Frames>)> done) = 0;
  virtual TransportCounters counters() const = 0;
};

// The handler is called from several threads at once. It answers by calling `reply` once, then or later, from any
// thread; dropping `reply` uncalled answers UNAVAILABLE. Frames whose payload checksum is wrong are delivered with
// status kCorrupt in the header and an empty payload.
using DataHandler = std::function<void(Frames request, std::function<void(Frames)> reply)>;

}  // namespace downpour::wire

#endif  // DOWNPOUR_TRAINER_WIRE_TRANSPORT_H_
