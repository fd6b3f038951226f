#ifndef DOWNPOUR_TRAINER_CORE_WAITING_CALLS_H_
#define DOWNPOUR_TRAINER_CORE_WAITING_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "absl/functional/function_ref.h"
#include "trainer/core/frame.h"

namespace downpour::core {

// Calls of workers that cannot be carried out yet, by session: pushes of one update, for the verdict on it, and pulls
// that begin an update, until the mode lets them. It knows nothing of what they ask for: whoever has it carries out, or
// refuses, the calls that it hands back, each once. Not thread-safe.
class WaitingCalls {
 public:
  struct Call {
    std::uint64_t call = 0;     // named by the shell
    std::vector<Frame> frames;  // of one session, at least one
  };
  // What a worker says of all its pushes of one update.
  struct Decision {
    Verdict verdict = Verdict::kPending;
    float factor = 1;
    double loss = 0;
  };

  // Pushes wait with payloads of at most so many bytes together.
  explicit WaitingCalls(std::size_t pushed_bytes_limit) : pushed_bytes_limit_(pushed_bytes_limit) {}

  // ---- pushes
  // The newest verdict of the session, if it is on this update.
  std::optional<Decision> DecisionOn(std::uint64_t session, const UpdateId& update) const;
  // `call` has pushes of one update, without a verdict. Those of an earlier update are given up: they are appended to
  // `superseded`. False: the limit is reached; `call` is as it was.
  bool HoldPushes(Call& call, std::vector<Call>* superseded);
  // The verdict is known; the calls that waited for it, in the order in which they came.
  std::vector<Call> Decide(std::uint64_t session, const UpdateId& update, const Decision& decision);
  // Payloads of the pushes that wait.
  std::size_t pushed_bytes() const { return pushed_bytes_; }

  // ---- pulls
  // `call` has pulls. Earlier ones for one of its slices are given up, and returned: whoever asks again for a slice has
  // given up the call before, which would only be answered too.
  std::vector<Call> HoldPulls(Call call);
  // Those that wait no more: `over` says so of each, in the order of their sessions.
  std::vector<Call> TakePulls(absl::FunctionRef<bool(const std::vector<Frame>& pulls)> over);

  // ---- the end
  // All that waits of the session, which is over: its pushes, then its pulls.
  std::vector<Call> End(std::uint64_t session);
  // Likewise of every session.
  std::vector<Call> EndAll();

 private:
  struct Session {
    std::optional<UpdateId> pushed;  // by the calls that wait
    std::vector<Call> pushes;
    std::size_t pushed_bytes = 0;
    std::optional<UpdateId> decided;  // by the newest verdict
    Decision decision;
    std::vector<Call> pulls;  // each slice is in one of them at most
  };
  std::vector<Call> TakePushes(Session& session);
  void TakeAll(Session& session, std::vector<Call>* calls);

  std::size_t pushed_bytes_limit_;
  std::size_t pushed_bytes_ = 0;
  std::size_t waiting_pulls_ = 0;  // calls
  std::map<std::uint64_t, Session> sessions_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_WAITING_CALLS_H_
