#ifndef DOWNPOUR_TRAINER_COLLECTIVE_FAKE_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_FAKE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trainer/collective/collective.h"

// Groups inside one process, for tests and simulations: among threads, or of one thread that plays all members.
namespace downpour::collective {

// What goes wrong when a rank starts its `call`-th operation, counted from 1 over all groups of the network.
struct Fault {
  enum class Kind : std::uint8_t {
    kFail,      // a connection of the rank breaks: kUnavailable here, and for the others
    kLosePeer,  // `peer` is lost to all
    kDeadline,  // the operation is never complete: a Wait for it returns kDeadlineExceeded at once
    kAbort,     // as if the rank had called Abort just before
  };
  Kind kind = Kind::kFail;
  int rank = 0;
  std::int64_t call = 1;
  int peer = 0;
};

// Members that reach each other. The same calls in the same order give the same results. Thread-safe; outlives all that
// came from it.
class FakeNetwork {
 public:
  enum class Waiting : std::uint8_t {
    kBlocks,  // among threads
    kNever,   // for one thread: what is not complete when it is waited for has exceeded its deadline
  };
  explicit FakeNetwork(Waiting waiting = Waiting::kBlocks);
  ~FakeNetwork();

  void Inject(const Fault& fault);

  // A member with a rendezvous of its own; it is reached at "fake:PORT".
  std::unique_ptr<Member> NewMember();

  // All ends of a new group, by rank.
  std::vector<std::unique_ptr<Collective>> NewGroup(const std::string& view, int size);

 private:
  friend class FakeMember;
  friend class FakeCollective;
  struct State;
  const std::unique_ptr<State> state_;
};

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_FAKE_H_
