#include <poll.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <ctime>
#include <map>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "spdlog/spdlog.h"
#include "trainer/core/time.h"
#include "trainer/wire/shared_memory_link.h"
#include "trainer/wire/shared_memory_transport.h"

namespace downpour::wire {
namespace {

constexpr char kAnotherWay[] = "downpour/another-way";
// From one connection before the others have their turn.
constexpr int kRecordsAtATime = 64;

core::Time Now() { return absl::FromChrono(std::chrono::steady_clock::now().time_since_epoch()); }

absl::Status AnotherWay(absl::Status status) {
  status.SetPayload(kAnotherWay, absl::Cord());
  return status;
}

using Done = std::function<void(absl::StatusOr<Frames>)>;

struct Call {
  std::size_t frames = 0;
  std::vector<MessagePart> parts;  // until they are copied
  core::Time deadline;
  Done done;
};

// A `done` that is due, to be called without a lock.
struct Due {
  Done done;
  absl::StatusOr<Frames> result;
};

void Finish(std::vector<Due> due) {
  for (Due& one : due) one.done(std::move(one.result));
}

absl::StatusOr<Frames> CheckReply(SharedMemoryLink::Received received, std::size_t expected) {
  absl::StatusOr<Frames>& reply = received.frames;
  if (!reply.ok()) return absl::Status(reply.status().code(), absl::StrCat("reply: ", reply.status().message()));
  if (received.corrupt_payloads != 0) {
    return absl::DataLossError(absl::StrCat("reply: ", received.corrupt_payloads, " payloads with a wrong checksum"));
  }
  if (reply->size() != expected) {
    return absl::DataLossError(absl::StrCat("reply: found ", reply->size(), " frames, expected ", expected));
  }
  for (const core::Frame& frame : *reply) {
    if (frame.header.kind == core::FrameKind::kReply) continue;
    return absl::DataLossError(absl::StrCat("reply: found a frame of kind ", frame.header.kind, ", expected replies"));
  }
  return std::move(reply);
}

// One thread has all connections: it makes them, reads from them, and ends exchanges. Requests are copied and sent by
// whoever calls Exchange.
class Client final : public SharedMemoryDataClient {
 public:
  Client(SharedMemoryClientOptions options, std::shared_ptr<const WakeEvent> wake)
      : options_(std::move(options)), wake_(std::move(wake)), thread_([this] { Run(); }) {}

  ~Client() override { Close(); }

  void Close() override {
    {
      const std::lock_guard lock(mutex_);
      closing_ = true;
    }
    wake_->Set();
    const std::lock_guard lock(join_mutex_);
    if (thread_.joinable()) thread_.join();
  }

  bool Ready(const std::string& address) override {
    const std::lock_guard lock(mutex_);
    if (closing_) return false;
    const Connection& connection = Wanted(address);
    return connection.state == State::kOpen && Now() >= connection.rest_until;
  }

  void Exchange(const std::string& address, Frames request, absl::Duration deadline, Done done) override {
    absl::StatusOr<std::vector<MessagePart>> parts = EncodeMessage(request, kLocalChecksums);
    Call call{request.size(), {}, Now() + deadline, std::move(done)};
    request.clear();
    if (!parts.ok()) return call.done(parts.status());
    call.parts = *std::move(parts);
    std::shared_ptr<SharedMemoryLink> link;
    {
      const std::lock_guard lock(mutex_);
      if (!closing_) {
        Connection& connection = Wanted(address);
        link = connection.link;
        if (connection.state == State::kWanted || connection.state == State::kGreeting) {
          SetAlarm(call.deadline);
          connection.waiting.push_back(std::move(call));
          return;
        }
      }
    }
    Finish(Send(address, link, std::move(call)));
  }

  TransportCounters counters() const override {
    const std::uint64_t sent = sent_.load(std::memory_order_relaxed);
    const std::uint64_t received = received_.load(std::memory_order_relaxed);
    return {sent, received, sent, received};
  }

 private:
  enum class State {
    kWanted,    // somebody asked for it
    kGreeting,  // connected, and the server has not answered yet
    kOpen,
    kBroken,  // until somebody asks after rest_until
  };

  struct Connection {
    State state = State::kWanted;
    std::shared_ptr<SharedMemoryLink> link;  // while greeting and open
    core::Time greeting_until;
    core::Time rest_until = -absl::InfiniteDuration();
    absl::Status error;  // when it is broken
    std::string told;    // the last error in the log
    std::uint64_t last_exchange = 0;
    std::map<std::uint64_t, Call> in_flight;
    std::vector<Call> waiting;
  };

  // Under the lock, as are SetAlarm and TakeExpired.
  Connection& Wanted(const std::string& address) {
    const auto [found, is_new] = connections_.try_emplace(address, nullptr);
    if (is_new) found->second = std::make_unique<Connection>();
    Connection& connection = *found->second;
    const bool again = connection.state == State::kBroken && Now() >= connection.rest_until;
    if (again) connection.state = State::kWanted;
    if (is_new || again) wake_->Set();
    return connection;
  }

  // The thread is to look at `deadline` at the latest.
  void SetAlarm(core::Time deadline) {
    if (deadline < alarm_) wake_->Set();
  }

  // What is due already, as nothing was sent.
  std::vector<Due> Send(const std::string& address, const std::shared_ptr<SharedMemoryLink>& link, Call call) {
    std::vector<Due> due;
    const auto refuse = [&](Call& refused, absl::Status status) {
      due.push_back({std::move(refused.done), std::move(status)});
    };
    std::optional<SharedMemoryLink::Outgoing> outgoing;
    if (link != nullptr) {
      outgoing = link->Prepare(RecordPurpose::kRequest, call.parts);
      call.parts.clear();
    }
    const std::lock_guard lock(mutex_);
    const auto found = connections_.find(address);
    Connection* const connection = found == connections_.end() ? nullptr : found->second.get();
    const bool open = !closing_ && connection != nullptr && connection->state == State::kOpen &&
                      connection->link == link && link != nullptr;
    if (!open || !outgoing.has_value()) {
      if (outgoing.has_value()) link->Discard(*outgoing);
      if (closing_) {
        refuse(call, absl::CancelledError("the data client is closed"));
      } else if (open) {
        refuse(call, AnotherWay(absl::ResourceExhaustedError(absl::StrCat(address, ": no shared memory is left"))));
      } else {
        const bool known = connection != nullptr && !connection->error.ok();
        refuse(call, AnotherWay(absl::UnavailableError(
                         absl::StrCat(address, ": ", known ? connection->error.message() : "the connection broke"))));
      }
      return due;
    }
    // In the order of their numbers: a server takes them in no other.
    const std::uint64_t exchange = ++connection->last_exchange;
    const std::size_t bytes = outgoing->bytes;
    const Sent sent = link->Send(*std::move(outgoing), exchange);
    if (sent == Sent::kYes) {
      sent_.fetch_add(bytes, std::memory_order_relaxed);
      SetAlarm(call.deadline);
      connection->in_flight.emplace(exchange, std::move(call));
    } else if (sent == Sent::kFull) {
      refuse(call, AnotherWay(absl::ResourceExhaustedError(absl::StrCat(address, ": it leaves too much unread"))));
    } else {
      refuse(call, AnotherWay(absl::UnavailableError(absl::StrCat(address, ": the connection broke"))));
    }
    return due;
  }

  // ---- the thread

  struct Watched {
    std::string address;
    Connection* connection;  // stays where it is
    std::shared_ptr<SharedMemoryLink> link;
  };

  void Run() {
    std::vector<pollfd> polled;
    std::vector<Watched> watched;
    for (;;) {
      std::vector<std::string> wanted;
      std::vector<Due> expired;
      timespec timeout{};
      bool forever = false;
      polled.assign(1, {wake_->descriptor(), POLLIN, 0});
      watched.clear();
      {
        const std::lock_guard lock(mutex_);
        if (closing_) break;
        const core::Time now = Now();
        alarm_ = absl::InfiniteDuration();
        for (auto& [address, connection] : connections_) {
          if (connection->state == State::kWanted) wanted.push_back(address);
          if (connection->state == State::kGreeting) alarm_ = std::min(alarm_, connection->greeting_until);
          TakeExpired(address, *connection, now, &expired);
          if (connection->link == nullptr) continue;
          const bool writes = connection->link->wants_to_write();
          polled.push_back({connection->link->descriptor(), static_cast<short>(writes ? POLLIN | POLLOUT : POLLIN), 0});
          watched.push_back({address, connection.get(), connection->link});
        }
        if (!wanted.empty() || !expired.empty()) alarm_ = -absl::InfiniteDuration();
        forever = alarm_ == absl::InfiniteDuration();
        timeout = absl::ToTimespec(std::clamp(alarm_ - now, absl::ZeroDuration(), absl::Hours(1)));
      }
      Finish(std::move(expired));
      for (const std::string& address : wanted) Connect(address);
      const int ready = ppoll(polled.data(), polled.size(), forever ? nullptr : &timeout, nullptr);
      if (ready > 0 && polled[0].revents != 0) wake_->Clear();
      const core::Time now = Now();
      for (std::size_t i = 0; i < watched.size(); ++i) {
        if (ready > 0 && (polled[i + 1].revents & POLLOUT) != 0) watched[i].link->Flush();
        absl::Status status;
        if (ready > 0 && (polled[i + 1].revents & ~POLLOUT) != 0) status = Read(watched[i]);
        if (status.ok()) status = CheckGreeting(watched[i], now);
        if (!status.ok()) Break(watched[i].address, watched[i].link, status);
      }
    }
    CancelAll();
  }

  void TakeExpired(const std::string& address, Connection& connection, core::Time now, std::vector<Due>* expired) {
    const auto expire = [&](Call& call) {
      if (call.deadline > now) {
        alarm_ = std::min(alarm_, call.deadline);
        return false;
      }
      const absl::Status status = absl::DeadlineExceededError(absl::StrCat(address, ": no reply in time"));
      expired->push_back({std::move(call.done), status});
      return true;
    };
    std::erase_if(connection.waiting, expire);
    for (auto item = connection.in_flight.begin(); item != connection.in_flight.end();) {
      if (!expire(item->second)) {
        ++item;
        continue;
      }
      item = connection.in_flight.erase(item);
      // Whatever is wrong there: other exchanges may fare better another way.
      connection.rest_until = now + options_.rest;
    }
  }

  void Connect(const std::string& address) {
    absl::StatusOr<std::shared_ptr<SharedMemoryLink>> link = Greet(address);
    if (!link.ok()) return Break(address, nullptr, link.status());
    const std::lock_guard lock(mutex_);
    Connection& connection = *connections_.at(address);
    connection.state = State::kGreeting;
    connection.link = *std::move(link);
    connection.greeting_until = Now() + options_.greeting;
    connection.last_exchange = 0;
  }

  absl::StatusOr<std::shared_ptr<SharedMemoryLink>> Greet(const std::string& address) {
    absl::StatusOr<std::string> path = LocalSocketPath(options_.directory, options_.job_uid, address);
    if (!path.ok()) return path.status();
    absl::StatusOr<Descriptor> socket = ConnectLocally(*path);
    if (!socket.ok()) return socket.status();
    if (!IsOfThisUser(*socket)) return absl::UnavailableError(absl::StrCat(*path, ": is another user's"));
    absl::StatusOr<std::unique_ptr<OwnRegion>> region = OwnRegion::Create(options_.region_bytes);
    if (!region.ok()) return region.status();
    auto link = std::make_shared<SharedMemoryLink>(*std::move(socket), *std::move(region), wake_);
    absl::Status greeted = link->Greet(TextRecord(RecordPurpose::kHello, absl::StrCat(options_.job_uid, " ", address)));
    if (!greeted.ok()) return greeted;
    return link;
  }

  absl::Status CheckGreeting(const Watched& watched, core::Time now) {
    const std::lock_guard lock(mutex_);
    const Connection& connection = *watched.connection;
    if (connection.link != watched.link || connection.state != State::kGreeting || now < connection.greeting_until) {
      return absl::OkStatus();
    }
    return absl::UnavailableError("it does not answer the greeting");
  }

  // An error: the connection is over.
  absl::Status Read(const Watched& watched) {
    for (int i = 0; i < kRecordsAtATime; ++i) {
      absl::StatusOr<std::optional<ReceivedRecord>> received = watched.link->Receive();
      if (!received.ok()) return received.status();
      if (!received->has_value()) return absl::OkStatus();
      LocalRecord& record = (*received)->record;
      absl::Status status;
      switch (record.purpose) {
        case RecordPurpose::kWelcome:
          status = Welcome(watched, std::move((*received)->descriptor), record.offset);
          break;
        case RecordPurpose::kReply:
        case RecordPurpose::kError:
          status = End(watched, std::move(record));
          break;
        default:
          status = absl::DataLossError("record: found one of a client, expected one of a server");
      }
      if (!status.ok()) return status;
    }
    return absl::OkStatus();
  }

  absl::Status Welcome(const Watched& watched, Descriptor region, std::uint64_t bytes) {
    {
      const std::lock_guard lock(mutex_);
      if (watched.connection->state != State::kGreeting) return absl::DataLossError("record: a second welcome");
    }
    if (absl::Status mapped = watched.link->SetPeer(std::move(region), bytes); !mapped.ok()) return mapped;
    std::vector<Call> waiting;
    {
      const std::lock_guard lock(mutex_);
      watched.connection->state = State::kOpen;
      watched.connection->told.clear();
      waiting = std::exchange(watched.connection->waiting, {});
    }
    spdlog::info("{}: is on this machine, its data go through shared memory", watched.address);
    for (Call& call : waiting) Finish(Send(watched.address, watched.link, std::move(call)));
    return absl::OkStatus();
  }

  // Of one exchange: with its reply, or with an error instead of it.
  absl::Status End(const Watched& watched, LocalRecord record) {
    Call call;
    const std::uint64_t exchange = record.exchange;
    {
      const std::lock_guard lock(mutex_);
      Connection& connection = *watched.connection;
      if (record.purpose == RecordPurpose::kError && connection.state == State::kGreeting) return StatusOf(record);
      if (exchange == 0 || exchange > connection.last_exchange) {
        return absl::DataLossError(absl::StrCat("record: found the reply of exchange ", exchange, ", expected 1 to ",
                                                connection.last_exchange));
      }
      if (auto ended = connection.in_flight.extract(exchange)) call = std::move(ended.mapped());
    }
    if (call.done == nullptr) {  // it came too late
      watched.link->Refuse(record);
      return absl::OkStatus();
    }
    const auto named = [&](const absl::Status& status) {
      return absl::Status(status.code(), absl::StrCat(watched.address, ": ", status.message()));
    };
    if (record.purpose == RecordPurpose::kError) {
      absl::Status status = named(StatusOf(record));
      // No space for the reply.
      if (absl::IsResourceExhausted(status)) status = AnotherWay(std::move(status));
      call.done(std::move(status));
      return absl::OkStatus();
    }
    absl::StatusOr<SharedMemoryLink::Received> taken = watched.link->Take(std::move(record));
    if (!taken.ok()) {
      call.done(absl::DataLossError(absl::StrCat(watched.address, ": reply: ", taken.status().message())));
      return taken.status();
    }
    received_.fetch_add(taken->bytes, std::memory_order_relaxed);
    absl::StatusOr<Frames> reply = CheckReply(*std::move(taken), call.frames);
    if (!reply.ok()) reply = named(reply.status());
    call.done(std::move(reply));
    return absl::OkStatus();
  }

  void Break(const std::string& address, const std::shared_ptr<SharedMemoryLink>& link, const absl::Status& error) {
    if (link != nullptr) link->Close();
    std::vector<Due> due;
    bool was_open = false;
    bool tell = false;
    {
      const std::lock_guard lock(mutex_);
      Connection& connection = *connections_.at(address);
      if (connection.link != link) return;
      was_open = connection.state == State::kOpen;
      connection.state = State::kBroken;
      connection.link = nullptr;
      connection.error = error;
      connection.rest_until = Now() + options_.rest;
      tell = connection.told != error.message();
      connection.told = std::string(error.message());
      const absl::Status status = absl::UnavailableError(absl::StrCat(address, ": ", error.message()));
      for (auto& [exchange, call] : connection.in_flight) due.push_back({std::move(call.done), status});
      for (Call& call : connection.waiting) due.push_back({std::move(call.done), AnotherWay(status)});
      connection.in_flight.clear();
      connection.waiting.clear();
    }
    if (was_open) {
      spdlog::warn("{}: shared memory: {}; its data go over the network", address, std::string(error.message()));
    } else if (tell) {
      spdlog::debug("{}: no shared memory: {}", address, std::string(error.message()));
    }
    Finish(std::move(due));
  }

  void CancelAll() {
    std::vector<Due> due;
    {
      const std::lock_guard lock(mutex_);
      for (auto& [address, connection] : connections_) {
        if (connection->link != nullptr) connection->link->Close();
        connection->link = nullptr;
        connection->state = State::kBroken;
        const absl::Status status = absl::CancelledError(absl::StrCat(address, ": the data client is closed"));
        for (auto& [exchange, call] : connection->in_flight) due.push_back({std::move(call.done), status});
        for (Call& call : connection->waiting) due.push_back({std::move(call.done), status});
        connection->in_flight.clear();
        connection->waiting.clear();
      }
    }
    Finish(std::move(due));
  }

  const SharedMemoryClientOptions options_;
  const std::shared_ptr<const WakeEvent> wake_;
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> received_{0};
  // Before what is under it.
  std::mutex mutex_;
  bool closing_ = false;
  core::Time alarm_ = absl::InfiniteDuration();  // when the thread looks without being woken
  absl::flat_hash_map<std::string, std::unique_ptr<Connection>> connections_;
  std::mutex join_mutex_;
  std::thread thread_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<SharedMemoryDataClient>> MakeSharedMemoryDataClient(SharedMemoryClientOptions options) {
  absl::StatusOr<std::string> path = LocalSocketPath(options.directory, options.job_uid, "");
  if (!path.ok()) return path.status();
  absl::StatusOr<WakeEvent> wake = WakeEvent::Create();
  if (!wake.ok()) return wake.status();
  return std::make_unique<Client>(std::move(options), std::make_shared<const WakeEvent>(*std::move(wake)));
}

bool GoesAnotherWay(const absl::Status& status) { return status.GetPayload(kAnotherWay).has_value(); }

}  // namespace downpour::wire
