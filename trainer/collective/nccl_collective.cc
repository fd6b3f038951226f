#include "trainer/collective/nccl_collective.h"

#include <sys/eventfd.h>

#include <condition_variable>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/collective/nccl_group.h"
#include "trainer/collective/rendezvous.h"

namespace downpour::collective {
namespace {

// How often a forming looks whether it was stopped.
constexpr std::chrono::milliseconds kLookPeriod(20);

class NcclCollective : public Collective {
 public:
  explicit NcclCollective(std::shared_ptr<NcclGroup> group)
      : Collective(group->options().rank, group->options().size, group->options().view), group_(std::move(group)) {}
  ~NcclCollective() override { group_->Leave(); }

  absl::Status Wait(Handle handle, absl::Duration limit) override {
    const absl::StatusOr<NcclGroup::Outcome> outcome = group_->Wait(handle, limit);
    if (outcome.ok()) return About(outcome->operation, outcome->status);
    return absl::Status(outcome.status().code(),
                        absl::StrCat(outcome.status().message(), ", ", DescribeMember(rank(), size(), view())));
  }

  void Abort() override { group_->Break(absl::AbortedError("aborted")); }

 private:
  absl::StatusOr<Handle> Start(const Operation& operation) override {
    if (operation.travels == Precision::kBfloat16 && size() > 1 && !group_->options().api->Rounds()) {
      return About(operation, absl::UnimplementedError("there are no kernels here to round on the device"));
    }
    absl::StatusOr<Handle> handle = group_->Start(operation);
    if (!handle.ok()) return About(operation, handle.status());
    return handle;
  }

  const std::shared_ptr<NcclGroup> group_;
};

class NcclMember : public Member {
 public:
  NcclMember(NcclApi* api, NcclOptions options, std::unique_ptr<Rendezvous> rendezvous)
      : api_(api), options_(std::move(options)), rendezvous_(std::move(rendezvous)) {}

  int port() const override { return rendezvous_->port(); }

  absl::StatusOr<std::unique_ptr<Collective>> Form(const GroupOptions& options) override {
    if (absl::Status status = CheckGroupOptions(options); !status.ok()) return status;
    const Patience patience = {MomentIn(options.limit), options.stop};
    std::unique_lock<std::mutex> lock(mutex_);
    while (forming_) {
      if (absl::Status status = patience.Check(); !status.ok()) {
        return AboutForming(
            options, absl::Status(status.code(), absl::StrCat("another group is being formed: ", status.message())));
      }
      formed_.wait_until(lock, std::chrono::steady_clock::now() + kLookPeriod);
    }
    forming_ = true;
    lock.unlock();
    absl::Status status = AboutForming(options, FreeDevice(patience));
    if (status.ok()) status = FormNext(options, patience);
    lock.lock();
    forming_ = false;
    formed_.notify_all();
    if (!status.ok()) return status;
    return std::make_unique<NcclCollective>(group_);
  }

 private:
  // The rest is of one thread at a time: while forming_.

  absl::Status FormNext(const GroupOptions& options, const Patience& patience) {
    GroupOptions rest = options;
    rest.limit = absl::FromChrono(patience.until - std::chrono::steady_clock::now());
    absl::StatusOr<Links> links = rendezvous_->Meet(rest);
    if (!links.ok()) return links.status();
    NcclGroupOptions group;
    group.api = api_;
    group.now = options_.now;
    group.leave_limit = options_.leave_limit;
    group.stop_limit = options_.stop_limit;
    group.rank = options.rank;
    group.size = options.size;
    group.view = options.view;
    group.peers = std::move(links->peers);
    group.wake = Socket(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    group.patience = patience;
    if (!group.wake.open()) return AboutForming(options, absl::UnavailableError("eventfd"));
    group_ = std::make_shared<NcclGroup>(std::move(group));
    return AboutForming(options, group_->AwaitFormed());
  }

  // Once nothing is left of the group before.
  absl::Status FreeDevice(const Patience& patience) {
    if (group_ != nullptr) {
      group_->Retire();
      while (!group_->AwaitEnd(kLookPeriod)) {
        if (absl::Status status = patience.Check(); !status.ok()) {
          group_->Break(status);
          return absl::Status(status.code(), absl::StrCat("the group before is not over: ", status.message()));
        }
      }
      device_ = group_->device();
      group_.reset();
    }
    return device_;
  }

  NcclApi* const api_;
  const NcclOptions options_;
  const std::unique_ptr<Rendezvous> rendezvous_;

  std::mutex mutex_;
  std::condition_variable formed_;
  bool forming_ = false;
  std::shared_ptr<NcclGroup> group_;  // the last
  absl::Status device_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Member>> NewNcclMember(NcclApi* api, const NcclOptions& options) {
  absl::StatusOr<std::unique_ptr<Rendezvous>> rendezvous = NewRendezvous(options.address);
  if (!rendezvous.ok()) return rendezvous.status();
  return NewNcclMember(api, options, *std::move(rendezvous));
}

std::unique_ptr<Member> NewNcclMember(NcclApi* api, const NcclOptions& options,
                                      std::unique_ptr<Rendezvous> rendezvous) {
  return std::make_unique<NcclMember>(api, options, std::move(rendezvous));
}

}  // namespace downpour::collective
