#ifndef DOWNPOUR_TRAINER_CORE_UPDATE_MODE_H_
#define DOWNPOUR_TRAINER_CORE_UPDATE_MODE_H_

#include <cstdint>

#include "absl/status/status.h"
#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"

namespace downpour::core {

// How updates become steps, in full.
struct UpdateMode {
  v1::Mode mode = v1::MODE_UNSPECIFIED;
  std::uint32_t staleness = 0;         // of BOUNDED_STALENESS, else 0
  std::uint32_t updates_per_step = 0;  // of SYNCHRONOUS, else 0
  bool staleness_aware = false;        // of the optimizer
  bool operator==(const UpdateMode&) const = default;
};

UpdateMode ModeOf(const v1::View& view);
// What the configuration wants of a history that is in the mode of `view` by now, or of one that is about to begin (no
// mode yet): a number of updates a step that is not given is that of the workers, and stays where there is one.
UpdateMode WantedMode(const v1::TrainingConfig& config, const v1::View& view);
void SetMode(const UpdateMode& mode, v1::View* view);

// Takes what is wanted into the configuration.
void SetWantedMode(const v1::WantedMode& wanted, v1::TrainingConfig* config);

// What is late is executed a second time: the execution of an update that comes first is heard.
inline bool HasBackupExecutions(v1::Mode mode) { return mode == v1::SYNCHRONOUS || mode == v1::SANDBLASTER; }

// kFailedPrecondition: no history goes over from the one to the other.
absl::Status CheckSwitch(v1::Mode from, v1::Mode to);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_UPDATE_MODE_H_
