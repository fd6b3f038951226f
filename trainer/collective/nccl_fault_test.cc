// Something goes wrong with every call to NCCL and CUDA, one after the other, in a session of everything there is: all
// ranks end, hear of it, give everything back, and form the next view.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "trainer/collective/fake_nccl.h"
#include "trainer/collective/local.h"
#include "trainer/collective/nccl_collective.h"

namespace downpour::collective {
namespace {

// Reaching it is a hang. The clock of a device gets there where a hang is what goes wrong.
constexpr absl::Duration kNotHung = absl::Minutes(10);

using Values = std::vector<float>;
using MakeDevice = std::function<std::unique_ptr<FakeNcclDevice>(FakeNccl* nccl, int rank)>;

std::unique_ptr<FakeNcclDevice> ProperDevice(FakeNccl* nccl, int /*rank*/) {
  return std::make_unique<FakeNcclDevice>(nccl);
}

struct Session {
  int size = 1;
  int victim = 0;
  std::int64_t call = 0;  // 0: nothing goes wrong
  FakeNcclFault::Kind kind = FakeNcclFault::Kind::kError;
  bool aborts = false;  // in the end; else all leave
  bool goes_on = true;  // with the next view
  absl::Duration limit = kNotHung;
  std::uint64_t seed = 1;
};

struct Result {
  std::string trouble;     // a line each
  std::int64_t calls = 0;  // of the victim
  std::string failed_call;
};

// What one rank does, until it fails.
class Player {
 public:
  Player(Collective* group, const Session& session, std::deque<Values>* memory)
      : group_(*group),
        memory_(*memory),
        aborts_(session.aborts),
        limit_(session.limit),
        size_(static_cast<float>(group->size())) {}

  absl::Status Play() {
    if (aborts_) return AbortUnderWay();
    for (const auto& step : {&Player::Sums, &Player::Halves, &Player::Parts, &Player::Copies, &Player::Messages}) {
      if (absl::Status status = (this->*step)(); !status.ok()) return status;
    }
    at_last_ = true;
    Values& last = New(4, 1.0f);
    absl::Status status = group_.AllReduce(absl::MakeSpan(last), limit_);
    if (status.ok()) Expect(last, Values(4, size_));
    return status;
  }

  // Whatever fails from here on the others may not hear of.
  bool at_last() const { return at_last_; }
  bool right() const { return right_; }

 private:
  void Expect(const Values& values, const Values& expected) { right_ = right_ && values == expected; }
  Values& New(std::size_t count, float value) { return memory_.emplace_back(count, value); }
  Values& Own(std::size_t count) { return New(count, static_cast<float>(group_.rank() + 1)); }
  float Total() const { return size_ * (size_ + 1) / 2; }

  // All ranks, wherever they are.
  absl::Status AbortUnderWay() {
    absl::Status status = Sums();
    at_last_ = true;
    Values& values = Own(7);
    Values& halves = Own(7);
    const absl::StatusOr<Handle> one = group_.StartAllReduce(absl::MakeSpan(values));
    const absl::StatusOr<Handle> two = group_.StartAllReduce(absl::MakeSpan(halves), Precision::kBfloat16);
    group_.Abort();
    if (one.ok()) group_.Wait(*one, limit_).IgnoreError();
    if (two.ok()) group_.Wait(*two, limit_).IgnoreError();
    return status;
  }

  absl::Status Sums() {
    Values& values = Own(7);
    absl::Status status = group_.AllReduce(absl::MakeSpan(values), limit_);
    if (status.ok()) Expect(values, Values(7, Total()));
    return status;
  }

  absl::Status Halves() {
    Values& values = Own(6);
    absl::Status status = group_.AllReduce(absl::MakeSpan(values), limit_, Precision::kBfloat16);
    if (status.ok()) Expect(values, Values(6, Total()));
    return status;
  }

  absl::Status Parts() {
    Values& values = Own(6);
    absl::Status status = group_.ReduceScatter(absl::MakeSpan(values), limit_);
    if (status.ok()) status = group_.AllGather(absl::MakeSpan(values), limit_);
    if (status.ok()) Expect(values, Values(6, Total()));
    return status;
  }

  absl::Status Copies() {
    Values& values = Own(2);
    absl::Status status = group_.Broadcast(absl::MakeSpan(values), group_.size() - 1, limit_);
    if (status.ok()) Expect(values, Values(2, size_));
    return status;
  }

  absl::Status Messages() {
    if (group_.size() == 1) return absl::OkStatus();
    const int next = (group_.rank() + 1) % group_.size();
    const int previous = (group_.rank() + group_.size() - 1) % group_.size();
    const Values& out = Own(3);
    Values& in = New(3, 0);
    const absl::StatusOr<Handle> sent = group_.StartSend(out, next);
    if (!sent.ok()) return sent.status();
    const absl::StatusOr<Handle> received = group_.StartReceive(absl::MakeSpan(in), previous);
    const absl::Status status = group_.Wait(*sent, limit_);
    if (!received.ok()) return received.status();
    // Waited for in any case: its values go with this call.
    const absl::Status of_received = group_.Wait(*received, limit_);
    if (of_received.ok()) Expect(in, Values(3, static_cast<float>(previous + 1)));
    return status.ok() ? of_received : status;
  }

  Collective& group_;
  std::deque<Values>& memory_;
  const bool aborts_;
  const absl::Duration limit_;
  const float size_;
  bool at_last_ = false;
  bool right_ = true;
};

Result Run(const Session& session, const MakeDevice& make_device = ProperDevice) {
  const std::size_t size = static_cast<std::size_t>(session.size);
  FakeNccl nccl(session.seed);
  LocalNetwork network;
  // With a defect values may be written when they should not be any more; that is not to harm the test.
  std::vector<std::deque<Values>> memory(size);
  Result result;
  std::vector<absl::Status> statuses(size), of_next(size);
  std::vector<std::string> troubles(size);
  bool noticed = true;  // the victim failed where all others must notice
  {
    std::vector<std::unique_ptr<FakeNcclDevice>> devices;
    std::vector<std::unique_ptr<Member>> members;
    NcclOptions options;
    for (std::size_t rank = 0; rank < size; ++rank) {
      devices.push_back(make_device(&nccl, static_cast<int>(rank)));
      options.now = [device = devices.back().get()] { return device->Now(); };
      members.push_back(NewNcclMember(devices.back().get(), options, network.NewRendezvous()));
    }
    FakeNcclDevice& victim = *devices[static_cast<std::size_t>(session.victim)];
    if (session.call > 0) victim.Inject({session.kind, session.call});
    const auto form = [&](std::size_t rank, const std::string& view) {
      GroupOptions group;
      group.view = view;
      group.rank = static_cast<int>(rank);
      group.size = session.size;
      group.host = "here";
      group.store = "here:1";
      return members[rank]->Form(group);
    };
    const auto together = [size](const std::function<void(std::size_t)>& play) {
      std::vector<std::thread> threads;
      for (std::size_t rank = 0; rank < size; ++rank) threads.emplace_back([&play, rank] { play(rank); });
      for (std::thread& thread : threads) thread.join();
    };
    together([&](std::size_t rank) {
      const bool is_victim = static_cast<int>(rank) == session.victim;
      absl::StatusOr<std::unique_ptr<Collective>> group = form(rank, "first");
      statuses[rank] = group.status();
      if (!group.ok()) return;
      Player player(group->get(), session, &memory[rank]);
      statuses[rank] = player.Play();
      if (is_victim && player.at_last()) noticed = false;
      if (!player.right()) absl::StrAppend(&troubles[rank], "rank ", rank, " has wrong values\n");
    });
    const bool unusable = victim.failed_call() == "StreamQuery" && session.kind == FakeNcclFault::Kind::kNever;
    if (unusable) {
      const absl::Status refused = form(static_cast<std::size_t>(session.victim), "next").status();
      if (!absl::IsFailedPrecondition(refused)) {
        absl::StrAppend(&result.trouble, "a device that did not stop: ", refused.ToString(), "\n");
      }
    } else if (session.goes_on) {
      together([&](std::size_t rank) {
        absl::StatusOr<std::unique_ptr<Collective>> group = form(rank, "next");
        of_next[rank] = group.status();
        if (!group.ok()) return;
        Values& values = memory[rank].emplace_back(5, 1.0f);
        of_next[rank] = (*group)->AllReduce(absl::MakeSpan(values), session.limit);
        if (of_next[rank].ok() && values != Values(5, static_cast<float>(size))) {
          absl::StrAppend(&troubles[rank], "rank ", rank, " has wrong values in the next view\n");
        }
      });
    }
    members.clear();
    result.calls = victim.calls();
    result.failed_call = victim.failed_call();
  }
  const bool fails = !statuses[static_cast<std::size_t>(session.victim)].ok();
  for (std::size_t rank = 0; rank < size; ++rank) {
    const absl::Status& status = statuses[rank];
    absl::StrAppend(&result.trouble, troubles[rank]);
    if (fails && noticed && status.ok()) absl::StrAppend(&result.trouble, "rank ", rank, " noticed nothing\n");
    if (session.call == 0 && !session.aborts && !status.ok())
      absl::StrAppend(&result.trouble, "rank ", rank, ": ", status.ToString(), "\n");
    const bool stuck = session.kind == FakeNcclFault::Kind::kNever && static_cast<int>(rank) == session.victim;
    if (absl::IsDeadlineExceeded(status) && !stuck) {
      absl::StrAppend(&result.trouble, "rank ", rank, " hangs: ", status.ToString(), "\n");
    }
    if (!of_next[rank].ok()) {
      absl::StrAppend(&result.trouble, "rank ", rank, " in the next view: ", of_next[rank].ToString(), "\n");
    }
  }
  absl::StrAppend(&result.trouble, nccl.Complaints(), nccl.Leaks());
  return result;
}

std::string Describe(const Session& session) {
  const char* const kinds[] = {"error", "remote error", "never complete"};
  return absl::StrCat("size ", session.size, ", victim ", session.victim, ", call ", session.call, ", ",
                      kinds[static_cast<int>(session.kind)], session.aborts ? ", aborts" : "");
}

struct Runs {
  int all = 0;
  int failed = 0;  // in which something went wrong
};

// Each call of a session with each fault, several at a time: most of it is waiting. Stops at the first trouble when
// told.
std::string Sweep(Session session, const MakeDevice& make_device, bool stop, Runs* runs) {
  constexpr std::int64_t kKinds = 3;
  std::string troubles = Run(session, make_device).trouble;
  session.goes_on = false;
  const std::int64_t calls = Run(session).calls;
  session.goes_on = true;
  std::mutex mutex;
  std::int64_t next = 0;
  const auto work = [&] {
    for (;;) {
      Session mine = session;
      {
        const std::lock_guard<std::mutex> lock(mutex);
        if (next == calls * kKinds || (stop && !troubles.empty())) return;
        mine.call = 1 + next / kKinds;
        mine.kind = static_cast<FakeNcclFault::Kind>(next % kKinds);
        mine.seed = static_cast<std::uint64_t>(mine.call);
        ++next;
      }
      const Result result = Run(mine, make_device);
      const std::lock_guard<std::mutex> lock(mutex);
      ++runs->all;
      if (!result.failed_call.empty()) ++runs->failed;
      if (!result.trouble.empty()) {
        absl::StrAppend(&troubles, Describe(mine), " (", result.failed_call, "):\n", result.trouble);
      }
    }
  };
  std::vector<std::thread> workers;
  for (int i = 0; i < 6; ++i) workers.emplace_back(work);
  for (std::thread& worker : workers) worker.join();
  return troubles;
}

class NcclFaultTest : public testing::TestWithParam<bool> {};

TEST_P(NcclFaultTest, EveryCallFailsInEveryWay) {
  Runs runs;
  for (int size = 1; size <= 3; ++size) {
    for (int victim = 0; victim < size; ++victim) {
      Session session;
      session.size = size;
      session.victim = victim;
      session.aborts = GetParam();
      EXPECT_EQ(Sweep(session, ProperDevice, false, &runs), "") << Describe(session);
    }
  }
  // How often something is polled for, and so how many calls there are, is not the same each time.
  EXPECT_GE(runs.failed, runs.all * 9 / 10);
  EXPECT_GE(runs.failed, GetParam() ? 300 : 1500);
  RecordProperty("failed", runs.failed);
  RecordProperty("all", runs.all);
}

INSTANTIATE_TEST_SUITE_P(Ends, NcclFaultTest, testing::Bool(),
                         [](const auto& test) { return test.param ? "Aborting" : "Leaving"; });

// What an implementation could do wrong, done by the calls that it makes.
class DropsEvents : public FakeNcclDevice {
 public:
  using FakeNcclDevice::FakeNcclDevice;
  NcclResult EventDestroy(NcclEvent /*event*/) override { return NcclResult::kSuccess; }
};
class DropsStreams : public FakeNcclDevice {
 public:
  using FakeNcclDevice::FakeNcclDevice;
  NcclResult StreamDestroy(NcclStream /*stream*/) override { return NcclResult::kSuccess; }
};
class DropsMemory : public FakeNcclDevice {
 public:
  using FakeNcclDevice::FakeNcclDevice;
  NcclResult Free(void* /*memory*/, NcclStream /*stream*/) override { return NcclResult::kSuccess; }
};
class DropsCommunicators : public FakeNcclDevice {
 public:
  using FakeNcclDevice::FakeNcclDevice;
  NcclResult CommDestroy(NcclComm /*comm*/) override { return NcclResult::kSuccess; }
};
class AbortsTwice : public FakeNcclDevice {
 public:
  using FakeNcclDevice::FakeNcclDevice;
  NcclResult CommAbort(NcclComm comm) override {
    FakeNcclDevice::CommAbort(comm);
    return FakeNcclDevice::CommAbort(comm);
  }
};
class DoesNotAbort : public FakeNcclDevice {
 public:
  using FakeNcclDevice::FakeNcclDevice;
  NcclResult CommAbort(NcclComm /*comm*/) override { return NcclResult::kSuccess; }
};
class DestroysAfterAnAbort : public FakeNcclDevice {
 public:
  using FakeNcclDevice::FakeNcclDevice;
  NcclResult CommAbort(NcclComm comm) override {
    FakeNcclDevice::CommAbort(comm);
    return FakeNcclDevice::CommDestroy(comm);
  }
};
class DoesNotFinalize : public FakeNcclDevice {
 public:
  using FakeNcclDevice::FakeNcclDevice;
  NcclResult CommFinalize(NcclComm /*comm*/) override { return NcclResult::kSuccess; }
};
class LeavesGroupsOpen : public FakeNcclDevice {
 public:
  using FakeNcclDevice::FakeNcclDevice;
  NcclResult Reduce(const void* from, void* to, std::size_t count, NcclElement element, int root, NcclComm comm,
                    NcclStream stream) override {
    const NcclResult result = FakeNcclDevice::Reduce(from, to, count, element, root, comm, stream);
    failed_ = result != NcclResult::kInProgress;
    return result;
  }
  NcclResult GroupEnd() override { return failed_ ? NcclResult::kSuccess : FakeNcclDevice::GroupEnd(); }

 private:
  bool failed_ = false;
};
// Puts the next thing onto a stream while NCCL still puts something there.
class DoesNotWait : public FakeNcclDevice {
 public:
  using FakeNcclDevice::FakeNcclDevice;
  NcclResult AsyncError(NcclComm comm) override {
    const NcclResult result = FakeNcclDevice::AsyncError(comm);
    return result == NcclResult::kInProgress ? NcclResult::kSuccess : result;
  }
};

template <typename Device>
std::unique_ptr<FakeNcclDevice> AtRankOne(FakeNccl* nccl, int rank) {
  if (rank != 1) return ProperDevice(nccl, rank);
  return std::make_unique<Device>(nccl);
}
template <typename Device>
std::unique_ptr<FakeNcclDevice> Alone(FakeNccl* nccl, int /*rank*/) {
  return std::make_unique<Device>(nccl);
}

TEST(NcclPlantedDefectTest, TheSweepFindsPlantedDefects) {
  struct {
    const char* name;
    MakeDevice device;
    const char* trouble;
    int size = 2;
  } const defects[] = {
      {"drops events", AtRankOne<DropsEvents>, "event of device 1"},
      {"drops streams", AtRankOne<DropsStreams>, "stream of device 1"},
      {"drops memory", AtRankOne<DropsMemory>, "bytes of memory"},
      {"drops communicators", AtRankOne<DropsCommunicators>, "communicator of device 1"},
      {"aborts twice", AtRankOne<AbortsTwice>, "device 1: CommAbort on a communicator that was given back"},
      {"does not abort", AtRankOne<DoesNotAbort>, "communicator of device 1"},
      {"destroys after an abort", AtRankOne<DestroysAfterAnAbort>,
       "device 1: CommDestroy on a communicator that was given back"},
      {"does not finalize", AtRankOne<DoesNotFinalize>,
       "device 1: CommDestroy of a communicator that was not finalized"},
      {"leaves groups open", AtRankOne<LeavesGroupsOpen>, "group of calls"},
      {"does not wait", Alone<DoesNotWait>,
       "device 0: (a stream is used while|an operation on a communicator that is not ready)", 1},
  };
  for (const auto& defect : defects) {
    Session session;
    session.size = defect.size;
    session.victim = defect.size - 1;
    if (defect.size == 1) session.limit = absl::Milliseconds(200);  // it may hang for it
    Runs runs;
    EXPECT_THAT(Sweep(session, defect.device, true, &runs), testing::ContainsRegex(defect.trouble)) << defect.name;
  }
}

}  // namespace
}  // namespace downpour::collective
