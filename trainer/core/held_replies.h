#ifndef DOWNPOUR_TRAINER_CORE_HELD_REPLIES_H_
#define DOWNPOUR_TRAINER_CORE_HELD_REPLIES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "trainer/core/frame.h"

namespace downpour::core {

// The answers to one exchange of the data plane.
struct DataReply {
  std::uint64_t call = 0;     // named by the shell
  std::vector<Frame> frames;  // one for each frame of the request, in order
};

// Answers that say something which the standbys of their slices do not hold yet: nobody hears it before. Not
// thread-safe.
class HeldReplies {
 public:
  // By slice, the record that has to be held.
  using Needs = std::map<std::uint32_t, std::uint64_t>;

  // `needs` must not be empty.
  void Add(DataReply reply, Needs needs);
  // Records of the slice up to `held` are there: appends what waits for nothing else.
  void Release(std::uint32_t slice, std::uint64_t held, std::vector<DataReply>* replies);
  // The slice is not here any more: what waits for it is denied.
  void Deny(std::uint32_t slice, ReplyStatus status, std::vector<DataReply>* replies);
  void DenyAll(ReplyStatus status, std::vector<DataReply>* replies);
  std::size_t size() const { return held_.size(); }

 private:
  struct Held {
    DataReply reply;
    Needs needs;
  };
  void Settle(std::uint64_t id, std::uint32_t slice, std::vector<DataReply>* replies);

  std::map<std::uint64_t, Held> held_;                                            // in the order in which they came
  std::map<std::uint32_t, std::multimap<std::uint64_t, std::uint64_t>> waiting_;  // by slice and record
  std::uint64_t next_ = 1;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_HELD_REPLIES_H_
