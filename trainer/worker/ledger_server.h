#ifndef DOWNPOUR_TRAINER_WORKER_LEDGER_SERVER_H_
#define DOWNPOUR_TRAINER_WORKER_LEDGER_SERVER_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "downpour/v1/control.pb.h"

namespace downpour::worker {

// Answers ReadLedger as a ps does: for the audit of a job in which every worker has the whole model.
class LedgerServer {
 public:
  // Serves on host:port (port 0: any) until it is destroyed. `read` is called from any thread, for requests of this
  // job. kUnavailable: the port is taken, say.
  static absl::StatusOr<std::unique_ptr<LedgerServer>> Start(const std::string& listen, std::string job_uid,
                                                             std::function<v1::LedgerReply()> read);
  virtual ~LedgerServer() = default;
  virtual const std::string& address() const = 0;
};

}  // namespace downpour::worker

#endif  // DOWNPOUR_TRAINER_WORKER_LEDGER_SERVER_H_
