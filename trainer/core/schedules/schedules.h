#ifndef DOWNPOUR_TRAINER_CORE_SCHEDULES_SCHEDULES_H_
#define DOWNPOUR_TRAINER_CORE_SCHEDULES_SCHEDULES_H_

#include <memory>

#include "downpour/v1/config.pb.h"
#include "trainer/core/schedule.h"

// What CreateSchedule chooses from: a file for each. r is the learning rate, u the updates before, T those of the job,
// e the dataset epochs before, with the part of the one at hand.
namespace downpour::core {

// r
std::unique_ptr<Schedule> CreateConstantSchedule(double learning_rate);

// r gamma^floor(u / k), or with epochs r gamma^floor(e / k): torch.optim.lr_scheduler.StepLR, where a step of it is an
// update or an epoch.
std::unique_ptr<Schedule> CreateStepSchedule(const v1::ScheduleConfig& config, double learning_rate);

// r gamma^(u / k), or with epochs r gamma^(e / k): keras.optimizers.schedules.ExponentialDecay, and where u / k or e /
// k is whole torch.optim.lr_scheduler.ExponentialLR.
std::unique_ptr<Schedule> CreateExponentialSchedule(const v1::ScheduleConfig& config, double learning_rate);

// eta_min + (r - eta_min) (1 + cos(pi u / T)) / 2: Loshchilov and Hutter 2017, "SGDR", eq. 5, without restarts;
// torch.optim.lr_scheduler.CosineAnnealingLR with T_max = T.
std::unique_ptr<Schedule> CreateCosineSchedule(const v1::ScheduleConfig& config, double learning_rate);

// From r / div_factor up to r at the update pct_start T - 1, then down to r / div_factor / final_div_factor at the
// update T - 1, each by half a cosine: Smith and Topin 2018, "Super-Convergence", as
// torch.optim.lr_scheduler.OneCycleLR has it with anneal_strategy "cos" and three_phase False. The momentum stays.
std::unique_ptr<Schedule> CreateOneCycleSchedule(const v1::ScheduleConfig& config, double learning_rate);

// For the first W updates the rate of `schedule` times from + (1 - from) u / W: torch.optim.lr_scheduler.LinearLR with
// start_factor = from; Goyal et al. 2017, section 2.2. Schedules that span the job begin behind it, as with torch's
// SequentialLR; the others count from the beginning of the job, as with its ChainedScheduler, so that what is to
// happen at an epoch or an update happens there.
std::unique_ptr<Schedule> CreateWarmUp(const v1::WarmUpConfig& config, std::unique_ptr<Schedule> schedule);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_SCHEDULES_SCHEDULES_H_
