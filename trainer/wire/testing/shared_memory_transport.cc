#include "trainer/wire/shared_memory_transport.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/wire/testing/shared_directory.h"
#include "trainer/wire/testing/transports.h"

namespace downpour::wire {
namespace {

constexpr char kJob[] = "00112233445566778899aabbccddeeff";
// For the replies of a whole test, which hold on to them.
constexpr std::uint64_t kRegionBytes = 256ULL << 20;

class Server final : public TestServer {
 public:
  Server(SharedMemoryServerOptions options, DataHandler handler)
      : address_(options.address), server_(*SharedMemoryServer::Start(std::move(options), std::move(handler))) {}
  const std::string& address() const override { return address_; }
  void Shutdown() override { server_->Shutdown(); }
  TransportCounters counters() const override { return server_->counters(); }

 private:
  const std::string address_;
  const std::unique_ptr<SharedMemoryServer> server_;
};

class Transport final : public TestTransport {
 public:
  std::unique_ptr<TestServer> NewServer(DataHandler handler) override {
    SharedMemoryServerOptions options;
    options.directory = directory_.path();
    options.job_uid = kJob;
    options.region_bytes = kRegionBytes;
    options.address = absl::StrCat("host:", ++servers_);
    return std::make_unique<Server>(std::move(options), std::move(handler));
  }
  std::unique_ptr<DataClient> NewClient() override {
    SharedMemoryClientOptions options;
    options.directory = directory_.path();
    options.job_uid = kJob;
    options.region_bytes = kRegionBytes;
    return *MakeSharedMemoryDataClient(std::move(options));
  }

 private:
  const SharedDirectory directory_;
  int servers_ = 0;
};

}  // namespace

std::unique_ptr<TestTransport> NewSharedMemoryTransport() { return std::make_unique<Transport>(); }

}  // namespace downpour::wire
