#ifndef DOWNPOUR_TRAINER_SERVICE_STUBS_H_
#define DOWNPOUR_TRAINER_SERVICE_STUBS_H_

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "grpcpp/grpcpp.h"
#include "trainer/service/process.h"
#include "trainer/wire/grpc_transport.h"

namespace downpour::service {

// One channel to each address that was ever called; they are as few as a job's processes and their replacements. None
// is destroyed before this object, which has to live longer than the calls: see Calls. A channel asks anew where a name
// leads only when its connection breaks. Thread-safe.
template <typename Service>
class Stubs {
 public:
  // Valid as long as this object.
  typename Service::Stub* For(const std::string& address) {
    absl::MutexLock lock(&mutex_);
    std::unique_ptr<typename Service::Stub>& stub = stubs_[address];
    if (stub == nullptr) {
      stub = Service::NewStub(wire::MakeChannel(address));
    }
    return stub.get();
  }
  // An answer shows that the name leads elsewhere by now: the next that is asked for is a new one, unless the last was
  // renewed within kRenewalPeriod.
  void Renew(const std::string& address) {
    absl::MutexLock lock(&mutex_);
    const auto found = stubs_.find(address);
    const absl::Duration now = MonotonicNow();
    if (found == stubs_.end() || now < next_renewal_) return;
    next_renewal_ = now + kRenewalPeriod;
    renewed_.push_back(std::move(found->second));
    stubs_.erase(found);
  }

 private:
  static constexpr absl::Duration kRenewalPeriod = absl::Seconds(5);

  absl::Mutex mutex_;
  std::map<std::string, std::unique_ptr<typename Service::Stub>> stubs_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<typename Service::Stub>> renewed_ ABSL_GUARDED_BY(mutex_);
  absl::Duration next_renewal_ ABSL_GUARDED_BY(mutex_) = absl::ZeroDuration();
};

}  // namespace downpour::service

#endif  // DOWNPOUR_TRAINER_SERVICE_STUBS_H_
