#include <algorithm>
#include <cmath>
#include <utility>

#include "trainer/core/schedules/schedules.h"

namespace downpour::core {
namespace {

class WarmUp final : public Schedule {
 public:
  WarmUp(const v1::WarmUpConfig& config, std::unique_ptr<Schedule> schedule)
      : updates_(static_cast<double>(config.updates())),
        fraction_(config.fraction()),
        from_(config.from()),
        schedule_(std::move(schedule)) {}

  double RateAt(const SchedulePosition& position) const override {
    const double end = updates_ > 0 ? updates_ : std::floor(fraction_ * position.updates);
    SchedulePosition behind = position;
    if (schedule_->spans_job()) {
      behind.update = std::max(position.update - end, 0.0);
      behind.updates = std::max(position.updates - end, 1.0);
    }
    const double factor = position.update < end ? from_ + (1 - from_) * position.update / end : 1;
    return factor * schedule_->RateAt(behind);
  }
  bool spans_job() const override { return schedule_->spans_job(); }

 private:
  double updates_;
  double fraction_;
  double from_;
  std::unique_ptr<Schedule> schedule_;
};

}  // namespace

std::unique_ptr<Schedule> CreateWarmUp(const v1::WarmUpConfig& config, std::unique_ptr<Schedule> schedule) {
  return std::make_unique<WarmUp>(config, std::move(schedule));
}

}  // namespace downpour::core
