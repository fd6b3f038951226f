#ifndef DOWNPOUR_TRAINER_COLLECTIVE_NCCL_NOTES_H_
#define DOWNPOUR_TRAINER_COLLECTIVE_NCCL_NOTES_H_

#include <chrono>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "trainer/collective/nccl_order.h"
#include "trainer/collective/socket.h"

namespace downpour::collective {

// What the members of a group whose values travel by NCCL tell each other beside it.
struct NcclNote {
  enum class Type : std::uint8_t {
    kStarted = 1,  // to rank 0: this operation was started
    kTurn,         // from rank 0: this operation goes to the device now
    kDisagree,     // from rank 0: the members disagree, and this is what one of them does
    kMissing,      // from rank 0: this operation needs a rank that has left
    kGoodbye,      // to rank 0: all that was started here is complete, and nothing more is started
    kAllLeft,      // from rank 0: all have said that
  };
  Type type = Type::kStarted;
  OperationShape shape;
};

// What came from a rank: a note, or why there will be none any more.
struct NcclHeard {
  int from = 0;
  std::optional<NcclNote> note;
  std::string lost;
};

// One member's connections to all others. Of one thread, but for Wake.
class NcclNotes {
 public:
  // By rank, none to itself. `wake`: an eventfd.
  NcclNotes(std::vector<Socket> peers, Socket wake);

  int size() const { return static_cast<int>(peers_.size()); }
  const Socket& socket(int rank) const { return peers_[static_cast<std::size_t>(rank)].socket; }

  void Send(int to, const NcclNote& note);
  // Sends and hears what there is, and waits for more for as long as that is nothing; negative: without end.
  void Exchange(std::chrono::microseconds wait);
  // The next that was heard. After a rank is lost nothing comes from it.
  std::optional<NcclHeard> Take();
  // Ends an Exchange that waits, or the next. From any thread.
  void Wake();
  // The others notice that. What was sent may not get there.
  void Close();

 private:
  struct Peer {
    Socket socket;
    std::string out, in;
  };

  void Flush(int rank);
  void Hear(int rank);
  void Lose(int rank, const std::string& why);

  std::vector<Peer> peers_;
  const Socket wake_;
  std::deque<NcclHeard> heard_;
};

}  // namespace downpour::collective

#endif  // DOWNPOUR_TRAINER_COLLECTIVE_NCCL_NOTES_H_
