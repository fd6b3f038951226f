#ifndef DOWNPOUR_CLI_LEDGER_LEDGER_H_
#define DOWNPOUR_CLI_LEDGER_LEDGER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/run_history.h"
#include "downpour/v1/control.pb.h"

// The independent audit of the ledger: what the tables of the parameter servers, or of a ring's workers, say was
// applied, against what the manifest and the data set say had to be. It shares no code with the trainer.
namespace downpour::cli {

// From the manifest and the data set, never from the job under audit.
struct LedgerExpectation {
  std::string job_uid;
  std::optional<std::uint64_t> sample_count = 0;  // CountTrainingSamples; none: what the ps say, if all say the same
  std::uint32_t batch_size = 0;
  std::uint32_t epochs = 0;  // 0: `steps` says how many updates there have to be
  std::uint64_t steps = 0;
  bool may_stop = false;      // it may end before any data shard, if the ps say before which: nothing is behind that
  bool may_converge = false;  // it may end before, after any dataset epoch: then those have to be whole that are begun
  std::optional<std::uint32_t> updates_per_shard;  // absent: chosen by the job, taken from the replies
  std::optional<std::uint32_t> slice_count;        // absent: the highest slice that a ps reports decides
  bool of_workers = false;                         // the tables are those of workers; only for the wording
};

// Audits one reply from each ps. Works on a job that is not finished too: then updates are missing.
// kInvalidArgument: the expectation is empty. kFailedPrecondition: the replies are no audit of this job (none at all,
// another job_uid, a ps twice, different generations, a data plan that differs from the expectation): nothing is said
// about its tables. kDataLoss: the tables contradict themselves (a slice absent or on two ps, fewer steps than updates,
// bits outside a shard, a shard open and retired at once); the message names the slice.
absl::StatusOr<LedgerSummary> AuditLedger(const LedgerExpectation& expectation,
                                          const std::vector<v1::LedgerReply>& replies);

// Audits one reply from each worker of a job without parameter servers. Each has every slice and so is audited by
// itself; all have to have taken the same steps, of which one may have taken fewer than another. What is summed up is
// what all of them have. Replies without a model are left out, and so are those of an older generation than another.
// `over`: the job has ended, and all workers have to have all: kAborted names one that lags behind, which may pass.
// kUnavailable: nobody has a model. Other errors are those of AuditLedger, the message names the worker; kDataLoss
// also: a worker contradicts the others.
absl::StatusOr<LedgerSummary> AuditRing(const LedgerExpectation& expectation, std::vector<v1::LedgerReply> replies,
                                        bool over);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_LEDGER_LEDGER_H_
