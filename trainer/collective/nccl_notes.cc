#include "trainer/collective/nccl_notes.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <ctime>
#include <system_error>
#include <utility>

namespace downpour::collective {
namespace {

// A note on its way.
struct Wire {
  static constexpr std::uint32_t kMagic = 0x316e7764;  // "dwn1" where the first byte is the lowest

  std::uint32_t magic = kMagic;
  std::uint16_t type = 0;
  std::uint8_t kind = 0;
  std::uint8_t travels = 0;
  std::uint64_t count = 0;
  std::int32_t peer = 0;
  std::uint32_t unused = 0;
};
static_assert(sizeof(Wire) == 24);

bool Decode(const char* bytes, int size, NcclNote* note) {
  Wire wire;
  std::memcpy(&wire, bytes, sizeof(wire));
  if (wire.magic != Wire::kMagic || wire.type < static_cast<int>(NcclNote::Type::kStarted) ||
      wire.type > static_cast<int>(NcclNote::Type::kAllLeft) || wire.kind > static_cast<int>(OperationKind::kReceive) ||
      wire.travels > static_cast<int>(Precision::kBfloat16) || wire.peer < 0 || wire.peer >= size) {
    return false;
  }
  note->type = static_cast<NcclNote::Type>(wire.type);
  note->shape = {static_cast<OperationKind>(wire.kind), static_cast<Precision>(wire.travels), wire.count, wire.peer};
  return true;
}

}  // namespace

NcclNotes::NcclNotes(std::vector<Socket> peers, Socket wake) : peers_(peers.size()), wake_(std::move(wake)) {
  for (std::size_t rank = 0; rank < peers.size(); ++rank) peers_[rank].socket = std::move(peers[rank]);
}

void NcclNotes::Send(int to, const NcclNote& note) {
  Peer& peer = peers_[static_cast<std::size_t>(to)];
  if (!peer.socket.open()) return;
  Wire wire;
  wire.type = static_cast<std::uint16_t>(note.type);
  wire.kind = static_cast<std::uint8_t>(note.shape.kind);
  wire.travels = static_cast<std::uint8_t>(note.shape.travels);
  wire.count = note.shape.count;
  wire.peer = note.shape.peer;
  peer.out.append(reinterpret_cast<const char*>(&wire), sizeof(wire));
  Flush(to);
}

void NcclNotes::Exchange(std::chrono::microseconds wait) {
  std::vector<pollfd> polled = {{wake_.descriptor(), POLLIN, 0}};
  for (const Peer& peer : peers_) {
    // A descriptor of -1 is left out.
    polled.push_back({peer.socket.descriptor(), static_cast<short>(POLLIN | (peer.out.empty() ? 0 : POLLOUT)), 0});
  }
  if (!heard_.empty()) wait = std::chrono::microseconds(0);
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(wait);
  const timespec longest = {seconds.count(), std::chrono::nanoseconds(wait - seconds).count()};
  if (ppoll(polled.data(), polled.size(), wait.count() < 0 ? nullptr : &longest, nullptr) <= 0) return;
  if (polled.front().revents != 0) {
    std::uint64_t times = 0;
    [[maybe_unused]] const ssize_t read_bytes = read(wake_.descriptor(), &times, sizeof(times));
  }
  for (int rank = 0; rank < size(); ++rank) {
    const short events = polled[static_cast<std::size_t>(rank) + 1].revents;
    if ((events & POLLOUT) != 0) Flush(rank);
    if ((events & ~POLLOUT) != 0) Hear(rank);
  }
}

std::optional<NcclHeard> NcclNotes::Take() {
  if (heard_.empty()) return std::nullopt;
  NcclHeard heard = std::move(heard_.front());
  heard_.pop_front();
  return heard;
}

void NcclNotes::Wake() {
  const std::uint64_t one = 1;
  // It fails when it was woken 2^64 times without waking.
  [[maybe_unused]] const ssize_t written = write(wake_.descriptor(), &one, sizeof(one));
}

void NcclNotes::Close() {
  for (Peer& peer : peers_) peer.socket.Close();
}

void NcclNotes::Flush(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  while (!peer.out.empty()) {
    const ssize_t sent = send(peer.socket.descriptor(), peer.out.data(), peer.out.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    // A connection that is lost is noticed where it is read: notes that came before are heard first.
    if (sent <= 0) return;
    peer.out.erase(0, static_cast<std::size_t>(sent));
  }
}

void NcclNotes::Hear(int rank) {
  Peer& peer = peers_[static_cast<std::size_t>(rank)];
  while (peer.socket.open()) {
    char buffer[4096];
    const ssize_t received = recv(peer.socket.descriptor(), buffer, sizeof(buffer), MSG_DONTWAIT);
    if (received < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (received <= 0) {
      Lose(rank,
           received == 0 ? "it closed the connection" : std::error_code(errno, std::generic_category()).message());
      return;
    }
    peer.in.append(buffer, static_cast<std::size_t>(received));
    std::size_t at = 0;
    for (; peer.in.size() - at >= sizeof(Wire); at += sizeof(Wire)) {
      NcclNote note;
      if (!Decode(&peer.in[at], size(), &note)) {
        Lose(rank, "it sent what is no note");
        return;
      }
      heard_.push_back({rank, note, ""});
    }
    peer.in.erase(0, at);
  }
}

void NcclNotes::Lose(int rank, const std::string& why) {
  peers_[static_cast<std::size_t>(rank)].socket.Close();
  heard_.push_back({rank, std::nullopt, why});
}

}  // namespace downpour::collective
