#include "trainer/core/worker_meter.h"

namespace downpour::core {
namespace {

constexpr absl::Duration kRateWindow = absl::Seconds(1);
constexpr absl::Duration kLongestRateWindow = absl::Minutes(1);
constexpr std::uint64_t kUpdatesOfRate = 2;  // fewer say nothing about how fast it is

// A mean over about the newest 20 values.
double Smooth(double mean, double value, bool first) { return first ? value : mean + 0.05 * (value - mean); }

}  // namespace

void WorkerMeter::OnPulled(absl::Duration took) {
  stats_.set_pull_seconds(Smooth(stats_.pull_seconds(), absl::ToDoubleSeconds(took), stats_.steps() == 0));
}

void WorkerMeter::OnPush(std::uint64_t bytes, std::uint64_t elements_bytes) {
  stats_.set_push_bytes(stats_.push_bytes() + bytes);
  stats_.set_push_bytes_saved(stats_.push_bytes_saved() + elements_bytes - bytes);
}

void WorkerMeter::OnStaleness(double staleness) { stats_.set_staleness(Smooth(stats_.staleness(), staleness, false)); }

void WorkerMeter::OnUpdate(const ComputeResult& computed, bool trained, absl::Duration push_took) {
  const bool first = stats_.steps() == 0;
  stats_.set_steps(stats_.steps() + 1);
  if (trained) {
    stats_.set_samples(stats_.samples() + computed.samples);
  } else {
    stats_.set_duplicates(stats_.duplicates() + 1);
  }
  if (computed.verdict == Verdict::kSkip) {
    stats_.set_skipped(stats_.skipped() + 1);
  } else {
    stats_.set_loss(Smooth(stats_.loss(), computed.loss, !stats_.has_loss()));
  }
  stats_.set_data_seconds(Smooth(stats_.data_seconds(), computed.data_seconds, first));
  stats_.set_forward_seconds(Smooth(stats_.forward_seconds(), computed.forward_seconds, first));
  stats_.set_backward_seconds(Smooth(stats_.backward_seconds(), computed.backward_seconds, first));
  stats_.set_push_seconds(Smooth(stats_.push_seconds(), absl::ToDoubleSeconds(push_took), first));
  stats_.set_step_seconds(stats_.data_seconds() + stats_.pull_seconds() + stats_.forward_seconds() +
                          stats_.backward_seconds() + stats_.push_seconds());
}

void WorkerMeter::UpdateRate(Time now, bool training) {
  const Time window = now - rate_since_;
  if (window < kRateWindow) return;
  if (stats_.steps() - rate_steps_ >= kUpdatesOfRate) {
    stats_.set_samples_per_second(static_cast<double>(stats_.samples() - rate_samples_) /
                                  absl::ToDoubleSeconds(window));
  } else if (!training) {
    stats_.clear_samples_per_second();
  } else {
    // An update that takes longer than the window is part of it.
    if (window >= kLongestRateWindow) stats_.clear_samples_per_second();
    return;
  }
  rate_since_ = now;
  rate_samples_ = stats_.samples();
  rate_steps_ = stats_.steps();
}

absl::Duration WorkerMeter::update_time() const {
  return absl::Seconds(stats_.data_seconds() + stats_.forward_seconds() + stats_.backward_seconds());
}

}  // namespace downpour::core
