#include "cli/ledger/read_ledgers.h"

#include <grpcpp/grpcpp.h>

#include <memory>

#include "absl/synchronization/notification.h"
#include "downpour/v1/control.grpc.pb.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

class FakePs : public v1::ParameterServer::Service {
 public:
  explicit FakePs(std::uint32_t index) : index_(index) {
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(this);
    server_ = builder.BuildAndStart();
  }
  ~FakePs() override {
    released_.Notify();
    server_->Shutdown();
  }

  std::string address() const { return "127.0.0.1:" + std::to_string(port_); }
  void Hang() { hangs_ = true; }

  grpc::Status ReadLedger(grpc::ServerContext*, const v1::LedgerRequest* request, v1::LedgerReply* reply) override {
    if (hangs_) released_.WaitForNotification();
    if (request->job_uid() != "job") return {grpc::StatusCode::NOT_FOUND, "another job"};
    reply->set_job_uid(request->job_uid());
    reply->set_ps_index(index_);
    return grpc::Status::OK;
  }

 private:
  const std::uint32_t index_;
  int port_ = 0;
  bool hangs_ = false;
  absl::Notification released_;
  std::unique_ptr<grpc::Server> server_;
};

TEST(ReadLedgersTest, RepliesComeInTheOrderOfTheAddresses) {
  const FakePs first(0);
  const FakePs second(1);
  const auto replies = ReadLedgers({second.address(), first.address()}, "job", absl::Seconds(30));
  ASSERT_TRUE(replies.ok()) << replies.status();
  ASSERT_EQ(replies->size(), 2u);
  EXPECT_EQ((*replies)[0].ps_index(), 1u);
  EXPECT_EQ((*replies)[1].ps_index(), 0u);
}

TEST(ReadLedgersTest, ErrorNamesTheAddress) {
  const FakePs ps(0);
  const auto replies = ReadLedgers({ps.address()}, "other", absl::Seconds(30));
  EXPECT_EQ(replies.status().code(), absl::StatusCode::kNotFound);
  EXPECT_THAT(std::string(replies.status().message()), testing::HasSubstr(ps.address()));
}

TEST(ReadLedgersTest, SilentPsEndsAtTheDeadline) {
  const FakePs good(0);
  FakePs silent(1);
  silent.Hang();
  const auto replies = ReadLedgers({good.address(), silent.address()}, "job", absl::Milliseconds(300));
  EXPECT_EQ(replies.status().code(), absl::StatusCode::kDeadlineExceeded);
}

TEST(ReadLedgersTest, NoAddressesNoReplies) {
  const auto replies = ReadLedgers({}, "job", absl::Seconds(1));
  ASSERT_TRUE(replies.ok());
  EXPECT_TRUE(replies->empty());
}

TEST(ReadLedgersTest, EachMayBeAskedByItself) {
  const FakePs good(0);
  FakePs silent(1);
  silent.Hang();
  const auto replies = ReadEachLedger({silent.address(), good.address()}, "job", absl::Milliseconds(300));
  ASSERT_EQ(replies.size(), 2u);
  EXPECT_EQ(replies[0].status().code(), absl::StatusCode::kDeadlineExceeded);
  EXPECT_THAT(std::string(replies[0].status().message()), testing::HasSubstr(silent.address()));
  ASSERT_TRUE(replies[1].ok()) << replies[1].status();
  EXPECT_EQ(replies[1]->ps_index(), 0u);
}

}  // namespace
}  // namespace downpour::cli
