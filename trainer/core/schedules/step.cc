#include <cstdint>

#include "trainer/core/schedules/portable_math.h"
#include "trainer/core/schedules/schedules.h"

namespace downpour::core {
namespace {

class Step final : public Schedule {
 public:
  Step(const v1::ScheduleConfig& config, double rate)
      : rate_(rate), gamma_(config.gamma()), updates_(config.every_updates()), epochs_(config.every_epochs()) {}

  double RateAt(const SchedulePosition& position) const override {
    const std::uint64_t steps =
        updates_ != 0 ? static_cast<std::uint64_t>(position.update) / updates_ : position.epoch / epochs_;
    return rate_ * WholePower(gamma_, steps);
  }

 private:
  double rate_;
  double gamma_;
  std::uint64_t updates_;
  std::uint32_t epochs_;
};

}  // namespace

std::unique_ptr<Schedule> CreateStepSchedule(const v1::ScheduleConfig& config, double learning_rate) {
  return std::make_unique<Step>(config, learning_rate);
}

}  // namespace downpour::core
