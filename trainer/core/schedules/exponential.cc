#include <cstdint>

#include "trainer/core/schedules/portable_math.h"
#include "trainer/core/schedules/schedules.h"

namespace downpour::core {
namespace {

class Exponential final : public Schedule {
 public:
  Exponential(const v1::ScheduleConfig& config, double rate)
      : rate_(rate), gamma_(config.gamma()), updates_(config.every_updates()), epochs_(config.every_epochs()) {}

  double RateAt(const SchedulePosition& position) const override {
    const double exponent = updates_ != 0 ? position.update / static_cast<double>(updates_)
                                          : (position.epoch + position.part_of_epoch) / epochs_;
    return rate_ * Power(gamma_, exponent);
  }

 private:
  double rate_;
  double gamma_;
  std::uint64_t updates_;
  std::uint32_t epochs_;
};

}  // namespace

std::unique_ptr<Schedule> CreateExponentialSchedule(const v1::ScheduleConfig& config, double learning_rate) {
  return std::make_unique<Exponential>(config, learning_rate);
}

}  // namespace downpour::core
