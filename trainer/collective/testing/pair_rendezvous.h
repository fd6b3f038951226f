#ifndef DOWNPOUR_TRAINER_COLLECTIVE_TESTING_PAIR_RENDEZVOUS_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_TESTING_PAIR_RENDEZVOUS_H_

#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "trainer/collective/rendezvous.h"

namespace downpour::collective {

// Where members inside one process meet, connected by socket pairs: thousands of groups a second would leave no port
// free on the machine. All members of it come to each view. Without connections around the ring.
class PairNetwork {
 public:
  absl::StatusOr<Links> Meet(const GroupOptions& options) {
    const std::size_t rank = static_cast<std::size_t>(options.rank), size = static_cast<std::size_t>(options.size);
    std::unique_lock<std::mutex> lock(mutex_);
    Meeting& meeting = meetings_[options.view];
    if (meeting.links.empty()) {
      meeting.links.resize(size);
      for (Links& links : meeting.links) links.peers.resize(size);
      for (std::size_t one = 0; one < size; ++one) {
        for (std::size_t other = one + 1; other < size; ++other) {
          int pair[2];
          if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
            return absl::UnavailableError("socketpair");
          }
          meeting.links[one].peers[other] = Socket(pair[0]);
          meeting.links[other].peers[one] = Socket(pair[1]);
        }
      }
    }
    ++meeting.here;
    changed_.notify_all();
    const auto until = MomentIn(options.limit);
    if (!changed_.wait_until(lock, until, [&] { return meeting.here == size; })) {
      return absl::DeadlineExceededError("a member did not come within the limit");
    }
    return std::move(meeting.links[rank]);
  }

 private:
  struct Meeting {
    std::vector<Links> links;  // by rank
    std::size_t here = 0;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Meeting> meetings_;  // by view
};

class PairRendezvous : public Rendezvous {
 public:
  explicit PairRendezvous(PairNetwork* network) : network_(network) {}
  int port() const override { return 0; }
  absl::StatusOr<Links> Meet(const GroupOptions& options) override { return network_->Meet(options); }

 private:
  PairNetwork* const network_;
};

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_TESTING_PAIR_RENDEZVOUS_H_
