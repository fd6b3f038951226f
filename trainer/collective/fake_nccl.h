#ifndef DOWNPOUR_TRAINER_COLLECTIVE_FAKE_NCCL_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_FAKE_NCCL_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "trainer/collective/nccl_api.h"

// NCCL and devices inside one process, for tests: host memory stands for a device's. It is as strict as the real ones
// may be: a stream does one thing after the other, and an operation keeps it until all who take part have it at the
// front of theirs; what is begun is done after a number of polls that the seed says; nobody is reliably told of an
// abort.
namespace downpour::collective {

class FakeNcclDevice;
struct FakeNcclState;

// What all devices share. Outlives them. Thread-safe.
class FakeNccl {
 public:
  explicit FakeNccl(std::uint64_t seed = 1);
  ~FakeNccl();

  // Misuse, a line each: a handle that was given back twice or is used afterwards, two threads inside one communicator,
  // a communicator or a stream that is used while a call on it goes on, members that disagree, and so on.
  std::string Complaints() const;
  // What was not given back, a line each.
  std::string Leaks() const;

 private:
  friend class FakeNcclDevice;
  const std::unique_ptr<FakeNcclState> state_;
};

// What goes wrong with the `call`-th call of the first thread that uses a device, counted from 1. Polls for one thing
// count once.
struct FakeNcclFault {
  enum class Kind : std::uint8_t {
    kError,   // CUDA fails
    kRemote,  // NCCL says that a remote rank fails
    kNever,   // it is never complete
  };
  Kind kind = Kind::kError;
  std::int64_t call = 1;
};

class FakeNcclDevice : public NcclApi {
 public:
  explicit FakeNcclDevice(FakeNccl* nccl);
  ~FakeNcclDevice() override;

  // Before it is used.
  void Inject(const FakeNcclFault& fault);
  // Called inside each call, with its name.
  void SetHook(std::function<void(const std::string& call)> hook) { hook_ = std::move(hook); }
  void SetRounds(bool rounds) { rounds_ = rounds; }

  // Goes with the real clock, and an hour ahead each time it is looked at after something of this device that never is
  // complete was waited for: so also who begins to look late comes to the end of any limit below that.
  std::chrono::steady_clock::time_point Now() const;

  std::int64_t calls() const;
  // The call with which something went wrong; "": none yet.
  std::string failed_call() const;
  // How often `call` was called.
  std::int64_t Count(const std::string& call) const;

  // Each has one of its own, unless it is given another one's.
  void SetAddress(const std::string& address) { address_ = address; }

  NcclResult UseDevice() override;
  NcclResult Address(std::string* address) override;
  std::string LastError() override { return ""; }
  NcclResult GetUniqueId(NcclUniqueId* id) override;
  NcclResult CommInitRank(NcclComm* comm, int size, const NcclUniqueId& id, int rank) override;
  NcclResult AsyncError(NcclComm comm) override;
  NcclResult CommFinalize(NcclComm comm) override;
  NcclResult CommDestroy(NcclComm comm) override;
  NcclResult CommAbort(NcclComm comm) override;
  NcclResult GroupStart() override;
  NcclResult GroupEnd() override;
  NcclResult Reduce(const void* from, void* to, std::size_t count, NcclElement element, int root, NcclComm comm,
                    NcclStream stream) override;
  NcclResult ReduceScatter(const void* from, void* to, std::size_t count, NcclElement element, NcclComm comm,
                           NcclStream stream) override;
  NcclResult AllGather(const void* from, void* to, std::size_t bytes, NcclComm comm, NcclStream stream) override;
  NcclResult Broadcast(void* values, std::size_t bytes, int root, NcclComm comm, NcclStream stream) override;
  NcclResult Send(const void* from, std::size_t bytes, int peer, NcclComm comm, NcclStream stream) override;
  NcclResult Receive(void* to, std::size_t bytes, int peer, NcclComm comm, NcclStream stream) override;
  NcclResult StreamCreate(NcclStream* stream) override;
  NcclResult StreamDestroy(NcclStream stream) override;
  NcclResult StreamQuery(NcclStream stream) override;
  NcclResult EventCreate(NcclEvent* event) override;
  NcclResult EventDestroy(NcclEvent event) override;
  NcclResult EventRecord(NcclEvent event, NcclStream stream) override;
  NcclResult EventQuery(NcclEvent event) override;
  NcclResult Allocate(void** memory, std::size_t bytes, NcclStream stream) override;
  NcclResult Free(void* memory, NcclStream stream) override;
  bool Rounds() const override { return rounds_; }
  NcclResult Round(const float* from, void* to, std::size_t count, NcclStream stream) override;
  NcclResult Widen(const void* from, float* to, std::size_t count, NcclStream stream) override;

 private:
  enum class Polls : std::uint8_t { kNo, kComm, kStream, kEvent };
  // Whether, and how, this call goes wrong: null, or the fault.
  const FakeNcclFault* Begin(const std::string& call, Polls polls, std::uint64_t handle);
  // A call that gives something: `body` unless it goes wrong.
  NcclResult Give(const std::string& call, const std::function<NcclResult()>& body);
  // A call that gives something back: `body` in any case.
  NcclResult GiveBack(const std::string& call, NcclComm comm, const std::function<void()>& body);
  NcclResult OnComm(const std::string& call, NcclComm comm, const std::function<NcclResult()>& body);

  FakeNcclState* const state_;
  const int number_;
  std::function<void(const std::string& call)> hook_;
  bool rounds_ = true;
  std::string address_;
  // Under the lock of the state.
  FakeNcclFault fault_;
  bool faulty_ = false;
  std::string failed_call_;
  std::int64_t calls_ = 0;
  std::uint64_t changes_ = 0;  // calls that are no polls
  std::map<std::pair<Polls, std::uint64_t>, std::int64_t> polled_;
  std::map<std::string, std::int64_t> counts_;
  std::set<std::thread::id> threads_;  // that use it
};

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_FAKE_NCCL_H_
