#include "trainer/core/schedule.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/schedules/schedules.h"
#include "trainer/core/step_id.h"

namespace downpour::core {
namespace {

absl::Status CheckWarmUp(const v1::WarmUpConfig& config) {
  if ((config.updates() > 0) == (config.fraction() > 0)) {
    return absl::InvalidArgumentError(absl::StrCat("a warm-up of ", config.updates(), " updates and a fraction of ",
                                                   config.fraction(), ": must be exactly one of both"));
  }
  if (config.fraction() > 1) {
    return absl::InvalidArgumentError(absl::StrCat("warm-up fraction ", config.fraction(), ": must be at most 1"));
  }
  if (config.from() >= 0 && config.from() < 1) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("warm-up from ", config.from(), ": must be at least 0 and below 1"));
}

}  // namespace

// Compared so that what is not a number fails.
absl::Status CheckSchedule(const v1::ScheduleConfig& config) {
  const auto refuse = [](const char* name, double value, const char* expected) {
    return absl::InvalidArgumentError(absl::StrCat("schedule ", name, " ", value, ": must be ", expected));
  };
  const auto positive = [](double value) { return value > 0 && value <= std::numeric_limits<float>::max(); };
  const char* const kPositive = "finite and greater than 0";
  switch (config.type()) {
    case v1::SCHEDULE_CONSTANT:
      break;
    case v1::SCHEDULE_STEP:
    case v1::SCHEDULE_EXPONENTIAL:
      if (!(config.gamma() > 0 && config.gamma() <= 1)) {
        return refuse("gamma", config.gamma(), "greater than 0 and at most 1");
      }
      if ((config.every_updates() > 0) == (config.every_epochs() > 0)) {
        return absl::InvalidArgumentError(absl::StrCat("schedule every ", config.every_updates(), " updates and ",
                                                       config.every_epochs(),
                                                       " epochs: exactly one of both must be greater than 0"));
      }
      break;
    case v1::SCHEDULE_COSINE:
      if (!(config.eta_min() >= 0 && config.eta_min() <= std::numeric_limits<float>::max())) {
        return refuse("eta_min", config.eta_min(), "finite and at least 0");
      }
      break;
    case v1::SCHEDULE_ONE_CYCLE:
      if (!(config.pct_start() >= 0 && config.pct_start() < 1)) {
        return refuse("pct_start", config.pct_start(), "at least 0 and below 1");
      }
      if (!positive(config.div_factor())) return refuse("div_factor", config.div_factor(), kPositive);
      if (!positive(config.final_div_factor())) return refuse("final_div_factor", config.final_div_factor(), kPositive);
      break;
    default:
      return absl::InvalidArgumentError(absl::StrCat("schedule ", static_cast<int>(config.type()), " is not known"));
  }
  return config.has_warm_up() ? CheckWarmUp(config.warm_up()) : absl::OkStatus();
}

std::unique_ptr<Schedule> CreateSchedule(const v1::ScheduleConfig& config, double learning_rate) {
  std::unique_ptr<Schedule> schedule;
  switch (config.type()) {
    case v1::SCHEDULE_STEP:
      schedule = CreateStepSchedule(config, learning_rate);
      break;
    case v1::SCHEDULE_EXPONENTIAL:
      schedule = CreateExponentialSchedule(config, learning_rate);
      break;
    case v1::SCHEDULE_COSINE:
      schedule = CreateCosineSchedule(config, learning_rate);
      break;
    case v1::SCHEDULE_ONE_CYCLE:
      schedule = CreateOneCycleSchedule(config, learning_rate);
      break;
    default:
      schedule = CreateConstantSchedule(learning_rate);
      break;
  }
  return config.has_warm_up() ? CreateWarmUp(config.warm_up(), std::move(schedule)) : std::move(schedule);
}

LearningRate::LearningRate(const v1::ScheduleConfig& schedule, double learning_rate, const DataPlan& plan,
                           std::uint32_t step_width, double scale)
    : schedule_(CreateSchedule(schedule, learning_rate)),
      plan_(plan),
      step_width_(std::max<std::uint32_t>(1, step_width)),
      scale_(scale) {}

double LearningRate::At(const UpdateId& update, double part) const {
  const StepId step = StepOf(update, step_width_);
  const std::uint64_t before = UpdatesBefore(step, step_width_, plan_);
  const std::uint64_t of_epochs = plan_.updates_before(step.dataset_epoch);
  SchedulePosition position;
  position.update = static_cast<double>(before);
  if (part > 0) {
    const StepId next{step.dataset_epoch, step.band, step.group + 1};
    position.update += part * static_cast<double>(UpdatesBefore(next, step_width_, plan_) - before);
  }
  position.updates = static_cast<double>(plan_.updates());
  position.epoch = step.dataset_epoch;
  position.part_of_epoch = (position.update - static_cast<double>(of_epochs)) /
                           static_cast<double>(plan_.updates_in_epoch(step.dataset_epoch));
  return scale_ * schedule_->RateAt(position);
}

}  // namespace downpour::core
