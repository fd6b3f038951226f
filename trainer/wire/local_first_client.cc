#include "trainer/wire/local_first_client.h"

#include <chrono>
#include <functional>
#include <string>
#include <utility>

#include "spdlog/spdlog.h"

namespace downpour::wire {
namespace {

class LocalFirstDataClient final : public DataClient {
 public:
  LocalFirstDataClient(std::unique_ptr<SharedMemoryDataClient> local, std::unique_ptr<DataClient> other)
      : local_(std::move(local)), other_(std::move(other)) {}

  // What ends in the other client may still ask the local one, which is there, and closed.
  ~LocalFirstDataClient() override { local_->Close(); }

  void Exchange(const std::string& address, Frames request, absl::Duration deadline,
                std::function<void(absl::StatusOr<Frames>)> done) override {
    if (!local_->Ready(address)) return other_->Exchange(address, std::move(request), deadline, std::move(done));
    const auto begun = std::chrono::steady_clock::now();
    Frames again = request;  // refers to the same payloads
    local_->Exchange(address, std::move(request), deadline,
                     [this, address, again = std::move(again), deadline, begun,
                      done = std::move(done)](absl::StatusOr<Frames> reply) mutable {
                       if (reply.ok() || !GoesAnotherWay(reply.status())) return done(std::move(reply));
                       const absl::Duration spent = absl::FromChrono(std::chrono::steady_clock::now() - begun);
                       other_->Exchange(address, std::move(again), deadline - spent, std::move(done));
                     });
  }

  TransportCounters counters() const override {
    TransportCounters counters = local_->counters();
    counters += other_->counters();
    return counters;
  }

 private:
  const std::unique_ptr<SharedMemoryDataClient> local_;
  const std::unique_ptr<DataClient> other_;  // ends first
};

}  // namespace

std::unique_ptr<DataClient> MakeLocalFirstDataClient(std::unique_ptr<SharedMemoryDataClient> local,
                                                     std::unique_ptr<DataClient> other) {
  return std::make_unique<LocalFirstDataClient>(std::move(local), std::move(other));
}

std::unique_ptr<DataClient> WithSharedMemory(SharedMemoryClientOptions options, std::unique_ptr<DataClient> other) {
  if (options.directory.empty()) return other;
  absl::StatusOr<std::unique_ptr<SharedMemoryDataClient>> local = MakeSharedMemoryDataClient(std::move(options));
  if (local.ok()) return MakeLocalFirstDataClient(*std::move(local), std::move(other));
  spdlog::warn("no shared memory: {}", std::string(local.status().message()));
  return other;
}

}  // namespace downpour::wire
