#ifndef DOWNPOUR_TRAINER_SERVICE_STUBS_H_
#define DOWNPOUR_TRAINER_SERVICE_STUBS_H_

#include <map>
#include <memory>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/grpcpp.h"
#include "trainer/wire/grpc_transport.h"

namespace downpour::service {

// One channel to each address that was ever called; they are as few as a job's processes and their replacements. None
// is destroyed before this object, which has to live longer than the calls: see Calls. Thread-safe.
template <typename Service>
class Stubs {
 public:
  // Valid as long as this object.
  typename Service::Stub* For(const std::string& address) {
    absl::MutexLock lock(&mutex_);
    std::unique_ptr<typename Service::Stub>& stub = stubs_[address];
    if (stub == nullptr) {
      stub = Service::NewStub(
          grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(), wire::BaseChannelArguments()));
    }
    return stub.get();
  }

 private:
  absl::Mutex mutex_;
  std::map<std::string, std::unique_ptr<typename Service::Stub>> stubs_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace downpour::service

#endif  // DOWNPOUR_TRAINER_SERVICE_STUBS_H_
