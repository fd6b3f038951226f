#include "proto/member_channel.h"

#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>

#include "downpour/v1/control.grpc.pb.h"
#include "gtest/gtest.h"

namespace downpour {
namespace {

class Coordinator final : public v1::Coordinator::Service {
  grpc::Status GetProgress(grpc::ServerContext*, const v1::ProgressRequest*, v1::ProgressReply* reply) override {
    reply->set_updates_applied(7);
    return grpc::Status::OK;
  }
};

// Proxies are ordinary in companies, and their lists of exceptions are about other things than pods.
TEST(MemberChannelTest, NoProxyOfTheEnvironmentComesBetween) {
  for (const char* name : {"http_proxy", "https_proxy", "grpc_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY",
                           "GRPC_PROXY", "ALL_PROXY"}) {
    ASSERT_EQ(setenv(name, "http://127.0.0.1:9", 1), 0);
  }
  Coordinator service;
  int port = 0;
  grpc::ServerBuilder builder;
  builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
  builder.RegisterService(&service);
  const std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  ASSERT_NE(server, nullptr);
  for (const bool lasting : {false, true}) {
    const auto stub = v1::Coordinator::NewStub(
        MakeMemberChannel("127.0.0.1:" + std::to_string(port), {.max_message_bytes = 1 << 20, .lasting = lasting}));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(30));
    v1::ProgressReply reply;
    const grpc::Status status = stub->GetProgress(&context, {}, &reply);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(reply.updates_applied(), 7u);
  }
}

}  // namespace
}  // namespace downpour
