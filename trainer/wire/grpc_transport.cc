#include "trainer/wire/grpc_transport.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <string>
#include <thread>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/channel.h"
#include "grpcpp/client_context.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/server_callback_handlers.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/server_builder.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"
#include "grpcpp/support/slice.h"
#include "proto/deadline.h"
#include "proto/host_port.h"
#include "proto/member_channel.h"
#include "trainer/wire/frame_codec.h"

namespace downpour::wire {
namespace {

// Encoded gradients of so many bytes are checksummed and written to the socket on a thread of its own: whoever
// exchanges them encodes the next ones meanwhile. Before others there is nothing to be done.
constexpr std::size_t kSentLater = 1 << 20;

class Counters {
 public:
  void Sent(std::size_t bytes) { sent_.fetch_add(bytes, std::memory_order_relaxed); }
  void Received(std::size_t bytes) { received_.fetch_add(bytes, std::memory_order_relaxed); }
  TransportCounters Read() const {
    return {sent_.load(std::memory_order_relaxed), received_.load(std::memory_order_relaxed)};
  }

 private:
  std::atomic<std::uint64_t> sent_{0};
  std::atomic<std::uint64_t> received_{0};
};

// Refers to the parts; gRPC drops their owners when it needs the bytes no longer.
grpc::ByteBuffer ToByteBuffer(std::vector<MessagePart> parts) {
  std::vector<grpc::Slice> slices;
  slices.reserve(parts.size());
  for (MessagePart& part : parts) {
    using Owner = std::shared_ptr<const void>;
    auto* const owner = new Owner(std::move(part.owner));
    slices.emplace_back(
        const_cast<std::uint8_t*>(part.bytes.data()), part.bytes.size(),
        [](void* held) { delete static_cast<Owner*>(held); }, owner);
  }
  return grpc::ByteBuffer(slices.data(), slices.size());
}

absl::StatusOr<DecodedMessage> FromByteBuffer(const grpc::ByteBuffer& buffer) {
  if (!buffer.Valid()) return DecodedMessage{};
  auto slices = std::make_shared<std::vector<grpc::Slice>>();
  if (const grpc::Status status = buffer.Dump(slices.get()); !status.ok()) {
    return absl::DataLossError(absl::StrCat("message: ", status.error_message()));
  }
  std::vector<absl::Span<const std::uint8_t>> segments;
  segments.reserve(slices->size());
  for (const grpc::Slice& slice : *slices) segments.emplace_back(slice.begin(), slice.size());
  return DecodeMessage(segments, slices);
}

grpc::Status ToGrpcStatus(const absl::Status& status) {
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), std::string(status.message()));
}

absl::Status FromGrpcStatus(const grpc::Status& status, const std::string& address) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()),
                      absl::StrCat(address, ": ", status.error_message()));
}

class GrpcDataClient final : public DataClient {
 public:
  explicit GrpcDataClient(GrpcDataClientOptions options) : options_(options), sender_([this] { SendQueued(); }) {}

  ~GrpcDataClient() override {
    Calls in_flight;
    {
      absl::MutexLock lock(&mutex_);
      closing_ = true;
      in_flight = calls_;
    }
    for (const auto& call : in_flight) call->context.TryCancel();
    in_flight.clear();
    {
      absl::MutexLock lock(&mutex_);
      mutex_.Await(absl::Condition(
          +[](int* count) { return *count == 0; }, &in_flight_));
    }
    sender_.join();
  }

  void Exchange(const std::string& address, Frames request, absl::Duration deadline,
                std::function<void(absl::StatusOr<Frames>)> done) override {
    auto call = std::make_shared<Call>();
    Call* const raw = call.get();
    raw->address = address;
    raw->request_frames = request.size();
    raw->frames = std::move(request);
    raw->done = std::move(done);
    raw->context.set_deadline(DeadlineIn(deadline));
    const bool later = EncodedBytes(raw->frames) >= kSentLater;
    bool closed = true;
    {
      absl::MutexLock lock(&mutex_);
      closed = closing_;
      if (!closed) {
        raw->stub = NextStub(address);
        calls_.insert(std::move(call));
        ++in_flight_;
        if (later) queue_.push_back(raw);
      }
    }
    if (closed) return raw->done(absl::CancelledError("the data client is being destroyed"));
    if (!later) Send(raw);  // else it may be over by now
  }

  TransportCounters counters() const override { return counters_.Read(); }

 private:
  struct Call {
    std::string address;
    grpc::GenericStub* stub = nullptr;
    std::size_t request_frames = 0;
    Frames frames;  // until they are sent
    grpc::ClientContext context;
    grpc::ByteBuffer request;
    grpc::ByteBuffer response;
    std::function<void(absl::StatusOr<Frames>)> done;
  };

  using Calls = absl::flat_hash_set<std::shared_ptr<Call>>;

  struct Peer {
    std::vector<std::unique_ptr<grpc::GenericStub>> stubs;
    std::size_t next = 0;
  };

  grpc::GenericStub* NextStub(const std::string& address) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    Peer& peer = peers_[address];
    if (peer.stubs.empty()) {
      for (int i = 0; i < std::max(1, options_.channels_per_address); ++i) {
        peer.stubs.push_back(std::make_unique<grpc::GenericStub>(MakeChannel(address)));
      }
    }
    return peer.stubs[peer.next++ % peer.stubs.size()].get();
  }

  static std::size_t EncodedBytes(const Frames& frames) {
    std::size_t bytes = 0;
    for (const core::Frame& frame : frames) {
      const core::FrameCodec codec = frame.header.codec;
      if (codec != core::FrameCodec::kNone && codec != core::FrameCodec::kFp32) bytes += frame.payload.size();
    }
    return bytes;
  }

  void Send(Call* call) {
    absl::StatusOr<std::vector<MessagePart>> parts = EncodeMessage(call->frames);
    call->frames.clear();  // the message holds the payloads from here on
    if (!parts.ok()) return Finish(call, parts.status());
    call->request = ToByteBuffer(*std::move(parts));
    counters_.Sent(call->request.Length());
    call->stub->UnaryCall(&call->context, kExchangeMethod, grpc::StubOptions(), &call->request, &call->response,
                          [this, call](const grpc::Status& status) { Finish(call, Result(*call, status)); });
  }

  // What is in flight is sent before the client ends, cancelled as it may be.
  void SendQueued() {
    const auto wanted = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return !queue_.empty() || (closing_ && in_flight_ == 0);
    };
    for (;;) {
      Call* call;
      {
        absl::MutexLock lock(&mutex_);
        mutex_.Await(absl::Condition(&wanted));
        if (queue_.empty()) return;
        call = queue_.front();
        queue_.pop_front();
      }
      Send(call);
    }
  }

  absl::StatusOr<Frames> Result(const Call& call, const grpc::Status& status) {
    if (!status.ok()) return FromGrpcStatus(status, call.address);
    counters_.Received(call.response.Length());
    absl::StatusOr<DecodedMessage> reply = FromByteBuffer(call.response);
    if (!reply.ok())
      return absl::Status(reply.status().code(), absl::StrCat(call.address, ": reply: ", reply.status().message()));
    if (reply->corrupt_payloads != 0) {
      return absl::DataLossError(
          absl::StrCat(call.address, ": reply: ", reply->corrupt_payloads, " payloads with a wrong checksum"));
    }
    if (reply->frames.size() != call.request_frames) {
      return absl::DataLossError(absl::StrCat(call.address, ": reply: found ", reply->frames.size(),
                                              " frames, expected ", call.request_frames));
    }
    for (const core::Frame& frame : reply->frames) {
      if (frame.header.kind == core::FrameKind::kReply) continue;
      return absl::DataLossError(
          absl::StrCat(call.address, ": reply: found a frame of kind ", frame.header.kind, ", expected replies"));
    }
    return std::move(reply->frames);
  }

  void Finish(Call* call, absl::StatusOr<Frames> result) {
    call->request.Clear();
    call->response.Clear();
    std::exchange(call->done, nullptr)(std::move(result));
    std::shared_ptr<Call> ended;
    {
      absl::MutexLock lock(&mutex_);
      ended = std::move(calls_.extract(call).value());
    }
    // As long as its channel is there, which must not be destroyed here, on a thread of gRPC: see service::Calls.
    ended.reset();
    absl::MutexLock lock(&mutex_);
    --in_flight_;
  }

  const GrpcDataClientOptions options_;
  Counters counters_;
  absl::Mutex mutex_;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  absl::flat_hash_map<std::string, Peer> peers_ ABSL_GUARDED_BY(mutex_);
  Calls calls_ ABSL_GUARDED_BY(mutex_);  // those that can be cancelled
  int in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  std::deque<Call*> queue_ ABSL_GUARDED_BY(mutex_);  // of those, what the sender sends
  std::thread sender_;
};

}  // namespace

std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address) {
  return MakeMemberChannel(address, {.max_message_bytes = static_cast<int>(kMaxMessageBytes), .lasting = true});
}

absl::StatusOr<StartedServer> StartServer(const std::string& listen, std::initializer_list<grpc::Service*> services) {
  const absl::StatusOr<HostPort> asked = SplitHostPort(listen);
  if (!asked.ok()) return asked.status();
  StartedServer started;
  grpc::ServerBuilder builder;
  builder.SetMaxReceiveMessageSize(static_cast<int>(kMaxMessageBytes));
  builder.SetMaxSendMessageSize(static_cast<int>(kMaxMessageBytes));
  builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // Pings of our own clients, which come every kKeepaliveTimeMs, are no abuse.
  builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kKeepaliveTimeMs / 2);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveTimeMs);
  builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  builder.AddListeningPort(listen, grpc::InsecureServerCredentials(), &started.port);
  for (grpc::Service* const service : services) builder.RegisterService(service);
  started.server = builder.BuildAndStart();
  if (started.server == nullptr || started.port == 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", listen, ": is the port in use?"));
  }
  started.address = JoinHostPort(asked->host, started.port);
  return started;
}

std::unique_ptr<DataClient> MakeGrpcDataClient(GrpcDataClientOptions options) {
  return std::make_unique<GrpcDataClient>(options);
}

// What outlives the service as long as a reply is held. An exchange in `open_` has not been answered; whoever takes it
// out answers it, so each is answered once. Ids are never used again, so a late reply finds nothing.
class GrpcDataService::State {
 public:
  explicit State(DataHandler handler) : handler_(std::move(handler)) {}

  const DataHandler& handler() const { return handler_; }
  Counters& counters() { return counters_; }

  // 0: closed.
  std::uint64_t Open(Exchange* exchange) {
    absl::MutexLock lock(&mutex_);
    if (closed_) return 0;
    open_.emplace(++last_id_, exchange);
    return last_id_;
  }

  Exchange* Take(std::uint64_t id) {
    absl::MutexLock lock(&mutex_);
    const auto found = open_.find(id);
    if (found == open_.end()) return nullptr;
    Exchange* const exchange = found->second;
    open_.erase(found);
    return exchange;
  }

  absl::flat_hash_map<std::uint64_t, Exchange*> Close() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    return std::exchange(open_, {});
  }

 private:
  const DataHandler handler_;
  Counters counters_;
  absl::Mutex mutex_;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::uint64_t last_id_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::flat_hash_map<std::uint64_t, Exchange*> open_ ABSL_GUARDED_BY(mutex_);
};

// One call. gRPC deletes it through OnDone, which comes after Finish only.
class GrpcDataService::Exchange final : public grpc::ServerUnaryReactor {
 public:
  static Exchange* Start(std::shared_ptr<State> state, const grpc::ByteBuffer& request, grpc::ByteBuffer* response) {
    auto* const exchange = new Exchange(std::move(state), response);
    exchange->Run(request);
    return exchange;
  }

  void Answer(const Frames& frames) {
    absl::StatusOr<std::vector<MessagePart>> parts = EncodeMessage(frames);
    if (!parts.ok()) return Finish(ToGrpcStatus(parts.status()));
    *response_ = ToByteBuffer(*std::move(parts));
    state_->counters().Sent(response_->Length());
    Finish(grpc::Status::OK);
  }

  void Refuse(const char* reason) { Finish(grpc::Status(grpc::StatusCode::UNAVAILABLE, reason)); }

  void OnCancel() override {
    if (state_->Take(id_) != nullptr) Finish(grpc::Status::CANCELLED);
  }
  void OnDone() override { delete this; }

 private:
  // What `reply` refers to; its end without an answer is an answer too.
  class Reply {
   public:
    Reply(std::shared_ptr<State> state, std::uint64_t id) : state_(std::move(state)), id_(id) {}
    Reply(const Reply&) = delete;
    Reply& operator=(const Reply&) = delete;
    ~Reply() {
      if (Exchange* exchange = state_->Take(id_)) exchange->Refuse("the exchange was dropped");
    }
    void Send(const Frames& frames) {
      if (Exchange* exchange = state_->Take(id_)) exchange->Answer(frames);
    }

   private:
    const std::shared_ptr<State> state_;
    const std::uint64_t id_;
  };

  Exchange(std::shared_ptr<State> state, grpc::ByteBuffer* response) : state_(std::move(state)), response_(response) {}

  void Run(const grpc::ByteBuffer& request) {
    state_->counters().Received(request.Length());
    absl::StatusOr<DecodedMessage> message = FromByteBuffer(request);
    if (!message.ok()) return Finish(ToGrpcStatus(message.status()));
    for (const core::Frame& frame : message->frames) {
      if (frame.header.kind != core::FrameKind::kReply) continue;
      return Finish(grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, "a reply frame in a request"));
    }
    id_ = state_->Open(this);
    if (id_ == 0) return Refuse("the server is shutting down");
    // The exchange may be answered, but not be deleted, before the handler returns: gRPC does not know it yet.
    state_->handler()(std::move(message->frames),
                      [reply = std::make_shared<Reply>(state_, id_)](const Frames& frames) { reply->Send(frames); });
  }

  const std::shared_ptr<State> state_;
  grpc::ByteBuffer* const response_;
  std::uint64_t id_ = 0;
};

// Registers the method as the code that grpc_cpp_plugin generates for a raw callback method does.
GrpcDataService::GrpcDataService(DataHandler handler) : state_(std::make_shared<State>(std::move(handler))) {
  AddMethod(new grpc::internal::RpcServiceMethod(kExchangeMethod, grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
  MarkMethodRawCallback(0, new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                               [state = state_](grpc::CallbackServerContext*, const grpc::ByteBuffer* request,
                                                grpc::ByteBuffer* response) -> grpc::ServerUnaryReactor* {
                                 return Exchange::Start(state, *request, response);
                               }));
}

GrpcDataService::~GrpcDataService() { Shutdown(); }

void GrpcDataService::Shutdown() {
  for (const auto& [id, exchange] : state_->Close()) exchange->Refuse("the server is shutting down");
}

TransportCounters GrpcDataService::counters() const { return state_->counters().Read(); }

}  // namespace downpour::wire
