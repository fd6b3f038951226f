#include "cli/audit.h"

#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "cli/ledger/ledger.h"
#include "cli/ledger/read_ledgers.h"
#include "cli/ledger/sample_count.h"

namespace downpour::cli {
namespace {

absl::StatusOr<LedgerSummary> AuditWorkers(const LedgerExpectation& expectation,
                                           const std::vector<std::string>& addresses, absl::Duration time_limit,
                                           AuditMoment moment) {
  const bool over = moment == AuditMoment::kOver;
  std::vector<v1::LedgerReply> replies;
  absl::Status silence = absl::UnavailableError("no worker is there");
  for (absl::StatusOr<v1::LedgerReply>& reply : ReadEachLedger(addresses, expectation.job_uid, time_limit)) {
    if (reply.ok()) {
      replies.push_back(*std::move(reply));
      continue;
    }
    silence = absl::Status(reply.status().code(), absl::StrCat("the worker at ", reply.status().message()));
    if (over || !AuditMayPass(silence)) return silence;
  }
  return replies.empty() ? silence : AuditRing(expectation, std::move(replies), over);
}

}  // namespace

absl::StatusOr<LedgerSummary> AuditJob(const api::TrainingJobSpec& spec, const std::string& job_uid,
                                       const std::vector<std::string>& addresses, absl::Duration time_limit,
                                       DataSetSize size, AuditMoment moment) {
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
  if (LedgerRole(spec) == api::Role::kWorker) return AuditWorkers(expectation, addresses, time_limit, moment);
  const absl::StatusOr<std::vector<v1::LedgerReply>> replies = ReadLedgers(addresses, job_uid, time_limit);
  if (!replies.ok()) return replies.status();
  return AuditLedger(expectation, *replies);
}

std::set<int> AuditedServers(const api::TrainingJobSpec& spec, const api::TrainingJobStatus& status,
                             const std::set<int>& running) {
  if (LedgerRole(spec) == api::Role::kWorker) return running;
  if (status.slices.has_value() && !status.slices->parameter_servers.empty()) {
    return {status.slices->parameter_servers.begin(), status.slices->parameter_servers.end()};
  }
  std::set<int> indices = running;
  for (int index = 0; index < spec.parameter_server->replicas; ++index) indices.insert(index);
  return indices;
}

absl::StatusOr<LedgerSummary> AuditRun(const RunPaths& paths, const api::TrainingJobSpec& spec,
                                       const std::string& job_uid, const api::TrainingJobStatus& status,
                                       const std::vector<Process>& processes, AuditMoment moment) {
  const api::Role role = LedgerRole(spec);
  std::set<int> running;
  for (const Process& process : processes) {
    const bool leaves = role == api::Role::kWorker && process.stop_requested;
    if (process.role == role && process.running() && !leaves) running.insert(process.index);
  }
  std::vector<std::string> addresses;
  for (const int index : AuditedServers(spec, status, running)) {
    absl::StatusOr<std::string> address = ReadAddress(paths.Address(ProcessName(role, index)));
    if (address.ok()) {
      addresses.push_back(*std::move(address));
    } else if (role != api::Role::kWorker || moment == AuditMoment::kOver) {
      return address.status();
    }
  }
  return AuditJob(spec, job_uid, addresses, kLedgerTimeLimit, DataSetSize::kOfFiles, moment);
}

}  // namespace downpour::cli
