#ifndef DOWNPOUR_CLI_JOB_LOGS_H_
#define DOWNPOUR_CLI_JOB_LOGS_H_

#include <stop_token>
#include <string>

#include "absl/status/status.h"
#include "cli/cluster.h"
#include "cli/commands.h"

namespace downpour::cli {

// Prints the logs of the pods of a job that are chosen, on standard output; what cannot be read, on standard error.
// kNotFound: no such job or pod. Following, it reads each pod to its end, goes on where a connection broke without
// repeating a line, takes up pods that come later, and returns when the job is over or `stop` is requested, after which
// the cluster answers nothing more.
absl::Status PrintJobLogs(Cluster& cluster, const std::string& job, const LogChoice& choice,
                          const std::stop_token& stop);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_JOB_LOGS_H_
