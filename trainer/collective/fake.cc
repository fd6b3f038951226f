#include "trainer/collective/fake.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <map>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "proto/host_port.h"
#include "trainer/core/codec/bf16.h"

namespace downpour::collective {
namespace {

using Clock = std::chrono::steady_clock;

// How often a forming looks whether it was stopped.
constexpr std::chrono::milliseconds kLookPeriod(5);

Clock::time_point After(absl::Duration limit) {
  return Clock::now() + absl::ToChronoMilliseconds(std::clamp(limit, absl::ZeroDuration(), absl::Hours(24)));
}

struct Started {
  Operation operation;
  bool complete = false;
  bool never = false;  // a fault: its deadline is over
  absl::Status status;
};

float AsItTravels(float value, Precision travels) {
  if (travels == Precision::kFloat32) return value;
  std::array<std::uint8_t, core::Bf16Bytes(1)> bytes;
  core::EncodeBf16({&value, 1}, bytes.data());
  core::DecodeBf16(bytes, {&value, 1});
  return value;
}

// One rank's end: what it started, and how it broke.
struct End {
  std::map<Handle, Started> started;  // until waited for
  std::deque<Handle> pending;         // all-reduces and so on that are not complete, in order
  std::map<int, std::deque<Handle>> sends;
  std::map<int, std::deque<Handle>> receives;
  absl::Status broken;
  bool here = false;  // has formed the group
};

struct Group {
  Group(std::string of_view, int size) : view(std::move(of_view)), ends(static_cast<std::size_t>(size)) {}

  End& end(int rank) { return ends[static_cast<std::size_t>(rank)]; }
  int size() const { return static_cast<int>(ends.size()); }

  const std::string view;
  std::vector<End> ends;
  int here = 0;
  bool given_up = false;  // by a member that formed it
};

}  // namespace

struct FakeNetwork::State {
  explicit State(Waiting of_waiting) : waiting(of_waiting) {}

  const Waiting waiting;
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<Fault> faults;
  std::map<int, std::int64_t> calls;  // by rank
  Handle next_handle = 1;
  int next_port = 1;
  std::map<int, bool> ports;                                                 // of members that live
  std::map<std::pair<int, std::string>, std::shared_ptr<Group>> rendezvous;  // by rank 0's port and view

  void BreakEnd(Group& group, int rank, const absl::Status& status);
  void Break(Group& group, int rank, const absl::Status& here, const std::string& elsewhere);
  void Advance(Group& group);
  void AdvanceMessages(Group& group, int from, int to);
};

// Of an end that is not broken yet.
void FakeNetwork::State::BreakEnd(Group& group, int rank, const absl::Status& status) {
  End& end = group.end(rank);
  if (!end.broken.ok()) {
    return;
  }
  end.broken = status;
  for (auto& [handle, started] : end.started) {
    if (!started.complete) {
      started.complete = true;
      started.status = status;
    }
  }
  end.pending.clear();
  end.sends.clear();
  end.receives.clear();
}

void FakeNetwork::State::Break(Group& group, int rank, const absl::Status& here, const std::string& elsewhere) {
  BreakEnd(group, rank, here);
  for (int other = 0; other < group.size(); ++other) {
    if (other != rank) {
      BreakEnd(group, other, absl::UnavailableError(absl::StrCat("rank ", rank, " ", elsewhere)));
    }
  }
  changed.notify_all();
}

// Does what all members have started.
void FakeNetwork::State::Advance(Group& group) {
  for (;;) {
    std::vector<Started*> all;
    all.reserve(group.ends.size());
    for (End& end : group.ends) {
      if (end.pending.empty() || end.started.at(end.pending.front()).never) {
        return;
      }
      all.push_back(&end.started.at(end.pending.front()));
    }
    const Operation& first = all.front()->operation;
    for (const Started* started : all) {
      const Operation& operation = started->operation;
      if (operation.kind != first.kind || operation.values.size() != first.values.size() ||
          operation.peer != first.peer || operation.travels != first.travels) {
        const absl::Status status =
            absl::InternalError(absl::StrCat("the members disagree: ", Describe(first), ", and ", Describe(operation)));
        for (int rank = 0; rank < group.size(); ++rank) {
          BreakEnd(group, rank, status);
        }
        changed.notify_all();
        return;
      }
    }
    const Precision travels = group.size() == 1 ? Precision::kFloat32 : first.travels;
    for (int rank = 0; rank < group.size(); ++rank) {
      const Part part = PartOf(first.values.size(), rank, group.size());
      for (std::size_t i = part.begin; i < part.end; ++i) {
        float value = all[static_cast<std::size_t>(rank)]->operation.values[i];
        if (first.kind == OperationKind::kBroadcast) {
          value = all[static_cast<std::size_t>(first.peer)]->operation.values[i];
        } else if (first.kind != OperationKind::kAllGather) {
          value = AsItTravels(all[0]->operation.values[i], travels);
          for (std::size_t from = 1; from < all.size(); ++from) {
            value = AsItTravels(value + all[from]->operation.values[i], travels);
          }
        }
        for (int to = 0; to < group.size(); ++to) {
          if (first.kind != OperationKind::kReduceScatter || to == rank) {
            all[static_cast<std::size_t>(to)]->operation.values[i] = value;
          }
        }
      }
    }
    for (std::size_t rank = 0; rank < all.size(); ++rank) {
      all[rank]->complete = true;
      group.ends[rank].pending.pop_front();
    }
    changed.notify_all();
  }
}

void FakeNetwork::State::AdvanceMessages(Group& group, int from, int to) {
  std::deque<Handle>& sends = group.end(from).sends[to];
  std::deque<Handle>& receives = group.end(to).receives[from];
  while (!sends.empty() && !receives.empty()) {
    Started& send = group.end(from).started.at(sends.front());
    Started& receive = group.end(to).started.at(receives.front());
    if (send.never || receive.never) {
      return;
    }
    if (send.operation.values.size() != receive.operation.values.size()) {
      const absl::Status status = absl::InternalError(
          absl::StrCat("the members disagree: ", Describe(send.operation), ", and ", Describe(receive.operation)));
      for (int rank = 0; rank < group.size(); ++rank) {
        BreakEnd(group, rank, status);
      }
      changed.notify_all();
      return;
    }
    std::copy(send.operation.values.begin(), send.operation.values.end(), receive.operation.values.begin());
    send.complete = true;
    receive.complete = true;
    sends.pop_front();
    receives.pop_front();
    changed.notify_all();
  }
}

class FakeCollective : public Collective {
 public:
  FakeCollective(FakeNetwork::State* state, std::shared_ptr<Group> group, int rank)
      : Collective(rank, group->size(), group->view), state_(state), group_(std::move(group)) {}

  ~FakeCollective() override {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->Break(*group_, rank(), absl::AbortedError("left"), "left the group");
  }

  absl::Status Wait(Handle handle, absl::Duration limit) override {
    std::unique_lock<std::mutex> lock(state_->mutex);
    End& end = group_->end(rank());
    const auto found = end.started.find(handle);
    if (found == end.started.end()) {
      return absl::InvalidArgumentError(
          absl::StrCat("no operation ", handle, " waits to be waited for, ", DescribeMember(rank(), size(), view())));
    }
    Started& started = found->second;
    const auto until = After(limit);
    while (!started.complete) {
      const bool waits = state_->waiting == FakeNetwork::Waiting::kBlocks && !started.never;
      if (!waits || (state_->changed.wait_until(lock, until) == std::cv_status::timeout && !started.complete)) {
        state_->Break(*group_, rank(), absl::DeadlineExceededError("not complete within its limit"),
                      "gave the group up");
      }
    }
    absl::Status status = About(started.operation, started.status);
    end.started.erase(handle);
    return status;
  }

  void Abort() override {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->Break(*group_, rank(), absl::AbortedError("aborted"), "aborted");
  }

 private:
  absl::StatusOr<Handle> Start(const Operation& operation) override {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    End& end = group_->end(rank());
    const std::int64_t call = ++state_->calls[rank()];
    const auto fault = std::find_if(state_->faults.begin(), state_->faults.end(), [&](const Fault& candidate) {
      return candidate.rank == rank() && candidate.call == call;
    });
    const bool fails = fault != state_->faults.end();
    if (fails && fault->kind == Fault::Kind::kAbort) {
      state_->Break(*group_, rank(), absl::AbortedError("aborted"), "aborted");
    }
    if (!end.broken.ok()) {
      return About(operation, end.broken);
    }
    const Handle handle = state_->next_handle++;
    Started& started = end.started[handle];
    started.operation = operation;
    started.never = fails && fault->kind == Fault::Kind::kDeadline;
    if (fails && fault->kind == Fault::Kind::kFail) {
      state_->Break(*group_, rank(), absl::UnavailableError("a connection broke"), "lost a connection");
    } else if (fails && fault->kind == Fault::Kind::kLosePeer && fault->peer < size()) {
      state_->Break(*group_, fault->peer, absl::UnavailableError("lost"), "is lost");
    } else if (operation.kind == OperationKind::kSend) {
      end.sends[operation.peer].push_back(handle);
      state_->AdvanceMessages(*group_, rank(), operation.peer);
    } else if (operation.kind == OperationKind::kReceive) {
      end.receives[operation.peer].push_back(handle);
      state_->AdvanceMessages(*group_, operation.peer, rank());
    } else {
      end.pending.push_back(handle);
      state_->Advance(*group_);
    }
    return handle;
  }

  FakeNetwork::State* const state_;
  const std::shared_ptr<Group> group_;
};

class FakeMember : public Member {
 public:
  explicit FakeMember(FakeNetwork::State* state) : state_(state) {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    port_ = state_->next_port++;
    state_->ports[port_] = true;
  }

  ~FakeMember() override {
    const std::lock_guard<std::mutex> lock(state_->mutex);
    state_->ports.erase(port_);
    state_->changed.notify_all();
  }

  int port() const override { return port_; }

  absl::StatusOr<std::unique_ptr<Collective>> Form(const GroupOptions& options) override {
    if (absl::Status status = CheckGroupOptions(options); !status.ok()) {
      return status;
    }
    const int port = options.size > 1 ? SplitHostPort(options.store)->port : port_;
    const auto until = After(options.limit);
    std::unique_lock<std::mutex> lock(state_->mutex);
    std::shared_ptr<Group>& at = state_->rendezvous[{port, options.view}];
    if (at == nullptr) {
      at = std::make_shared<Group>(options.view, options.size);
    }
    const std::shared_ptr<Group> group = at;
    const auto about = [&options](const std::string& what) {
      return absl::StrCat("group of ", DescribeMember(options.rank, options.size, options.view), ": ", what);
    };
    if (group->size() != options.size) {
      return absl::UnavailableError(about(absl::StrCat("there it has ", group->size(), " members")));
    }
    if (group->end(options.rank).here) {
      return absl::UnavailableError(about("that rank was there before"));
    }
    group->end(options.rank).here = true;
    ++group->here;
    state_->changed.notify_all();
    bool reached = state_->ports.count(port) > 0;
    while (group->here < options.size || group->given_up || !reached) {
      absl::Status status;
      const auto now = Clock::now();
      if (options.stop != nullptr && options.stop->HasBeenNotified()) {
        status = absl::AbortedError(about("stopped"));
      } else if (group->given_up) {
        status = absl::UnavailableError(about("a member that was there is lost"));
      } else if (reached && state_->ports.count(port) == 0) {
        status = absl::UnavailableError(about("rank 0 is lost"));
      } else if (state_->waiting == FakeNetwork::Waiting::kNever || now >= until) {
        status = absl::DeadlineExceededError(
            about(absl::StrCat(options.size - group->here, " members did not come within the limit")));
      }
      if (!status.ok()) {
        group->given_up = true;
        state_->changed.notify_all();
        return status;
      }
      state_->changed.wait_until(lock, std::min(until, now + kLookPeriod));
      reached = reached || state_->ports.count(port) > 0;
    }
    return std::make_unique<FakeCollective>(state_, group, options.rank);
  }

 private:
  FakeNetwork::State* const state_;
  int port_ = 0;
};

FakeNetwork::FakeNetwork(Waiting waiting) : state_(std::make_unique<State>(waiting)) {}
FakeNetwork::~FakeNetwork() = default;

void FakeNetwork::Inject(const Fault& fault) {
  const std::lock_guard<std::mutex> lock(state_->mutex);
  state_->faults.push_back(fault);
}

std::unique_ptr<Member> FakeNetwork::NewMember() { return std::make_unique<FakeMember>(state_.get()); }

std::vector<std::unique_ptr<Collective>> FakeNetwork::NewGroup(const std::string& view, int size) {
  const auto group = std::make_shared<Group>(view, size);
  std::vector<std::unique_ptr<Collective>> ends;
  ends.reserve(static_cast<std::size_t>(size));
  for (int rank = 0; rank < size; ++rank) {
    ends.push_back(std::make_unique<FakeCollective>(state_.get(), group, rank));
  }
  return ends;
}

}  // namespace downpour::collective
