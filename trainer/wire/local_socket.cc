#include "trainer/wire/local_socket.h"

#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace downpour::wire {
namespace {

constexpr int kBacklog = 128;
// Descriptors that are taken in, to be closed again where none or one was to come. Of more the kernel tells.
constexpr std::size_t kMostDescriptors = 4;

absl::Status SystemError(const std::string& path, const char* what) {
  return absl::UnavailableError(absl::StrCat(path, ": ", what, ": ", std::strerror(errno)));
}

// FNV-1a: a name of a fixed length, whatever the address. That it is the right one the hello says.
std::uint64_t Hash(const std::string& text) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (const char byte : text) hash = (hash ^ static_cast<std::uint8_t>(byte)) * 1099511628211ULL;
  return hash;
}

// `path` is one of LocalSocketPath: it fits.
sockaddr_un AddressOf(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), std::min(path.size(), sizeof(address.sun_path) - 1));
  return address;
}

absl::StatusOr<Descriptor> NewSocket(const std::string& path) {
  Descriptor socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return SystemError(path, "socket");
  return socket;
}

// Those that came with a message.
std::vector<Descriptor> DescriptorsOf(msghdr& message) {
  std::vector<Descriptor> descriptors;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const std::size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (std::size_t i = 0; i < count; ++i) {
      int descriptor;
      std::memcpy(&descriptor, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      descriptors.emplace_back(descriptor);
    }
  }
  return descriptors;
}

}  // namespace

absl::StatusOr<std::string> LocalSocketPath(const std::string& directory, const std::string& job_uid,
                                            const std::string& address) {
  std::string path = absl::StrFormat("%s/data-%016x", directory, Hash(absl::StrCat(job_uid, " ", address)));
  constexpr std::size_t kMost = sizeof(sockaddr_un{}.sun_path) - 1;
  if (path.size() <= kMost) return path;
  return absl::InvalidArgumentError(
      absl::StrCat(directory, ": sockets in it have paths of ", path.size(), " bytes, the system allows ", kMost));
}

absl::StatusOr<Descriptor> ListenLocally(const std::string& path) {
  absl::StatusOr<Descriptor> socket = NewSocket(path);
  if (!socket.ok()) return socket;
  // Its address is this server's alone: nobody else listens there.
  unlink(path.c_str());
  const sockaddr_un address = AddressOf(path);
  if (bind(socket->get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return SystemError(path, "bind");
  }
  if (listen(socket->get(), kBacklog) != 0) return SystemError(path, "listen");
  return socket;
}

absl::StatusOr<std::optional<Descriptor>> AcceptLocally(const Descriptor& listener) {
  Descriptor socket(accept4(listener.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.valid()) return socket;
  if (errno == EAGAIN || errno == EINTR || errno == ECONNABORTED) return std::nullopt;
  return SystemError("socket", "accept");
}

absl::StatusOr<Descriptor> ConnectLocally(const std::string& path) {
  absl::StatusOr<Descriptor> socket = NewSocket(path);
  if (!socket.ok()) return socket;
  const sockaddr_un address = AddressOf(path);
  if (connect(socket->get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    return SystemError(path, "connect");
  }
  return socket;
}

bool IsOfThisUser(const Descriptor& socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

Sent SendRecord(const Descriptor& socket, const LocalRecord& record, int descriptor) {
  std::vector<std::uint8_t> bytes = EncodeRecord(record);
  iovec part = {bytes.data(), bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  if (descriptor >= 0) {
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    cmsghdr* const header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &descriptor, sizeof(int));
  }
  for (;;) {
    if (sendmsg(socket.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT) >= 0) return Sent::kYes;
    if (errno == EINTR) continue;
    return errno == EAGAIN || errno == ENOBUFS ? Sent::kFull : Sent::kLost;
  }
}

absl::StatusOr<std::optional<ReceivedRecord>> ReceiveRecord(const Descriptor& socket) {
  std::array<std::uint8_t, kMostRecordBytes> bytes;
  iovec part = {bytes.data(), bytes.size()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(kMostDescriptors * sizeof(int))> control;
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  ssize_t got;
  do {
    got = recvmsg(socket.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  } while (got < 0 && errno == EINTR);
  if (got < 0 && errno == EAGAIN) return std::nullopt;
  if (got < 0) return absl::UnavailableError(absl::StrCat("the socket broke: ", std::strerror(errno)));
  std::vector<Descriptor> descriptors = DescriptorsOf(message);
  if (got == 0) return absl::UnavailableError("the other end is gone");
  if ((message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0) {
    return absl::DataLossError("record: longer than any, or with more descriptors than could be taken");
  }
  absl::StatusOr<LocalRecord> record = DecodeRecord(absl::MakeConstSpan(bytes.data(), static_cast<std::size_t>(got)));
  if (!record.ok()) return record.status();
  const bool with_region = record->purpose == RecordPurpose::kHello || record->purpose == RecordPurpose::kWelcome;
  if (descriptors.size() != (with_region ? 1 : 0)) {
    return absl::DataLossError(
        absl::StrCat("record: found ", descriptors.size(), " descriptors, expected ", with_region ? 1 : 0));
  }
  ReceivedRecord received;
  received.record = *std::move(record);
  if (with_region) received.descriptor = std::move(descriptors.front());
  return received;
}

absl::StatusOr<WakeEvent> WakeEvent::Create() {
  Descriptor event(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!event.valid()) return absl::UnavailableError(absl::StrCat("eventfd: ", std::strerror(errno)));
  return WakeEvent(std::move(event));
}

void WakeEvent::Set() const { eventfd_write(event_.get(), 1); }

void WakeEvent::Clear() const {
  eventfd_t count;
  eventfd_read(event_.get(), &count);
}

}  // namespace downpour::wire
