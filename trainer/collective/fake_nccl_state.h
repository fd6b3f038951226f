#ifndef DOWNPOUR_TRAINER_COLLECTIVE_FAKE_NCCL_STATE_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_FAKE_NCCL_STATE_H_

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "trainer/collective/nccl_api.h"

// The inside of FakeNccl: communicators, streams, and what is done on them.
namespace downpour::collective {

struct FakePart {
  enum class Kind : std::uint8_t { kReduce, kReduceScatter, kAllGather, kBroadcast, kSend, kReceive };
  Kind kind = Kind::kReduce;
  const char* from = nullptr;
  char* to = nullptr;
  std::size_t count = 0;  // of elements where they are added, else of bytes
  NcclElement element = NcclElement::kFloat32;
  int peer = 0;  // or root
  bool done = false;

  bool message() const { return kind == Kind::kSend || kind == Kind::kReceive; }
};

// What a stream does as one: parts of NCCL, or something of its own.
struct FakeLaunch {
  NcclComm comm = NcclComm::kNone;
  std::vector<FakePart> parts;
  std::function<void()> local;
};

struct FakeStream {
  int device = 0;
  std::deque<FakeLaunch> launches;
  std::uint64_t put = 0;
  std::uint64_t done = 0;
  int polls = 0;
  bool stuck = false;
};

struct FakeEvent {
  int device = 0;
  NcclStream stream = NcclStream::kNone;  // none: not recorded
  std::uint64_t at = 0;
  int polls = 0;
  bool stuck = false;
};

struct FakeComm {
  enum class Phase : std::uint8_t { kForming, kReady, kFinalizing, kFinalized };
  int device = 0;
  std::string clique;
  int rank = 0;
  Phase phase = Phase::kForming;
  bool putting = false;  // `next` is not on its stream yet
  FakeLaunch next;
  NcclStream next_stream = NcclStream::kNone;
  int polls = 0;
  bool stuck = false;
  NcclResult error = NcclResult::kSuccess;
  int inside = 0;  // threads
};

// The communicators of one unique id.
struct FakeClique {
  std::vector<NcclComm> comms;  // by rank; none: has not come
  std::vector<bool> gone;       // by rank
};

// The group of calls of a thread.
struct FakeGroup {
  int depth = 0;
  NcclComm comm = NcclComm::kNone;
  NcclStream stream = NcclStream::kNone;
  std::vector<FakePart> parts;
};

// Everything with the lock held.
struct FakeNcclState {
  // How often something that is never complete is asked for before the clock goes on.
  static constexpr int kStuckPolls = 3;

  explicit FakeNcclState(std::uint64_t seed) : random(seed) {}

  mutable std::mutex mutex;
  std::mt19937_64 random;
  std::uint64_t next = 1;  // handle
  int devices = 0;
  std::map<int, int> stuck_polls;  // by device, since it was told anything and its clock went on
  std::map<int, int> ahead;        // by device, in hours
  std::string complaints;
  std::map<NcclComm, FakeComm> comms;
  std::map<NcclStream, FakeStream> streams;
  std::map<NcclEvent, FakeEvent> events;
  std::map<std::string, FakeClique> cliques;
  std::map<std::thread::id, FakeGroup> groups;
  std::map<void*, std::size_t> memory;

  void Complain(int device, const std::string& what);
  int Polls() { return static_cast<int>(random() % 3); }
  // Of something that is never complete.
  NcclResult PollStuck(int device);
  // By which a device's clock is before the real one.
  int HoursAhead(int device);
  // True once `polls` were asked for.
  static bool Polled(int* polls) { return (*polls)-- <= 0; }

  NcclResult PollComm(FakeComm* comm);
  NcclResult Put(int device, const FakePart& part, NcclComm comm, NcclStream stream);
  NcclResult EndGroup(int device, FakeGroup group);
  NcclResult PutLocal(int device, NcclStream stream, std::function<void()> local);
  // It is over with a communicator. `aborted`: not all is done.
  void Remove(NcclComm comm, bool aborted);
  // Does what can be done.
  void Advance();

 private:
  bool AdvanceStream(FakeStream* stream);
  bool AdvanceClique(const FakeClique& clique);
  bool AdvanceMessages(const FakeClique& clique);
  // What of a communicator is at the front of a stream, not done and as `wanted`.
  FakePart* Front(NcclComm comm, const std::function<bool(const FakePart&)>& wanted);
};

// `parts` by rank.
void ExecuteTogether(const std::vector<FakePart*>& parts);

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_FAKE_NCCL_STATE_H_
