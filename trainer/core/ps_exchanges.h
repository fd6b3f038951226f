#ifndef DOWNPOUR_TRAINER_CORE_PS_EXCHANGES_H_
#define DOWNPOUR_TRAINER_CORE_PS_EXCHANGES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/time/time.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/frame.h"
#include "trainer/core/time.h"

namespace downpour::core {

// One message to a ps, to be answered with a frame for each of its frames.
struct ExchangeCall {
  std::uint64_t call = 0;
  std::uint32_t ps = 0;
  std::string address;
  std::vector<Frame> frames;
  absl::Duration deadline;
};

// The exchanges of a worker with the ps: how frames become messages, which messages are under way, and when a ps that
// failed is tried again. It knows nothing of what the frames are about. Not thread-safe.
class PsExchanges {
 public:
  struct Options {
    absl::Duration deadline;
    std::size_t payload_bytes = 0;  // of one message, which has one frame at least; see FitsMessage
    int in_flight = 1;              // messages to one ps
  };
  enum class Kind { kPull, kPush, kInitialise };
  // One that is under way.
  struct Exchange {
    Kind kind = Kind::kPull;
    std::uint32_t ps = 0;
    std::uint64_t token = 0;            // of the update that it was sent for
    std::vector<std::uint32_t> slices;  // of its frames, in order; none: of one frame that is about no slice
  };
  // A frame to be sent.
  struct Part {
    std::uint32_t slice = 0;
    std::size_t bytes = 0;  // payload there or back, at most
  };

  explicit PsExchanges(const Options& options) : options_(options) {}

  // Which ps there are from now on. Those that are gone; what was on its way to them is forgotten. One that is there
  // under the number of another is another.
  std::set<std::uint32_t> SetView(const v1::View& view);
  // Forgets all that is under way, and how the ps fared.
  void Clear();

  // When the ps is tried again, if it is later than now.
  Time retry_at(std::uint32_t ps) const;
  // Sends as many of the parts as the ps may have now, in as few messages as can be; `make` makes the frame of one. To
  // be called at retry_at() or later.
  void Send(Kind kind, std::uint32_t ps, std::uint64_t token, const std::vector<Part>& parts,
            absl::FunctionRef<Frame(std::uint32_t slice)> make, std::vector<ExchangeCall>* calls);
  // A frame about no slice, however many are under way.
  void SendOne(Kind kind, std::uint32_t ps, std::uint64_t token, Frame frame, std::vector<ExchangeCall>* calls);

  // It is answered, or failed. nullopt: nobody waits for it any more.
  std::optional<Exchange> End(std::uint64_t call);
  // How that went: something is to be tried again, after a while that becomes longer each time, or all is well.
  void BackOff(std::uint32_t ps, Time now);
  void Succeed(std::uint32_t ps) { links_[ps].backoff = absl::ZeroDuration(); }
  // Nobody waits any more for those of the kind and the update; their slices.
  std::vector<std::uint32_t> GiveUp(Kind kind, std::uint64_t token);

 private:
  struct Member {
    std::string address;
    std::uint64_t session = 0;
  };
  struct Link {
    int in_flight = 0;
    Time retry_at = absl::ZeroDuration();
    absl::Duration backoff = absl::ZeroDuration();
  };
  void Begin(Exchange exchange, std::vector<Frame> frames, std::vector<ExchangeCall>* calls);

  Options options_;
  std::map<std::uint32_t, Member> members_;
  std::map<std::uint32_t, Link> links_;
  std::map<std::uint64_t, Exchange> under_way_;
  std::uint64_t next_call_ = 1;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_PS_EXCHANGES_H_
