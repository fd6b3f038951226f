#include "cli/job_view.h"

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "cli/render/format.h"
#include "cli/render/test_metrics.h"
#include "cli/why/explanation.h"
#include "operator/planner/conditions.h"
#include "operator/planner/context.h"
#include "operator/planner/ring.h"

namespace downpour::cli {
namespace {

using controller::JobRecord;
using controller::Pod;

planner::Instance ToInstance(const Pod& pod) {
  const bool ready = std::any_of(pod.conditions.begin(), pod.conditions.end(),
                                 [](const controller::PodCondition& condition) { return condition.type == "Ready"; });
  return controller::ToInstance(pod, ready);
}

v1::JobPhase PhaseOf(const std::string& phase) {
  for (const auto& [name, value] :
       {std::pair{"Running", v1::PHASE_TRAINING}, std::pair{"Recovering", v1::PHASE_RECOVERING},
        std::pair{"Finishing", v1::PHASE_FINISHING}, std::pair{"Succeeded", v1::PHASE_DONE},
        std::pair{"Failed", v1::PHASE_FAILED}}) {
    if (phase == name) return value;
  }
  return v1::PHASE_STARTING;
}

v1::ProgressReply ToProgress(const api::TrainingJob& job, double now) {
  const api::ProgressStatus& progress = *job.status.progress;
  const auto epochs = static_cast<std::uint64_t>(std::max(1, job.spec.training.whole_epochs()));
  v1::ProgressReply reply;
  reply.set_phase(PhaseOf(job.status.phase));
  reply.set_epochs(static_cast<std::uint32_t>(epochs));
  reply.set_updates_expected(progress.total_steps);
  reply.set_updates_applied(progress.step);
  reply.set_updates_per_epoch(progress.total_steps / epochs);
  const std::uint64_t done = reply.updates_per_epoch() == 0 ? 0 : progress.step / reply.updates_per_epoch();
  reply.set_epochs_done(static_cast<std::uint32_t>(std::min(done, epochs)));
  reply.set_samples_per_epoch(reply.updates_per_epoch() * static_cast<std::uint64_t>(job.spec.training.batch_size) *
                              job.spec.update.minibatches());
  if (!progress.samples_per_second.empty()) reply.set_samples_per_second(ParseDecimal(progress.samples_per_second));
  if (const std::optional<api::CheckpointStatus>& known = job.status.checkpoint; known.has_value()) {
    v1::CheckpointProgress& checkpoint = *reply.mutable_checkpoint();
    checkpoint.set_newest(known->newest);
    checkpoint.set_newest_updates(known->updates);
    checkpoint.set_newest_age_milliseconds(
        static_cast<std::uint64_t>(1000 * std::max(0.0, now - known->time.value_or(now))));
    checkpoint.set_error(known->error);
  }
  if (const std::optional<api::SlicesStatus>& known = job.status.slices; known.has_value()) {
    v1::ReplicationProgress& replication = *reply.mutable_replication();
    replication.set_factor(planner::HasStandbys(job.spec) ? 2 : 1);
    replication.set_slices(static_cast<std::uint32_t>(known->total));
    replication.set_in_sync(static_cast<std::uint32_t>(known->in_sync));
  }
  if (const std::optional<api::RingStatus>& known = job.status.ring; known.has_value()) {
    v1::RingProgress& ring = *reply.mutable_ring();
    ring.set_members(static_cast<std::uint32_t>(known->members));
    ring.set_wanted(static_cast<std::uint32_t>(known->wanted));
    ring.set_formed(known->formed);
    ring.set_formed_count(static_cast<std::uint64_t>(known->formed_count));
    ring.set_updates_per_step(static_cast<std::uint32_t>(known->updates_per_step));
    ring.set_message(known->message);
  }
  if (const std::optional<api::TrainingStatus>& known = job.status.training; known.has_value()) {
    reply.set_stop_reason(known->stop_reason);
    reply.set_rate_reason(known->rate_reason);
    if (known->best.has_value()) {
      reply.set_best_epoch(static_cast<std::uint32_t>(known->best->epoch));
      reply.set_best_reason(known->best->reason);
      reply.set_best_path(known->best->path);
    }
  }
  if (!progress.loss.empty()) reply.set_loss(ParseDecimal(progress.loss));
  if (const std::vector<TestMetric> metrics = MetricsOf(progress); !metrics.empty()) {
    v1::Evaluation* evaluation = reply.add_evaluations();  // the status does not say after which epoch
    evaluation->set_loss(std::numeric_limits<double>::quiet_NaN());
    for (const TestMetric& metric : metrics) {
      v1::Metric* added = evaluation->add_metrics();
      added->set_name(metric.name);
      added->set_value(metric.value);
    }
  }
  return reply;
}

void AddMembers(const std::vector<planner::Instance>& instances, const api::TrainingJob& job, bool over,
                Snapshot* snapshot) {
  for (const planner::Instance& instance : instances) {
    ProcessView view;
    view.role = instance.role;
    view.index = instance.index;
    view.name = planner::InstanceName(view.role, view.index);
    view.incarnation = instance.incarnation;
    view.restarts = instance.incarnation - 1;
    view.state = MemberState(instance);
    view.node = instance.node;
    snapshot->processes.push_back(std::move(view));
  }
  for (const api::Role role : planner::kStartOrder) {
    const bool none = over || planner::IsTrue(job.status, planner::kSuspended);
    const int desired = none ? 0 : planner::RoleStatusOf(job.status, role).desired;
    for (int index = 0; index < desired; ++index) {
      const auto is_this = [&](const ProcessView& view) { return view.role == role && view.index == index; };
      if (std::any_of(snapshot->processes.begin(), snapshot->processes.end(), is_this)) continue;
      ProcessView view;
      view.role = role;
      view.index = index;
      view.name = planner::InstanceName(role, index);
      view.state = "missing";
      snapshot->processes.push_back(std::move(view));
    }
  }
  std::stable_sort(snapshot->processes.begin(), snapshot->processes.end(),
                   [](const ProcessView& a, const ProcessView& b) {
                     return std::pair(a.role, a.index) < std::pair(b.role, b.index);
                   });
}

}  // namespace

RunOverview MakeJobOverview(const JobRecord& record, double now) {
  const api::TrainingJob& job = record.job;
  const api::TrainingJobStatus& status = job.status;
  const bool seen = !status.phase.empty();  // else the status has no counts
  RunOverview overview;
  overview.name = record.meta.name;
  overview.namespace_name = record.meta.namespace_name;
  overview.job = record.meta.name;
  overview.phase = seen ? status.phase : "Pending";
  overview.reason = seen ? status.reason : record.managed_here ? "NoStatusYet" : "ManagedElsewhere";
  overview.running = !planner::IsOver(status);
  const api::Condition* scheduled = planner::FindCondition(status, planner::kScheduled);
  if (overview.running && overview.reason.empty() && scheduled != nullptr && !scheduled->status)
    overview.reason = scheduled->reason;
  if (overview.running && overview.reason.empty() && planner::IsTrue(status, planner::kCheckpointFailing)) {
    overview.reason = planner::kCheckpointFailing;
  }
  const api::Condition* standbys = planner::FindCondition(status, planner::kProtected);
  if (overview.running && overview.reason.empty() && standbys != nullptr && !standbys->status) {
    overview.reason = standbys->reason;
  }
  const api::Condition* ring = planner::FindCondition(status, planner::kRingFormed);
  if (overview.running && overview.reason.empty() && ring != nullptr && !ring->status) {
    overview.reason = absl::StrCat("Ring", ring->reason);  // Waiting, Forming
  }
  overview.workers_ready = status.worker.ready;
  overview.workers_desired = seen ? status.worker.desired : job.spec.worker.replicas;
  overview.ps_ready = status.parameter_server.ready;
  overview.ps_desired =
      seen ? status.parameter_server.desired : planner::DesiredReplicas(job.spec, api::Role::kParameterServer);
  overview.has_ps = !planner::IsAllReduce(job.spec);
  overview.ring = status.ring;
  overview.epochs_total = job.spec.training.whole_epochs();
  if (status.progress.has_value()) {
    overview.step = status.progress->step;
    overview.total_steps = status.progress->total_steps;
    if (overview.total_steps > 0) {
      overview.epochs =
          overview.epochs_total * static_cast<double>(overview.step) / static_cast<double>(overview.total_steps);
    }
    // The steps of a job that ends early may be those that it has by then.
    if (status.training.has_value() && !status.training->stop_reason.empty()) {
      overview.epochs = std::min<double>(overview.epochs, status.progress->epoch);
    }
    overview.test_metrics = MetricsOf(*status.progress);
  }
  overview.restarts = status.restarts_total;
  overview.age_seconds = std::max(0.0, now - record.meta.creation_time.value_or(now));
  return overview;
}

Situation MakeJobSituation(const JobRecord& record, const std::optional<std::vector<Pod>>& pods) {
  const api::TrainingJobStatus& status = record.job.status;
  Situation situation;
  situation.subject = absl::StrCat(record.meta.name, " in namespace ", record.meta.namespace_name);
  situation.on_cluster = true;
  situation.logs_command = absl::StrCat("downpour logs ", record.meta.name, " -n ", record.meta.namespace_name);
  situation.job = record.job;
  situation.created_time = record.meta.creation_time;
  situation.deletion_requested = record.meta.deletion_time.has_value();
  if (!record.managed_here) {
    situation.managed_by = record.errors.empty() ? record.job.spec.managed_by : "another name";
  }

  for (const auto& [type, outcome] :
       {std::pair{planner::kComplete, kOutcomeSucceeded}, std::pair{planner::kFailed, kOutcomeFailed}}) {
    if (!planner::IsTrue(status, type)) continue;
    situation.outcome = outcome;
    situation.outcome_message = planner::FindCondition(status, type)->message;
  }
  if (pods.has_value()) {
    situation.instances.emplace();
    for (const Pod& pod : *pods) situation.instances->push_back(ToInstance(pod));
  }
  for (const api::FieldError& error : record.errors) {
    situation.gaps.push_back(absl::StrCat("the spec, by this version of downpour: ", error.ToString()));
  }
  return situation;
}

Snapshot MakeJobSnapshot(const JobRecord& record, const std::vector<Pod>& pods, double now) {
  const Situation situation = MakeJobSituation(record, pods);
  Snapshot snapshot;
  snapshot.on_cluster = true;
  snapshot.status = record.job.status;
  const double start = snapshot.status.start_time.value_or(record.meta.creation_time.value_or(now));
  snapshot.seconds = std::max(0.0, snapshot.status.completion_time.value_or(now) - start);
  if (snapshot.status.progress.has_value()) snapshot.progress = ToProgress(record.job, now);
  const Explanation explanation = Explain(situation, now);
  if (explanation.severity != Severity::kFine) snapshot.note = explanation.headline;
  AddMembers(*situation.instances, record.job, !situation.outcome.empty(), &snapshot);
  return snapshot;
}

}  // namespace downpour::cli
