#include "operator/job/report.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>

#include "operator/api/manifest.h"

namespace downpour::job {
namespace {

constexpr std::ptrdiff_t kMostFailures = 100;  // told at once

planner::CoordinatorPhase ToPlanner(v1::JobPhase phase) {
  switch (phase) {
    case v1::PHASE_STARTING:
      return planner::CoordinatorPhase::kStarting;
    case v1::PHASE_RECOVERING:
      return planner::CoordinatorPhase::kRecovering;
    case v1::PHASE_TRAINING:
      return planner::CoordinatorPhase::kTraining;
    case v1::PHASE_FINISHING:
      return planner::CoordinatorPhase::kFinishing;
    case v1::PHASE_DONE:
      return planner::CoordinatorPhase::kDone;
    case v1::PHASE_FAILED:
      return planner::CoordinatorPhase::kFailed;
    default:
      return planner::CoordinatorPhase::kUnknown;
  }
}

planner::RequestState ToPlanner(v1::RequestState state) {
  switch (state) {
    case v1::REQUEST_PENDING:
      return planner::RequestState::kPending;
    case v1::REQUEST_DONE:
      return planner::RequestState::kDone;
    case v1::REQUEST_FAILED:
      return planner::RequestState::kFailed;
    default:
      return planner::RequestState::kNone;
  }
}

planner::CheckpointReport ToPlanner(const v1::CheckpointProgress& progress, double received_time) {
  planner::CheckpointReport report;
  report.newest = progress.newest();
  report.updates = progress.newest_updates();
  report.time = received_time - static_cast<double>(progress.newest_age_milliseconds()) / 1000;
  report.written = static_cast<int>(progress.written());
  report.failed = static_cast<int>(progress.failed());
  report.error = progress.error();
  report.request = progress.request();
  report.request_state = ToPlanner(progress.request_state());
  return report;
}

api::UpdateModeStatus ToStatus(const v1::ModeInForce& mode) {
  api::UpdateModeStatus status;
  if (mode.mode() == v1::BOUNDED_STALENESS) {
    status.mode = api::UpdateMode::kBoundedStaleness;
    status.staleness = static_cast<int>(mode.staleness());
  } else if (mode.mode() == v1::SYNCHRONOUS) {
    status.mode = api::UpdateMode::kSynchronous;
    status.updates_per_step = static_cast<int>(mode.updates_per_step());
  } else if (mode.mode() == v1::SANDBLASTER) {
    status.mode = api::UpdateMode::kSandblaster;
  }
  return status;
}

std::optional<api::TrainingStatus> ToTraining(const v1::ProgressReply& reply) {
  api::TrainingStatus training;
  training.stop_reason = reply.stop_reason();
  training.rate_reason = reply.rate_reason();
  if (reply.has_best_epoch()) {
    api::BestModelStatus& best = training.best.emplace();
    best.epoch = static_cast<int>(reply.best_epoch());
    best.reason = reply.best_reason();
    best.path = reply.best_path();
  }
  if (training == api::TrainingStatus()) return std::nullopt;
  return training;
}

planner::Restoration ToPlanner(const v1::Restoration& reply) {
  planner::Restoration restoration;
  restoration.checkpoint = reply.checkpoint();
  restoration.updates = reply.updates();
  restoration.skipped.assign(reply.skipped().begin(), reply.skipped().end());
  if (reply.has_lost_updates()) restoration.lost_updates = reply.lost_updates();
  if (reply.has_lost_seconds()) restoration.lost_seconds = reply.lost_seconds();
  return restoration;
}

planner::ReplicationReport ToPlanner(const v1::ReplicationProgress& progress) {
  planner::ReplicationReport report;
  report.slices = static_cast<int>(progress.slices());
  report.in_sync = static_cast<int>(progress.in_sync());
  report.moving = static_cast<int>(progress.moving());
  report.message = progress.message();
  return report;
}

api::RingStatus ToStatus(const v1::RingProgress& progress) {
  api::RingStatus status;
  status.members = static_cast<int>(progress.members());
  status.wanted = static_cast<int>(progress.wanted());
  status.formed = progress.formed();
  status.formed_count = static_cast<int>(progress.formed_count());
  status.updates_per_step = static_cast<int>(progress.updates_per_step());
  status.message = progress.message();
  return status;
}

}  // namespace

planner::CoordinatorReport ToReport(const v1::ProgressReply& reply, double received_time) {
  planner::CoordinatorReport report;
  report.received_time = received_time;
  report.phase = ToPlanner(reply.phase());
  report.message = reply.message();
  if (reply.failure() == v1::FAILURE_DATA_SHARD) report.failure_reason = "DataShardFailed";
  if (reply.failure() == v1::FAILURE_MODEL_NOT_FINITE) report.failure_reason = "ModelNotFinite";
  report.outcome = OutcomeOf(reply);
  report.training = ToTraining(reply);
  report.warnings.assign(reply.warnings().begin(), reply.warnings().end());
  report.generation = reply.view().generation();
  report.updates_applied = reply.updates_applied();
  report.updates_expected = reply.updates_expected();
  report.parameters_lost = reply.parameters_lost();
  if (reply.has_model_worker()) {
    api::OutputStatus& model = report.model.emplace();
    model.path = reply.model_path();
    model.worker = static_cast<int>(reply.model_worker());
    model.incarnation = static_cast<int>(reply.model_worker_incarnation());
  }
  if (reply.epochs() > 0) report.epoch = static_cast<int>(std::min(reply.epochs_done() + 1, reply.epochs()));
  if (reply.has_mode()) report.mode = ToStatus(reply.mode());
  report.samples_per_second = reply.samples_per_second();
  if (reply.has_loss()) report.loss = reply.loss();
  if (reply.evaluations_size() > 0) {
    const v1::Evaluation& newest = reply.evaluations(reply.evaluations_size() - 1);
    if (newest.has_accuracy()) report.test_accuracy = newest.accuracy();
    for (const v1::Metric& metric : newest.metrics()) report.test_metrics.push_back({metric.name(), metric.value()});
  }
  if (reply.has_replication()) report.replication = ToPlanner(reply.replication());
  if (reply.has_ring()) report.ring = ToStatus(reply.ring());
  for (const v1::MemberProgress& member : reply.members()) {
    if (member.role() != "worker" || member.worker().device().empty()) continue;
    report.devices.push_back({static_cast<int>(member.index()), member.worker().device(),
                              std::max(static_cast<int>(member.worker().devices()), 1)});
  }
  std::sort(report.devices.begin(), report.devices.end(),
            [](const planner::WorkerDevice& a, const planner::WorkerDevice& b) { return a.index < b.index; });
  report.placed_ps.assign(reply.placed_ps().begin(), reply.placed_ps().end());
  if (reply.has_checkpoint()) report.checkpoint = ToPlanner(reply.checkpoint(), received_time);
  if (reply.has_restoration()) report.restoration = ToPlanner(reply.restoration());
  return report;
}

std::string OutcomeOf(const v1::ProgressReply& reply) {
  return reply.stop_reason().empty() ? reply.search().outcome() : reply.stop_reason();
}

planner::ToldOfPs ToldBy(const v1::ProgressRequest& question) {
  planner::ToldOfPs told;
  told.revision = static_cast<std::int64_t>(question.ps().revision());
  told.leaving_ps.assign(question.leaving_ps().begin(), question.leaving_ps().end());
  return told;
}

v1::ProgressRequest MakeQuestion(const std::string& job_uid, const api::TrainingJobStatus& status,
                                 const std::vector<planner::Instance>& instances) {
  v1::ProgressRequest question;
  question.set_job_uid(job_uid);
  std::vector<v1::MemberFailure> failures = RecentFailures(status);
  constexpr api::Role kPs = api::Role::kParameterServer;
  // What is counted because somebody asked it to end may answer for a while.
  std::erase_if(failures, [&instances](const v1::MemberFailure& failure) {
    return std::any_of(instances.begin(), instances.end(), [&failure](const planner::Instance& instance) {
      return instance.role == kPs && failure.role() == api::ToString(kPs) &&
             instance.index == static_cast<int>(failure.index()) &&
             instance.incarnation == static_cast<int>(failure.process_incarnation()) &&
             instance.phase == planner::InstancePhase::kRunning;
    });
  });
  for (const api::LeavingParameterServer& ps : status.leaving_parameter_servers) {
    question.add_leaving_ps(static_cast<std::uint32_t>(ps.index));
  }
  question.mutable_failures()->Assign(failures.begin(), failures.end());
  if (status.checkpoint_request.has_value()) question.set_checkpoint_request(status.checkpoint_request->name);
  return question;
}

std::vector<v1::MemberFailure> RecentFailures(const api::TrainingJobStatus& status) {
  std::vector<v1::MemberFailure> failures;
  for (const api::FailureRecord& record : status.recent_failures) {
    if (record.role == api::Role::kCoordinator) continue;
    v1::MemberFailure& failure = failures.emplace_back();
    failure.set_role(std::string(api::ToString(record.role)));
    failure.set_index(static_cast<std::uint32_t>(record.index));
    failure.set_process_incarnation(static_cast<std::uint32_t>(record.incarnation));
    failure.set_platform(record.platform);
    failure.set_cause(record.cause);
  }
  if (std::ssize(failures) > kMostFailures) failures.erase(failures.begin(), failures.end() - kMostFailures);
  return failures;
}

bool IsMember(const v1::ProgressReply& reply, api::Role role, int index, int incarnation) {
  return std::any_of(reply.members().begin(), reply.members().end(), [&](const v1::MemberProgress& member) {
    return member.role() == api::ToString(role) && static_cast<int>(member.index()) == index &&
           static_cast<int>(member.process_incarnation()) == incarnation;
  });
}

}  // namespace downpour::job
