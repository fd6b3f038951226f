#include "trainer/collective/rendezvous.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstring>
#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "proto/host_port.h"

namespace downpour::collective {
namespace {

using Clock = std::chrono::steady_clock;

// How often a forming looks whether it was stopped.
constexpr std::chrono::milliseconds kLookPeriod(20);
// Who connects says who it is within this time.
constexpr std::chrono::seconds kGreetingLimit(10);
// How long a connection of a view waits for the forming of it here, which may be a little behind.
constexpr std::chrono::seconds kArrivalLimit(120);
constexpr std::uint32_t kLongestText = 4096;
// Of views that a member gave up; those that come later are told.
constexpr std::size_t kRememberedViews = 64;

enum class Purpose : std::uint32_t { kRendezvous = 1, kRing, kMessages };

// What whoever connects says first; the view and, for a rendezvous, the own address follow.
struct Greeting {
  static constexpr std::uint32_t kMagic = 0x31676377;

  std::uint32_t magic = kMagic;
  std::uint32_t purpose = 0;
  std::uint32_t rank = 0;
  std::uint32_t size = 0;
  std::uint32_t view_length = 0;
  std::uint32_t address_length = 0;
};
static_assert(sizeof(Greeting) == 24);

// What rank 0 answers; text follows: the addresses of all ranks, a line each, or why there is no group.
struct Answer {
  std::uint32_t formed = 0;
  std::uint32_t length = 0;
};

std::string Encode(Purpose purpose, const GroupOptions& options, const std::string& address) {
  Greeting greeting;
  greeting.purpose = static_cast<std::uint32_t>(purpose);
  greeting.rank = static_cast<std::uint32_t>(options.rank);
  greeting.size = static_cast<std::uint32_t>(options.size);
  greeting.view_length = static_cast<std::uint32_t>(options.view.size());
  greeting.address_length = static_cast<std::uint32_t>(address.size());
  return absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&greeting), sizeof(greeting)), options.view,
                      address);
}

// Somebody who has not said yet, or not wholly, who it is.
struct Visitor {
  Socket socket;
  std::string said;
  Clock::time_point since;
};

// The members of a view that have come to its rank 0.
struct Meeting {
  std::vector<Socket> sockets;  // by rank
  std::vector<std::string> addresses;
  std::size_t here = 0;
};

// A connection for a group that is formed here, or will be.
struct Arrival {
  Purpose purpose;
  int rank;
  Socket socket;
  Clock::time_point since;
};

// The connections that come to a member, on a thread of its own.
class Door {
 public:
  Door(Socket listener, Socket wake) : listener_(std::move(listener)), wake_(std::move(wake)) {
    thread_ = std::thread([this] { Run(); });
  }
  Door(const Door&) = delete;
  Door& operator=(const Door&) = delete;

  ~Door() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ending_ = true;
    }
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(wake_.descriptor(), &one, sizeof(one));
    thread_.join();
  }

  // The connection of `rank` for `view`.
  absl::StatusOr<Socket> Await(const std::string& view, Purpose purpose, int rank, const Patience& patience) {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      std::vector<Arrival>& arrivals = arrivals_[view];
      const auto found = std::find_if(arrivals.begin(), arrivals.end(), [&](const Arrival& arrival) {
        return arrival.purpose == purpose && arrival.rank == rank;
      });
      if (found != arrivals.end()) return std::move(found->socket);
      if (absl::Status status = patience.Check(); !status.ok()) {
        return absl::Status(status.code(), absl::StrCat("rank ", rank, " did not connect: ", status.message()));
      }
      arrived_.wait_until(lock, std::min(patience.until, Clock::now() + kLookPeriod));
    }
  }

  // Nobody awaits a connection of it any more.
  void Forget(const std::string& view) {
    const std::lock_guard<std::mutex> lock(mutex_);
    arrivals_.erase(view);
  }

 private:
  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    while (!ending_) {
      std::vector<pollfd> polled = {{wake_.descriptor(), POLLIN, 0}, {listener_.descriptor(), POLLIN, 0}};
      for (const Visitor& visitor : visitors_) polled.push_back({visitor.socket.descriptor(), POLLIN, 0});
      for (const auto& [view, meeting] : meetings_) {
        for (const Socket& socket : meeting.sockets) {
          if (socket.open()) polled.push_back({socket.descriptor(), POLLIN, 0});
        }
      }
      const bool sweeps = !visitors_.empty() || !arrivals_.empty();
      lock.unlock();
      poll(polled.data(), polled.size(), sweeps ? 1000 : -1);
      lock.lock();
      LetWait();
      HearThem();
      MissThoseWhoGaveUp();
      Sweep();
    }
  }

  void LetWait() {
    for (;;) {
      Socket socket = Accept(listener_);
      // Without descriptors left the connection stays in the queue, and this thread would ask again and again.
      if (!socket.open()) {
        if (errno == EMFILE || errno == ENFILE) std::this_thread::sleep_for(kLookPeriod);
        return;
      }
      visitors_.push_back({std::move(socket), "", Clock::now()});
    }
  }

  void HearThem() {
    std::vector<Visitor> still;
    still.reserve(visitors_.size());
    for (Visitor& visitor : visitors_) {
      if (Hear(visitor)) still.push_back(std::move(visitor));
    }
    visitors_ = std::move(still);
  }

  // False: it is no visitor any more.
  bool Hear(Visitor& visitor) {
    for (;;) {
      std::size_t wanted = sizeof(Greeting);
      Greeting greeting;
      if (visitor.said.size() >= sizeof(greeting)) {
        std::memcpy(&greeting, visitor.said.data(), sizeof(greeting));
        if (greeting.magic != Greeting::kMagic || greeting.view_length > kLongestText ||
            greeting.address_length > kLongestText || greeting.size > kLongestText || greeting.rank >= greeting.size) {
          return false;
        }
        wanted += greeting.view_length + greeting.address_length;
      }
      if (visitor.said.size() == wanted) {
        LetIn(greeting, visitor);
        return false;
      }
      const std::size_t before = visitor.said.size();
      visitor.said.resize(wanted);
      const ssize_t received = recv(visitor.socket.descriptor(), &visitor.said[before], wanted - before, MSG_DONTWAIT);
      const int error = errno;
      visitor.said.resize(before + static_cast<std::size_t>(std::max<ssize_t>(received, 0)));
      if (received <= 0) return received < 0 && (error == EAGAIN || error == EINTR);
    }
  }

  void LetIn(const Greeting& greeting, Visitor& visitor) {
    const std::string view = visitor.said.substr(sizeof(greeting), greeting.view_length);
    const std::string address = visitor.said.substr(sizeof(greeting) + greeting.view_length);
    const std::size_t rank = greeting.rank;
    if (greeting.purpose != static_cast<std::uint32_t>(Purpose::kRendezvous)) {
      arrivals_[view].push_back(
          {static_cast<Purpose>(greeting.purpose), static_cast<int>(rank), std::move(visitor.socket), Clock::now()});
      arrived_.notify_all();
      return;
    }
    // Who left before this one came must not make the group complete.
    MissThoseWhoGaveUp();
    if (std::find(given_up_.begin(), given_up_.end(), view) != given_up_.end()) {
      Reply(visitor.socket, 0, "a member that was there is lost");
      return;
    }
    Meeting& meeting = meetings_[view];
    if (meeting.sockets.empty()) {
      meeting.sockets.resize(greeting.size);
      meeting.addresses.resize(greeting.size);
    }
    if (meeting.sockets.size() != greeting.size) {
      Reply(visitor.socket, 0, absl::StrCat("there it has ", meeting.sockets.size(), " members"));
      return;
    }
    if (meeting.sockets[rank].open()) {
      Reply(visitor.socket, 0, "that rank is there already");
      return;
    }
    meeting.sockets[rank] = std::move(visitor.socket);
    meeting.addresses[rank] = address;
    if (++meeting.here == meeting.sockets.size()) {
      const std::string all = absl::StrJoin(meeting.addresses, "\n");
      for (const Socket& socket : meeting.sockets) Reply(socket, 1, all);
      meetings_.erase(view);
    }
  }

  // It fits into the buffers of a fresh connection; who does not get it takes this member for lost.
  static void Reply(const Socket& socket, std::uint32_t formed, const std::string& text) {
    const Answer answer = {formed, static_cast<std::uint32_t>(text.size())};
    const std::string all =
        absl::StrCat(absl::string_view(reinterpret_cast<const char*>(&answer), sizeof(answer)), text);
    send(socket.descriptor(), all.data(), all.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  }

  // Those who wait at a meeting say nothing: what can be read is their end.
  void MissThoseWhoGaveUp() {
    for (auto at = meetings_.begin(); at != meetings_.end();) {
      const Meeting& meeting = at->second;
      const bool gone = std::any_of(meeting.sockets.begin(), meeting.sockets.end(), [](const Socket& socket) {
        char byte = 0;
        return socket.open() && (recv(socket.descriptor(), &byte, 1, MSG_DONTWAIT) >= 0 || errno != EAGAIN);
      });
      if (!gone) {
        ++at;
        continue;
      }
      for (const Socket& socket : meeting.sockets) {
        if (socket.open()) Reply(socket, 0, "a member that was there is lost");
      }
      given_up_.push_back(at->first);
      if (given_up_.size() > kRememberedViews) given_up_.pop_front();
      at = meetings_.erase(at);
    }
  }

  void Sweep() {
    const auto now = Clock::now();
    visitors_.erase(std::remove_if(visitors_.begin(), visitors_.end(),
                                   [now](const Visitor& visitor) { return now - visitor.since > kGreetingLimit; }),
                    visitors_.end());
    for (auto at = arrivals_.begin(); at != arrivals_.end();) {
      std::vector<Arrival>& arrivals = at->second;
      arrivals.erase(std::remove_if(arrivals.begin(), arrivals.end(),
                                    [now](const Arrival& arrival) { return now - arrival.since > kArrivalLimit; }),
                     arrivals.end());
      at = arrivals.empty() ? arrivals_.erase(at) : std::next(at);
    }
  }

  const Socket listener_;
  const Socket wake_;  // an eventfd

  std::mutex mutex_;
  std::condition_variable arrived_;
  bool ending_ = false;
  std::vector<Visitor> visitors_;
  std::map<std::string, Meeting> meetings_;               // by view
  std::map<std::string, std::vector<Arrival>> arrivals_;  // by view
  std::deque<std::string> given_up_;

  std::thread thread_;
};

class TcpRendezvous : public Rendezvous {
 public:
  TcpRendezvous(int port, Socket listener, Socket wake) : port_(port), door_(std::move(listener), std::move(wake)) {}

  int port() const override { return port_; }

  absl::StatusOr<Links> Meet(const GroupOptions& options) override {
    if (absl::Status status = CheckGroupOptions(options); !status.ok()) return status;
    if (options.view.size() > kLongestText || options.size > static_cast<int>(kLongestText)) {
      return absl::InvalidArgumentError(
          absl::StrCat("group: more than ", kLongestText, " members, or bytes of a view"));
    }
    if (options.size == 1) return Links();
    absl::StatusOr<Links> links = Connections(options, {MomentIn(options.limit), options.stop});
    door_.Forget(options.view);
    if (!links.ok()) return AboutForming(options, links.status());
    return links;
  }

 private:
  // The addresses of all ranks, once all have come to rank 0.
  absl::StatusOr<std::vector<std::string>> AddressesOf(const GroupOptions& options, const Patience& patience) const {
    const absl::StatusOr<Socket> store = Connect(options.store, Attempts::kUntilSomebodyListens, patience);
    if (!store.ok()) return store.status();
    const std::string greeting = Encode(Purpose::kRendezvous, options, JoinHostPort(options.host, port_));
    absl::Status status = SendAll(*store, greeting.data(), greeting.size(), patience);
    Answer answer;
    std::string text;
    if (status.ok()) status = ReceiveAll(*store, &answer, sizeof(answer), patience);
    if (status.ok()) {
      if (answer.length > kLongestText * kLongestText) return absl::UnavailableError("rank 0 gave no proper answer");
      text.resize(answer.length);
      status = ReceiveAll(*store, text.data(), text.size(), patience);
    }
    if (absl::IsDeadlineExceeded(status)) {
      return absl::DeadlineExceededError("a member did not come within the limit");
    }
    if (!status.ok())
      return absl::Status(status.code(), absl::StrCat("rank 0 at ", options.store, ": ", status.message()));
    if (answer.formed == 0) return absl::UnavailableError(text);
    std::vector<std::string> addresses = absl::StrSplit(text, '\n');
    if (addresses.size() != static_cast<std::size_t>(options.size)) {
      return absl::UnavailableError("rank 0 gave no proper answer");
    }
    return addresses;
  }

  absl::StatusOr<Links> Connections(const GroupOptions& options, const Patience& patience) {
    const absl::StatusOr<std::vector<std::string>> addresses = AddressesOf(options, patience);
    if (!addresses.ok()) return addresses.status();
    const auto call = [&](int rank, Purpose purpose) -> absl::StatusOr<Socket> {
      absl::StatusOr<Socket> socket = Connect((*addresses)[static_cast<std::size_t>(rank)], Attempts::kOne, patience);
      if (!socket.ok()) return socket;
      const std::string greeting = Encode(purpose, options, "");
      if (absl::Status status = SendAll(*socket, greeting.data(), greeting.size(), patience); !status.ok()) {
        return status;
      }
      return socket;
    };
    Links links;
    links.peers.resize(static_cast<std::size_t>(options.size));
    // First all calls, then all waits: calls need nobody's doing.
    absl::StatusOr<Socket> next = call((options.rank + 1) % options.size, Purpose::kRing);
    if (!next.ok()) return next.status();
    links.to_next = *std::move(next);
    for (int rank = options.rank + 1; rank < options.size; ++rank) {
      absl::StatusOr<Socket> peer = call(rank, Purpose::kMessages);
      if (!peer.ok()) return peer.status();
      links.peers[static_cast<std::size_t>(rank)] = *std::move(peer);
    }
    for (int rank = 0; rank < options.rank; ++rank) {
      absl::StatusOr<Socket> peer = door_.Await(options.view, Purpose::kMessages, rank, patience);
      if (!peer.ok()) return peer.status();
      links.peers[static_cast<std::size_t>(rank)] = *std::move(peer);
    }
    const int previous_rank = (options.rank + options.size - 1) % options.size;
    absl::StatusOr<Socket> previous = door_.Await(options.view, Purpose::kRing, previous_rank, patience);
    if (!previous.ok()) return previous.status();
    links.from_previous = *std::move(previous);
    return links;
  }

  const int port_;
  Door door_;
};

}  // namespace

absl::Status AboutForming(const GroupOptions& options, const absl::Status& status) {
  return absl::Status(status.code(), absl::StrCat("group of ", DescribeMember(options.rank, options.size, options.view),
                                                  ": ", status.message()));
}

absl::StatusOr<std::unique_ptr<Rendezvous>> NewRendezvous(const std::string& address) {
  absl::StatusOr<Socket> listener = Listen(address);
  if (!listener.ok()) return listener.status();
  const absl::StatusOr<int> port = PortOf(*listener);
  if (!port.ok()) return port.status();
  Socket wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.open()) return absl::UnavailableError("eventfd");
  return std::make_unique<TcpRendezvous>(*port, *std::move(listener), std::move(wake));
}

}  // namespace downpour::collective
