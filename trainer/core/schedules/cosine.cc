#include <algorithm>

#include "trainer/core/schedules/portable_math.h"
#include "trainer/core/schedules/schedules.h"

namespace downpour::core {
namespace {

class Cosine final : public Schedule {
 public:
  Cosine(double least, double rate) : least_(least), rate_(rate) {}

  double RateAt(const SchedulePosition& position) const override {
    const double part = std::min(position.update / position.updates, 1.0);
    // Rounding may take the sum a little below 0.
    return least_ + (rate_ - least_) * std::max(1 + CosineOfPi(part), 0.0) / 2;
  }
  bool spans_job() const override { return true; }

 private:
  double least_;
  double rate_;
};

}  // namespace

std::unique_ptr<Schedule> CreateCosineSchedule(const v1::ScheduleConfig& config, double learning_rate) {
  return std::make_unique<Cosine>(config.eta_min(), learning_rate);
}

}  // namespace downpour::core
