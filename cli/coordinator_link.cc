#include "cli/coordinator_link.h"

#include <grpcpp/grpcpp.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/files.h"
#include "cli/run_folder.h"
#include "downpour/v1/control.grpc.pb.h"
#include "operator/job/coordinator_client.h"
#include "proto/deadline.h"
#include "proto/member_channel.h"

namespace downpour::cli {
namespace {

constexpr absl::Duration kAskTimeLimit = absl::Seconds(2);

class GrpcCoordinatorLink final : public CoordinatorLink {
 public:
  GrpcCoordinatorLink(std::string address_file, std::string job_uid)
      : address_file_(std::move(address_file)),
        job_uid_(std::move(job_uid)),
        wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}

  ~GrpcCoordinatorLink() override {
    std::unique_lock<std::mutex> lock(mutex_);
    if (question_ != nullptr) question_->context.TryCancel();
    idle_.wait(lock, [this] { return !in_flight_; });  // a cancelled call always ends
  }

  void Ask(const std::vector<v1::MemberFailure>& failures) override {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      if (in_flight_ || answer_.has_value()) return;
    }
    if (stub_ == nullptr) {
      const absl::StatusOr<std::string> address = ReadAddress(address_file_);
      if (!address.ok()) {
        Deliver(address.status());
        return;
      }
      address_ = *address;
      stub_ = v1::Coordinator::NewStub(MakeMemberChannel(address_));
    }
    auto question = std::make_unique<Question>();
    question->request.set_job_uid(job_uid_);
    question->request.mutable_failures()->Assign(failures.begin(), failures.end());
    question->context.set_deadline(DeadlineIn(kAskTimeLimit));
    Question* const asked = question.get();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      in_flight_ = true;
      question_ = std::move(question);
    }
    stub_->async()->GetProgress(&asked->context, &asked->request, &asked->reply,
                                [this, asked](const grpc::Status& status) { Answered(*asked, status); });
  }

  std::optional<absl::StatusOr<v1::ProgressReply>> Take() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    std::optional<absl::StatusOr<v1::ProgressReply>> answer = std::exchange(answer_, std::nullopt);
    if (!answer.has_value()) return answer;
    std::uint64_t count = 0;
    if (read(wake_.get(), &count, sizeof count) < 0 && errno != EAGAIN) {
      return absl::InternalError("the descriptor of the coordinator's answers cannot be read");
    }
    // The coordinator may be back at another address.
    if (!answer->ok()) stub_.reset();
    return answer;
  }

  int wake_descriptor() const override { return wake_.get(); }

  void Reset() override {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!in_flight_) stub_.reset();
    if (question_ != nullptr) question_->context.TryCancel();
  }

 private:
  struct Question {
    grpc::ClientContext context;
    v1::ProgressRequest request;
    v1::ProgressReply reply;
  };

  // On a thread of gRPC.
  void Answered(Question& question, const grpc::Status& status) {
    if (status.ok()) {
      Deliver(std::move(question.reply));
    } else {
      Deliver(job::ToAbsl(status, address_));
    }
  }

  void Deliver(absl::StatusOr<v1::ProgressReply> answer) {
    const std::lock_guard<std::mutex> lock(mutex_);
    answer_ = std::move(answer);
    in_flight_ = false;
    const std::uint64_t one = 1;
    // Cannot fail: the counter never comes near its limit.
    if (write(wake_.get(), &one, sizeof one) < 0) answer_ = absl::InternalError("eventfd");
    idle_.notify_all();
  }

  const std::string address_file_;
  const std::string job_uid_;
  const FileDescriptor wake_;
  std::string address_;  // not changed while a question is under way
  std::unique_ptr<v1::Coordinator::Stub> stub_;

  std::mutex mutex_;
  std::condition_variable idle_;
  bool in_flight_ = false;
  std::unique_ptr<Question> question_;  // kept until the next: its callback may still be returning
  std::optional<absl::StatusOr<v1::ProgressReply>> answer_;
};

}  // namespace

std::unique_ptr<CoordinatorLink> MakeCoordinatorLink(const std::string& address_file, const std::string& job_uid) {
  return std::make_unique<GrpcCoordinatorLink>(address_file, job_uid);
}

}  // namespace downpour::cli
