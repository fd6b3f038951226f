#ifndef DOWNPOUR_TRAINER_COLLECTIVE_SOCKET_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_SOCKET_H_

#include <chrono>
#include <cstddef>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/notification.h"
#include "absl/time/time.h"

// TCP, of which no call waits past its limit. Sockets do not block and are closed with their program image.
namespace downpour::collective {

// Owns a descriptor.
class Socket {
 public:
  Socket() = default;
  explicit Socket(int descriptor) : descriptor_(descriptor) {}
  Socket(Socket&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Socket() { Close(); }

  int descriptor() const { return descriptor_; }  // -1: none
  bool open() const { return descriptor_ >= 0; }
  void Close();

 private:
  int descriptor_ = -1;
};

// By the monotonic clock; at most a day from now.
std::chrono::steady_clock::time_point MomentIn(absl::Duration limit);

// Until when something may wait, and what ends it before.
struct Patience {
  std::chrono::steady_clock::time_point until;
  const absl::Notification* stop = nullptr;  // may be nullptr

  // kAborted or kDeadlineExceeded when it is over.
  absl::Status Check() const;
};

// Listens on `address`, host:port with port 0 for any; empty: any port of all addresses of this machine, IPv6 and IPv4.
absl::StatusOr<Socket> Listen(const std::string& address);
// Of a socket that listens.
absl::StatusOr<int> PortOf(const Socket& socket);

// One that came to `listener`; not open: none waits, or errno says why.
Socket Accept(const Socket& listener);

enum class Attempts { kOne, kUntilSomebodyListens };
// kUnavailable: nobody is reached there. The system's resolver is not interrupted.
absl::StatusOr<Socket> Connect(const std::string& address, Attempts attempts, const Patience& patience);

// All bytes or an error; kUnavailable: the connection is lost.
absl::Status SendAll(const Socket& socket, const void* data, std::size_t size, const Patience& patience);
absl::Status ReceiveAll(const Socket& socket, void* data, std::size_t size, const Patience& patience);

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_SOCKET_H_
