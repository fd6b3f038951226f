#include "trainer/collective/local.h"

#include <sys/socket.h>

#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/host_port.h"
#include "trainer/collective/local_collective.h"
#include "trainer/collective/local_place.h"

namespace downpour::collective {
namespace {

// How often a forming looks whether it was stopped.
constexpr std::chrono::milliseconds kLookPeriod(20);

using HostPlace = LocalPlace<std::unique_ptr<Collective>>;
using LinkPlace = LocalPlace<Links>;

absl::StatusOr<std::vector<Links>> NewLinks(const std::string& /*view*/, int of_size) {
  const std::size_t size = static_cast<std::size_t>(of_size);
  std::vector<Links> links(size);
  for (Links& of_rank : links) of_rank.peers.resize(size);
  for (std::size_t one = 0; one < size; ++one) {
    for (std::size_t other = one + 1; other < size; ++other) {
      int pair[2];
      if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) {
        return absl::UnavailableError("socketpair");
      }
      links[one].peers[other] = Socket(pair[0]);
      links[other].peers[one] = Socket(pair[1]);
    }
  }
  return links;
}

class HostMember : public Member {
 public:
  explicit HostMember(HostPlace* place) : place_(place), port_(place->Open()) {}
  ~HostMember() override { place_->Shut(port_); }

  int port() const override { return port_; }
  absl::StatusOr<std::unique_ptr<Collective>> Form(const GroupOptions& options) override {
    return place_->Meet(options, port_);
  }

 private:
  HostPlace* const place_;
  const int port_;
};

class LocalRendezvous : public Rendezvous {
 public:
  explicit LocalRendezvous(LinkPlace* place) : place_(place), port_(place->Open()) {}
  ~LocalRendezvous() override { place_->Shut(port_); }

  int port() const override { return port_; }
  absl::StatusOr<Links> Meet(const GroupOptions& options) override { return place_->Meet(options, port_); }

 private:
  LinkPlace* const place_;
  const int port_;
};

}  // namespace

struct LocalNetwork::State {
  HostPlace host{[](const std::string& view, int size) { return NewLocalGroup(view, size); }};
  LinkPlace links{NewLinks};
};

LocalNetwork::LocalNetwork() : state_(std::make_unique<State>()) {}
LocalNetwork::~LocalNetwork() = default;

std::unique_ptr<Member> LocalNetwork::NewMember() { return std::make_unique<HostMember>(&state_->host); }

std::unique_ptr<Rendezvous> LocalNetwork::NewRendezvous() { return std::make_unique<LocalRendezvous>(&state_->links); }

LocalMembers LocalMembers::OfHost(int size) {
  LocalMembers members;
  for (int rank = 0; rank < size; ++rank) members.members_.push_back(members.network_->NewMember());
  return members;
}

LocalMembers LocalMembers::OfNccl(const std::vector<NcclApi*>& devices, const NcclOptions& options) {
  LocalMembers members;
  for (NcclApi* const device : devices) {
    members.members_.push_back(NewNcclMember(device, options, members.network_->NewRendezvous()));
  }
  return members;
}

absl::StatusOr<std::vector<std::unique_ptr<Collective>>> LocalMembers::Form(absl::Duration limit,
                                                                            const absl::Notification* stop) {
  absl::Notification one_failed;
  GroupOptions options;
  options.view = absl::StrCat("local ", ++views_);
  options.size = size();
  options.host = "local";
  options.store = JoinHostPort(options.host, members_.front()->port());
  options.limit = limit;
  options.stop = &one_failed;
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t done = 0;
  absl::Status status;  // the first error
  std::vector<std::unique_ptr<Collective>> ends(members_.size());
  const auto fail = [&](const absl::Status& why) {
    if (!status.ok()) return;
    status = why;
    one_failed.Notify();
  };
  std::vector<std::thread> threads;
  for (std::size_t rank = 0; rank < members_.size(); ++rank) {
    options.rank = static_cast<int>(rank);
    threads.emplace_back([&, rank, options] {
      absl::StatusOr<std::unique_ptr<Collective>> end = members_[rank]->Form(options);
      const std::lock_guard<std::mutex> lock(mutex);
      if (end.ok()) {
        ends[rank] = *std::move(end);
      } else {
        fail(end.status());
      }
      ++done;
      changed.notify_all();
    });
  }
  {
    std::unique_lock<std::mutex> lock(mutex);
    while (done < members_.size()) {
      if (stop != nullptr && stop->HasBeenNotified()) fail(AboutForming(options, absl::AbortedError("stopped")));
      changed.wait_until(lock, std::chrono::steady_clock::now() + kLookPeriod);
    }
  }
  for (std::thread& thread : threads) thread.join();
  if (!status.ok()) return status;
  return ends;
}

}  // namespace downpour::collective
