#ifndef DOWNPOUR_CLI_AUDIT_H_
#define DOWNPOUR_CLI_AUDIT_H_

#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "cli/process_backend.h"
#include "cli/run_folder.h"
#include "cli/run_history.h"
#include "operator/api/training_job.h"

namespace downpour::cli {

// For what is near: seconds are much.
inline constexpr absl::Duration kLedgerTimeLimit = absl::Seconds(5);

// Whose word on the size of the data set counts: that of the files, which have to be on this machine, or where they are
// not there that of those who have the tables.
enum class DataSetSize { kOfFiles, kOfServersIfElsewhere };

// Whether all of a job's workers have to answer, and to have all updates, where they are those that have the tables.
// While it goes on one that is silent, or has no model yet, is left out as long as another one answers.
enum class AuditMoment { kUnderWay, kOver };

// Who of a job has the tables: its parameter servers, or its workers where it has none.
inline api::Role LedgerRole(const api::TrainingJobSpec& spec) {
  return spec.strategy == api::Strategy::kAllReduce ? api::Role::kWorker : api::Role::kParameterServer;
}

// Reads the tables of the parameter servers, or of the workers of a job that has none, at `addresses` ("host:port") and
// audits them against the manifest and its data set. Blocks for `time_limit` at most. Errors are those of
// CountTrainingSamples, ReadLedgers, AuditLedger and AuditRing.
absl::StatusOr<LedgerSummary> AuditJob(const api::TrainingJobSpec& spec, const std::string& job_uid,
                                       const std::vector<std::string>& addresses, absl::Duration time_limit,
                                       DataSetSize size = DataSetSize::kOfFiles,
                                       AuditMoment moment = AuditMoment::kUnderWay);

// The members of LedgerRole, by index, whose tables have all there is. Parameter servers: those that hold slices, as
// far as that is known: one that was lost, and whose slices others took over, is not awaited. Otherwise as many as the
// job is to have, and those that are `running` still though it is to have fewer. Workers: those that are `running`.
std::set<int> AuditedServers(const api::TrainingJobSpec& spec, const api::TrainingJobStatus& status,
                             const std::set<int>& running);

// Of a run of this machine, at the addresses in its folder. `status`, `processes`: the newest. Blocks for
// kLedgerTimeLimit at most.
absl::StatusOr<LedgerSummary> AuditRun(const RunPaths& paths, const api::TrainingJobSpec& spec,
                                       const std::string& job_uid, const api::TrainingJobStatus& status,
                                       const std::vector<Process>& processes, AuditMoment moment);

// Whether this error of AuditJob is silence, of a process or a file, which says nothing about the tables and may pass;
// other errors are contradictions.
inline bool AuditMayPass(const absl::Status& status) {
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) || absl::IsNotFound(status) ||
         absl::IsCancelled(status);
}

// Whether it is worth to ask again: silence, or a worker that lags behind the others.
inline bool AuditMayChange(const absl::Status& status) { return AuditMayPass(status) || absl::IsAborted(status); }

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_AUDIT_H_
