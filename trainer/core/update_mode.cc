#include "trainer/core/update_mode.h"

#include <algorithm>
#include <iterator>

#include "absl/strings/str_cat.h"

namespace downpour::core {
namespace {

// Those among which a history may go over: a slice has the same state in all of them.
constexpr v1::Mode kSwitchable[] = {v1::ASYNC, v1::BOUNDED_STALENESS, v1::SYNCHRONOUS};

bool IsSwitchable(v1::Mode mode) {
  return std::find(std::begin(kSwitchable), std::end(kSwitchable), mode) != std::end(kSwitchable);
}

}  // namespace

UpdateMode ModeOf(const v1::View& view) {
  UpdateMode mode;
  mode.mode = view.mode();
  if (view.mode() == v1::BOUNDED_STALENESS) mode.staleness = view.staleness();
  if (view.mode() == v1::SYNCHRONOUS) mode.updates_per_step = view.updates_per_step();
  mode.staleness_aware = view.optimizer().staleness_aware();
  return mode;
}

UpdateMode WantedMode(const v1::TrainingConfig& config, const v1::View& view) {
  UpdateMode mode;
  mode.mode = config.mode();
  if (config.mode() == v1::BOUNDED_STALENESS) mode.staleness = config.staleness();
  if (config.mode() == v1::SYNCHRONOUS) {
    const bool stays = config.updates_per_step() == 0 && view.mode() == v1::SYNCHRONOUS;
    const std::uint32_t given = config.updates_per_step() != 0 ? config.updates_per_step() : config.workers();
    mode.updates_per_step = std::max(1U, stays ? view.updates_per_step() : given);
  }
  mode.staleness_aware = config.optimizer().staleness_aware();
  return mode;
}

void SetMode(const UpdateMode& mode, v1::View* view) {
  view->set_mode(mode.mode);
  view->set_staleness(mode.staleness);
  view->set_updates_per_step(mode.updates_per_step);
  view->mutable_optimizer()->set_staleness_aware(mode.staleness_aware);
}

void SetWantedMode(const v1::WantedMode& wanted, v1::TrainingConfig* config) {
  config->set_mode(wanted.mode());
  config->set_staleness(wanted.staleness());
  config->set_updates_per_step(wanted.updates_per_step());
  config->set_workers(wanted.workers());
  config->set_warm_start(wanted.warm_start());
  config->mutable_optimizer()->set_staleness_aware(wanted.staleness_aware());
}

absl::Status CheckSwitch(v1::Mode from, v1::Mode to) {
  if (from == to || (IsSwitchable(from) && IsSwitchable(to))) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat("spec.update.mode cannot change from ", v1::Mode_Name(from), " to ", v1::Mode_Name(to),
                   " while the job runs: expected one of the modes that share a slice's state"));
}

}  // namespace downpour::core
