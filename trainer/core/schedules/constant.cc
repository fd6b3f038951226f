#include "trainer/core/schedules/schedules.h"

namespace downpour::core {
namespace {

class Constant final : public Schedule {
 public:
  explicit Constant(double rate) : rate_(rate) {}
  double RateAt(const SchedulePosition& /*position*/) const override { return rate_; }

 private:
  double rate_;
};

}  // namespace

std::unique_ptr<Schedule> CreateConstantSchedule(double learning_rate) {
  return std::make_unique<Constant>(learning_rate);
}

}  // namespace downpour::core
