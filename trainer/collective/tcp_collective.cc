#include "trainer/collective/tcp_collective.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/collective/ring_plan.h"
#include "trainer/collective/wire_values.h"

namespace downpour::collective {
namespace {

// What is received of a sum is added from here, and should still be in a cache then.
constexpr std::size_t kScratchValues = std::size_t{1} << 15;
// As much is moved in one go, so that both directions get their turn.
constexpr std::size_t kMostAtOnce = std::size_t{1} << 19;

// Before the values of each operation.
struct Header {
  static constexpr std::uint32_t kMagic = 0x31637764;  // "dwc1" where the first byte is the lowest
  static constexpr std::uint16_t kGoodbye = 255;

  std::uint32_t magic = kMagic;
  std::uint16_t kind = 0;     // an OperationKind, or kGoodbye: the sender leaves a group in which all is complete
  std::uint16_t travels = 0;  // a Precision
  std::uint64_t count = 0;
  std::uint32_t peer = 0;
  std::uint32_t sequence = 0;  // of the operations on the ring
};
static_assert(sizeof(Header) == 24);

std::string Text(int error) { return std::error_code(error, std::generic_category()).message(); }

// Under the lock of the group, but for `operation`.
struct Work {
  Operation operation;
  bool complete = false;
  absl::Status status;
};
using WorkPointer = std::shared_ptr<Work>;

// How far a list of pieces has come.
class Cursor {
 public:
  Cursor() = default;
  Cursor(const std::vector<Piece>* pieces, std::size_t width) : pieces_(pieces), width_(width) { SkipEmpty(); }

  bool done() const { return pieces_ == nullptr || piece_ == pieces_->size(); }
  const Piece& piece() const { return (*pieces_)[piece_]; }
  std::size_t at() const { return piece().begin * width_ + bytes_; }  // in bytes, as is the rest
  std::size_t left() const { return (piece().end - piece().begin) * width_ - bytes_; }
  void Advance(std::size_t bytes) {
    bytes_ += bytes;
    if (left() == 0) {
      ++piece_;
      bytes_ = 0;
      SkipEmpty();
    }
  }

 private:
  void SkipEmpty() {
    while (!done() && left() == 0) ++piece_;
  }

  const std::vector<Piece>* pieces_ = nullptr;
  std::size_t width_ = sizeof(float);  // of a value
  std::size_t piece_ = 0;
  std::size_t bytes_ = 0;
};

// What goes on around the ring.
struct Ring {
  WorkPointer work;
  RingPlan plan;
  WireValues values;
  Header header_out, header_in;
  std::size_t header_sent = 0, header_received = 0;
  Cursor sends, receives;
  std::size_t may_send = 0;  // bytes
  std::size_t scratch = 0;   // bytes in the scratch memory
  bool sent() const { return plan.sends.empty() || (header_sent == sizeof(Header) && sends.done()); }
  bool received() const { return plan.receives.empty() || (header_received == sizeof(Header) && receives.done()); }
};

// Messages with one other rank.
struct Peer {
  Socket socket;
  std::deque<WorkPointer> sends, receives;
  std::size_t sent = 0;  // bytes of the first of `sends`, its header before them
  Header header;         // of the message that comes
  std::size_t header_received = 0;
  std::size_t received = 0;  // bytes after the header
  bool left = false;         // said goodbye
};

class TcpCollective : public Collective {
 public:
  TcpCollective(int rank, int size, const std::string& view, Links links, Socket wake)
      : Collective(rank, size, view),
        wake_(std::move(wake)),
        to_next_(std::move(links.to_next)),
        from_previous_(std::move(links.from_previous)),
        peers_(static_cast<std::size_t>(size)),
        scratch_(kScratchValues) {
    for (std::size_t other = 0; other < links.peers.size(); ++other) {
      peers_[other].socket = std::move(links.peers[other]);
    }
    thread_ = std::thread([this] { Run(); });
  }

  ~TcpCollective() override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      // The thread of a group that is broken reads it at any time.
      if (broken_.ok()) goodbye_ = incomplete_ == 0;
      Break(absl::AbortedError("left"));
    }
    thread_.join();
  }

  absl::Status Wait(Handle handle, absl::Duration limit) override {
    const auto until = MomentIn(limit);
    std::unique_lock<std::mutex> lock(mutex_);
    const auto found = started_.find(handle);
    if (found == started_.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no operation ", handle, " waits to be waited for, ", DescribeMember(rank(), size(), view())));
    }
    const WorkPointer work = found->second;
    started_.erase(found);
    if (!completed_.wait_until(lock, until, [&work] { return work->complete; })) {
      Break(absl::DeadlineExceededError(absl::StrCat("not complete within ", absl::FormatDuration(limit))));
      // The thread never waits for a peer, so this is soon.
      completed_.wait(lock, [&work] { return work->complete; });
    }
    return About(work->operation, work->status);
  }

  void Abort() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    Break(absl::AbortedError("aborted"));
  }

 private:
  absl::StatusOr<Handle> Start(const Operation& operation) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!broken_.ok()) return About(operation, broken_);
    const Handle handle = next_handle_++;
    auto work = std::make_shared<Work>();
    work->operation = operation;
    started_[handle] = work;
    inbox_.push_back(std::move(work));
    ++incomplete_;
    Wake();
    return handle;
  }

  // With the lock.
  void Break(const absl::Status& status) {
    if (broken_.ok()) broken_ = status;
    Wake();
  }

  void Wake() {
    const std::uint64_t one = 1;
    // It fails when it was woken 2^64 times without waking.
    [[maybe_unused]] const ssize_t written = write(wake_.descriptor(), &one, sizeof(one));
  }

  // The rest is the thread's.

  void Run() {
    while (TakeStarted()) {
      if (!Progress()) WaitForPeers();
    }
    if (goodbye_) {
      Header header;
      header.kind = Header::kGoodbye;
      for (const Peer& peer : peers_) {
        // What does not fit is not said: then the peer takes this rank for lost.
        if (peer.socket.open()) send(peer.socket.descriptor(), &header, sizeof(header), MSG_NOSIGNAL | MSG_DONTWAIT);
      }
    }
    to_next_.Close();
    from_previous_.Close();
    for (Peer& peer : peers_) peer.socket.Close();
    // Nothing reads or writes values from here on.
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto fail = [this](const WorkPointer& work) { CompleteLocked(work, broken_); };
    if (ring_.has_value()) fail(ring_->work);
    std::for_each(ring_queue_.begin(), ring_queue_.end(), fail);
    for (const Peer& peer : peers_) {
      std::for_each(peer.sends.begin(), peer.sends.end(), fail);
      std::for_each(peer.receives.begin(), peer.receives.end(), fail);
    }
    std::for_each(inbox_.begin(), inbox_.end(), fail);
  }

  // False: the group is broken.
  bool TakeStarted() {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!broken_.ok()) return false;
    for (WorkPointer& work : inbox_) {
      Peer& peer = peers_[static_cast<std::size_t>(work->operation.peer)];
      if (work->operation.kind == OperationKind::kSend) {
        peer.sends.push_back(std::move(work));
      } else if (work->operation.kind == OperationKind::kReceive) {
        peer.receives.push_back(std::move(work));
      } else {
        ring_queue_.push_back(std::move(work));
      }
    }
    inbox_.clear();
    return true;
  }

  void CompleteLocked(const WorkPointer& work, const absl::Status& status) {
    work->status = status;
    work->complete = true;
    --incomplete_;
    completed_.notify_all();
  }

  void Complete(const WorkPointer& work) {
    const std::lock_guard<std::mutex> lock(mutex_);
    CompleteLocked(work, absl::OkStatus());
  }

  void Fail(const absl::Status& status) {
    const std::lock_guard<std::mutex> lock(mutex_);
    Break(status);
  }

  void Lose(int other, const std::string& why) {
    Fail(absl::UnavailableError(absl::StrCat("rank ", other, " is lost: ", why)));
  }

  // At most `most` bytes; 0: none now, or the connection is lost.
  std::size_t SendSome(const Socket& socket, int to, const void* data, std::size_t most) {
    const ssize_t sent = send(socket.descriptor(), data, std::min(most, kMostAtOnce), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent >= 0) return static_cast<std::size_t>(sent);
    if (errno != EAGAIN && errno != EINTR) Lose(to, Text(errno));
    return 0;
  }

  std::size_t ReceiveSome(const Socket& socket, int from, void* data, std::size_t most) {
    const ssize_t received = recv(socket.descriptor(), data, std::min(most, kMostAtOnce), MSG_DONTWAIT);
    if (received > 0) return static_cast<std::size_t>(received);
    if (received == 0) {
      Lose(from, "it closed the connection");
    } else if (errno != EAGAIN && errno != EINTR) {
      Lose(from, Text(errno));
    }
    return 0;
  }

  // True: something was moved.
  bool Progress() {
    bool moved = false;
    while (ring_.has_value() || !ring_queue_.empty()) {
      if (!ring_.has_value()) BeginRing();
      const bool sent = SendRing();
      const bool received = ReceiveRing();
      if (ring_->sent() && ring_->received()) {
        Complete(ring_->work);
        ring_.reset();
        moved = true;
      } else if (sent || received) {
        moved = true;
        break;  // a look at the rest
      } else {
        break;
      }
    }
    for (int other = 0; other < size(); ++other) {
      if (other != rank()) moved = ProgressPeer(other) || moved;
    }
    return moved;
  }

  void BeginRing() {
    Ring& ring = ring_.emplace();
    ring.work = std::move(ring_queue_.front());
    ring_queue_.pop_front();
    const Operation& operation = ring.work->operation;
    ring.plan = PlanRing(operation, rank(), size());
    ring.values = WireValues(operation, &wire_memory_);
    ring.header_out.kind = static_cast<std::uint16_t>(operation.kind);
    ring.header_out.travels = static_cast<std::uint16_t>(operation.travels);
    ring.header_out.count = operation.values.size();
    ring.header_out.peer = static_cast<std::uint32_t>(operation.peer);
    ring.header_out.sequence = sequence_++;
    ring.sends = Cursor(&ring.plan.sends, ring.values.width());
    ring.receives = Cursor(&ring.plan.receives, ring.values.width());
    ring.may_send = ring.plan.ahead * ring.values.width();
    if (!ring.plan.sends.empty()) ring.values.Encode(ring.plan.sends.front().begin, ring.plan.sends.front().end);
  }

  static char* Bytes(const Operation& operation) { return reinterpret_cast<char*>(operation.values.data()); }

  bool SendRing() {
    Ring& ring = *ring_;
    if (ring.sent()) return false;
    const int next = (rank() + 1) % size();
    if (ring.header_sent < sizeof(Header)) {
      ring.header_sent += SendSome(to_next_, next, reinterpret_cast<const char*>(&ring.header_out) + ring.header_sent,
                                   sizeof(Header) - ring.header_sent);
      if (ring.header_sent < sizeof(Header)) return false;
    }
    if (ring.sends.done()) return true;
    const std::size_t most = std::min(ring.sends.left(), ring.may_send);
    if (most == 0) return false;
    const std::size_t sent = SendSome(to_next_, next, ring.values.bytes() + ring.sends.at(), most);
    if (sent == 0) return false;
    ring.may_send -= sent;
    ring.sends.Advance(sent);
    return true;
  }

  bool ReceiveRing() {
    Ring& ring = *ring_;
    if (ring.received()) return false;
    const int previous = (rank() + size() - 1) % size();
    if (ring.header_received < sizeof(Header)) {
      ring.header_received +=
          ReceiveSome(from_previous_, previous, reinterpret_cast<char*>(&ring.header_in) + ring.header_received,
                      sizeof(Header) - ring.header_received);
      if (ring.header_received < sizeof(Header) || !SameAsHere(ring)) return false;
    }
    if (ring.receives.done()) return true;
    const std::size_t width = ring.values.width();
    const std::size_t at = ring.receives.at();
    if (!ring.receives.piece().add) {
      const std::size_t received =
          ReceiveSome(from_previous_, previous, ring.values.bytes() + at, ring.receives.left());
      if (received == 0) return false;
      ring.values.Received(at / width, (at + received) / width);
      ring.may_send += received;
      ring.receives.Advance(received);
      return true;
    }
    char* const scratch = reinterpret_cast<char*>(scratch_.data());
    const std::size_t most = std::min(ring.receives.left(), kScratchValues * width);
    const std::size_t received = ReceiveSome(from_previous_, previous, scratch + ring.scratch, most - ring.scratch);
    if (received == 0) return false;
    ring.scratch += received;
    const std::size_t whole = ring.scratch / width;
    ring.values.Add(at / width, whole, scratch);
    ring.scratch -= whole * width;
    std::memmove(scratch, scratch + whole * width, ring.scratch);
    ring.may_send += whole * width;
    if (whole > 0) ring.receives.Advance(whole * width);
    return true;
  }

  bool SameAsHere(const Ring& ring) {
    const Header& there = ring.header_in;
    const Header& here = ring.header_out;
    if (there.magic == here.magic && there.kind == here.kind && there.travels == here.travels &&
        there.count == here.count && there.peer == here.peer && there.sequence == here.sequence) {
      return true;
    }
    const auto text = [](const Header& header) {
      return absl::StrCat("kind ", header.kind, " of ", header.count, " values in precision ", header.travels,
                          ", root ", header.peer, ", operation ", header.sequence);
    };
    Fail(absl::InternalError(
        absl::StrCat("the members disagree: the rank before does ", text(there), ", this one ", text(here))));
    return false;
  }

  bool ProgressPeer(int other) {
    Peer& peer = peers_[static_cast<std::size_t>(other)];
    if (peer.left && !(peer.sends.empty() && peer.receives.empty())) {
      Lose(other, "it left the group");
      return false;
    }
    const bool sent = SendMessages(other, peer);
    const bool received = ReceiveMessages(other, peer);
    return sent || received;
  }

  bool SendMessages(int other, Peer& peer) {
    bool moved = false;
    while (!peer.sends.empty()) {
      const Operation& operation = peer.sends.front()->operation;
      const std::size_t all = sizeof(Header) + operation.values.size() * sizeof(float);
      Header header;
      header.kind = static_cast<std::uint16_t>(OperationKind::kSend);
      header.count = operation.values.size();
      const bool of_header = peer.sent < sizeof(Header);
      const char* const from = of_header ? reinterpret_cast<const char*>(&header) + peer.sent
                                         : Bytes(operation) + (peer.sent - sizeof(Header));
      const std::size_t sent = SendSome(peer.socket, other, from, (of_header ? sizeof(Header) : all) - peer.sent);
      if (sent == 0) break;
      moved = true;
      peer.sent += sent;
      if (peer.sent == all) {
        Complete(peer.sends.front());
        peer.sends.pop_front();
        peer.sent = 0;
      }
    }
    return moved;
  }

  bool ReceiveMessages(int other, Peer& peer) {
    bool moved = false;
    while (peer.socket.open()) {
      if (peer.header_received < sizeof(Header)) {
        if (peer.left) {
          // Nothing more is expected but the end of the connection, which tells nothing new.
          break;
        }
        const std::size_t received =
            ReceiveSome(peer.socket, other, reinterpret_cast<char*>(&peer.header) + peer.header_received,
                        sizeof(Header) - peer.header_received);
        if (received == 0) break;
        moved = true;
        peer.header_received += received;
        if (peer.header_received < sizeof(Header)) continue;
        if (peer.header.magic != Header::kMagic) {
          Fail(absl::InternalError(absl::StrCat("rank ", other, " sent what is no message")));
          break;
        }
        peer.left = peer.header.kind == Header::kGoodbye;
        if (peer.left) break;
      }
      if (peer.receives.empty()) break;
      const Operation& operation = peer.receives.front()->operation;
      if (peer.header.count != operation.values.size()) {
        Fail(absl::InternalError(absl::StrCat("the members disagree: rank ", other, " sent ", peer.header.count,
                                              " values, and ", operation.values.size(), " are to be received")));
        break;
      }
      const std::size_t all = operation.values.size() * sizeof(float);
      if (peer.received < all) {
        const std::size_t received =
            ReceiveSome(peer.socket, other, Bytes(operation) + peer.received, all - peer.received);
        if (received == 0) break;
        moved = true;
        peer.received += received;
      }
      if (peer.received == all) {
        Complete(peer.receives.front());
        peer.receives.pop_front();
        peer.header_received = 0;
        peer.received = 0;
        moved = true;
      }
    }
    return moved;
  }

  // Until something can be moved or was started, or the group is broken.
  void WaitForPeers() {
    polled_.clear();
    polled_.push_back({wake_.descriptor(), POLLIN, 0});
    const auto add = [this](const Socket& socket, int events) {
      // Of no events the end of a connection is one, so that a socket that is not to be looked at is left out.
      if (socket.open() && events != 0) polled_.push_back({socket.descriptor(), static_cast<short>(events), 0});
    };
    if (ring_.has_value()) {
      const bool may_send = ring_->header_sent < sizeof(Header) || ring_->may_send > 0;
      add(to_next_, !ring_->sent() && may_send ? POLLOUT : 0);
      add(from_previous_, ring_->received() ? 0 : POLLIN);
    }
    for (const Peer& peer : peers_) {
      const bool reads = !peer.left && (peer.header_received < sizeof(Header) || !peer.receives.empty());
      add(peer.socket, (reads ? POLLIN : 0) | (peer.sends.empty() ? 0 : POLLOUT));
    }
    poll(polled_.data(), polled_.size(), -1);
    if ((polled_.front().revents & POLLIN) != 0) {
      std::uint64_t times = 0;
      [[maybe_unused]] const ssize_t read_bytes = read(wake_.descriptor(), &times, sizeof(times));
    }
  }

  const Socket wake_;  // an eventfd

  std::mutex mutex_;
  std::condition_variable completed_;
  absl::Status broken_;  // why nothing more is done
  Handle next_handle_ = 1;
  std::map<Handle, WorkPointer> started_;  // and not waited for
  std::vector<WorkPointer> inbox_;
  std::int64_t incomplete_ = 0;
  bool goodbye_ = false;

  Socket to_next_;
  Socket from_previous_;
  std::vector<Peer> peers_;
  std::deque<WorkPointer> ring_queue_;
  std::optional<Ring> ring_;
  std::uint32_t sequence_ = 0;
  std::vector<float> scratch_;
  WireMemory wire_memory_;
  std::vector<pollfd> polled_;

  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Collective>> NewTcpCollective(int rank, int size, const std::string& view, Links links) {
  Socket wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.open()) return absl::UnavailableError(absl::StrCat("eventfd: ", Text(errno)));
  return std::make_unique<TcpCollective>(rank, size, view, std::move(links), std::move(wake));
}

}  // namespace downpour::collective
