#ifndef DOWNPOUR_TRAINER_SERVICE_CALLS_H_
#define DOWNPOUR_TRAINER_SERVICE_CALLS_H_

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "proto/deadline.h"

namespace downpour::service {

// gRPC's codes are the canonical ones.
inline absl::Status FromGrpc(const grpc::Status& status) {
  return absl::Status(static_cast<absl::StatusCode>(status.error_code()), status.error_message());
}

// Control calls in flight. Its destructor cancels them and returns when all their callbacks have run. Thread-safe.
//
// Channels must live longer than this object: gRPC ends its threads with the last channel, and waits for them. A call
// refers to its channel, and if it were the last to do so, it would be one of these threads that waits for itself,
// which gRPC 1.51 takes for having waited (https://github.com/grpc/grpc/issues/37858).
class Calls {
 public:
  Calls() = default;
  ~Calls() { CancelAndWait(); }
  Calls(const Calls&) = delete;
  Calls& operator=(const Calls&) = delete;

  // start(context, request, reply, callback) begins the call; `done` runs exactly once on a gRPC thread. After
  // CancelAndWait began, `done` is called at once with kCancelled.
  template <typename Reply, typename Request, typename Start>
  void Unary(Request request, absl::Duration deadline, Start start, std::function<void(absl::StatusOr<Reply>)> done) {
    struct Call {
      grpc::ClientContext context;
      Request request;
      Reply reply;
    };
    auto call = std::make_shared<Call>();
    Call* const raw = call.get();
    call->request = std::move(request);
    call->context.set_deadline(DeadlineIn(deadline));
    {
      absl::MutexLock lock(&mutex_);
      if (closed_) {
        mutex_.Unlock();
        done(absl::CancelledError("shutting down"));
        mutex_.Lock();
        return;
      }
      calls_.emplace(&raw->context, std::move(call));
      ++in_flight_;
    }
    start(&raw->context, &raw->request, &raw->reply, [this, raw, done = std::move(done)](const grpc::Status& status) {
      done(status.ok() ? absl::StatusOr<Reply>(std::move(raw->reply)) : FromGrpc(status));
      std::shared_ptr<void> ended;
      {
        absl::MutexLock lock(&mutex_);
        ended = std::move(calls_.extract(&raw->context).mapped());
      }
      ended.reset();  // as long as its channel is there for certain
      absl::MutexLock lock(&mutex_);
      --in_flight_;
    });
  }

  void CancelAndWait() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    for (const auto& [context, call] : calls_) context->TryCancel();
    mutex_.Await(absl::Condition(
        +[](int* in_flight) { return *in_flight == 0; }, &in_flight_));
  }

 private:
  absl::Mutex mutex_;
  std::map<grpc::ClientContext*, std::shared_ptr<void>> calls_ ABSL_GUARDED_BY(mutex_);  // that can be cancelled
  int in_flight_ ABSL_GUARDED_BY(mutex_) = 0;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace downpour::service

#endif  // DOWNPOUR_TRAINER_SERVICE_CALLS_H_
