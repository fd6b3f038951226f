#include "trainer/worker/ledger_server.h"

#include <utility>

#include "downpour/v1/control.grpc.pb.h"
#include "grpcpp/grpcpp.h"
#include "proto/deadline.h"
#include "trainer/wire/grpc_transport.h"

namespace downpour::worker {
namespace {

class Server final : public LedgerServer, public v1::ParameterServer::CallbackService {
 public:
  Server(std::string job_uid, std::function<v1::LedgerReply()> read)
      : job_uid_(std::move(job_uid)), read_(std::move(read)) {}
  ~Server() override {
    if (server_ != nullptr) server_->Shutdown(DeadlineIn(absl::Seconds(1)));
  }

  absl::Status Serve(const std::string& listen) {
    absl::StatusOr<wire::StartedServer> started = wire::StartServer(listen, {this});
    if (!started.ok()) return started.status();
    server_ = std::move(started->server);
    address_ = std::move(started->address);
    return absl::OkStatus();
  }

  const std::string& address() const override { return address_; }

  grpc::ServerUnaryReactor* ReadLedger(grpc::CallbackServerContext* context, const v1::LedgerRequest* request,
                                       v1::LedgerReply* reply) override {
    if (request->job_uid() == job_uid_) *reply = read_();
    grpc::ServerUnaryReactor* const reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

 private:
  const std::string job_uid_;
  const std::function<v1::LedgerReply()> read_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<LedgerServer>> LedgerServer::Start(const std::string& listen, std::string job_uid,
                                                                  std::function<v1::LedgerReply()> read) {
  auto server = std::make_unique<Server>(std::move(job_uid), std::move(read));
  if (absl::Status served = server->Serve(listen); !served.ok()) return served;
  return server;
}

}  // namespace downpour::worker
