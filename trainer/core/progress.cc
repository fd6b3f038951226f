#include "trainer/core/progress.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"
#include "trainer/core/schedule.h"
#include "trainer/core/step_id.h"

namespace downpour::core {

v1::JobPhase JobPhaseOf(Phase phase, bool again, bool adopting) {
  switch (phase) {
    case Phase::kGathering:
    case Phase::kAwaitingModel:
    case Phase::kSeeking:
    case Phase::kInstalling:
    case Phase::kInitialising:
      return again ? v1::PHASE_RECOVERING : v1::PHASE_STARTING;
    case Phase::kTraining:
    case Phase::kSwitching:
      return adopting ? v1::PHASE_RECOVERING : v1::PHASE_TRAINING;
    case Phase::kFinishing:
      return v1::PHASE_FINISHING;
    case Phase::kDone:
      return v1::PHASE_DONE;
    case Phase::kFailed:
      break;
  }
  return v1::PHASE_FAILED;
}

std::string Awaited(Phase phase, const PsRegistry& registry, const Membership& members, const Tasks& tasks,
                    const JobCheckpoints& checkpoints) {
  switch (phase) {
    case Phase::kGathering: {
      std::string missing;
      for (std::uint32_t ps : registry.missing()) absl::StrAppend(&missing, missing.empty() ? "ps-" : ", ps-", ps);
      return missing.empty() ? "" : absl::StrCat("waiting for ", missing, " to register");
    }
    case Phase::kAwaitingModel:
      return "waiting for the first worker";
    case Phase::kSeeking:
      return checkpoints.AwaitedOfStore();
    case Phase::kInstalling:
      return "waiting for every ps to take the view";
    case Phase::kInitialising:
      if (checkpoints.restored()) return checkpoints.AwaitedOfPs();
      return members.size() == 0 ? "waiting for a worker to initialise the parameters" : "initialising the parameters";
    case Phase::kTraining:
      return members.size() == 0 ? "waiting for a worker" : "";
    case Phase::kSwitching:
      return "waiting for every ps to take the view";
    case Phase::kFinishing: {
      std::string message = "evaluating and writing the model";
      for (const std::string& error : tasks.Errors())
        absl::StrAppend(&message, "; tried again after an error: ", error);
      return message;
    }
    case Phase::kDone:
    case Phase::kFailed:
      break;
  }
  return "";
}

void ReportPs(const PsRegistry& registry, const PsStates& states, const DirectCalls& calls, absl::Duration patience,
              Time now, v1::ProgressReply* progress) {
  progress->set_ps_expected(registry.count());
  for (const auto& [ps, registration] : registry.registrations()) {
    const v1::PsMember* self = &registration.self();
    v1::MemberProgress* entry = progress->add_members();
    entry->set_role("ps");
    entry->set_index(ps);
    entry->set_session(self->session());
    entry->set_address(self->address());
    entry->set_process_incarnation(self->process_incarnation());
    const absl::Duration silent = now - calls.last_heard(ps);
    entry->set_silent_milliseconds(static_cast<std::uint64_t>(absl::ToInt64Milliseconds(silent)));
    entry->set_state(silent > patience ? "silent" : states.initialised(ps) ? "serving" : "starting");
    *entry->mutable_ps() = states.stats(ps);
  }
}

void ReportLearningRate(const v1::TrainingConfig& config, const v1::View& view, const DataLeases& leases,
                        v1::ProgressReply* progress) {
  const bool local = HasLocalSteps(config);
  const double highest = local ? config.local_steps().learning_rate() : view.optimizer().learning_rate();
  if (highest <= 0) return;
  const DataPlan& plan = leases.plan();
  const std::uint32_t epoch = std::min(leases.watermark(), plan.epochs() - 1);
  const std::uint64_t done = leases.retired_updates() - std::min(leases.retired_updates(), plan.updates_before(epoch));
  const std::uint64_t shard =
      std::min<std::uint64_t>(done / plan.proto().updates_per_shard(), plan.shards_in_epoch(epoch) - 1);
  const LearningRate rate(local ? config.local_steps().schedule() : view.optimizer().schedule(), highest, plan,
                          StepWidth(view), local ? LocalRateScale(view) : RateScale(view));
  progress->set_learning_rate(rate.At({epoch, static_cast<std::uint32_t>(shard), 0}));
}

void ReportUpdates(const DataLeases& leases, const PsStates& states, bool done, v1::ProgressReply* progress) {
  const DataPlan& plan = leases.plan();
  std::uint64_t applied = 0;
  std::uint64_t slices = 0;
  std::uint64_t skipped = 0;
  for (const auto& [ps, stats] : states.all_stats()) {
    applied += stats.applied();
    slices += stats.slices();
    skipped = std::max(skipped, stats.skipped());
  }
  const std::uint64_t expected = leases.updates();
  const std::uint64_t counted = slices == 0 ? 0 : applied / slices;
  const std::uint64_t updates = std::min(std::max(leases.retired_updates(), counted), expected);
  // In the first epoch that is not complete; close enough where the batch size changes within it.
  const std::uint32_t epoch = leases.watermark();
  const std::uint64_t of_epoch = updates - std::min(updates, plan.updates_before(epoch));
  const std::uint64_t samples = plan.samples_in_epoch(epoch);
  // The one that the training ended in, if it ended early, is not whole.
  const std::uint32_t begun = leases.end().first + (leases.end().second > 0 ? 1 : 0);
  progress->set_epochs(done ? leases.watermark() : begun);
  progress->set_epochs_done(leases.watermark());
  progress->set_leases_active(leases.leased());
  progress->set_backup_executions(leases.backups());
  progress->set_samples_per_epoch(plan.proto().sample_count());
  progress->set_updates_per_epoch(plan.updates_in_epoch(std::min(epoch, plan.epochs() - 1)));
  progress->set_updates_expected(expected);
  progress->set_updates_applied(updates);
  progress->set_samples_done(plan.samples_before(epoch) +
                             std::min(samples, of_epoch * plan.samples_in_update({epoch, 0, 0})));
  if (done && skipped > 0) {
    progress->add_warnings(absl::StrCat(skipped, " of ", expected,
                                        " updates were skipped, as their loss or gradient was not finite; a smaller "
                                        "spec.update.optimizer.learningRate may help"));
  }
}

}  // namespace downpour::core
