#include "operator/controller/questions.h"

#include <algorithm>

namespace downpour::controller {
namespace {

constexpr double kAnswerSlackSeconds = 5;  // from when a coordinator is to be asked until its answer is there

}  // namespace

absl::Duration Questions::Look(const PaceOptions& options, const Load& load, const Pods& pods,
                               const planner::Observed& observed, bool watched, double now) {
  bool at_rest =
      !watched && observed.report.has_value() && observed.report->phase == planner::CoordinatorPhase::kTraining;
  bool ended = false;
  coordinator_ = nullptr;
  for (std::size_t i = 0; i < pods.size(); ++i) {
    const Pod& pod = *pods[i];
    const bool coordinates = pod.role == api::Role::kCoordinator;
    at_rest = at_rest && pod.phase == "Running" && (coordinates || observed.instances[i].ready);
    ended = ended || HasEnded(pod);
    if (coordinates && coordinator_ == nullptr && pod.phase == "Running" && !pod.address.empty()) {
      coordinator_ = pods[i];
    }
  }
  asked_since_ = asked_since_ == 0 ? now : std::min(now, asked_since_);  // a clock may have been ahead
  moves_ = coordinator_ != nullptr && !at_rest;
  if (coordinator_ == nullptr) return absl::InfiniteDuration();
  absl::Duration ask;
  if (moves_) {
    // Those that move share the turns of those that do so too, and none is asked less often than a job at rest.
    ask = std::clamp(options.ask_spacing * load.moving, options.ask_interval,
                     ended ? options.ask_interval_after_end : options.ask_interval_at_rest);
  } else {
    ask = Stretched(options.ask_interval_at_rest, options.ask_spacing, load.jobs);
  }
  if (asked_uid_ != coordinator_->meta.uid || 2 * ask < ask_) {
    asked_uid_ = coordinator_->meta.uid;
    asked_since_ = now;
    ask_ = ask;
  }
  ask_ = std::max(ask_, ask);
  return ask;
}

double Questions::AnswerDue(const PaceOptions& options, const planner::Observed& observed, double now) const {
  const double heard = observed.report.has_value() ? std::min(now, observed.report->received_time) : 0;
  // Twice: a question that was due after a longer time may just have been put off.
  return std::max(heard, asked_since_) + 2 * absl::ToDoubleSeconds(std::max(ask_, options.ask_interval_after_end)) +
         kAnswerSlackSeconds;
}

}  // namespace downpour::controller
