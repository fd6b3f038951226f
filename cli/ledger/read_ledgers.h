#ifndef DOWNPOUR_CLI_LEDGER_READ_LEDGERS_H_
#define DOWNPOUR_CLI_LEDGER_READ_LEDGERS_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "downpour/v1/control.pb.h"

namespace downpour::cli {

// Asks each ps, or worker of a ring, at `addresses` ("host:port") for its ledger over gRPC, all at once, one channel
// each. Returns the replies in the order of the addresses, or the first error with the address in its message. Blocks
// for `time_limit` at most.
absl::StatusOr<std::vector<v1::LedgerReply>> ReadLedgers(const std::vector<std::string>& addresses,
                                                         const std::string& job_uid, absl::Duration time_limit);

// The same, with an error in the place of the reply of each that gave none.
std::vector<absl::StatusOr<v1::LedgerReply>> ReadEachLedger(const std::vector<std::string>& addresses,
                                                            const std::string& job_uid, absl::Duration time_limit);

}  // namespace downpour::cli

#endif  // DOWNPOUR_CLI_LEDGER_READ_LEDGERS_H_
