#ifndef DOWNPOUR_TRAINER_WIRE_SHARED_MEMORY_TRANSPORT_H_
#define DOWNPOUR_TRAINER_WIRE_SHARED_MEMORY_TRANSPORT_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "trainer/wire/transport.h"

// The data plane between processes of one machine: a server listens on a Unix-domain socket in a directory that both
// see, messages lie in memory that both map. Sender and receiver copy nothing but what the sender puts there. Works
// only between processes of one user.
namespace downpour::wire {

struct SharedMemoryOptions {
  std::string directory;
  std::string job_uid;  // who belongs to another job is not answered
  // Of each direction of each connection. What does not fit while the peer reads what came before goes another way.
  std::uint64_t region_bytes = 64ULL << 20;
};

struct SharedMemoryClientOptions : SharedMemoryOptions {
  absl::Duration greeting = absl::Seconds(1);  // until when a server has to answer who connects
  absl::Duration rest = absl::Seconds(1);      // how long an address is left alone after an error
};

// Besides the errors that DataClient names, an exchange ends with kInvalidArgument (the request does not encode) or
// kCancelled (the client is closed). Where GoesAnotherWay(status), the exchange is to be done over another transport.
// What is exchanged while a connection is being made waits for it.
class SharedMemoryDataClient : public DataClient {
 public:
  // Whether a connection to the server of the address stands, and there was no error of late. If not, one will be made,
  // should there be a server; nobody waits for it.
  virtual bool Ready(const std::string& address) = 0;
  // Ends what is in flight with kCancelled, and everything that comes later at once; returns when each `done` that was
  // due has returned. Not from inside a `done`.
  virtual void Close() = 0;
};
// kInvalidArgument: the path of the directory is too long. kUnavailable: the system has no descriptors left.
absl::StatusOr<std::unique_ptr<SharedMemoryDataClient>> MakeSharedMemoryDataClient(SharedMemoryClientOptions options);

// That nothing is wrong with an exchange: it was not carried out, or its reply had no space, and it may be repeated
// over another transport.
bool GoesAnotherWay(const absl::Status& status);

struct SharedMemoryServerOptions : SharedMemoryOptions {
  std::string address;  // by which clients know it
};

// Each connection has a thread, on which the handler runs. A late reply is ignored, and `reply` may outlive the server.
class SharedMemoryServer {
 public:
  // Makes the directory where it is not there. kInvalidArgument: its path is too long. kUnavailable: says why it cannot
  // listen there.
  static absl::StatusOr<std::unique_ptr<SharedMemoryServer>> Start(SharedMemoryServerOptions options,
                                                                   DataHandler handler);
  virtual ~SharedMemoryServer() = default;
  // Answers every held and every further exchange with UNAVAILABLE; the handler runs no more when it returns. Not from
  // inside the handler.
  virtual void Shutdown() = 0;
  virtual TransportCounters counters() const = 0;
};

}  // namespace downpour::wire

#endif  // DOWNPOUR_TRAINER_WIRE_SHARED_MEMORY_TRANSPORT_H_
