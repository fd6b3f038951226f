#include "trainer/coordinator/store_thread.h"

#include <utility>

namespace downpour::coordinator {

StoreThread::StoreThread(std::unique_ptr<checkpoint::JobStore> store,
                         std::function<void(std::uint64_t, core::StoreReply)> done)
    : store_(std::move(store)), done_(std::move(done)), thread_([this] { Run(); }) {}

StoreThread::~StoreThread() {
  {
    absl::MutexLock lock(&mutex_);
    stopped_ = true;
  }
  thread_.join();
}

void StoreThread::Add(std::vector<core::StoreCall> calls) {
  absl::MutexLock lock(&mutex_);
  for (core::StoreCall& call : calls) calls_.push_back(std::move(call));
}

void StoreThread::Run() {
  for (;;) {
    core::StoreCall call;
    {
      absl::MutexLock lock(&mutex_);
      const auto due = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return stopped_ || !calls_.empty(); };
      mutex_.Await(absl::Condition(&due));
      if (stopped_) return;
      call = std::move(calls_.front());
      calls_.pop_front();
    }
    core::StoreReply reply = store_->CarryOut(call);
    done_(call.call, std::move(reply));
  }
}

}  // namespace downpour::coordinator
