#include "trainer/collective/socket.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "proto/host_port.h"

namespace downpour::collective {
namespace {

using Clock = std::chrono::steady_clock;

// How often a wait looks whether it was stopped, and how soon a connection is tried again.
constexpr std::chrono::milliseconds kLookPeriod(20);
constexpr std::chrono::milliseconds kRetryPeriod(50);

std::string Text(int error) { return std::error_code(error, std::generic_category()).message(); }

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

absl::StatusOr<Addresses> Resolve(const std::string& address, bool to_listen) {
  const absl::StatusOr<HostPort> parts = SplitHostPort(address);
  if (!parts.ok()) return parts.status();
  addrinfo hints = {};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (to_listen ? AI_PASSIVE : 0);
  addrinfo* found = nullptr;
  const int error = getaddrinfo(parts->host.c_str(), std::to_string(parts->port).c_str(), &hints, &found);
  if (error != 0) return absl::UnavailableError(absl::StrCat(address, ": ", gai_strerror(error)));
  return Addresses(found, &freeaddrinfo);
}

// Until one of `events`, an error or the end of a slice of time.
void PollOnce(int descriptor, short events, const Patience& patience) {
  const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(patience.until - Clock::now()) +
                    std::chrono::milliseconds(1);
  pollfd polled = {descriptor, events, 0};
  poll(&polled, 1, static_cast<int>(std::clamp(left, std::chrono::milliseconds(0), kLookPeriod).count()));
}

// Headers and values are sent one after the other, and must not wait for each other's acknowledgement.
void SendAtOnce(const Socket& socket) {
  const int on = 1;
  setsockopt(socket.descriptor(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

absl::StatusOr<Socket> ListenAt(const addrinfo& at) {
  Socket socket(::socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at.ai_protocol));
  if (!socket.open()) return absl::UnavailableError(Text(errno));
  const int on = 1, off = 0;
  setsockopt(socket.descriptor(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (at.ai_family == AF_INET6) setsockopt(socket.descriptor(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (bind(socket.descriptor(), at.ai_addr, at.ai_addrlen) != 0 || listen(socket.descriptor(), SOMAXCONN) != 0) {
    return absl::UnavailableError(Text(errno));
  }
  return socket;
}

// kUnavailable: nobody listens, or nobody can be reached; it may be otherwise soon.
absl::StatusOr<Socket> ConnectTo(const addrinfo& at, const Patience& patience) {
  Socket socket(::socket(at.ai_family, at.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, at.ai_protocol));
  if (!socket.open()) return absl::UnavailableError(Text(errno));
  SendAtOnce(socket);
  if (connect(socket.descriptor(), at.ai_addr, at.ai_addrlen) == 0) return socket;
  if (errno != EINPROGRESS) return absl::UnavailableError(Text(errno));
  for (;;) {
    PollOnce(socket.descriptor(), POLLOUT, patience);
    pollfd polled = {socket.descriptor(), POLLOUT, 0};
    if (poll(&polled, 1, 0) > 0) break;
    if (absl::Status status = patience.Check(); !status.ok()) return status;
  }
  int error = 0;
  socklen_t size = sizeof(error);
  getsockopt(socket.descriptor(), SOL_SOCKET, SO_ERROR, &error, &size);
  if (error != 0) return absl::UnavailableError(Text(error));
  return socket;
}

}  // namespace

void Socket::Close() {
  if (open()) close(std::exchange(descriptor_, -1));
}

Clock::time_point MomentIn(absl::Duration limit) {
  return Clock::now() + absl::ToChronoNanoseconds(std::clamp(limit, absl::ZeroDuration(), absl::Hours(24)));
}

absl::Status Patience::Check() const {
  if (stop != nullptr && stop->HasBeenNotified()) return absl::AbortedError("stopped");
  if (Clock::now() >= until) return absl::DeadlineExceededError("not within the limit");
  return absl::OkStatus();
}

absl::StatusOr<Socket> Listen(const std::string& address) {
  if (address.empty()) {
    absl::StatusOr<Socket> all = Listen("[::]:0");
    return all.ok() ? std::move(all) : Listen("0.0.0.0:0");  // a kernel without IPv6
  }
  absl::StatusOr<Addresses> addresses = Resolve(address, true);
  if (!addresses.ok()) return addresses.status();
  absl::Status last = absl::UnavailableError("no address");
  for (const addrinfo* at = addresses->get(); at != nullptr; at = at->ai_next) {
    absl::StatusOr<Socket> socket = ListenAt(*at);
    if (socket.ok()) return socket;
    last = socket.status();
  }
  return absl::UnavailableError(absl::StrCat("listen on ", address, ": ", last.message()));
}

absl::StatusOr<int> PortOf(const Socket& socket) {
  sockaddr_storage address = {};
  socklen_t size = sizeof(address);
  if (getsockname(socket.descriptor(), reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return absl::UnavailableError(Text(errno));
  }
  in_port_t port = 0;
  if (address.ss_family == AF_INET6) {
    port = reinterpret_cast<const sockaddr_in6*>(&address)->sin6_port;
  } else {
    port = reinterpret_cast<const sockaddr_in*>(&address)->sin_port;
  }
  return ntohs(port);
}

Socket Accept(const Socket& listener) {
  Socket socket(accept4(listener.descriptor(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (socket.open()) SendAtOnce(socket);
  return socket;
}

absl::StatusOr<Socket> Connect(const std::string& address, Attempts attempts, const Patience& patience) {
  absl::Status last;
  for (;;) {
    if (absl::Status status = patience.Check(); !status.ok()) {
      return absl::Status(status.code(), absl::StrCat("connect to ", address, ": ", status.message(),
                                                      last.ok() ? "" : "; last: ", last.message()));
    }
    absl::StatusOr<Addresses> addresses = Resolve(address, false);
    last = addresses.status();
    if (last.code() == absl::StatusCode::kInvalidArgument) return last;
    for (const addrinfo* at = addresses.ok() ? addresses->get() : nullptr; at != nullptr; at = at->ai_next) {
      absl::StatusOr<Socket> socket = ConnectTo(*at, patience);
      if (socket.ok()) return socket;
      last = socket.status();
    }
    if (attempts == Attempts::kOne && absl::IsUnavailable(last)) {
      return absl::UnavailableError(absl::StrCat("connect to ", address, ": ", last.message()));
    }
    const Patience pause = {std::min(patience.until, Clock::now() + kRetryPeriod), patience.stop};
    while (pause.Check().ok()) PollOnce(-1, 0, pause);
  }
}

absl::Status SendAll(const Socket& socket, const void* data, std::size_t size, const Patience& patience) {
  for (const char* at = static_cast<const char*>(data); size > 0;) {
    const ssize_t sent = send(socket.descriptor(), at, size, MSG_NOSIGNAL);
    if (sent > 0) {
      at += sent;
      size -= static_cast<std::size_t>(sent);
      continue;
    }
    if (errno != EAGAIN && errno != EINTR) return absl::UnavailableError(Text(errno));
    if (absl::Status status = patience.Check(); !status.ok()) return status;
    PollOnce(socket.descriptor(), POLLOUT, patience);
  }
  return absl::OkStatus();
}

absl::Status ReceiveAll(const Socket& socket, void* data, std::size_t size, const Patience& patience) {
  for (char* at = static_cast<char*>(data); size > 0;) {
    const ssize_t received = recv(socket.descriptor(), at, size, 0);
    if (received > 0) {
      at += received;
      size -= static_cast<std::size_t>(received);
      continue;
    }
    if (received == 0) return absl::UnavailableError("the connection was closed");
    if (errno != EAGAIN && errno != EINTR) return absl::UnavailableError(Text(errno));
    if (absl::Status status = patience.Check(); !status.ok()) return status;
    PollOnce(socket.descriptor(), POLLIN, patience);
  }
  return absl::OkStatus();
}

}  // namespace downpour::collective
