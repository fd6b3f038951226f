#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "trainer/wire/shared_memory_link.h"
#include "trainer/wire/shared_memory_transport.h"

namespace downpour::wire {
namespace {

constexpr std::size_t kMostConnections = 1024;
constexpr std::chrono::milliseconds kGreeting{5000};  // until when a client has to say whom it wants
constexpr int kRestMilliseconds = 100;                // where the system has no descriptor left to accept with

// What replies refer to, which may outlive the server.
struct Shared {
  SharedMemoryServerOptions options;
  DataHandler handler;
  std::atomic<std::uint64_t> sent{0};
  std::atomic<std::uint64_t> received{0};
};

// The exchanges of one connection. One in `open_` has not been answered; whoever takes it out answers it, so each is
// answered once.
class Session {
 public:
  Session(std::shared_ptr<Shared> shared, std::shared_ptr<SharedMemoryLink> link, std::shared_ptr<const WakeEvent> wake)
      : shared_(std::move(shared)), link_(std::move(link)), wake_(std::move(wake)) {}

  SharedMemoryLink& link() { return *link_; }
  const WakeEvent& wake() const { return *wake_; }
  Shared& shared() { return *shared_; }

  // False: the client does not count as it should.
  bool Open(std::uint64_t exchange) {
    const std::lock_guard lock(mutex_);
    if (exchange <= last_) return false;
    last_ = exchange;
    open_.insert(exchange);
    return true;
  }

  void Answer(std::uint64_t exchange, const Frames& frames) {
    if (!TakeOut(exchange)) return;
    const absl::StatusOr<std::vector<MessagePart>> parts = EncodeMessage(frames, kLocalChecksums);
    if (!parts.ok()) return link_->Post(ErrorRecord(exchange, parts.status()));
    std::optional<SharedMemoryLink::Outgoing> outgoing = link_->Prepare(RecordPurpose::kReply, *parts);
    if (!outgoing.has_value()) {
      return link_->Post(ErrorRecord(exchange, absl::ResourceExhaustedError("no shared memory is left for the reply")));
    }
    shared_->sent.fetch_add(outgoing->bytes, std::memory_order_relaxed);
    link_->Post(*std::move(outgoing), exchange);
  }

  void Refuse(std::uint64_t exchange, const absl::Status& status) {
    if (TakeOut(exchange)) link_->Post(ErrorRecord(exchange, status));
  }

 private:
  bool TakeOut(std::uint64_t exchange) {
    const std::lock_guard lock(mutex_);
    return open_.erase(exchange) != 0;
  }

  const std::shared_ptr<Shared> shared_;
  const std::shared_ptr<SharedMemoryLink> link_;
  const std::shared_ptr<const WakeEvent> wake_;
  std::mutex mutex_;
  std::uint64_t last_ = 0;
  absl::flat_hash_set<std::uint64_t> open_;
};

// What `reply` refers to; its end without an answer is an answer too.
class Reply {
 public:
  Reply(std::shared_ptr<Session> session, std::uint64_t exchange) : session_(std::move(session)), exchange_(exchange) {}
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;
  ~Reply() { session_->Refuse(exchange_, absl::UnavailableError("the exchange was dropped")); }
  void Send(const Frames& frames) { session_->Answer(exchange_, frames); }

 private:
  const std::shared_ptr<Session> session_;
  const std::uint64_t exchange_;
};

// An error: the connection is over.
absl::Status Handle(const std::shared_ptr<Session>& session, LocalRecord record) {
  if (record.purpose != RecordPurpose::kRequest) {
    return absl::DataLossError("record: found one of a server, expected one of a client");
  }
  const std::uint64_t exchange = record.exchange;
  if (!session->Open(exchange)) {
    return absl::DataLossError(absl::StrCat("record: exchange ", exchange, " comes after its time"));
  }
  absl::StatusOr<SharedMemoryLink::Received> taken = session->link().Take(std::move(record));
  if (!taken.ok()) return taken.status();
  session->shared().received.fetch_add(taken->bytes, std::memory_order_relaxed);
  if (!taken->frames.ok()) {
    session->Refuse(exchange, taken->frames.status());
    return absl::OkStatus();
  }
  for (const core::Frame& frame : *taken->frames) {
    if (frame.header.kind != core::FrameKind::kReply) continue;
    session->Refuse(exchange, absl::InvalidArgumentError("a reply frame in a request"));
    return absl::OkStatus();
  }
  session->shared().handler(*std::move(taken->frames), [reply = std::make_shared<Reply>(session, exchange)](
                                                           const Frames& frames) { reply->Send(frames); });
  return absl::OkStatus();
}

absl::Status Greet(Session& session, ReceivedRecord hello) {
  const SharedMemoryServerOptions& options = session.shared().options;
  if (hello.record.purpose != RecordPurpose::kHello) return absl::DataLossError("record: expected a hello");
  if (hello.record.text() != absl::StrCat(options.job_uid, " ", options.address)) {
    session.link().Post(ErrorRecord(0, absl::NotFoundError("another server listens there")));
    return absl::NotFoundError("a client of another server");
  }
  if (absl::Status mapped = session.link().SetPeer(std::move(hello.descriptor), hello.record.offset); !mapped.ok()) {
    session.link().Post(ErrorRecord(0, mapped));
    return mapped;
  }
  return session.link().Greet(TextRecord(RecordPurpose::kWelcome, ""));
}

// Until the client is gone, does not keep the rules, or the link is closed.
absl::Status Serve(const std::shared_ptr<Session>& session) {
  const auto greeting_until = std::chrono::steady_clock::now() + kGreeting;
  bool greeted = false;
  for (;;) {
    int wait = -1;
    if (!greeted) {
      const auto left = std::chrono::ceil<std::chrono::milliseconds>(greeting_until - std::chrono::steady_clock::now());
      if (left.count() <= 0) return absl::DeadlineExceededError("a client does not say whom it wants");
      wait = static_cast<int>(left.count());
    }
    const bool writes = session->link().wants_to_write();
    pollfd polled[] = {{session->link().descriptor(), static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0},
                       {session->wake().descriptor(), POLLIN, 0}};
    if (poll(polled, 2, wait) <= 0) continue;
    if (polled[1].revents != 0) session->wake().Clear();
    if ((polled[0].revents & POLLOUT) != 0) session->link().Flush();
    if ((polled[0].revents & ~POLLOUT) == 0) continue;
    absl::StatusOr<std::optional<ReceivedRecord>> received = session->link().Receive();
    if (!received.ok()) return received.status();
    if (!received->has_value()) continue;
    absl::Status status =
        greeted ? Handle(session, std::move((*received)->record)) : Greet(*session, *std::move(*received));
    if (!status.ok()) return status;
    greeted = true;
  }
}

class Server final : public SharedMemoryServer {
 public:
  Server(std::shared_ptr<Shared> shared, std::string path, Descriptor listener, WakeEvent wake)
      : shared_(std::move(shared)),
        path_(std::move(path)),
        listener_(std::move(listener)),
        wake_(std::move(wake)),
        acceptor_([this] { Accept(); }) {}

  ~Server() override { Shutdown(); }

  void Shutdown() override {
    const std::lock_guard lock(mutex_);
    if (!acceptor_.joinable()) return;
    stopping_ = true;
    wake_.Set();
    acceptor_.join();
  }

  TransportCounters counters() const override {
    const std::uint64_t sent = shared_->sent.load(std::memory_order_relaxed);
    const std::uint64_t received = shared_->received.load(std::memory_order_relaxed);
    return {sent, received, sent, received};
  }

 private:
  struct Connected {
    std::shared_ptr<Session> session;
    std::atomic<bool> over{false};
    std::thread thread;
  };

  void Accept() {
    int rest = -1;
    for (;;) {
      pollfd polled[] = {{wake_.descriptor(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
      poll(polled, rest < 0 ? 2 : 1, rest);
      rest = -1;
      if (polled[0].revents != 0) wake_.Clear();
      if (stopping_) break;
      connected_.remove_if([](Connected& one) {
        const bool over = one.over;
        if (over) one.thread.join();
        return over;
      });
      absl::StatusOr<std::optional<Descriptor>> socket = AcceptLocally(listener_);
      if (!socket.ok()) rest = kRestMilliseconds;
      if (!socket.ok() || !socket->has_value()) continue;
      if (const absl::Status started = Start(**std::move(socket)); !started.ok()) {
        spdlog::warn("a client gets no shared memory: {}", std::string(started.message()));
      }
    }
    unlink(path_.c_str());
    for (Connected& one : connected_) one.session->link().Close();
    for (Connected& one : connected_) one.thread.join();
    connected_.clear();
  }

  absl::Status Start(Descriptor socket) {
    if (!IsOfThisUser(socket)) return absl::PermissionDeniedError("it is another user's");
    if (connected_.size() >= kMostConnections) return absl::ResourceExhaustedError("there are too many");
    absl::StatusOr<WakeEvent> wake = WakeEvent::Create();
    if (!wake.ok()) return wake.status();
    const auto shared_wake = std::make_shared<const WakeEvent>(*std::move(wake));
    absl::StatusOr<std::unique_ptr<OwnRegion>> region = OwnRegion::Create(shared_->options.region_bytes);
    if (!region.ok()) return region.status();
    Connected& one = connected_.emplace_back();
    one.session = std::make_shared<Session>(
        shared_, std::make_shared<SharedMemoryLink>(std::move(socket), *std::move(region), shared_wake), shared_wake);
    try {
      one.thread = std::thread([this, &one] {
        const absl::Status ended = Serve(one.session);
        if (!absl::IsUnavailable(ended)) spdlog::warn("shared memory: {}", std::string(ended.message()));
        one.session->link().Close();
        one.over = true;
        wake_.Set();
      });
    } catch (const std::system_error& error) {
      connected_.pop_back();
      return absl::ResourceExhaustedError(error.what());
    }
    return absl::OkStatus();
  }

  const std::shared_ptr<Shared> shared_;
  const std::string path_;
  const Descriptor listener_;
  const WakeEvent wake_;  // of the acceptor: something has ended
  std::atomic<bool> stopping_{false};
  std::list<Connected> connected_;  // of the acceptor
  std::mutex mutex_;
  std::thread acceptor_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SharedMemoryServer>> SharedMemoryServer::Start(SharedMemoryServerOptions options,
                                                                              DataHandler handler) {
  absl::StatusOr<std::string> path = LocalSocketPath(options.directory, options.job_uid, options.address);
  if (!path.ok()) return path.status();
  if (mkdir(options.directory.c_str(), 0700) != 0 && errno != EEXIST) {
    return absl::UnavailableError(absl::StrCat(options.directory, ": cannot be created: ", std::strerror(errno)));
  }
  absl::StatusOr<Descriptor> listener = ListenLocally(*path);
  if (!listener.ok()) return listener.status();
  absl::StatusOr<WakeEvent> wake = WakeEvent::Create();
  if (!wake.ok()) return wake.status();
  auto shared = std::make_shared<Shared>();
  shared->options = std::move(options);
  shared->handler = std::move(handler);
  return std::make_unique<Server>(std::move(shared), *std::move(path), *std::move(listener), *std::move(wake));
}

}  // namespace downpour::wire
