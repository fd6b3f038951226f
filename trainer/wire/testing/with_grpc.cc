#include <chrono>
#include <utility>

#include "grpcpp/server.h"
#include "trainer/wire/grpc_transport.h"
#include "trainer/wire/local_first_client.h"
#include "trainer/wire/testing/shared_directory.h"
#include "trainer/wire/testing/transports.h"

namespace downpour::wire {
namespace {

constexpr char kJob[] = "00112233445566778899aabbccddeeff";

class GrpcServer final : public TestServer {
 public:
  explicit GrpcServer(DataHandler handler) : service_(std::move(handler)) {
    StartedServer started = *StartServer("127.0.0.1:0", {&service_});
    server_ = std::move(started.server);
    address_ = std::move(started.address);
  }
  ~GrpcServer() override {
    service_.Shutdown();
    server_->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(10));
    server_->Wait();
  }
  const std::string& address() const override { return address_; }
  void Shutdown() override { service_.Shutdown(); }
  TransportCounters counters() const override { return service_.counters(); }

 private:
  GrpcDataService service_;
  std::unique_ptr<grpc::Server> server_;
  std::string address_;
};

class GrpcTransport final : public TestTransport {
 public:
  std::unique_ptr<TestServer> NewServer(DataHandler handler) override {
    return std::make_unique<GrpcServer>(std::move(handler));
  }
  std::unique_ptr<DataClient> NewClient() override { return MakeGrpcDataClient({.channels_per_address = 2}); }
};

// As in the programs: a server serves both ways, and a client takes the local one as soon as it is there.
class BothServer final : public TestServer {
 public:
  BothServer(SharedMemoryServerOptions options, const DataHandler& handler) : grpc_(handler) {
    options.address = grpc_.address();
    local_ = *SharedMemoryServer::Start(std::move(options), handler);
  }
  const std::string& address() const override { return grpc_.address(); }
  void Shutdown() override {
    local_->Shutdown();
    grpc_.Shutdown();
  }
  TransportCounters counters() const override {
    TransportCounters counters = local_->counters();
    counters += grpc_.counters();
    return counters;
  }

 private:
  GrpcServer grpc_;
  std::unique_ptr<SharedMemoryServer> local_;
};

class LocalFirstTransport final : public TestTransport {
 public:
  std::unique_ptr<TestServer> NewServer(DataHandler handler) override {
    SharedMemoryServerOptions options;
    options.directory = directory_.path();
    options.job_uid = kJob;
    return std::make_unique<BothServer>(std::move(options), handler);
  }
  std::unique_ptr<DataClient> NewClient() override {
    SharedMemoryClientOptions options;
    options.directory = directory_.path();
    options.job_uid = kJob;
    return WithSharedMemory(std::move(options), MakeGrpcDataClient());
  }

 private:
  const SharedDirectory directory_;
};

}  // namespace

std::vector<std::string> TransportNames() { return {"grpc", "shared_memory", "local_first"}; }

std::unique_ptr<TestTransport> NewTransport(const std::string& name) {
  if (name == "grpc") return std::make_unique<GrpcTransport>();
  if (name == "local_first") return std::make_unique<LocalFirstTransport>();
  return NewSharedMemoryTransport();
}

}  // namespace downpour::wire
