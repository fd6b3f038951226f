#include "operator/controller/reconciler.h"

#include <algorithm>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/str_cat.h"
#include "operator/api/manifest.h"
#include "operator/job/report.h"
#include "operator/job/training_config.h"
#include "operator/kube/api_error.h"
#include "operator/planner/conditions.h"
#include "operator/planner/context.h"
#include "operator/planner/update_mode.h"
#include "proto/host_port.h"

namespace downpour::controller {
namespace {

using planner::Action;
using planner::ActionType;

constexpr absl::Duration kStoreRetry = absl::Seconds(1);

// `requeue_after` becomes `wait` unless it is sooner.
void LookAgainAfter(absl::Duration wait, std::optional<absl::Duration>& requeue_after) {
  requeue_after = std::min(requeue_after.value_or(wait), wait);
}

// Whether something waits for the next answer although the job may train: a checkpoint that is wanted, another mode, ps
// that are to hold nothing, slices without a standby, a ring that is not formed, or a recovery that ends with the first
// new update.
bool IsWatched(const api::TrainingJob& job, const Pods& pods) {
  const api::TrainingJobStatus& status = job.status;
  const int wanted_ps = planner::DesiredReplicas(job.spec, api::Role::kParameterServer);
  const bool too_many = std::any_of(pods.begin(), pods.end(), [wanted_ps](const PodPointer& pod) {
    return pod->role == api::Role::kParameterServer && pod->index >= wanted_ps && !HasEnded(*pod);
  });
  const api::Condition* const standbys = planner::FindCondition(status, planner::kProtected);
  const api::Condition* const ring = planner::FindCondition(status, planner::kRingFormed);
  return !planner::IsInWantedMode(job.spec.update, status) || status.checkpoint_request.has_value() || too_many ||
         !status.leaving_parameter_servers.empty() || (standbys != nullptr && !standbys->status) ||
         (ring != nullptr && !ring->status) ||
         (status.recovery.has_value() && !status.recovery->last_duration_seconds.has_value());
}

// What stands in the way of the job, if anything does.
const std::optional<planner::Obstacle>& StandsInTheWay(const Hold& starts, const Hold& publishing) {
  return starts.obstacle.has_value() ? starts.obstacle : publishing.obstacle;
}

}  // namespace

Reconciler::Reconciler(ReconcilerOptions options, kube::Client* client, const kube::Store<JobRecord>* jobs,
                       const kube::Store<Pod>* pods, CoordinatorGateway* gateway, ReconcilerHooks hooks,
                       std::function<double()> clock)
    : options_(std::move(options)),
      client_(client),
      jobs_(jobs),
      pods_(pods),
      gateway_(gateway),
      hooks_(std::move(hooks)),
      clock_(std::move(clock)),
      services_(client, clock_),
      job_pods_(client, options_.pods, options_.most_parallel,
                [this](const JobRecord& record) { return IsCurrent(record); }) {}

Reconciler::Memory Reconciler::Recall(const std::string& key, const JobRecord& record) {
  absl::MutexLock lock(&mutex_);
  const auto found = memories_.find(key);
  if (found != memories_.end() && found->second.uid == record.meta.uid) return found->second;
  if (found != memories_.end()) gateway_->Forget(found->second.uid);  // a job of the same name took its place
  Memory fresh;
  fresh.uid = record.meta.uid;
  // Numbers are stored before anything is started under them.
  if (record.job.status.incarnations.empty()) {
    fresh.discovery = Discovery::OfNewJob();
    fresh.budget = DisruptionBudget::OfNewJob();
  }
  return fresh;
}

void Reconciler::Remember(const std::string& key, Memory memory) {
  absl::MutexLock lock(&mutex_);
  Memory& known = memories_[key];
  Count(known, -1);
  known = std::move(memory);
  Count(known, 1);
}

void Reconciler::Forget(const std::string& key) {
  absl::MutexLock lock(&mutex_);
  const auto found = memories_.find(key);
  if (found == memories_.end()) return;
  gateway_->Forget(found->second.uid);
  Count(found->second, -1);
  memories_.erase(found);
}

void Reconciler::Count(const Memory& memory, int times) {
  if (memory.over) over_ += times;
  if (memory.questions.moves()) moving_ += times;
}

Load Reconciler::CurrentLoad() const {
  // Those that were not looked at yet count too, else all of them would write when a leader is new.
  const int jobs = static_cast<int>(jobs_->size());
  absl::MutexLock lock(&mutex_);
  return {jobs - over_, moving_};
}

bool Reconciler::IsCurrent(const JobRecord& record) const {
  const kube::Store<JobRecord>::Pointer known = jobs_->Get(record.meta.Key());
  return known != nullptr && known->meta.uid == record.meta.uid && known->meta.generation == record.meta.generation &&
         known->meta.deletion_time.has_value() == record.meta.deletion_time.has_value();
}

Decision Reconciler::Decide(const std::string& key) {
  const CacheVersions seen = {ParseVersion(jobs_->resource_version()), ParseVersion(pods_->resource_version())};
  const kube::Store<JobRecord>::Pointer record = jobs_->Get(key);
  if (record == nullptr) {
    Forget(key);
    return RemoveService(key);
  }
  if (!record->managed_here) return {};
  const auto pass = std::make_shared<Pass>();
  pass->record = record;
  pass->pods = pods_->Group(record->meta.uid);
  pass->now = clock_();
  pass->load = CurrentLoad();
  pass->memory = Recall(key, *record);
  if (!pass->memory.writes.AreSeen(seen, pass->pods)) {
    if (hooks_.on_stale) hooks_.on_stale();
    return {{absl::OkStatus(), options_.stale_check}, nullptr};
  }
  pass->memory.writes.ForgetDeleted();
  Decision decision = record->errors.empty() ? Advance(pass) : RefuseSpec(pass);
  if (!decision.carry_out) {
    Remember(key, std::move(pass->memory));
    return decision;
  }
  decision.carry_out = [this, key, pass, carry_out = std::move(decision.carry_out)] {
    const absl::Cleanup remember = [&] { Remember(key, std::move(pass->memory)); };
    return carry_out();
  };
  return decision;
}

Decision Reconciler::RemoveService(const std::string& key) {
  const std::string namespace_name = key.substr(0, key.find('/'));
  const auto is_used = [this, namespace_name] { return jobs_->HasGroup(namespace_name); };
  if (is_used()) return {};
  return {{}, [this, namespace_name, is_used]() -> ReconcileResult {
            return {services_.Remove(namespace_name, is_used), std::nullopt};
          }};
}

Decision Reconciler::RefuseSpec(const std::shared_ptr<Pass>& pass) {
  // Nothing of such a job is touched but its status: another version of the operator may know how to read it.
  const JobRecord& record = *pass->record;
  const std::string message = record.errors.front().ToString();
  api::TrainingJobStatus status = record.job.status;
  const api::Condition* known = planner::FindCondition(status, planner::kSpecInvalid);
  if (known != nullptr && known->status && known->message == message) return {};
  std::erase_if(status.conditions,
                [](const api::Condition& condition) { return condition.type == planner::kSpecInvalid; });
  status.conditions.push_back({planner::kSpecInvalid, true, "Unreadable", message, pass->now, record.meta.generation});
  status.phase = "Pending";
  status.reason = planner::kSpecInvalid;
  return {{}, [this, pass, status, message]() -> ReconcileResult {
            const absl::Status stored = StoreStatus(*pass, status);
            if (!stored.ok()) return {stored, std::nullopt};
            Emit(*pass->record, {{true, planner::kSpecInvalid, message}});
            return {};
          }};
}

Decision Reconciler::Advance(const std::shared_ptr<Pass>& pass) {
  Memory& memory = pass->memory;
  for (Hold* hold : {&memory.starts, &memory.discovery.hold()}) hold->BoundAt(pass->now);
  const bool checks =
      pass->pods.empty() && pass->now >= memory.starts.until && memory.templates.IsDue(*pass->record, pass->now);
  if (!checks) return Plan(pass, absl::OkStatus());
  const auto check = [this, pass] {
    return pass->memory.templates.Run(*pass->record, options_.pods, *client_, pass->memory.starts, pass->now);
  };
  if (!TemplateCheck::Asks(*pass->record)) return Plan(pass, check());
  return {{}, [this, pass, check] {
            const Decision decision = Plan(pass, check());
            return decision.carry_out ? decision.carry_out() : decision.result;
          }};
}

planner::Observed Reconciler::Observe(Pass& pass) {
  const JobRecord& record = *pass.record;
  Memory& memory = pass.memory;
  planner::Observed observed;
  observed.deletion_requested = record.meta.deletion_time.has_value();
  observed.obstacle = StandsInTheWay(memory.starts, memory.discovery.hold());
  observed.starts_held_until = memory.starts.until;
  if (pass.pods.empty()) {  // else it has begun
    observed.template_error = memory.templates.error();
    observed.templates_unchecked = !memory.templates.IsChecked(record);
  }
  if (!record.job.status.start_time) {
    observed.temporary_output = TemporaryOutput(record.job.spec);
    observed.temporary_checkpoints = TemporaryCheckpoints(record.job.spec);
  }
  observed.gpus = GpusOf(record.job.spec);
  observed.worker_gpus = api::WorkerGpus(record.job.spec);
  memory.over = planner::IsOver(record.job.status);
  if (memory.over) gateway_->Forget(record.meta.uid);
  const std::optional<CoordinatorGateway::Answer> answer = gateway_->Latest(record.meta.uid);
  if (answer.has_value()) {
    observed.report = job::ToReport(answer->reply, answer->received_time);
    observed.report->told = answer->told;
  }
  observed.instances = memory.roll_call.Take(pass.pods, answer);
  if (memory.over) {
    memory.questions = Questions();
    return observed;
  }
  const PaceOptions& pace = options_.pace;
  const bool watched = IsWatched(record.job, pass.pods);
  const absl::Duration ask = memory.questions.Look(pace, pass.load, pass.pods, observed, watched, pass.now);
  if (const PodPointer& coordinator = memory.questions.coordinator(); coordinator != nullptr) {
    v1::ProgressRequest question =
        job::MakeQuestion(ProcessJobUid(record.meta.uid), record.job.status, observed.instances);
    *question.mutable_mode() = job::ToWantedMode(record.job);
    if (record.job.spec.strategy == api::Strategy::kParameterServer) {
      *question.mutable_ps() = job::ToWantedPs(record.job);
    }
    gateway_->Follow(
        record.meta.uid, record.meta.Key(), JoinHostPort(coordinator->address, kControlPort),
        {ask, watched ? absl::ZeroDuration() : Stretched(pace.progress_interval, pace.write_spacing, pass.load.jobs)},
        std::move(question));
  }
  if (hooks_.cordoned_nodes) observed.cordoned_nodes = hooks_.cordoned_nodes();
  observed.answer_due = memory.questions.AnswerDue(pace, observed, pass.now);
  return observed;
}

Decision Reconciler::Plan(const std::shared_ptr<Pass>& pass, const absl::Status& checked) {
  const JobRecord& record = *pass->record;
  Memory& memory = pass->memory;
  const PaceOptions& pace = options_.pace;
  const double now = pass->now;
  const planner::Observed observed = Observe(*pass);
  Work work;
  work.checked = checked;
  work.was_blocked = observed.obstacle.has_value();
  work.plan = planner::MakePlan(record.job, observed, now);
  if (work.plan.requeue_after.has_value()) work.requeue_after = absl::Seconds(*work.plan.requeue_after);
  if (const std::optional<absl::Duration> wait = memory.templates.LookAgain(); wait.has_value()) {
    LookAgainAfter(*wait, work.requeue_after);
  }
  // Whether what is due at `time`, if at all, is due now; if later, it is looked at again then.
  const auto is_due = [&work, now](std::optional<double> time) {
    if (!time.has_value() || now >= *time) return time.has_value();
    LookAgainAfter(absl::Seconds(*time - now), work.requeue_after);
    return false;
  };
  const News news = CompareStatus(record.job.status, work.plan);
  if (is_due(StatusDue(pace, pass->load, record, news, memory.status_written, now))) work.news = news;
  work.published = memory.discovery.Due(record, work.plan.status, pass->pods);
  work.publishes = work.published.has_value() && now >= memory.discovery.hold().until;
  const absl::Duration delay = Stretched(options_.budget_delay, pace.write_spacing, pass->load.jobs);
  work.writes_budget = is_due(memory.budget.Due(work.plan.status, work.plan.protected_ps, delay, now));
  if (IsIdle(work)) return {Do(*pass, work), nullptr};
  return {{}, [this, pass, work = std::move(work)] { return Do(*pass, work); }};
}

bool Reconciler::IsIdle(const Work& work) {
  return work.news == News::kNone && !work.publishes && !work.writes_budget &&
         std::all_of(work.plan.actions.begin(), work.plan.actions.end(),
                     [](const Action& action) { return action.type == ActionType::kStoreStatus; });
}

ReconcileResult Reconciler::Do(Pass& pass, const Work& work) {
  const planner::Plan& plan = work.plan;
  Memory& memory = pass.memory;
  ReconcileResult result;
  result.requeue_after = work.requeue_after;
  if (work.news != News::kNone) {
    result.status = StoreStatus(pass, plan.status);
    if (!result.status.ok()) {
      // Not at once, as the plan may want it: the queue backs off.
      if (result.requeue_after.has_value()) result.requeue_after = std::max(*result.requeue_after, kStoreRetry);
      return result;
    }
    if (hooks_.on_status_write) hooks_.on_status_write(ToString(work.news));
    Emit(*pass.record, plan.events);
  }
  memory.roll_call.Remember(pass.pods, plan.status);
  // Those that run need it, and those that start must not be led to whoever has the address by now.
  if (work.publishes) {
    result.status = memory.discovery.Publish(*pass.record, *work.published, *client_, services_, clock_());
  }
  if (!work.published.has_value()) memory.discovery.hold() = Hold();
  // Who does not answer is not asked again at once; the next pass publishes nothing yet.
  const bool answers = result.status.ok() || kube::GetApiError(result.status).has_value() ||
                       !(absl::IsUnavailable(result.status) || absl::IsDeadlineExceeded(result.status));
  if (answers) {
    const absl::Status carried_out = CarryOut(pass, plan);
    result.status.Update(carried_out.ok() ? work.checked : carried_out);
  }
  // Nothing else may happen that would lead to another try, or to the word that there is no obstacle any more.
  for (const Hold* hold : {&memory.starts, &memory.discovery.hold()}) {
    if (hold->until <= pass.now) continue;  // as this pass saw it; by now it may be over
    LookAgainAfter(absl::Seconds(std::max<double>(hold->until - clock_(), 0)), result.requeue_after);
  }
  if (work.was_blocked && !StandsInTheWay(memory.starts, memory.discovery.hold()).has_value()) {
    LookAgainAfter(absl::ZeroDuration(), result.requeue_after);
  }
  if (!result.status.ok() || !work.writes_budget) return result;
  if (const std::optional<absl::Duration> wait = WriteBudget(pass, plan.protected_ps); wait.has_value()) {
    LookAgainAfter(*wait, result.requeue_after);
  }
  return result;
}

absl::Status Reconciler::StoreStatus(Pass& pass, const api::TrainingJobStatus& status) {
  const JobRecord& record = *pass.record;
  api::TrainingJobStatus complete = status;
  complete.worker.selector =
      absl::StrCat(PodSelector(record.meta.uid), ",", kRoleLabel, "=", std::string(api::ToString(api::Role::kWorker)));
  // A write for another reason promises nothing new.
  if (complete.progress.has_value() && complete.progress != record.job.status.progress) {
    complete.progress->next_update_time = NextProgress(options_.pace, pass.load, record.meta.uid, pass.now);
  }
  const absl::StatusOr<kube::Json> stored =
      client_->ReplaceStatus(kube::kTrainingJobs, record.meta, api::StatusToJson(complete, api::TimeFormat::kRfc3339));
  if (!stored.ok()) return stored.status();
  pass.memory.writes.StoredStatus(kube::ReadMeta(*stored).resource_version);
  pass.memory.status_written = pass.now;
  if (hooks_.on_status) hooks_.on_status(record, status);
  return absl::OkStatus();
}

absl::Status Reconciler::CarryOut(Pass& pass, const planner::Plan& plan) {
  const JobRecord& record = *pass.record;
  std::vector<Action> starts;
  std::vector<Action> removals;
  bool finish = false;
  bool delete_job = false;
  for (const Action& action : plan.actions) {
    switch (action.type) {
      case ActionType::kStoreStatus:
        break;  // done
      case ActionType::kStart:
        starts.push_back(action);
        break;
      case ActionType::kStop:
      case ActionType::kForceStop:
      case ActionType::kRemove:
        removals.push_back(action);
        break;
      case ActionType::kFinish:
        finish = true;
        break;
      case ActionType::kDeleteJob:
        delete_job = true;
        break;
    }
  }
  absl::Status result = job_pods_.Remove(record, removals, pass.pods, pass.memory.writes);
  if (finish) {
    for (const PodPointer& pod : pass.pods) {
      if (pod->role == api::Role::kWorker || pod->phase != "Running" || pod->address.empty()) continue;
      gateway_->Finish(pod->role, record.meta.uid, JoinHostPort(pod->address, kControlPort));
    }
  }
  if (starts.empty()) {
    // Nothing is asked for that could be refused, and not because it was a moment ago.
    if (pass.now >= pass.memory.starts.until) pass.memory.starts = Hold();
  } else if (result.ok()) {
    result = Start(pass, starts);
  }
  if (result.ok() && delete_job) {
    kube::DeleteOptions options;
    options.preconditions.uid = record.meta.uid;
    result = client_->Delete(kube::kTrainingJobs, record.meta.namespace_name, record.meta.name, options);
    if (absl::IsNotFound(result)) result = absl::OkStatus();
  }
  return result;
}

absl::Status Reconciler::Start(Pass& pass, const std::vector<Action>& starts) {
  Memory& memory = pass.memory;
  // A name that is taken is told before anything runs. A pass that replaces a pod is in a hurry: the next looks.
  if (pass.pods.empty()) {
    if (absl::Status there = AsRefusal(services_.Ensure(pass.record->meta.namespace_name)); !there.ok()) {
      memory.starts.Note(there, "the service of the namespace's jobs cannot be made", clock_());
      return there;
    }
  }
  memory.discovery.DoubtAfterAMinute(clock_());
  const JobPods::Started started = job_pods_.Start(*pass.record, starts, pass.pods, memory.writes);
  if (started.some) memory.starts.refusals = 0;
  // What was not tried was not accepted either.
  if (!started.status.ok() || !started.broken_off) {
    memory.starts.Note(started.status, "a pod cannot be made", clock_());
  }
  return started.status;
}

std::optional<absl::Duration> Reconciler::WriteBudget(Pass& pass, const std::optional<planner::ProtectedPs>& wanted) {
  DisruptionBudget& budget = pass.memory.budget;
  const bool failed_before = budget.failed_before();
  const absl::Status written = budget.Write(*pass.record, wanted, *client_, pass.now);
  if (written.ok()) return std::nullopt;
  if (!failed_before) {
    const char* const what = wanted.has_value()
                                 ? "evictions of parameter servers are not held up: "
                                 : "evictions of parameter servers are held up although they should not be: ";
    Emit(*pass.record, {{true, wanted.has_value() ? "Unprotected" : "StillProtected",
                         absl::StrCat(what, std::string(written.message()))}});
  }
  return DisruptionBudget::kRetry;
}

void Reconciler::Emit(const JobRecord& record, const std::vector<planner::Event>& events) const {
  if (!hooks_.on_event) return;
  for (const planner::Event& event : events) {
    hooks_.on_event({kube::kTrainingJobs, record.meta, event.warning, event.reason, event.message});
  }
}

}  // namespace downpour::controller
