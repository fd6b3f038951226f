#include "cli/audit.h"

#include <cstdint>
#include <optional>

#include "cli/ledger/ledger.h"
#include "cli/ledger/read_ledgers.h"
#include "cli/ledger/sample_count.h"

namespace downpour::cli {

absl::StatusOr<LedgerSummary> AuditJob(const api::TrainingJobSpec& spec, const std::string& job_uid,
                                       const std::vector<std::string>& addresses, absl::Duration time_limit,
                                       DataSetSize size) {
  const absl::StatusOr<std::uint64_t> samples = CountTrainingSamples(spec.dataset);
  const bool elsewhere = absl::IsNotFound(samples.status()) && size == DataSetSize::kOfServersIfElsewhere;
  if (!samples.ok() && !absl::IsUnimplemented(samples.status()) && !elsewhere) return samples.status();
  LedgerExpectation expectation;
  expectation.job_uid = job_uid;
  expectation.sample_count = samples.ok() ? std::optional<std::uint64_t>(*samples) : std::nullopt;
  expectation.batch_size = static_cast<std::uint32_t>(spec.training.batch_size * spec.update.minibatches());
  expectation.steps = static_cast<std::uint64_t>(spec.training.steps.value_or(0));
  expectation.epochs = static_cast<std::uint32_t>(spec.training.whole_epochs());
  expectation.may_converge = spec.update.mode == api::UpdateMode::kSandblaster;
  expectation.may_stop = spec.training.early_stopping.has_value();
  if (spec.training.updates_per_shard > 0) {
    expectation.updates_per_shard = static_cast<std::uint32_t>(spec.training.updates_per_shard);
  }
  const absl::StatusOr<std::vector<v1::LedgerReply>> replies = ReadLedgers(addresses, job_uid, time_limit);
  if (!replies.ok()) return replies.status();
  return AuditLedger(expectation, *replies);
}

std::set<int> AuditedServers(const api::TrainingJobSpec& spec, const api::TrainingJobStatus& status,
                             const std::set<int>& running) {
  if (status.slices.has_value() && !status.slices->parameter_servers.empty()) {
    return {status.slices->parameter_servers.begin(), status.slices->parameter_servers.end()};
  }
  std::set<int> indices = running;
  for (int index = 0; index < spec.parameter_server->replicas; ++index) indices.insert(index);
  return indices;
}

absl::StatusOr<LedgerSummary> AuditRun(const RunPaths& paths, const api::TrainingJobSpec& spec,
                                       const std::string& job_uid, const api::TrainingJobStatus& status,
                                       const std::vector<Process>& processes) {
  std::set<int> running;
  for (const Process& process : processes) {
    if (process.role == api::Role::kParameterServer && process.running()) running.insert(process.index);
  }
  std::vector<std::string> addresses;
  for (const int index : AuditedServers(spec, status, running)) {
    absl::StatusOr<std::string> address = ReadAddress(paths.Address(ProcessName(api::Role::kParameterServer, index)));
    if (!address.ok()) return address.status();
    addresses.push_back(*std::move(address));
  }
  return AuditJob(spec, job_uid, addresses, kLedgerTimeLimit);
}

}  // namespace downpour::cli
