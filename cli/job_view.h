#ifndef DOWNPOUR_CLI_JOB_VIEW_H_
#define DOWNPOUR_CLI_JOB_VIEW_H_

#include <optional>
#include <vector>

#include "cli/run_history.h"
#include "cli/run_overview.h"
#include "cli/why/situation.h"
#include "operator/controller/job_record.h"
#include "operator/controller/pod.h"

// A job on a cluster in the terms in which runs of this machine are shown, so that both look the same. Pure; `now` is
// in seconds since the epoch.
namespace downpour::cli {

RunOverview MakeJobOverview(const controller::JobRecord& record, double now);

// For the live view. Progress is what the status says of it, so without the figures of single members.
Snapshot MakeJobSnapshot(const controller::JobRecord& record, const std::vector<controller::Pod>& pods, double now);

// Without events. `pods` absent: they could not be read.
Situation MakeJobSituation(const controller::JobRecord& record,
                           const std::optional<std::vector<controller::Pod>>& pods);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_JOB_VIEW_H_
