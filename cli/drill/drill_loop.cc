#include "cli/drill/drill_loop.h"

#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/render/format.h"

namespace downpour::cli {
namespace {

constexpr double kLedgerInterval = 1;
constexpr char kFailed[] = "Failed";
constexpr char kLost[] = "Lost";

bool Passes(const absl::Status& status) { return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status); }

class Drill {
 public:
  Drill(const DrillOptions& options, std::uint64_t seed, const DrillParts& parts)
      : options_(options), parts_(parts), random_(seed) {}

  DrillVerdict Run() {
    state_.start = answered_ = parts_.clock.Now();
    while (!Step()) {
      if (!parts_.sleep(parts_.look_interval)) {
        ending_.stopped = true;
        break;
      }
    }
    parts_.target.LetGoOn();
    ReadLedger();
    parts_.out << DrillReport(state_, ending_) << std::flush;
    return JudgeDrill(state_, ending_);
  }

 private:
  // True: it is over.
  bool Step() {
    const absl::StatusOr<DrillLook> look = TakeALook();
    if (!look.ok()) {
      if (absl::IsCancelled(look.status())) return false;  // the user asks to stop
      if (Passes(look.status()) && parts_.clock.Now() <= answered_ + parts_.silence_limit) return false;
      return Fail(std::string(look.status().message()));
    }
    DrillDecision decision = DecideDrill(options_, state_, *look, &random_);
    switch (decision.step) {
      case DrillStep::kWait:
        return false;
      case DrillStep::kKill:
        return Break(decision.attack);
      case DrillStep::kLetGoOn:
        parts_.target.LetGoOn();
        state_.kills.back().let_go = parts_.clock.Now();
        Tell(absl::StrCat(state_.kills.back().attack.what(), " goes on"));
        return false;
      case DrillStep::kEnd:
        break;
    }
    ending_.reason = std::move(decision.reason);
    ending_.failed =
        look->outcome.empty() ? !ending_.reason.empty() : look->outcome == kFailed || look->outcome == kLost;
    return true;
  }

  absl::StatusOr<DrillLook> TakeALook() {
    absl::StatusOr<DrillLook> look = parts_.target.Look();
    if (!look.ok()) return look;
    answered_ = parts_.clock.Now();
    for (const std::string& line : TakeLook(*look, &state_)) Tell(line);
    ending_.job_over = !look->outcome.empty();
    return look;
  }

  bool Break(const DrillAttack& attack) {
    const double time = parts_.clock.Now();
    const absl::Status status = parts_.target.Break(attack);
    if (absl::IsNotFound(status)) return false;  // another is chosen
    if (absl::IsCancelled(status)) return false;
    if (!status.ok()) return Fail(absl::StrCat(attack.what(), ": ", status.message()));
    NoteKill(attack, time, &state_);
    Tell(options_.pause ? absl::StrCat("stopped ", attack.what(), " for ", FormatDuration(options_.stop_for))
                        : absl::StrCat("killed ", attack.what()));
    return false;
  }

  bool Fail(std::string reason) {
    ending_.reason = std::move(reason);
    ending_.failed = true;
    return true;
  }

  // Who is being replaced says nothing, or something of another generation, for a while.
  void ReadLedger() {
    const double limit = parts_.clock.Now() + parts_.ledger_patience;
    while (true) {
      ending_.ledger = parts_.target.ReadLedger(ending_.job_over);
      if (ending_.ledger.ok() || absl::IsDataLoss(ending_.ledger.status()) || ending_.job_over) return;
      if (parts_.clock.Now() >= limit || !parts_.sleep(kLedgerInterval)) return;
      static_cast<void>(TakeALook());  // the job may have ended, and its parameter servers with it
    }
  }

  void Tell(const std::string& line) {
    parts_.out << absl::StrFormat("[%8.2f s] ", parts_.clock.Now() - state_.start) << CleanText(line) << std::endl;
  }

  const DrillOptions& options_;
  const DrillParts& parts_;
  std::mt19937_64 random_;
  DrillState state_;
  DrillEnding ending_;
  double answered_ = 0;
};

}  // namespace

DrillVerdict RunDrill(const DrillOptions& options, std::uint64_t seed, const DrillParts& parts) {
  return Drill(options, seed, parts).Run();
}

}  // namespace downpour::cli
