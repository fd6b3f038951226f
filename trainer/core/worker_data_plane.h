#ifndef DOWNPOUR_TRAINER_CORE_WORKER_DATA_PLANE_H_
#define DOWNPOUR_TRAINER_CORE_WORKER_DATA_PLANE_H_

#include <algorithm>
#include <cstdint>
#include <optional>
#include <set>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/codec/error_feedback.h"
#include "trainer/core/frame.h"
#include "trainer/core/layout.h"
#include "trainer/core/planted_bug.h"
#include "trainer/core/ps_exchanges.h"
#include "trainer/core/step_id.h"
#include "trainer/core/time.h"
#include "trainer/core/work.h"
#include "trainer/core/worker_meter.h"
#include "trainer/core/worker_slices.h"

namespace downpour::core {

// The work that a worker is about, as its frames say it.
struct WorkUnderWay {
  std::uint64_t token = 0;  // of the work; answers that are about another one are late
  Work work;
  // Of an update: as it is known by now.
  Verdict verdict = Verdict::kPending;
  float factor = 1;
  double loss = 0;
  bool pushing = false;       // it is computed, and its pushes are not all acknowledged
  bool fetches_next = false;  // the next update begins with new values, which may come with the answers to pushes
  bool flushes = false;       // nothing is to be left in residuals
  bool trains() const { return work.kind == v1::TASK_TRAIN; }
};

// What a worker says to the ps and hears from them: initial values, pulls, and pushes with their verdict, each again
// until it is acknowledged; and what the codec has left out of gradients so far. When which of it is due is decided
// elsewhere. Not thread-safe.
class WorkerDataPlane {
 public:
  struct Options {
    JobUid job_uid{};
    PsExchanges::Options exchanges;
    CodecOptions codec;                  // of the gradients of parameters
    GradientEncoder* encoder = nullptr;  // likewise, outlives the data plane; null: one on the host, of that codec
    bool bf16_values = false;            // of the values that it trains with
    PlantedBug bug = PlantedBug::kNone;
  };
  using Calls = std::vector<ExchangeCall>;

  // Both outlive it; the host is called back, the meter is told of what is sent.
  WorkerDataPlane(const Options& options, WorkerHost* host, WorkerMeter* meter);

  // ---- whom it speaks to, and as whom
  void SetSession(std::uint64_t session) { header_.session = session; }
  // A history of these slices begins. What there was must have been dropped.
  void Begin(const v1::View& view, const std::vector<Slice>& slices);
  // Another view of it: what was on its way to ps that do not have the slices any more, or are not there, goes to
  // others.
  void SetView(const v1::View& view);
  // Nothing is under way any more. What of the work may be applied is in no residual then.
  void Drop(const WorkUnderWay& work);

  // ---- to be sent: appends what may leave now; when the rest may, at the latest, or InfiniteDuration
  Time SendInitialValues(Time now, Calls* calls);
  // For the values that are not fresh.
  Time SendPulls(const WorkUnderWay& work, Time now, Calls* calls);
  // Of the gradients that are ready, and the verdict to whoever has not heard it with them.
  Time SendPushes(const WorkUnderWay& work, Time now, Calls* calls);
  // Nobody waits any more for what the work pulls.
  void GiveUpPulls(const WorkUnderWay& work);

  // ---- what becomes of it
  struct Heard {
    bool expected = false;   // the exchange was under way; else nothing has happened
    bool lost = false;       // there is no answer, or it is none
    bool denied = false;     // for a reason that the coordinator knows more of
    absl::Status malformed;  // kInternal: the ps does not understand a frame
  };
  Heard OnReply(std::uint64_t call, const absl::StatusOr<std::vector<Frame>>& reply, const WorkUnderWay& work,
                Time now);

  // It computes with the values held from now on.
  void BeginUpdate();
  // Every push of the update is acknowledged.
  void FinishUpdate() { ++clock_; }
  // The update was applied as this worker pushed it: another execution of it did not come first.
  bool trained() const { return trained_; }
  bool HasResidual() const { return encoder_->HasResidual(); }

  // Which values are fresh, and which gradients are on their way.
  WorkerSlices& slices() { return slices_; }
  const WorkerSlices& slices() const { return slices_; }
  // Updates that the session has finished since Drop, and those that it need not catch up with; see StalenessBound.
  std::uint64_t clock() const { return clock_; }
  // The newest cut heard of.
  std::uint32_t cut() const { return cut_; }
  void HearOfCut(std::uint32_t cut) { cut_ = std::max(cut_, cut); }

 private:
  void TakeView(const v1::View& view);
  FrameHeader MakeHeader(FrameKind kind, std::uint32_t slice = 0) const;
  // Its value stays as it is within a dataset epoch, and is another in the next.
  bool StaysInEpoch(const WorkerSlices::Entry& slice) const { return mode_ == v1::SANDBLASTER && !slice.buffer; }
  // Whether its value may come in bf16: what is evaluated or exported is as the ps has it.
  bool WantsBf16(const WorkUnderWay& work, const WorkerSlices::Entry& slice) const {
    return options_.bf16_values && work.trains() && !slice.buffer;
  }
  // Those slices that are wanted, as far as their ps may have more now; `make` makes the frame of one.
  Time SendParts(PsExchanges::Kind kind, std::uint64_t token, Time now, Calls* calls,
                 absl::FunctionRef<bool(const WorkerSlices::Entry&)> wanted,
                 absl::FunctionRef<Frame(std::uint32_t)> make);
  Frame MakePush(const WorkUnderWay& work, std::uint32_t number);
  // The answer to one frame.
  void TakeAnswer(const PsExchanges::Exchange& call, std::uint32_t number, const Frame& reply, const WorkUnderWay& work,
                  Heard* heard);
  void TakeValue(std::uint32_t number, const Frame& reply);
  // To a push of the work; `valued`: it has a value that does.
  void TakePushAnswer(std::uint32_t number, const FrameHeader& reply, const WorkUnderWay& work, bool valued);

  Options options_;
  WorkerHost* host_;
  WorkerMeter* meter_;
  FrameHeader header_;  // as every frame has it
  v1::Mode mode_ = v1::MODE_UNSPECIFIED;
  std::uint32_t step_width_ = 0;  // of mode SYNCHRONOUS; 0: of another
  WorkerSlices slices_;
  PsExchanges exchanges_;
  std::set<std::uint32_t> verdict_due_;  // ps that pushes went to pending, and nothing with the verdict since
  ErrorFeedback feedback_;               // where the options have no encoder
  GradientEncoder* encoder_;             // of the options, or that
  std::uint64_t clock_ = 0;
  std::uint32_t cut_ = 0;
  bool trained_ = false;
};

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_WORKER_DATA_PLANE_H_
