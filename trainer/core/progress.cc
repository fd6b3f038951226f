#include "trainer/core/progress.h"

#include <algorithm>
#include <cstdint>

#include "absl/strings/str_cat.h"

namespace downpour::core {

void ReportPs(const PsRegistry& registry, const PsStates& states, const DirectCalls& calls, absl::Duration patience,
              Time now, v1::ProgressReply* progress) {
  progress->set_ps_expected(registry.count());
  for (std::uint32_t ps = 0; ps < registry.count(); ++ps) {
    const v1::PsMember* self = registry.Find(ps);
    if (self == nullptr) continue;
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

void ReportUpdates(const DataLeases& leases, const PsStates& states, bool done, v1::ProgressReply* progress) {
  const DataPlan& plan = leases.plan();
  std::uint64_t applied = 0;
  std::uint64_t slices = 0;
  std::uint64_t skipped = 0;
  for (std::uint32_t ps = 0; ps < states.count(); ++ps) {
    applied += states.stats(ps).applied();
    slices += states.stats(ps).slices();
    skipped = std::max(skipped, states.stats(ps).skipped());
  }
  const std::uint64_t expected = plan.updates();
  const std::uint64_t counted = slices == 0 ? 0 : applied / slices;
  const std::uint64_t updates = std::min(std::max(leases.retired_updates(), counted), expected);
  // In the first epoch that is not complete; close enough where the batch size changes within it.
  const std::uint32_t epoch = leases.watermark();
  const std::uint64_t of_epoch = updates - std::min(updates, plan.updates_before(epoch));
  const std::uint64_t samples = plan.proto().sample_count();
  progress->set_epochs_done(leases.watermark());
  progress->set_leases_active(leases.leased());
  progress->set_samples_per_epoch(plan.proto().sample_count());
  progress->set_updates_per_epoch(plan.updates_in_epoch(std::min(epoch, plan.epochs() - 1)));
  progress->set_updates_expected(expected);
  progress->set_updates_applied(updates);
  progress->set_samples_done(epoch * samples + std::min(samples, of_epoch * plan.samples_in_update({epoch, 0, 0})));
  if (done && skipped > 0) {
    progress->add_warnings(absl::StrCat(skipped, " of ", expected,
                                        " updates were skipped, as their loss or gradient was not finite; a smaller "
                                        "spec.update.optimizer.learningRate may help"));
  }
}

}  // namespace downpour::core
