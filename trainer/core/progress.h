#ifndef DOWNPOUR_TRAINER_CORE_PROGRESS_H_
#define DOWNPOUR_TRAINER_CORE_PROGRESS_H_

#include <string>

#include "downpour/v1/config.pb.h"
#include "downpour/v1/control.pb.h"
#include "trainer/core/data_leases.h"
#include "trainer/core/direct_calls.h"
#include "trainer/core/job_checkpoints.h"
#include "trainer/core/membership.h"
#include "trainer/core/phase.h"
#include "trainer/core/ps_registry.h"
#include "trainer/core/ps_states.h"
#include "trainer/core/tasks.h"
#include "trainer/core/time.h"

namespace downpour::core {

// `again`: the job has been in training before; `adopting`: leases of the time before may still be claimed.
v1::JobPhase JobPhaseOf(Phase phase, bool again, bool adopting);

// What the job waits for, for people; empty: nothing.
std::string Awaited(Phase phase, const PsRegistry& registry, const Membership& members, const Tasks& tasks,
                    const JobCheckpoints& checkpoints);

// What the coordinator reports of its ps; one that was not heard of for `patience` is silent.
void ReportPs(const PsRegistry& registry, const PsStates& states, const DirectCalls& calls, absl::Duration patience,
              Time now, v1::ProgressReply* progress);

// The learning rate of the updates that are done now: of their local steps, if they have any.
void ReportLearningRate(const v1::TrainingConfig& config, const v1::View& view, const DataLeases& leases,
                        v1::ProgressReply* progress);

// How far the data is: what is retired, or where that is more, what the ps counted.
void ReportUpdates(const DataLeases& leases, const PsStates& states, bool done, v1::ProgressReply* progress);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_PROGRESS_H_
