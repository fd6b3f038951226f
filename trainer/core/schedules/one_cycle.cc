#include <algorithm>

#include "trainer/core/schedules/portable_math.h"
#include "trainer/core/schedules/schedules.h"

namespace downpour::core {
namespace {

double Between(double from, double to, double part) {
  return to + (from - to) / 2 * (CosineOfPi(std::min(part, 1.0)) + 1);
}

class OneCycle final : public Schedule {
 public:
  OneCycle(const v1::ScheduleConfig& config, double rate)
      : up_(config.pct_start()),
        most_(rate),
        first_(rate / config.div_factor()),
        last_(first_ / config.final_div_factor()) {}

  double RateAt(const SchedulePosition& position) const override {
    const double top = up_ * position.updates - 1;
    if (position.update < top) return Between(first_, most_, position.update / top);
    return Between(most_, last_, (position.update - top) / (position.updates - 1 - top));
  }
  bool spans_job() const override { return true; }

 private:
  double up_;
  double most_;
  double first_;
  double last_;
};

}  // namespace

std::unique_ptr<Schedule> CreateOneCycleSchedule(const v1::ScheduleConfig& config, double learning_rate) {
  return std::make_unique<OneCycle>(config, learning_rate);
}

}  // namespace downpour::core
