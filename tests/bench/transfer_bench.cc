// Measures the data plane: push + apply and pull of one flat fp32 model, against a bare gRPC exchange of the same bytes
// with the same chunks, window and channel arguments, and beside a raw TCP copy. Ours and the reference are measured in
// turn, in pairs; every result is verified. The bare exchange runs twice: in processes as gRPC comes, which is the
// reference, and in processes that keep freed memory (KeepReceiveMemory) as ours do, which tells how much of the
// difference the data plane itself makes. Client and server are two processes each time. With --transport
// shared-memory: the data plane through shared memory against the data plane over gRPC. With --codec: pushes of
// gradients that are encoded, with error feedback as a worker does it, against the same pushes in fp32, both in float32
// bytes a second.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "absl/base/thread_annotations.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/impl/codegen/server_callback_handlers.h"
#include "grpcpp/server.h"
#include "nlohmann/json.hpp"
#include "tests/bench/paired_ratio.h"
#include "trainer/core/codec/error_feedback.h"
#include "trainer/core/frame.h"
#include "trainer/core/job_uid.h"
#include "trainer/core/ps.h"
#include "trainer/wire/grpc_transport.h"
#include "trainer/wire/receive_memory.h"
#include "trainer/wire/shared_memory_transport.h"

namespace downpour::bench {
namespace {

constexpr float kLearningRate = 0.5f;
constexpr absl::Duration kDeadline = absl::Seconds(60);
constexpr char kBarePushMethod[] = "/downpour.bench.Bare/Push";
constexpr char kBarePullMethod[] = "/downpour.bench.Bare/Pull";

struct Sizes {
  std::size_t slices = 16;
  std::size_t floats_per_slice = 1 << 20;
  std::size_t window = 4;
  int channels = 1;
  core::FrameCodec codec = core::FrameCodec::kFp32;
  std::string local;  // directory of the sockets; empty: no shared memory
  std::size_t floats() const { return slices * floats_per_slice; }
  std::size_t slice_bytes() const { return floats_per_slice * sizeof(float); }
  std::size_t bytes() const { return slices * slice_bytes(); }
};

[[noreturn]] void Die(const std::string& what) {
  std::fprintf(stderr, "transfer_bench: %s\n", what.c_str());
  std::_Exit(1);
}

constexpr char kJobUid[] = "00112233445566778899aabbccddeeff";
constexpr std::uint64_t kSession = 1;
constexpr std::uint32_t kMostPushes = 1u << 20;

// A parameter server as it is: identities checked, updates deduplicated, plain SGD. One slice per tensor.
class BenchPs {
 public:
  explicit BenchPs(const Sizes& sizes) {
    core::PsOptions options;
    options.job_uid = kJobUid;
    options.session = kSession;
    ps_ = *core::PsCore::Create(std::move(options));
    v1::DirectRequest request;
    request.set_job_uid(kJobUid);
    request.set_session(kSession);
    request.set_members_version(1);
    request.add_sessions(kSession);
    v1::View& view = *request.mutable_view();
    view.mutable_stamp()->set_generation(1);
    view.mutable_stamp()->set_incarnation(1);
    view.mutable_stamp()->set_epoch(1);
    *request.mutable_stamp() = view.stamp();
    for (std::size_t i = 0; i < sizes.slices; ++i) {
      v1::TensorSpec& tensor = *view.add_tensors();
      tensor.set_name(absl::StrCat("slice", i));
      tensor.set_type(v1::FLOAT32);
      tensor.add_shape(static_cast<std::int64_t>(sizes.floats_per_slice));
      view.add_layout()->set_primary(0);
    }
    view.mutable_data()->set_sample_count(kMostPushes);
    view.mutable_data()->set_batch_size(1);
    view.mutable_data()->set_updates_per_shard(kMostPushes);
    view.mutable_data()->set_epochs(1);
    view.mutable_optimizer()->set_type(v1::SGD);
    view.mutable_optimizer()->set_learning_rate(kLearningRate);
    const v1::DirectReply reply = ps_->OnDirect(request, absl::ZeroDuration());
    if (reply.status() != v1::SYNC_OK) Die(absl::StrCat("the ps refuses its view: ", reply.message()));
    const auto zeros = std::make_shared<std::vector<float>>(sizes.floats_per_slice);
    for (std::size_t i = 0; i < sizes.slices; ++i) {
      core::Frame frame;
      frame.header = MakeHeader(core::FrameKind::kInitialise, i);
      frame.header.codec = core::FrameCodec::kFp32;
      frame.payload = core::Payload::OfFloats(*zeros, zeros);
      if (Serve({std::move(frame)}).front().header.status != core::ReplyStatus::kApplied) Die("no initial value");
    }
  }

  static core::FrameHeader MakeHeader(core::FrameKind kind, std::size_t slice) {
    core::FrameHeader header;
    header.kind = kind;
    header.job_uid = *core::ParseJobUid(kJobUid);
    header.generation = header.incarnation = header.epoch = 1;
    header.session = kSession;
    header.slice = static_cast<std::uint32_t>(slice);
    return header;
  }

  wire::Frames Serve(wire::Frames request) {
    absl::MutexLock lock(&mutex_);
    std::vector<core::PsCore::DataReply> replies;
    ps_->OnData(1, std::move(request), &replies);
    return std::move(replies.front().frames);
  }

 private:
  absl::Mutex mutex_;
  std::unique_ptr<core::PsCore> ps_ ABSL_GUARDED_BY(mutex_);
};

// ---- the reference: the same bytes through the same kind of method, with nothing done to them ----

class BareService final : public grpc::Service {
 public:
  explicit BareService(const Sizes& sizes) : bytes_(sizes.slice_bytes(), 1) {
    const grpc::Slice slice(bytes_.data(), bytes_.size(), grpc::Slice::STATIC_SLICE);
    value_ = grpc::ByteBuffer(&slice, 1);
    Register(0, kBarePushMethod, [](grpc::ByteBuffer*) {});
    Register(1, kBarePullMethod, [this](grpc::ByteBuffer* response) { *response = value_; });
  }

 private:
  void Register(int index, const char* method, std::function<void(grpc::ByteBuffer*)> answer) {
    AddMethod(new grpc::internal::RpcServiceMethod(method, grpc::internal::RpcMethod::NORMAL_RPC, nullptr));
    MarkMethodRawCallback(index, new grpc::internal::CallbackUnaryHandler<grpc::ByteBuffer, grpc::ByteBuffer>(
                                     [answer = std::move(answer)](grpc::CallbackServerContext* context,
                                                                  const grpc::ByteBuffer*, grpc::ByteBuffer* response) {
                                       const grpc::Slice empty;
                                       *response = grpc::ByteBuffer(&empty, 1);
                                       answer(response);
                                       auto* reactor = context->DefaultReactor();
                                       reactor->Finish(grpc::Status::OK);
                                       return reactor;
                                     }));
  }

  std::vector<std::uint8_t> bytes_;
  grpc::ByteBuffer value_;
};

// ---- the server process ----

int Listen(int& port) {
  const int listener = socket(AF_INET, SOCK_STREAM, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  if (listener < 0 || bind(listener, reinterpret_cast<sockaddr*>(&address), length) != 0 || listen(listener, 1) != 0 ||
      getsockname(listener, reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    Die(absl::StrCat("cannot listen: ", std::strerror(errno)));
  }
  port = ntohs(address.sin_port);
  return listener;
}

constexpr std::size_t kTcpWriteBytes = 1 << 20;

bool WriteAll(int fd, const std::uint8_t* data, std::size_t size) {
  while (size != 0) {
    const ssize_t wrote = write(fd, data, std::min(size, kTcpWriteBytes));
    if (wrote <= 0) return false;
    data += wrote;
    size -= static_cast<std::size_t>(wrote);
  }
  return true;
}

bool ReadAll(int fd, std::uint8_t* data, std::size_t size) {
  while (size != 0) {
    const ssize_t got = read(fd, data, std::min(size, kTcpWriteBytes));
    if (got <= 0) return false;
    data += got;
    size -= static_cast<std::size_t>(got);
  }
  return true;
}

// Takes in copies of `bytes` each and answers each with one byte.
void ServeTcp(int listener, std::size_t bytes) {
  const int fd = accept(listener, nullptr, nullptr);
  std::vector<std::uint8_t> copy(bytes);
  while (ReadAll(fd, copy.data(), copy.size())) {
    if (!WriteAll(fd, copy.data(), 1)) break;
  }
  close(fd);
}

struct Ports {
  int grpc = 0;
  int tcp = 0;
};

// Never returns; ends when the client process closes `lifeline`.
[[noreturn]] void Serve(const Sizes& sizes, wire::DataHandler handler, int ports_fd, int lifeline) {
  Ports ports;
  BareService bare(sizes);
  wire::GrpcDataService data(handler);
  const absl::StatusOr<wire::StartedServer> started = wire::StartServer("127.0.0.1:0", {&bare, &data});
  if (!started.ok()) Die(started.status().ToString());
  ports.grpc = started->port;
  std::unique_ptr<wire::SharedMemoryServer> local;
  if (!sizes.local.empty()) {
    wire::SharedMemoryServerOptions options;
    options.directory = sizes.local;
    options.job_uid = kJobUid;
    options.address = absl::StrCat("127.0.0.1:", ports.grpc);
    auto listening = wire::SharedMemoryServer::Start(std::move(options), std::move(handler));
    if (!listening.ok()) Die(listening.status().ToString());
    local = *std::move(listening);
  }
  std::thread(ServeTcp, Listen(ports.tcp), sizes.bytes()).detach();
  if (write(ports_fd, &ports, sizeof(ports)) != sizeof(ports)) Die("cannot report the ports");
  char byte;
  while (read(lifeline, &byte, 1) > 0) {
  }
  std::_Exit(0);
}

// ---- the client process ----

// Runs `count` exchanges, at most `window` at a time. `start(i, done)` starts one; `done` takes what went wrong, if
// anything did.
class Window {
 public:
  using Done = std::function<void(const std::string& error)>;

  static void Run(std::size_t count, std::size_t window, const std::function<void(std::size_t, Done)>& start) {
    Window state;
    for (std::size_t i = 0; i < count; ++i) {
      {
        absl::MutexLock lock(&state.mutex_);
        state.AwaitAtMost(window - 1);
        ++state.in_flight_;
      }
      start(i, [&state](const std::string& error) { state.Finished(error); });
    }
    absl::MutexLock lock(&state.mutex_);
    state.AwaitAtMost(0);
  }

 private:
  void AwaitAtMost(std::size_t most) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    const auto below = [this, most]() { return in_flight_ <= most; };
    if (!mutex_.AwaitWithTimeout(absl::Condition(&below), kDeadline + absl::Seconds(5))) Die("an exchange hangs");
  }
  void Finished(const std::string& error) {
    if (!error.empty()) Die(error);
    absl::MutexLock lock(&mutex_);
    --in_flight_;
  }

  absl::Mutex mutex_;
  std::size_t in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
};

class BareClient {
 public:
  BareClient(const std::string& address, const Sizes& sizes) : sizes_(sizes) {
    for (int i = 0; i < sizes.channels; ++i) {
      stubs_.push_back(std::make_unique<grpc::GenericStub>(wire::MakeChannel(address)));
    }
  }

  void Push(const std::vector<float>& gradient) {
    Window::Run(sizes_.slices, sizes_.window, [&](std::size_t i, Window::Done done) {
      Start(kBarePushMethod, gradient.data() + i * sizes_.floats_per_slice, sizes_.slice_bytes(), 0, i,
            std::move(done));
    });
  }

  void Pull() {
    static constexpr float kRequest = 0;
    Window::Run(sizes_.slices, sizes_.window, [&](std::size_t i, Window::Done done) {
      Start(kBarePullMethod, &kRequest, sizeof(kRequest), sizes_.slice_bytes(), i, std::move(done));
    });
  }

 private:
  struct Call {
    grpc::ClientContext context;
    grpc::ByteBuffer request;
    grpc::ByteBuffer response;
  };

  void Start(const char* method, const void* data, std::size_t size, std::size_t expected, std::size_t index,
             Window::Done done) {
    auto call = std::make_shared<Call>();
    const grpc::Slice slice(data, size, grpc::Slice::STATIC_SLICE);
    call->request = grpc::ByteBuffer(&slice, 1);
    call->context.set_deadline(absl::ToChronoTime(absl::Now() + kDeadline));
    Call* const raw = call.get();
    stubs_[index % stubs_.size()]->UnaryCall(
        &raw->context, method, grpc::StubOptions(), &raw->request, &raw->response,
        [call = std::move(call), expected, done = std::move(done)](const grpc::Status& status) {
          if (!status.ok()) return done(absl::StrCat("bare exchange: ", status.error_message()));
          const std::size_t got = call->response.Length();
          done(got == expected ? "" : absl::StrCat("bare exchange: ", got, " bytes, expected ", expected));
        });
  }

  const Sizes sizes_;
  std::vector<std::unique_ptr<grpc::GenericStub>> stubs_;
};

class DataPlaneClient {
 public:
  DataPlaneClient(std::string address, const Sizes& sizes)
      : address_(std::move(address)),
        sizes_(sizes),
        feedback_({sizes.codec, 0.01}),
        grpc_(wire::MakeGrpcDataClient({.channels_per_address = sizes.channels})),
        client_(grpc_.get()) {
    if (sizes.local.empty()) return;
    wire::SharedMemoryClientOptions options;
    options.directory = sizes.local;
    options.job_uid = kJobUid;
    auto local = wire::MakeSharedMemoryDataClient(std::move(options));
    if (!local.ok()) Die(local.status().ToString());
    local_ = *std::move(local);
  }

  void UseSharedMemory(bool use) { client_ = use ? local_.get() : grpc_.get(); }

  void Push(const std::shared_ptr<const std::vector<float>>& gradient) {
    Exchange(
        core::FrameKind::kPush,
        [&](std::size_t i) {
          return core::EncodedGradient{core::FrameCodec::kFp32, PayloadOf(gradient, i)};
        },
        [](std::size_t, const core::Frame& reply) { return reply.header.status == core::ReplyStatus::kApplied; });
    ++pushes_;  // each one is an update of its own
  }

  void PushEncoded(const std::shared_ptr<const std::vector<float>>& gradient) {
    Exchange(
        core::FrameKind::kPush,
        [&](std::size_t i) {
          const auto slice = static_cast<std::uint32_t>(i);
          const auto elements = static_cast<std::uint32_t>(sizes_.floats_per_slice);
          return feedback_.Encode(slice, elements, PayloadOf(gradient, i), /*flush=*/false);
        },
        [](std::size_t, const core::Frame& reply) { return reply.header.status == core::ReplyStatus::kApplied; });
    for (std::size_t i = 0; i < sizes_.slices; ++i) feedback_.Keep(static_cast<std::uint32_t>(i));
    ++pushes_;
  }

  // Into `values`, as a worker needs them: contiguous, in memory of its own.
  void Pull(std::vector<float>& values) {
    Exchange(
        core::FrameKind::kPull, [](std::size_t) { return core::EncodedGradient(); },
        [&](std::size_t i, const core::Frame& reply) {
          if (reply.payload.size() != sizes_.slice_bytes()) return false;
          auto* out = reinterpret_cast<std::uint8_t*>(values.data() + i * sizes_.floats_per_slice);
          for (const auto& segment : reply.payload.segments()) {
            out = std::copy(segment.begin(), segment.end(), out);
          }
          return reply.header.status == core::ReplyStatus::kValue;
        });
  }

 private:
  core::Payload PayloadOf(const std::shared_ptr<const std::vector<float>>& gradient, std::size_t slice) const {
    return core::Payload::OfFloats(
        absl::MakeConstSpan(*gradient).subspan(slice * sizes_.floats_per_slice, sizes_.floats_per_slice), gradient);
  }

  void Exchange(core::FrameKind kind, const std::function<core::EncodedGradient(std::size_t)>& payload,
                const std::function<bool(std::size_t, const core::Frame&)>& accept) {
    Window::Run(sizes_.slices, sizes_.window, [&](std::size_t i, Window::Done done) {
      core::Frame frame;
      frame.header = BenchPs::MakeHeader(kind, i);
      frame.header.update.group = pushes_;
      frame.header.verdict = core::Verdict::kApply;
      core::EncodedGradient gradient = payload(i);
      frame.payload = std::move(gradient.payload);
      if (kind == core::FrameKind::kPush) {
        frame.header.type = core::DataType::kFloat32;
        frame.header.codec = gradient.codec;
        frame.header.elements = static_cast<std::uint32_t>(sizes_.floats_per_slice);
      }
      wire::Frames request;
      request.push_back(std::move(frame));
      client_->Exchange(address_, std::move(request), kDeadline,
                        [&accept, i, done = std::move(done)](absl::StatusOr<wire::Frames> replies) {
                          if (!replies.ok()) return done(absl::StrCat("exchange: ", replies.status().message()));
                          done(accept(i, replies->front()) ? "" : absl::StrCat("slice ", i, ": unexpected reply"));
                        });
    });
  }

  const std::string address_;
  const Sizes sizes_;
  core::ErrorFeedback feedback_;
  const std::unique_ptr<wire::DataClient> grpc_;
  std::unique_ptr<wire::DataClient> local_;
  wire::DataClient* client_;  // one of these
  std::uint32_t pushes_ = 0;
};

class TcpClient {
 public:
  explicit TcpClient(int port) : fd_(socket(AF_INET, SOCK_STREAM, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    address.sin_port = htons(static_cast<std::uint16_t>(port));
    if (fd_ < 0 || connect(fd_, reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0) Die("TCP: no connection");
  }
  ~TcpClient() { close(fd_); }

  void Copy(const std::vector<float>& values) {
    std::uint8_t answer;
    if (!WriteAll(fd_, reinterpret_cast<const std::uint8_t*>(values.data()), values.size() * sizeof(float)) ||
        !ReadAll(fd_, &answer, 1)) {
      Die("TCP: the connection broke");
    }
  }

 private:
  const int fd_;
};

// Processor time that this process and the server used so far, in seconds.
double ProcessorSeconds(clockid_t server_clock) {
  timespec client{};
  timespec server{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &client);
  clock_gettime(server_clock, &server);
  return static_cast<double>(client.tv_sec + server.tv_sec) +
         static_cast<double>(client.tv_nsec + server.tv_nsec) / 1e9;
}

struct Rate {
  double megabytes_per_second = 0;
  double processor_ms = 0;  // of client and server, for one transfer
};

class Meter {
 public:
  Meter(std::size_t bytes, int repeats, pid_t server) : bytes_(bytes), repeats_(repeats) {
    if (clock_getcpuclockid(server, &server_clock_) != 0) Die("no processor clock of the server");
  }

  Rate Measure(const std::function<void()>& transfer) const {
    const double processor_start = ProcessorSeconds(server_clock_);
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < repeats_; ++i) transfer();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    return {static_cast<double>(bytes_) * repeats_ / 1e6 / seconds.count(),
            (ProcessorSeconds(server_clock_) - processor_start) * 1e3 / repeats_};
  }

 private:
  const std::size_t bytes_;
  const int repeats_;
  clockid_t server_clock_{};
};

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 != 0 ? values[half] : (values[half - 1] + values[half]) / 2;
}

enum class Transfer : char { kBarePush, kBarePull, kPush, kPull, kTcp, kPushEncoded, kPushLocally, kPullLocally };

// A client process and its server process, which this process commands.
class Pair {
 public:
  Pair(const Sizes& sizes, int repeats, bool keep_receive_memory) {
    int commands[2];
    int results[2];
    if (pipe(commands) != 0 || pipe(results) != 0) Die("no pipe");
    const pid_t client = fork();
    if (client < 0) Die("cannot fork");
    if (client == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      close(commands[1]);
      close(results[0]);
      if (keep_receive_memory) wire::KeepReceiveMemory();
      RunClient(sizes, repeats, commands[0], results[1]);
    }
    close(commands[0]);
    close(results[1]);
    commands_ = commands[1];
    results_ = results[0];
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  ~Pair() {
    close(commands_);
    close(results_);
  }

  Rate Measure(Transfer transfer) const {
    Rate rate;
    if (write(commands_, &transfer, sizeof(transfer)) != sizeof(transfer) ||
        read(results_, &rate, sizeof(rate)) != sizeof(rate)) {
      Die("a client process ended");
    }
    return rate;
  }

 private:
  [[noreturn]] static void RunClient(const Sizes& sizes, int repeats, int commands, int results);

  int commands_ = -1;
  int results_ = -1;
};

// The server is forked off before this process has threads.
void Pair::RunClient(const Sizes& sizes, int repeats, int commands, int results) {
  int ports_pipe[2];
  int lifeline[2];
  if (pipe(ports_pipe) != 0 || pipe(lifeline) != 0) Die("no pipe");
  const pid_t server = fork();
  if (server < 0) Die("cannot fork");
  if (server == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(lifeline[1]);
    auto ps = std::make_shared<BenchPs>(sizes);
    Serve(
        sizes,
        [ps](wire::Frames request, const std::function<void(wire::Frames)>& reply) {
          reply(ps->Serve(std::move(request)));
        },
        ports_pipe[1], lifeline[0]);
  }
  close(ports_pipe[1]);
  Ports ports;
  if (read(ports_pipe[0], &ports, sizeof(ports)) != sizeof(ports)) Die("the server process does not start");

  const std::string address = absl::StrCat("127.0.0.1:", ports.grpc);
  BareClient bare(address, sizes);
  DataPlaneClient data(address, sizes);
  TcpClient tcp(ports.tcp);
  const Meter meter(sizes.bytes(), repeats, server);

  const auto gradient = std::make_shared<std::vector<float>>(sizes.floats());
  for (std::size_t i = 0; i < gradient->size(); ++i) (*gradient)[i] = static_cast<float>(i % 1021) - 510.0f;
  std::vector<float> pulled(sizes.floats());
  int pushes = 0;
  // Every product and sum is exact in fp32, so the expected weights are too. What a codec left out is in the residual,
  // and less than a step of it.
  const auto verify = [&] {
    const bool exact = sizes.codec == core::FrameCodec::kFp32;
    for (std::size_t i = 0; i < pulled.size(); ++i) {
      const float expected = -kLearningRate * static_cast<float>(pushes) * (*gradient)[i];
      if (std::abs(pulled[i] - expected) > (exact ? 0 : 4 + std::abs(expected) * 1e-4f)) {
        Die(absl::StrCat("weight ", i, ": found ", pulled[i], ", expected ", expected, " after ", pushes, " pushes"));
      }
    }
  };

  Transfer transfer;
  while (read(commands, &transfer, sizeof(transfer)) == sizeof(transfer)) {
    Rate rate;
    data.UseSharedMemory(transfer == Transfer::kPushLocally || transfer == Transfer::kPullLocally);
    switch (transfer) {
      case Transfer::kBarePush:
        rate = meter.Measure([&] { bare.Push(*gradient); });
        break;
      case Transfer::kBarePull:
        rate = meter.Measure([&] { bare.Pull(); });
        break;
      case Transfer::kPush:
      case Transfer::kPushLocally:
        rate = meter.Measure([&] { data.Push(gradient); });
        pushes += repeats;
        break;
      case Transfer::kPull:
      case Transfer::kPullLocally:
        rate = meter.Measure([&] { data.Pull(pulled); });
        verify();
        break;
      case Transfer::kPushEncoded:
        rate = meter.Measure([&] { data.PushEncoded(gradient); });
        pushes += repeats;
        data.Pull(pulled);
        verify();
        break;
      case Transfer::kTcp:
        rate = meter.Measure([&] { tcp.Copy(*gradient); });
        break;
    }
    if (write(results, &rate, sizeof(rate)) != sizeof(rate)) break;
  }
  std::_Exit(0);
}

struct Series {
  std::vector<double> rates;
  std::vector<double> processor_ms;
  void Add(const Rate& rate) {
    rates.push_back(rate.megabytes_per_second);
    processor_ms.push_back(rate.processor_ms);
  }
};

struct Comparison {
  std::string name;
  Transfer transfer;
  Transfer bare_transfer;
  Series ours;
  Series reference;
  Series tuned_reference;
};

struct NamedCodec {
  const char* name;
  core::FrameCodec codec;
  double target;
};
constexpr NamedCodec kCodecs[] = {{"bf16", core::FrameCodec::kBf16, 1.6}, {"int8", core::FrameCodec::kInt8, 2.5}};

int MeasureCodec(Sizes sizes, const NamedCodec& codec, int pairs, int repeats, std::optional<double> wanted,
                 bool json) {
  sizes.codec = codec.codec;
  const double target = wanted.value_or(codec.target);
  const Pair processes(sizes, repeats, true);
  Series ours, reference;
  for (int pair = -1; pair < pairs; ++pair) {  // the first one warms up
    Rate rates[2];
    for (const int which : {pair % 2 == 0 ? 1 : 0, pair % 2 == 0 ? 0 : 1}) {
      rates[which] = processes.Measure(which == 0 ? Transfer::kPushEncoded : Transfer::kPush);
    }
    if (pair < 0) continue;
    ours.Add(rates[0]);
    reference.Add(rates[1]);
  }
  const PairedRatio ratio = ComputePairedRatio(ours.rates, reference.rates);
  const bool holds = ratio.ratio >= target;
  const std::string name = absl::StrCat("push+apply ", codec.name);
  if (json) {
    const nlohmann::json row = {{"name", name},
                                {"ours", Median(ours.rates)},
                                {"reference", Median(reference.rates)},
                                {"ratio", ratio.ratio},
                                {"unit", "MB/s"},
                                {"target", target},
                                {"holds", holds},
                                {"runs", pairs},
                                {"spread", {ratio.low, ratio.high}},
                                {"processorMs", {Median(ours.processor_ms), Median(reference.processor_ms)}}};
    std::printf("%s\n", nlohmann::json::array({row}).dump(2).c_str());
  } else {
    std::printf(
        "%s, %zu bytes as float32: %.0f MB/s, %.0f ms CPU; fp32 %.0f MB/s, %.0f ms CPU; ratio %.3f [%.3f, %.3f]"
        "   target %.2f %s\n",
        name.c_str(), sizes.bytes(), Median(ours.rates), Median(ours.processor_ms), Median(reference.rates),
        Median(reference.processor_ms), ratio.ratio, ratio.low, ratio.high, target, holds ? "holds" : "MISSED");
  }
  return holds ? 0 : 3;
}

int MeasureSharedMemory(Sizes sizes, int pairs, int repeats, double target, bool json) {
  char directory[] = "/tmp/downpour-bench-XXXXXX";
  if (mkdtemp(directory) == nullptr) Die("no directory");
  sizes.local = directory;
  struct Row {
    const char* name;
    Transfer transfer;
    Transfer over_grpc;
    Series ours, reference;
  };
  Row rows[] = {{"push+apply shared memory", Transfer::kPushLocally, Transfer::kPush, {}, {}},
                {"pull shared memory", Transfer::kPullLocally, Transfer::kPull, {}, {}}};
  {
    const Pair processes(sizes, repeats, true);
    for (int pair = -1; pair < pairs; ++pair) {  // the first one warms up
      for (Row& row : rows) {
        Rate ours, reference;
        if (pair % 2 == 0) reference = processes.Measure(row.over_grpc);
        ours = processes.Measure(row.transfer);
        if (pair % 2 != 0) reference = processes.Measure(row.over_grpc);
        if (pair < 0) continue;
        row.ours.Add(ours);
        row.reference.Add(reference);
      }
    }
  }
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
  bool all_hold = true;
  nlohmann::json report = nlohmann::json::array();
  for (const Row& row : rows) {
    const PairedRatio ratio = ComputePairedRatio(row.ours.rates, row.reference.rates);
    const bool holds = ratio.ratio >= target;
    all_hold = all_hold && holds;
    report.push_back({{"name", row.name},
                      {"ours", Median(row.ours.rates)},
                      {"reference", Median(row.reference.rates)},
                      {"ratio", ratio.ratio},
                      {"unit", "MB/s"},
                      {"target", target},
                      {"holds", holds},
                      {"runs", pairs},
                      {"spread", {ratio.low, ratio.high}},
                      {"processorMs", {Median(row.ours.processor_ms), Median(row.reference.processor_ms)}}});
    if (json) continue;
    std::printf(
        "%s, %zu bytes: %.0f MB/s, %.0f ms CPU; over gRPC %.0f MB/s, %.0f ms CPU; ratio %.3f [%.3f, %.3f]"
        "   target %.2f %s\n",
        row.name, sizes.bytes(), Median(row.ours.rates), Median(row.ours.processor_ms), Median(row.reference.rates),
        Median(row.reference.processor_ms), ratio.ratio, ratio.low, ratio.high, target, holds ? "holds" : "MISSED");
  }
  if (json) std::printf("%s\n", report.dump(2).c_str());
  return all_hold ? 0 : 3;
}

int Measure(const Sizes& sizes, int pairs, int repeats, double target, bool json) {
  const Pair plain(sizes, repeats, false);
  const Pair tuned(sizes, repeats, true);
  Comparison comparisons[] = {{"push+apply", Transfer::kPush, Transfer::kBarePush, {}, {}, {}},
                              {"pull", Transfer::kPull, Transfer::kBarePull, {}, {}, {}}};
  Series raw_tcp;
  for (int pair = -1; pair < pairs; ++pair) {  // the first one warms up
    for (Comparison& comparison : comparisons) {
      Rate ours;
      Rate reference;
      if (pair % 2 == 0) {
        reference = plain.Measure(comparison.bare_transfer);
        ours = tuned.Measure(comparison.transfer);
      } else {
        ours = tuned.Measure(comparison.transfer);
        reference = plain.Measure(comparison.bare_transfer);
      }
      const Rate tuned_reference = tuned.Measure(comparison.bare_transfer);
      if (pair < 0) continue;
      comparison.ours.Add(ours);
      comparison.reference.Add(reference);
      comparison.tuned_reference.Add(tuned_reference);
    }
    const Rate tcp = plain.Measure(Transfer::kTcp);
    if (pair >= 0) raw_tcp.Add(tcp);
  }

  bool all_hold = true;
  nlohmann::json report = nlohmann::json::array();
  for (const Comparison& comparison : comparisons) {
    const PairedRatio ratio = ComputePairedRatio(comparison.ours.rates, comparison.reference.rates);
    const PairedRatio tuned_ratio = ComputePairedRatio(comparison.ours.rates, comparison.tuned_reference.rates);
    const bool holds = ratio.ratio >= target;
    all_hold = all_hold && holds;
    report.push_back({{"name", comparison.name},
                      {"ours", Median(comparison.ours.rates)},
                      {"reference", Median(comparison.reference.rates)},
                      {"ratio", ratio.ratio},
                      {"unit", "MB/s"},
                      {"target", target},
                      {"holds", holds},
                      {"runs", pairs},
                      {"spread", {ratio.low, ratio.high}},
                      {"tcp", Median(raw_tcp.rates)},
                      {"tunedReference", Median(comparison.tuned_reference.rates)},
                      {"tunedRatio", {tuned_ratio.ratio, tuned_ratio.low, tuned_ratio.high}},
                      {"processorMs",
                       {Median(comparison.ours.processor_ms), Median(comparison.reference.processor_ms),
                        Median(comparison.tuned_reference.processor_ms)}}});
    if (json) continue;
    const auto print = [](const char* name, const Series& series) {
      std::printf("  %-32s %6.0f MB/s   %4.0f ms CPU", name, Median(series.rates), Median(series.processor_ms));
    };
    std::printf("%s, %zu bytes\n", comparison.name.c_str(), sizes.bytes());
    print("ours", comparison.ours);
    std::printf("\n");
    print("bare gRPC", comparison.reference);
    std::printf("   ratio %.3f [%.3f, %.3f]   target %.2f %s\n", ratio.ratio, ratio.low, ratio.high, target,
                holds ? "holds" : "MISSED");
    print("bare gRPC, keeping freed memory", comparison.tuned_reference);
    std::printf("   ratio %.3f [%.3f, %.3f]\n", tuned_ratio.ratio, tuned_ratio.low, tuned_ratio.high);
  }
  if (json) {
    std::printf("%s\n", report.dump(2).c_str());
  } else {
    std::printf("raw TCP copy, one connection, 1 MiB writes\n  %-32s %6.0f MB/s   %4.0f ms CPU\n", "",
                Median(raw_tcp.rates), Median(raw_tcp.processor_ms));
    std::printf("%zu slices, window %zu, %d channel(s), %d pairs of %d transfers\n", sizes.slices, sizes.window,
                sizes.channels, pairs, repeats);
  }
  return all_hold ? 0 : 3;
}

int Main(int argc, char** argv) {
  Sizes sizes;
  int pairs = 9;
  int repeats = 4;
  std::optional<double> target;
  std::string codec;
  std::string transport = "grpc";
  bool json = false;
  CLI::App app("Measures push + apply and pull against a bare gRPC exchange. Exit code 3: a target is missed.");
  app.add_option("--slices", sizes.slices, "slices of the model")->check(CLI::Range(1, 1024));
  app.add_option("--floats", sizes.floats_per_slice, "values in a slice")->check(CLI::Range(1, 1 << 20));
  app.add_option("--window", sizes.window, "exchanges in flight")->check(CLI::Range(1, 64));
  app.add_option("--channels", sizes.channels, "connections")->check(CLI::Range(1, 8));
  app.add_option("--pairs", pairs, "pairs of measurements")->check(CLI::Range(2, 1000));
  app.add_option("--repeats", repeats, "transfers in one measurement")->check(CLI::Range(1, 1000));
  app.add_option("--target", target, "the ratio to reach");
  app.add_option("--codec", codec, "pushes in this codec against pushes in fp32")
      ->check(CLI::IsMember({"bf16", "int8"}));
  app.add_option("--transport", transport, "shared-memory: that against gRPC")
      ->check(CLI::IsMember({"grpc", "shared-memory"}))
      ->capture_default_str();
  app.add_flag("--json", json, "print the results as a JSON list");
  CLI11_PARSE(app, argc, argv);

  for (const NamedCodec& named : kCodecs) {
    if (codec == named.name) return MeasureCodec(sizes, named, pairs, repeats, target, json);
  }
  if (transport != "grpc") return MeasureSharedMemory(sizes, pairs, repeats, target.value_or(2), json);
  return Measure(sizes, pairs, repeats, target.value_or(0.9), json);
}

}  // namespace
}  // namespace downpour::bench

int main(int argc, char** argv) {
  try {
    return downpour::bench::Main(argc, argv);
  } catch (const std::exception& error) {
    std::fputs(error.what(), stderr);
    return 1;
  }
}
