#include "cli/drilled_job.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "cli/audit.h"
#include "cli/job_view.h"
#include "operator/api/pod_template.h"
#include "operator/controller/objects.h"
#include "operator/planner/conditions.h"
#include "proto/host_port.h"

namespace downpour::cli {
namespace {

constexpr char kRunning[] = "Running";
constexpr char kDeleted[] = "Deleted";

}  // namespace

DrillLook JobWatch::MakeLook(const controller::JobRecord& record, const std::vector<controller::Pod>& pods,
                             double now) {
  DrillLook look;
  look.now = now;
  const api::TrainingJobStatus& status = record.job.status;
  if (planner::IsOver(status)) look.outcome = status.phase;
  if (record.meta.deletion_time.has_value()) look.outcome = kDeleted;
  look.training = status.phase == kRunning;
  const Situation situation = MakeJobSituation(record, pods);
  look.members.reserve(situation.instances->size());
  for (const planner::Instance& instance : *situation.instances) {
    DrillMember member;
    member.id = instance.uid;
    member.role = instance.role;
    member.index = instance.index;
    member.node = instance.node;
    member.alive = instance.phase == planner::InstancePhase::kRunning && !instance.terminating;
    member.member = member.alive && instance.ready;
    member.heard = now;
    look.members.push_back(std::move(member));
  }
  std::optional<double> loss;
  if (status.recovery.has_value() && status.recovery->lost_updates.value_or(0) > 0) {
    loss = status.recovery->last_start_time;
  }
  if (!first_ && loss.has_value() && loss != known_loss_) {
    ++generation_;
    stale_word_ = word_;
  }
  if (loss.has_value()) known_loss_ = loss;
  first_ = false;
  if (!status.progress.has_value()) return look;
  word_ = status.progress->last_update_time;
  if (word_ == stale_word_) return look;
  stale_word_.reset();
  DrillProgress& progress = look.progress.emplace();
  progress.word = *word_;
  progress.generation = generation_;
  progress.updates = status.progress->step;
  if (loss.has_value()) {
    progress.restored = status.recovery->step;
    progress.lost = status.recovery->lost_updates;
  }
  return look;
}

absl::StatusOr<DrillLook> DrilledJob::Look() {
  absl::StatusOr<controller::JobRecord> record = cluster_.GetJob(name_);
  const bool another = record.ok() && record_.has_value() && record->meta.uid != record_->meta.uid;
  if (another || (record_.has_value() && absl::IsNotFound(record.status()))) {
    DrillLook look;
    look.now = clock_.Now();
    look.outcome = kDeleted;
    return look;
  }
  if (!record.ok()) return record.status();
  absl::StatusOr<std::vector<controller::Pod>> pods = cluster_.ListPods(*record);
  if (!pods.ok()) return pods.status();
  record_ = *std::move(record);
  pods_ = *std::move(pods);
  return watch_.MakeLook(*record_, pods_, clock_.Now());
}

absl::Status DrilledJob::Break(const DrillAttack& attack) {
  bool any = false;
  for (const DrillMember& victim : attack.victims) {
    const auto pod = std::find_if(pods_.begin(), pods_.end(),
                                  [&victim](const controller::Pod& one) { return one.meta.uid == victim.id; });
    if (pod == pods_.end()) continue;
    absl::Status status = cluster_.KillPod(*pod);
    if (!status.ok() && !absl::IsNotFound(status)) return status;
    any = any || status.ok();
  }
  return any ? absl::OkStatus() : absl::NotFoundError(absl::StrCat(attack.what(), ": gone"));
}

absl::StatusOr<LedgerSummary> DrilledJob::ReadLedger(bool over) {
  if (over || !record_.has_value()) return absl::NotFoundError("the job is over, and its pods are gone");
  if (!record_->errors.empty()) return absl::FailedPreconditionError("this version cannot read the job's spec");
  const api::Role role = LedgerRole(record_->job.spec);
  std::vector<std::string> addresses = addresses_;
  if (addresses.empty()) {
    const auto is_there = [role](const controller::Pod& pod) { return pod.role == role && !controller::HasEnded(pod); };
    std::set<int> running;
    for (const controller::Pod& pod : pods_) {
      if (is_there(pod)) running.insert(pod.index);
    }
    const std::set<int> audited = AuditedServers(record_->job.spec, record_->job.status, running);
    for (const controller::Pod& pod : pods_) {
      if (!is_there(pod) || audited.count(pod.index) == 0) continue;
      if (!pod.address.empty()) {
        addresses.push_back(JoinHostPort(pod.address, api::kControlPort));
      } else if (role == api::Role::kParameterServer) {
        return absl::UnavailableError(absl::StrCat("pod ", pod.meta.name, " has no address"));
      }
    }
  }
  return AuditJob(record_->job.spec, controller::ProcessJobUid(record_->meta.uid), addresses, kLedgerTimeLimit,
                  DataSetSize::kOfServersIfElsewhere);
}

}  // namespace downpour::cli
