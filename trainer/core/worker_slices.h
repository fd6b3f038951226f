#ifndef DOWNPOUR_TRAINER_CORE_WORKER_SLICES_H_
#define DOWNPOUR_TRAINER_CORE_WORKER_SLICES_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <vector>

#include "absl/functional/function_ref.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/layout.h"
#include "trainer/core/ps_exchanges.h"
#include "trainer/core/step_id.h"

namespace downpour::core {

// The slices of the model as a worker exchanges them with the ps: which value it has of each, and how far the gradient
// of the update under way is. The values and gradients themselves are elsewhere. Not thread-safe.
class WorkerSlices {
 public:
  enum class Push { kUnready, kReady, kSent, kDone };
  struct Entry {
    Slice slice;
    bool buffer = false;
    std::uint32_t ps = 0;
    bool fresh = false;  // its value came after this worker's newest update on it
    bool pull_in_flight = false;
    bool initial_in_flight = false;
    bool initial_done = false;
    std::uint64_t version = 0;           // of the value held, and one for each update of its own since
    std::uint64_t clock = 0;             // of this session, as the slice knew it then
    std::optional<StepId> value_of;      // the step that the value held is for
    StepId step;                         // that the slice was at when it answered last
    std::uint64_t computed_version = 0;  // of the value that the current gradient was computed with
    Push push = Push::kUnready;
    bool maybe_applied = false;  // a push of the current update may have been carried out, but its answer was lost
  };

  std::uint32_t size() const { return static_cast<std::uint32_t>(entries_.size()); }
  Entry& operator[](std::uint32_t number) { return entries_[number]; }
  const Entry& operator[](std::uint32_t number) const { return entries_[number]; }

  // ---- the view
  // Of a history that begins: of its tensors, one for each placement of its layout.
  void Begin(const std::vector<Slice>& slices, const v1::View& view);
  // Nothing is under way any more, and what is held is as good as nothing.
  void Drop();
  // Another view of the history; `gone`: ps that are not there any more. What was on its way to a ps that has the slice
  // no more is to be sent again.
  void Reroute(const v1::View& view, const std::set<std::uint32_t>& gone);

  // ---- values
  void InitialiseAgain();
  // New values are wanted: of all; where the ps knew of less than `clock` updates of this session; and where what is
  // held is not for the step.
  void Renew();
  void RenewBehind(std::uint64_t clock);
  void RenewAllBut(const StepId& step);
  bool fresh() const;
  // The first step that is not over on every slice, as far as the slices have said.
  StepId first_step() const;

  // ---- gradients
  // It computes with the values held.
  void BeginUpdate();
  // Those of the tensor may be sent. Bytes of all that may and are not.
  std::size_t SetReady(std::uint32_t tensor);
  void SetAllReady();
  bool sent() const;  // all of them, or done
  bool done() const;  // every push is acknowledged
  // A push of the update is not acknowledged, and the ps may have carried it out.
  bool MayBeApplied(std::uint32_t number) const;

  // ---- exchanges
  // The slices of which `wanted` says so, by ps.
  std::map<std::uint32_t, std::vector<PsExchanges::Part>> Parts(
      absl::FunctionRef<bool(const Entry& entry)> wanted) const;
  // An exchange about it was not answered. `current`: it was for the work under way.
  void OnLost(std::uint32_t number, PsExchanges::Kind kind, bool current);

 private:
  // What becomes of a push that was on its way nobody will hear.
  static void PushAgain(Entry& entry);

  std::vector<Entry> entries_;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_WORKER_SLICES_H_
