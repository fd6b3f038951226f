#include <iostream>
#include <nlohmann/json.hpp>
#include <string>

#include "absl/time/time.h"
#include "cli/audit.h"
#include "cli/commands.h"
#include "cli/grpc_life.h"
#include "cli/manifest_input.h"
#include "cli/render/summary_text.h"
#include "operator/controller/objects.h"

namespace downpour::cli {
namespace {

constexpr absl::Duration kTimeLimit = absl::Seconds(10);

}  // namespace

int LedgerCommand(const LedgerOptions& options) {
  const api::ParsedManifest manifest = LoadManifest(options.file, options.overrides);
  for (const api::FieldError& error : manifest.errors) std::cerr << options.file << ": " << error.ToString() << '\n';
  if (!manifest.errors.empty()) return kExitBadInput;
  if (const absl::Status status = StartGrpc(); !status.ok()) return Complain(status);
  const std::string job_uid = controller::ProcessJobUid(options.job_uid);
  const absl::StatusOr<LedgerSummary> ledger = AuditJob(manifest.job.spec, job_uid, options.addresses, kTimeLimit);
  if (!ledger.ok()) {
    std::cerr << "downpour: the ledger could not be read: " << std::string(ledger.status().message()) << std::endl;
    return AuditMayPass(ledger.status()) ? kExitUnaudited : kExitFailed;
  }
  if (options.json) {
    const nlohmann::ordered_json document = {{"exact", LedgerExact(*ledger)},    {"expected", ledger->expected},
                                             {"applied", ledger->applied},       {"missing", ledger->missing},
                                             {"duplicated", ledger->duplicated}, {"skipped", ledger->skipped}};
    std::cout << document.dump(2) << std::endl;
  } else {
    std::cout << LedgerVerdict(*ledger) << std::endl;
  }
  return LedgerExact(*ledger) ? kExitDone : kExitFailed;
}

}  // namespace downpour::cli
