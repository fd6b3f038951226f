#include "cli/coordinator_link.h"

#include <grpcpp/grpcpp.h>
#include <sys/eventfd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/files.h"
#include "cli/run_folder.h"
#include "cli/thread.h"
#include "downpour/v1/control.grpc.pb.h"
#include "operator/job/coordinator_client.h"
#include "proto/deadline.h"
#include "proto/member_channel.h"

namespace downpour::cli {
namespace {

constexpr absl::Duration kAskTimeLimit = absl::Seconds(2);

// What the link and its thread share; it lives as long as either.
struct Exchange {
  std::mutex mutex;
  std::condition_variable changed;
  bool closed = false;
  bool renew = false;                           // the address is to be read again
  std::optional<v1::ProgressRequest> question;  // not taken up yet
  grpc::ClientContext* under_way = nullptr;     // of the question that is being asked
  std::optional<absl::StatusOr<v1::ProgressReply>> answer;
  FileDescriptor wake{eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)};

  bool idle() const { return !question.has_value() && under_way == nullptr && !answer.has_value(); }
};

// Asks one question after the other until the link is closed.
class Asker {
 public:
  Asker(std::shared_ptr<Exchange> exchange, std::string address_file)
      : exchange_(std::move(exchange)), address_file_(std::move(address_file)) {}

  void Run() {
    std::unique_lock<std::mutex> lock(exchange_->mutex);
    for (;;) {
      exchange_->changed.wait(lock, [this] { return exchange_->closed || exchange_->question.has_value(); });
      if (exchange_->closed) return;
      const v1::ProgressRequest request = *std::exchange(exchange_->question, std::nullopt);
      if (std::exchange(exchange_->renew, false)) stub_.reset();
      grpc::ClientContext context;
      context.set_deadline(DeadlineIn(kAskTimeLimit));
      exchange_->under_way = &context;
      lock.unlock();
      absl::StatusOr<v1::ProgressReply> answer = Ask(context, request);
      lock.lock();
      // The coordinator may be back at another address.
      if (!answer.ok()) stub_.reset();
      exchange_->under_way = nullptr;
      exchange_->answer = std::move(answer);
      eventfd_write(exchange_->wake.get(), 1);
    }
  }

 private:
  absl::StatusOr<v1::ProgressReply> Ask(grpc::ClientContext& context, const v1::ProgressRequest& request) {
    if (stub_ == nullptr) {
      absl::StatusOr<std::string> address = ReadAddress(address_file_);
      if (!address.ok()) return address.status();
      address_ = *std::move(address);
      stub_ = v1::Coordinator::NewStub(MakeMemberChannel(address_));
    }
    v1::ProgressReply reply;
    const grpc::Status status = stub_->GetProgress(&context, request, &reply);
    if (!status.ok()) return job::ToAbsl(status, address_);
    return reply;
  }

  const std::shared_ptr<Exchange> exchange_;
  const std::string address_file_;
  std::string address_;
  std::unique_ptr<v1::Coordinator::Stub> stub_;
};

class GrpcCoordinatorLink final : public CoordinatorLink {
 public:
  explicit GrpcCoordinatorLink(std::shared_ptr<Exchange> exchange) : exchange_(std::move(exchange)) {}

  ~GrpcCoordinatorLink() override {
    const std::lock_guard<std::mutex> lock(exchange_->mutex);
    exchange_->closed = true;
    if (exchange_->under_way != nullptr) exchange_->under_way->TryCancel();
    exchange_->changed.notify_all();
  }

  bool Ask(const v1::ProgressRequest& question) override {
    const std::lock_guard<std::mutex> lock(exchange_->mutex);
    if (!exchange_->idle()) return false;
    exchange_->question = question;
    exchange_->changed.notify_all();
    return true;
  }

  std::optional<absl::StatusOr<v1::ProgressReply>> Take() override {
    const std::lock_guard<std::mutex> lock(exchange_->mutex);
    std::optional<absl::StatusOr<v1::ProgressReply>> answer = std::exchange(exchange_->answer, std::nullopt);
    eventfd_t count = 0;
    if (answer.has_value() && eventfd_read(exchange_->wake.get(), &count) != 0) {
      return absl::InternalError("the descriptor of the coordinator's answers cannot be read");
    }
    return answer;
  }

  int wake_descriptor() const override { return exchange_->wake.get(); }

  void Reset() override {
    const std::lock_guard<std::mutex> lock(exchange_->mutex);
    exchange_->renew = true;
    if (exchange_->under_way != nullptr) exchange_->under_way->TryCancel();
  }

 private:
  const std::shared_ptr<Exchange> exchange_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<CoordinatorLink>> MakeCoordinatorLink(const std::string& address_file) {
  auto exchange = std::make_shared<Exchange>();
  if (!exchange->wake.valid()) return SystemError(errno, "the coordinator's answers", "cannot be waited for");
  absl::StatusOr<std::thread> thread = StartThread<std::thread>(
      "the thread that asks the coordinator", [exchange, address_file] { Asker(exchange, address_file).Run(); });
  if (!thread.ok()) return thread.status();
  thread->detach();
  return std::make_unique<GrpcCoordinatorLink>(std::move(exchange));
}

}  // namespace downpour::cli
