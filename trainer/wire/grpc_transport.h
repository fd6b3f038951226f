#ifndef DOWNPOUR_TRAINER_WIRE_GRPC_TRANSPORT_H_
#define DOWNPOUR_TRAINER_WIRE_GRPC_TRANSPORT_H_

#include <initializer_list>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"
#include "grpcpp/impl/service_type.h"
#include "grpcpp/server.h"
#include "trainer/wire/transport.h"

// The data plane over gRPC: raw ByteBuffers through the unary method kExchangeMethod, nothing copied but what gRPC and
// the kernel copy. Also the one place where arguments of servers are set.
namespace downpour::wire {

inline constexpr char kExchangeMethod[] = "/downpour.v1.Data/Exchange";

// A lasting channel to a member, which takes messages of kMaxMessageBytes; for control calls between members too.
std::shared_ptr<grpc::Channel> MakeChannel(const std::string& address);

// The server's side of such channels.
struct StartedServer {
  std::unique_ptr<grpc::Server> server;
  int port = 0;
  std::string address;  // where it listens, with the port that was taken
};
// Serves `services`, which must outlive the server, on host:port (port 0: any). kUnavailable: it cannot listen there; a
// port that another process listens on is refused, not shared.
absl::StatusOr<StartedServer> StartServer(const std::string& listen, std::initializer_list<grpc::Service*> services);

struct GrpcDataClientOptions {
  int channels_per_address = 1;  // a connection each, used in turn
};

// The client does not encrypt. Besides the errors that DataClient names, an exchange ends with kInvalidArgument (the
// request does not encode, see EncodeMessage), kResourceExhausted (the reply exceeds kMaxMessageBytes) or kCancelled
// (the client was destroyed). Its destructor cancels what is in flight and returns when every `done` has returned; it
// must not be called from inside a `done`.
std::unique_ptr<DataClient> MakeGrpcDataClient(GrpcDataClientOptions options = {});

// The server half: one of the services of StartServer. Checksums are verified on gRPC's threads, before the handler
// runs there. A call that its client gave up needs no reply any more; a late reply is ignored, and `reply` may outlive
// the service. Thread-safe.
class GrpcDataService final : public grpc::Service {
 public:
  explicit GrpcDataService(DataHandler handler);
  ~GrpcDataService() override;

  // Answers every held and every further exchange with UNAVAILABLE. Call it before Server::Shutdown, which waits for
  // held replies.
  void Shutdown();

  TransportCounters counters() const;

 private:
  class State;
  class Exchange;
  std::shared_ptr<State> state_;
};

}  // namespace downpour::wire

#endif  // DOWNPOUR_TRAINER_WIRE_GRPC_TRANSPORT_H_
