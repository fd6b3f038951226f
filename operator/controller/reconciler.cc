#include "operator/controller/reconciler.h"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <map>
#include <set>
#include <string_view>
#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "operator/api/manifest.h"
#include "operator/controller/slow_start.h"
#include "operator/controller/turn.h"
#include "operator/job/report.h"
#include "operator/kube/api_error.h"
#include "operator/planner/conditions.h"
#include "operator/planner/failure.h"

namespace downpour::controller {
namespace {

using planner::Action;
using planner::ActionType;
using Pods = std::vector<kube::Store<Pod>::Pointer>;

constexpr double kTemplateRetrySeconds = 30;
constexpr double kBudgetRetrySeconds = 60;
constexpr double kPublishedTrustedSeconds = 60;
constexpr double kTurnsAheadSeconds = 10;
constexpr double kLongestStatusSeconds = 1;
constexpr double kNewestShare = 0.2;  // of the newest in a mean over the latest
constexpr absl::Duration kStoreRetry = absl::Seconds(1);
constexpr double kAnswerSlackSeconds = 5;  // from when a coordinator is to be asked until its answer is there
constexpr api::Backoff kObstacleBackoff = {1, 60};
constexpr api::Backoff kErrorBackoff = {1, 10};  // what may be over any moment

// Resource versions are numbers within one resource; 0 where they are not, which compares as long seen.
std::uint64_t ParseVersion(std::string_view text) {
  std::uint64_t version = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), version);
  return error == std::errc() && end == text.data() + text.size() ? version : 0;
}

// As metrics call it.
std::string_view Name(News news) {
  switch (news) {
    case News::kProgress:
      return "progress";
    case News::kPicture:
      return "picture";
    case News::kNone:  // but that of a status that was not stored in its time
    case News::kReady:
    case News::kEssential:
      break;
  }
  return "essential";
}

// `requeue_after` becomes `wait` unless it is sooner.
void LookAgainAfter(absl::Duration wait, std::optional<absl::Duration>& requeue_after) {
  requeue_after = std::min(requeue_after.value_or(wait), wait);
}

bool BecomesReady(const api::TrainingJobStatus& before, const api::TrainingJobStatus& after) {
  return planner::IsTrue(after, planner::kReady) && !planner::IsTrue(before, planner::kReady);
}

News Compare(const api::TrainingJobStatus& before, const planner::Plan& plan) {
  if (plan.actions.empty() || plan.actions.front().type != ActionType::kStoreStatus) return News::kNone;
  // That the job may finish is told again and again, on the strength of an outcome that is stored already.
  const bool acts = std::any_of(plan.actions.begin() + 1, plan.actions.end(),
                                [](const Action& action) { return action.type != ActionType::kFinish; });
  if (!plan.events.empty() || acts) return News::kEssential;
  const bool becomes_ready = BecomesReady(before, plan.status);
  const auto conditions = [becomes_ready](const api::TrainingJobStatus& status) {
    std::set<std::tuple<std::string, bool, std::string>> bare;
    for (const api::Condition& condition : status.conditions) {
      if (becomes_ready && condition.type == planner::kReady) continue;
      // Why a job is not ready yet changes with every member that comes.
      const bool counts = condition.type == planner::kReady && !condition.status;
      bare.emplace(condition.type, condition.status, counts ? "" : condition.reason);
    }
    return bare;
  };
  // Who is gone is struck off the list whenever it suits.
  const std::unordered_set<std::string_view> known(before.counted_uids.begin(), before.counted_uids.end());
  const auto is_new = [&known](const std::string& uid) { return known.count(uid) == 0; };
  const std::vector<std::string>& counted = plan.status.counted_uids;
  if (before.observed_generation != plan.status.observed_generation ||
      before.incarnations != plan.status.incarnations || std::any_of(counted.begin(), counted.end(), is_new) ||
      before.failures != plan.status.failures || before.recovery != plan.status.recovery ||
      conditions(before) != conditions(plan.status)) {
    return News::kEssential;
  }
  if (becomes_ready) return News::kReady;
  api::TrainingJobStatus after = plan.status;
  after.progress = before.progress;
  after.last_progress_time = before.last_progress_time;
  after.last_progress_step = before.last_progress_step;
  return after == before ? News::kProgress : News::kPicture;
}

// No status of the job has been stored by anybody.
bool IsUntold(const JobRecord& stored) { return stored.job.status == api::TrainingJobStatus(); }

// Whether `plan` of a job without any status does nothing but start its members.
bool OnlyBegins(const planner::Plan& plan) {
  bool starts = false;
  for (const Action& action : plan.actions) {
    if (action.type == ActionType::kStart) {
      starts = true;
    } else if (action.type != ActionType::kStoreStatus) {
      return false;
    }
  }
  return starts && plan.events.empty() && plan.status.failures.empty();
}

constexpr char kQuotaExceeded[] = "QuotaExceeded";
constexpr char kNamespaceTerminating[] = "NamespaceTerminating";
constexpr char kServerError[] = "ServerError";

// What the platform's refusal means for the job; nothing if there was none, or if trying again soon may help. `before`:
// how many came before it in a row.
std::optional<planner::Obstacle> ToObstacle(const absl::Status& status, const std::string& what, int before) {
  if (absl::IsAlreadyExists(status)) return planner::Obstacle{"NameConflict", std::string(status.message())};
  // Such as a webhook that does not answer. One alone says little.
  const auto server_error = [before](const std::string& message) {
    return before > 0 ? std::optional(planner::Obstacle{kServerError, message}) : std::nullopt;
  };
  const std::optional<kube::ApiError> error = kube::GetApiError(status);
  if (!error.has_value()) {
    // Our own word about a template, and the end of this process.
    if (absl::IsInvalidArgument(status) || absl::IsCancelled(status)) return std::nullopt;
    return server_error(absl::StrCat(what, ": ", std::string(status.message())));
  }
  const std::string message = absl::StrCat(what, ": ", error->message);
  // The latter: a quota so new that nobody has counted yet what it is about.
  if (error->code == 403 && (absl::StrContains(error->message, "exceeded quota") ||
                             absl::StrContains(error->message, "status unknown for quota"))) {
    return planner::Obstacle{kQuotaExceeded, message};
  }
  if (error->code == 403 && absl::StrContains(error->message, "because it is being terminated")) {
    return planner::Obstacle{kNamespaceTerminating, message};
  }
  if (error->code == 404) return planner::Obstacle{"NamespaceGone", message};
  if (error->code == 403) return planner::Obstacle{"Forbidden", message};
  if (error->code == 400 || error->code == 422) return planner::Obstacle{"Refused", message};
  return server_error(message);
}

// Of a request to make something: a conflict there is somebody's refusal, such as a webhook's, and no sign of a cache
// that is behind.
absl::Status AsRefusal(const absl::Status& status) {
  if (!absl::IsAborted(status)) return status;
  absl::Status refusal = absl::UnknownError(status.message());
  status.ForEachPayload(
      [&refusal](absl::string_view type, const absl::Cord& payload) { refusal.SetPayload(type, payload); });
  return refusal;
}

// Between two requests. A 404 says more elsewhere.
absl::Status Vanished(const kube::Resource& resource, const std::string& name) {
  return absl::UnavailableError(absl::StrCat(resource.kind, " ", name, " was deleted a moment ago"));
}

// Where the coordinator is reached; empty: nowhere. Absent: it has done its work, and nobody looks for it unless
// another is started.
std::optional<std::string> CoordinatorAddress(const Pods& pods) {
  bool done = false;
  for (const kube::Store<Pod>::Pointer& pod : pods) {
    if (pod->role != api::Role::kCoordinator) continue;
    if (!pod->address.empty() && !HasEnded(*pod)) return pod->address;
    done = done || pod->phase == "Succeeded";
  }
  return done ? std::nullopt : std::optional<std::string>("");
}

// Once it is settled what becomes of a job nobody is started again.
bool IsSettled(const api::TrainingJobStatus& status) {
  return planner::IsOver(status) || planner::IsTrue(status, planner::kSuccessCriteriaMet) ||
         planner::IsTrue(status, planner::kFailureTarget);
}

std::vector<api::Role> RolesWithTemplates(const api::TrainingJobSpec& spec) {
  std::vector<api::Role> roles;
  if (spec.coordinator.has_value() && !spec.coordinator->pod_template.empty()) roles.push_back(api::Role::kCoordinator);
  if (spec.parameter_server.has_value() && !spec.parameter_server->pod_template.empty()) {
    roles.push_back(api::Role::kParameterServer);
  }
  if (!spec.worker.pod_template.empty()) roles.push_back(api::Role::kWorker);
  return roles;
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
      services_(client, clock_) {}

void Reconciler::SetFound(std::unordered_set<std::string> uids) { found_ = std::move(uids); }

Reconciler::Memory Reconciler::Recall(const std::string& key, const std::string& uid) {
  absl::MutexLock lock(&mutex_);
  const auto found = memories_.find(key);
  if (found != memories_.end() && found->second.uid == uid) return found->second;
  if (found != memories_.end()) gateway_->Forget(found->second.uid);  // a job of the same name took its place
  Memory fresh;
  fresh.uid = uid;
  if (!found_.contains(uid)) fresh.slice = Memory::Slice::kMissing;
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
  if (memory.moves) moves_ += times;
}

bool Reconciler::IsStale(const Memory& memory, const Seen& seen, const Pods& pods) {
  if (seen.jobs_version < memory.jobs_version || seen.pods_version < memory.pods_version) return true;
  return std::any_of(pods.begin(), pods.end(), [&memory](const kube::Store<Pod>::Pointer& pod) {
    return memory.deleted.count(pod->meta.uid) != 0 && (HasEnded(*pod) || !pod->meta.deletion_time.has_value());
  });
}

bool Reconciler::IsCurrent(const JobRecord& record) const {
  const kube::Store<JobRecord>::Pointer known = jobs_->Get(record.meta.Key());
  return known != nullptr && known->meta.uid == record.meta.uid && known->meta.generation == record.meta.generation &&
         known->meta.deletion_time.has_value() == record.meta.deletion_time.has_value();
}

absl::Duration Reconciler::Stretched(absl::Duration interval, absl::Duration spacing) {
  // Those that were not looked at yet count too, else all of them would write when a leader is new.
  const int jobs = static_cast<int>(jobs_->size());
  absl::MutexLock lock(&mutex_);
  return std::max(interval, spacing * (jobs - over_));
}

double Reconciler::NextWrite(const std::string& uid, absl::Duration interval, double last) {
  const absl::Duration stretched = Stretched(interval, options_.write_spacing);
  const double period = absl::ToDoubleSeconds(stretched);
  return stretched == interval ? last + period : NextTurn(uid, period, last);
}

double Reconciler::TurnToTell(const std::string& uid, Memory::Untold& untold, double now) {
  const double patience = absl::ToDoubleSeconds(Stretched(options_.telling_patience, options_.write_spacing));
  // Those that became ready together are not told together.
  const double latest = untold.since + patience * (1 + Phase(uid)) / 2;
  absl::MutexLock lock(&mutex_);
  if (!untold.turn.has_value()) {
    const double gap = std::min(options_.telling_gap * status_seconds_, kTurnsAheadSeconds);
    if (gap == 0) return now;  // nothing is known to be slow
    // Neither further back than the burst nor, after a clock that was ahead, further off than turns are given.
    next_turn_to_tell_ =
        std::clamp(next_turn_to_tell_, now - (options_.telling_burst - 1) * gap, now + 2 * kTurnsAheadSeconds);
    const double turn = std::max(now, next_turn_to_tell_);
    // Turns are given for the near future only: by then writing may be quick again.
    if (turn > now + kTurnsAheadSeconds) return std::min(latest, now + kTurnsAheadSeconds * (0.5 + Phase(uid)));
    untold.turn = turn;
    next_turn_to_tell_ += gap;
  }
  return std::min(latest, *untold.turn);
}

bool Reconciler::IsRush(double now) {
  absl::MutexLock lock(&mutex_);
  // Further off than turns are given: after a clock that was ahead.
  return now < next_turn_to_tell_ && next_turn_to_tell_ <= now + 2 * kTurnsAheadSeconds;
}

std::optional<double> Reconciler::StatusDue(Pass& pass, const planner::Plan& plan, News news) {
  Memory& memory = pass.memory;
  const std::string& uid = pass.stored->meta.uid;
  const double now = pass.now;
  if (memory.unwritten.has_value()) {
    Memory::Untold& untold = memory.unwritten->untold;
    untold.since = std::min(untold.since, now);  // a clock may have been ahead
    return news == News::kEssential ? now : TurnToTell(uid, untold, now);
  }
  if (IsUntold(*pass.stored) && pass.pods.empty() && !found_.contains(uid) && OnlyBegins(plan)) {
    Memory::Untold untold = {now, std::nullopt};
    const double turn = TurnToTell(uid, untold, now);
    if (now < turn) memory.unwritten = {plan.status, untold};
    return turn;
  }
  if (news == News::kNone) return std::nullopt;
  if (news == News::kReady) return TurnToTell(uid, *memory.untold_ready, now);
  if (news == News::kEssential) return now;
  const std::optional<api::ProgressStatus>& told = pass.stored->job.status.progress;
  // A leader that is new goes by what it reads.
  const auto past = [now](double time) { return time <= now ? time : 0; };  // a clock may have been ahead
  const double last = std::max(past(memory.status_written), past(told.has_value() ? told->last_update_time : 0));
  const double due =
      NextWrite(uid, news == News::kPicture ? options_.picture_interval : options_.progress_interval, last);
  return news == News::kProgress && told.has_value() ? std::min(due, told->next_update_time.value_or(due)) : due;
}

void Reconciler::NoteReady(const JobRecord& record, api::TrainingJobStatus& status, Memory& memory, double now) {
  if (!BecomesReady(record.job.status, status)) {
    memory.untold_ready.reset();
    return;
  }
  if (!memory.untold_ready.has_value()) memory.untold_ready = {now, std::nullopt};
  memory.untold_ready->since = std::min(memory.untold_ready->since, now);  // a clock may have been ahead
  for (api::Condition& condition : status.conditions) {
    if (condition.type == planner::kReady) condition.last_transition_time = memory.untold_ready->since;
  }
}

planner::Observed Reconciler::Observe(const JobRecord& record, const Pods& pods, Memory& memory,
                                      const std::optional<CoordinatorGateway::Answer>& answer) const {
  planner::Observed observed;
  observed.deletion_requested = record.meta.deletion_time.has_value();
  observed.obstacle = StandsInTheWay(memory);
  observed.starts_held_until = memory.starts.until;
  observed.unrecorded_starts = found_.contains(record.meta.uid) ? 1 : 0;
  if (pods.empty()) {  // else it has begun
    observed.template_error = memory.template_error;
    observed.templates_unchecked = memory.templates_checked != record.meta.generation;
  }
  if (answer.has_value()) observed.report = job::ToReport(answer->reply, answer->received_time);
  std::unordered_map<std::string_view, const kube::Store<Pod>::Pointer*> cached;
  for (const kube::Store<Pod>::Pointer& pod : pods) {
    const bool ready =
        answer.has_value() &&
        (pod->role == api::Role::kCoordinator ? answer->received_time >= pod->meta.creation_time.value_or(0)
                                              : job::IsMember(answer->reply, pod->role, pod->index, pod->incarnation));
    observed.instances.push_back(ToInstance(*pod, ready));
    cached[pod->meta.uid] = &pod;
  }
  for (kube::Store<Pod>::Pointer& pod : memory.alive) {
    if (const auto found = cached.find(pod->meta.uid); found != cached.end()) {
      pod = *found->second;
      continue;
    }
    planner::Instance vanished = ToInstance(*pod, /*ready=*/false);
    // As if it were still on its way: the planner knows what becomes of a pod that somebody else deletes.
    vanished.terminating = !HasEnded(*pod);
    vanished.terminating_since.reset();
    observed.instances.push_back(std::move(vanished));
  }
  return observed;
}

void Reconciler::NoteAlive(const Pods& pods, const api::TrainingJobStatus& status, Memory& memory) {
  memory.alive.clear();
  if (IsSettled(status)) return;  // nobody's end is a failure any more
  const std::unordered_set<std::string_view> counted(status.counted_uids.begin(), status.counted_uids.end());
  for (const kube::Store<Pod>::Pointer& pod : pods) {
    if (!HasEnded(*pod) && counted.count(pod->meta.uid) == 0) memory.alive.push_back(pod);
  }
}

double Reconciler::AnswerDue(const Memory& memory, const planner::Observed& observed, double now) const {
  const double heard = observed.report.has_value() ? std::min(now, observed.report->received_time) : 0;
  // Twice: a question that was due after a longer time may just have been put off.
  return std::max(heard, memory.asked_since) +
         2 * absl::ToDoubleSeconds(std::max(memory.ask, options_.ask_interval_after_end)) + kAnswerSlackSeconds;
}

void Reconciler::FollowCoordinator(const JobRecord& record, const Pods& pods, const planner::Observed& observed,
                                   Memory& memory, double now) {
  bool at_rest = observed.report.has_value() && observed.report->phase == planner::CoordinatorPhase::kTraining;
  bool ended = false;
  bool all_run = true;
  const Pod* coordinator = nullptr;
  for (std::size_t i = 0; i < pods.size(); ++i) {
    const Pod& pod = *pods[i];
    const bool coordinates = pod.role == api::Role::kCoordinator;
    at_rest = at_rest && pod.phase == "Running" && (coordinates || observed.instances[i].ready);
    ended = ended || HasEnded(pod);
    all_run = all_run && pod.phase == "Running";
    if (coordinates && coordinator == nullptr && pod.phase == "Running" && !pod.address.empty()) coordinator = &pod;
  }
  memory.asked_since =
      memory.asked_since == 0 ? now : std::min(now, memory.asked_since);  // a clock may have been ahead
  if (coordinator == nullptr) return;
  // While the platform has not started all of them yet, or others wait to be told that they are ready, the coordinator
  // has nothing to say that is urgent.
  const bool starts = !observed.report.has_value() && !ended &&
                      (!all_run || (!planner::IsTrue(record.job.status, planner::kReady) && IsRush(now)));
  memory.moves = !at_rest && !starts;
  absl::Duration ask;
  if (!memory.moves) {
    ask = Stretched(options_.ask_interval_at_rest, options_.ask_spacing);
  } else {
    absl::MutexLock lock(&mutex_);
    ask = std::clamp(options_.ask_spacing * moves_, options_.ask_interval,
                     ended ? options_.ask_interval_after_end : options_.ask_interval_at_rest);
  }
  if (memory.coordinator != coordinator->meta.uid || 2 * ask < memory.ask) {
    memory.coordinator = coordinator->meta.uid;
    memory.asked_since = now;
    memory.ask = ask;
  }
  memory.ask = std::max(memory.ask, ask);
  gateway_->Follow(
      record.meta.uid, record.meta.Key(), absl::StrCat(coordinator->address, ":", kControlPort),
      {ask, Stretched(options_.progress_interval, options_.write_spacing), starts ? ask : absl::ZeroDuration()},
      job::RecentFailures(record.job.status));
}

bool Reconciler::LacksVerdict(const Pass& pass) {
  const JobRecord& record = *pass.record;
  const Memory& memory = pass.memory;
  const bool starts = !record.job.status.start_time.has_value() && pass.pods.empty() && !record.job.spec.suspend &&
                      !record.meta.deletion_time.has_value();
  if (!starts || pass.now < memory.starts.until) return false;
  const bool checked = memory.templates_checked == record.meta.generation;
  return !checked || (!memory.template_error.empty() && pass.now >= memory.template_check_time + kTemplateRetrySeconds);
}

absl::Status Reconciler::CheckTemplates(const JobRecord& record, Memory& memory, double now) {
  std::string refusal;
  for (const api::Role role : RolesWithTemplates(record.job.spec)) {
    const std::string whose = absl::StrCat("the template of ", std::string(api::ToString(role)));
    absl::StatusOr<kube::Json> pod = PodsOfRole(record.job, options_.images, role).Make(0, 1);
    absl::Status status = pod.status();
    if (pod.ok())
      status =
          client_->Create(kube::kPods, record.meta.namespace_name, *pod, {/*dry_run=*/true, /*metadata_only=*/true})
              .status();
    if (absl::IsAlreadyExists(status)) continue;  // the name is taken, which is another matter
    const std::optional<planner::Obstacle> obstacle = ToObstacle(status, whose, memory.starts.refusals);
    // Quotas are looked at last, once all else is well. That there is no room is told of the pods themselves.
    if (obstacle.has_value() && obstacle->reason == kQuotaExceeded) continue;
    const bool no_namespace = obstacle.has_value() && obstacle->reason == kNamespaceTerminating;
    if (absl::IsInvalidArgument(status) || (absl::IsPermissionDenied(status) && !no_namespace)) {
      refusal = obstacle.has_value() ? obstacle->message : std::string(status.message());
      break;
    }
    if (!status.ok()) {  // no verdict
      const std::string what = absl::StrCat(whose, " cannot be checked");
      NoteObstacle(AsRefusal(status), what, memory.starts);
      return status;
    }
  }
  memory.template_error = std::move(refusal);
  memory.templates_checked = record.meta.generation;
  memory.template_check_time = now;
  return absl::OkStatus();
}

absl::Status Reconciler::StoreStatus(const JobRecord& record, const api::TrainingJobStatus& status, Memory& memory,
                                     double now) {
  api::TrainingJobStatus complete = status;
  complete.worker.selector =
      absl::StrCat(PodSelector(record.meta.uid), ",", kRoleLabel, "=", std::string(api::ToString(api::Role::kWorker)));
  // A write for another reason promises nothing new.
  if (complete.progress.has_value() && complete.progress != record.job.status.progress) {
    complete.progress->next_update_time =
        NextWrite(record.meta.uid, options_.progress_interval, now) +
        absl::ToDoubleSeconds(Stretched(options_.ask_interval_at_rest, options_.ask_spacing));
  }
  const double begun = clock_();
  const absl::StatusOr<kube::Json> stored =
      client_->ReplaceStatus(kube::kTrainingJobs, record.meta, api::StatusToJson(complete, api::TimeFormat::kRfc3339));
  if (!stored.ok()) return stored.status();
  {
    // One that had to be tried again and again, or a clock that was put right, says little about the next.
    const double taken = std::clamp(clock_() - begun, 0.0, kLongestStatusSeconds);
    absl::MutexLock lock(&mutex_);
    status_seconds_ += kNewestShare * (taken - status_seconds_);
  }
  memory.jobs_version = ParseVersion(kube::ReadMeta(*stored).resource_version);
  memory.status_written = now;
  memory.unwritten.reset();
  if (hooks_.on_status) hooks_.on_status(record, status);
  return absl::OkStatus();
}

void Reconciler::Emit(const JobRecord& record, const std::vector<planner::Event>& events) const {
  if (!hooks_.on_event) return;
  for (const planner::Event& event : events) {
    hooks_.on_event({kube::kTrainingJobs, record.meta, event.warning, event.reason, event.message});
  }
}

absl::StatusOr<kube::Json> Reconciler::CreateOwned(const JobRecord& record, const kube::Resource& resource,
                                                   const kube::Json& object) {
  // A template with unknown fields did not get so far: see CheckTemplates.
  absl::StatusOr<kube::Json> created = client_->Create(resource, record.meta.namespace_name, object,
                                                       {/*dry_run=*/false, /*metadata_only=*/true, /*unchecked=*/true});
  if (created.ok()) return created;
  if (!absl::IsAlreadyExists(created.status())) return AsRefusal(created.status());
  const std::string name = kube::FindText(object, {"metadata", "name"});
  absl::StatusOr<kube::Json> existing = client_->Get(resource, record.meta.namespace_name, name);
  if (absl::IsNotFound(existing.status())) return Vanished(resource, name);
  // Ours: an answer was lost, or a cache is behind.
  if (!existing.ok() || kube::ReadMeta(*existing).controller_uid == record.meta.uid) return existing;
  return SomebodyElses(resource, name);
}

absl::Status Reconciler::DeletePod(const Pod& pod, bool at_once, Memory& memory, absl::Mutex& memory_mutex) {
  kube::DeleteOptions options;
  options.preconditions.uid = pod.meta.uid;
  if (at_once) options.grace_seconds = 0;
  absl::Status deleted = client_->Delete(kube::kPods, pod.meta.namespace_name, pod.meta.name, options);
  if (!deleted.ok() && !absl::IsNotFound(deleted)) return deleted;
  absl::MutexLock lock(&memory_mutex);
  memory.deleted.insert(pod.meta.uid);
  return absl::OkStatus();
}

absl::Status Reconciler::Remove(const JobRecord& record, const std::vector<const Action*>& removals, const Pods& pods,
                                Memory& memory) {
  const auto ended = [](const Action* action) { return action->type == ActionType::kRemove; };
  if (removals.size() > 1 && removals.size() == pods.size() && std::all_of(removals.begin(), removals.end(), ended)) {
    // All there is of a job that is over: at once.
    kube::DeleteOptions options;
    options.grace_seconds = 0;
    absl::Status deleted =
        client_->DeleteCollection(kube::kPods, record.meta.namespace_name, PodSelector(record.meta.uid), options);
    if (deleted.ok()) {
      for (const kube::Store<Pod>::Pointer& pod : pods) memory.deleted.insert(pod->meta.uid);
    }
    return deleted;
  }
  std::unordered_map<std::string, const Pod*> by_uid;
  for (const kube::Store<Pod>::Pointer& pod : pods) by_uid[pod->meta.uid] = pod.get();
  absl::Mutex memory_mutex;
  return SlowStart(helpers_, removals.size(), options_.most_parallel, [&](std::size_t i) {
    const Action& action = *removals[i];
    const auto found = by_uid.find(action.uid);
    if (found == by_uid.end()) return absl::OkStatus();
    const Pod& pod = *found->second;
    if (action.type == ActionType::kStop && pod.meta.deletion_time.has_value()) return absl::OkStatus();
    return DeletePod(pod, /*at_once=*/action.type != ActionType::kStop, memory, memory_mutex);
  });
}

absl::Status Reconciler::CreatePod(const JobRecord& record, const Action& start, const PodsOfRole& pods_of_role,
                                   const Pods& pods, Memory& memory, absl::Mutex& memory_mutex) {
  const absl::StatusOr<kube::Json> wanted = pods_of_role.Make(start.index, start.incarnation, start.avoid_nodes);
  if (!wanted.ok()) return wanted.status();
  // What is left of the start before bears the same name.
  for (const kube::Store<Pod>::Pointer& pod : pods) {
    if (pod->role != start.role || pod->index != start.index || !HasEnded(*pod)) continue;
    absl::Status removed = DeletePod(*pod, /*at_once=*/true, memory, memory_mutex);
    if (!removed.ok()) return removed;
  }
  const absl::StatusOr<kube::Json> created = CreateOwned(record, kube::kPods, *wanted);
  if (!created.ok()) return created.status();
  const std::optional<Pod> pod = DecodePod(*created);
  if (!pod.has_value()) return absl::InternalError("the server returned a pod without our labels");
  absl::MutexLock lock(&memory_mutex);
  memory.pods_version = std::max(memory.pods_version, ParseVersion(pod->meta.resource_version));
  return absl::OkStatus();
}

const std::optional<planner::Obstacle>& Reconciler::StandsInTheWay(const Memory& memory) {
  return memory.starts.obstacle.has_value() ? memory.starts.obstacle : memory.publishing.obstacle;
}

void Reconciler::NoteObstacle(const absl::Status& status, const std::string& what, Memory::Hold& hold) const {
  if (absl::IsAborted(status)) return;  // somebody was quicker; the queue's own back-off will do
  if (status.ok()) {
    hold = Memory::Hold();
    return;
  }
  std::optional<planner::Obstacle> obstacle = ToObstacle(status, what, hold.refusals);
  if (obstacle.has_value()) hold.obstacle = std::move(obstacle);
  // The queue's own back-off is not enough: each try stores a number, which is a change, which is looked at at once.
  // Unlike a replacement, already the second try waits.
  const api::Backoff& backoff = hold.obstacle.has_value() ? kObstacleBackoff : kErrorBackoff;
  hold.until = clock_() + planner::BackoffSeconds(backoff, ++hold.refusals + 1);
}

bool Reconciler::IsPublished(const std::string& address, const api::TrainingJobStatus& status, const Memory& memory) {
  switch (memory.slice) {
    case Memory::Slice::kMissing:
      return address.empty();
    case Memory::Slice::kThere:
      return memory.published == address;
    case Memory::Slice::kUnknown:
      break;
  }
  // A leader that is new does not ask about jobs that have all members.
  return planner::IsTrue(status, planner::kReady);
}

absl::Status Reconciler::Publish(const JobRecord& record, const std::string& address, Memory& memory) {
  absl::Status status;
  if (!address.empty()) status = AsRefusal(services_.Ensure(record.meta.namespace_name));
  if (status.ok()) status = WriteSlice(record, address, memory);
  NoteObstacle(status, "the coordinator of the job cannot be found by name", memory.publishing);
  if (address.empty()) memory.publishing.obstacle.reset();  // nobody is held up by that
  return status;
}

absl::Status Reconciler::WriteSlice(const JobRecord& record, const std::string& address, Memory& memory) {
  const std::string& namespace_name = record.meta.namespace_name;
  const std::string& name = record.meta.name;
  const kube::Json wanted = MakeEndpointSlice(record.job, address);
  absl::StatusOr<kube::Json> slice = absl::NotFoundError("");
  if (memory.slice != Memory::Slice::kMissing) slice = client_->Get(kube::kEndpointSlices, namespace_name, name);
  if (absl::IsNotFound(slice.status())) {
    memory.slice = Memory::Slice::kMissing;
    if (address.empty()) return absl::OkStatus();
    slice = CreateOwned(record, kube::kEndpointSlices, wanted);
  }
  if (!slice.ok()) return slice.status();
  const kube::ObjectMeta meta = kube::ReadMeta(*slice);
  if (meta.controller_uid != record.meta.uid) return SomebodyElses(kube::kEndpointSlices, name);
  // The answer to its making may be without endpoints, and a server says null where there are none.
  const auto said = slice->find("endpoints");
  if (said != slice->end() && (address.empty() ? !said->empty() : *said != wanted.at("endpoints"))) {
    memory.slice = Memory::Slice::kUnknown;  // should the answer be lost
    const kube::Json patch = {{"metadata", {{"uid", meta.uid}, {"resourceVersion", meta.resource_version}}},
                              {"endpoints", wanted.at("endpoints")}};
    absl::Status patched = client_->MergePatch(kube::kEndpointSlices, namespace_name, name, patch).status();
    if (absl::IsNotFound(patched)) return Vanished(kube::kEndpointSlices, name);
    if (!patched.ok()) return patched;
  }
  memory.published = address;
  memory.published_at = clock_();
  memory.slice = Memory::Slice::kThere;
  return absl::OkStatus();
}

absl::Status Reconciler::Start(const JobRecord& record, const std::vector<Action>& starts, const Pods& pods,
                               Memory& memory) {
  // A name that is taken is told before anything runs. A pass that replaces a pod is in a hurry: the next looks.
  if (pods.empty()) {
    if (absl::Status there = AsRefusal(services_.Ensure(record.meta.namespace_name)); !there.ok()) {
      NoteObstacle(there, "the service of the namespace's jobs cannot be made", memory.starts);
      return there;
    }
  }
  // Pods that start need it, and nobody watches slices: it may have been deleted meanwhile.
  if (memory.slice == Memory::Slice::kThere && clock_() >= memory.published_at + kPublishedTrustedSeconds) {
    memory.slice = Memory::Slice::kUnknown;
  }
  std::map<api::Role, PodsOfRole> roles;
  for (const Action& start : starts) roles.try_emplace(start.role, record.job, options_.images, start.role);
  absl::Mutex memory_mutex;
  const std::uint64_t newest = memory.pods_version;
  std::atomic<bool> broken_off = false;
  absl::Status started = SlowStart(helpers_, starts.size(), options_.most_parallel, [&](std::size_t i) {
    // Thousands take a while. That it changed has put the job into the queue, for a pass that knows what is wanted now.
    if (IsCurrent(record)) {
      return CreatePod(record, starts[i], roles.at(starts[i].role), pods, memory, memory_mutex);
    }
    broken_off = true;
    return absl::OkStatus();
  });
  if (memory.pods_version > newest) memory.starts.refusals = 0;  // some were made
  // What was not tried was not accepted either.
  if (!started.ok() || !broken_off) NoteObstacle(started, "a pod cannot be made", memory.starts);
  return started;
}

std::optional<double> Reconciler::BudgetDue(const api::TrainingJobStatus& status, Memory& memory, double now) {
  if (memory.budget_made || !planner::IsTrue(status, planner::kReady)) return std::nullopt;
  // Members that come and go must not put it off again and again.
  if (!memory.ready_since.has_value()) {
    memory.ready_since = std::min(now, planner::FindCondition(status, planner::kReady)->last_transition_time);
  }
  const absl::Duration delay = Stretched(options_.budget_delay, options_.write_spacing);
  return std::max(*memory.ready_since + absl::ToDoubleSeconds(delay), memory.budget_held_until);
}

std::optional<absl::Duration> Reconciler::Protect(const JobRecord& record, Memory& memory, double now) {
  const absl::Status made =
      CreateOwned(record, kube::kPodDisruptionBudgets, MakePodDisruptionBudget(record.job)).status();
  memory.budget_made = made.ok();
  if (made.ok()) return std::nullopt;
  // The job trains without; that is said once, and tried again.
  if (memory.budget_held_until == 0) {
    Emit(record, {{true, "Unprotected",
                   absl::StrCat("evictions of parameter servers are not held up: ", std::string(made.message()))}});
  }
  memory.budget_held_until = now + kBudgetRetrySeconds;
  return absl::Seconds(kBudgetRetrySeconds);
}

absl::Status Reconciler::CarryOut(const JobRecord& record, const planner::Plan& plan, const Pods& pods,
                                  Memory& memory) {
  std::vector<Action> starts;
  std::vector<const Action*> removals;
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
        removals.push_back(&action);
        break;
      case ActionType::kFinish:
        finish = true;
        break;
      case ActionType::kDeleteJob:
        delete_job = true;
        break;
    }
  }
  absl::Status result = Remove(record, removals, pods, memory);
  if (finish) {
    for (const kube::Store<Pod>::Pointer& pod : pods) {
      if (pod->role == api::Role::kWorker || pod->phase != "Running" || pod->address.empty()) continue;
      gateway_->Finish(pod->role, record.meta.uid, absl::StrCat(pod->address, ":", kControlPort));
    }
  }
  if (result.ok() && !starts.empty()) result = Start(record, starts, pods, memory);
  if (result.ok() && delete_job) {
    kube::DeleteOptions options;
    options.preconditions.uid = record.meta.uid;
    result = client_->Delete(kube::kTrainingJobs, record.meta.namespace_name, record.meta.name, options);
    if (absl::IsNotFound(result)) result = absl::OkStatus();
  }
  return result;
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
            const absl::Status stored = StoreStatus(*pass->stored, status, pass->memory, pass->now);
            if (!stored.ok()) return {stored, std::nullopt};
            Emit(*pass->record, {{true, planner::kSpecInvalid, message}});
            return {};
          }};
}

Decision Reconciler::RemoveService(const std::string& key) {
  const std::string namespace_name = key.substr(0, key.find('/'));
  const auto is_used = [this, namespace_name] { return jobs_->HasGroup(namespace_name); };
  if (is_used()) return {};
  return {{}, [this, namespace_name, is_used]() -> ReconcileResult {
            return {services_.Remove(namespace_name, is_used), std::nullopt};
          }};
}

Decision Reconciler::Decide(const std::string& key) {
  const Seen seen = {ParseVersion(jobs_->resource_version()), ParseVersion(pods_->resource_version())};
  const kube::Store<JobRecord>::Pointer stored = jobs_->Get(key);
  if (stored == nullptr) {
    Forget(key);
    return RemoveService(key);
  }
  if (!stored->managed_here) return {};
  const auto pass = std::make_shared<Pass>();
  pass->now = clock_();
  pass->memory = Recall(key, stored->meta.uid);
  pass->pods = pods_->Group(stored->meta.uid);
  pass->stored = pass->record = stored;
  if (IsStale(pass->memory, seen, pass->pods)) {
    if (hooks_.on_stale) hooks_.on_stale();
    return {{absl::OkStatus(), options_.stale_check}, nullptr};
  }
  pass->memory.deleted.clear();
  // Somebody else stored one, or an answer was lost.
  if (!IsUntold(*stored)) pass->memory.unwritten.reset();
  if (pass->memory.unwritten.has_value()) {
    const auto told = std::make_shared<JobRecord>(*stored);
    told->job.status = pass->memory.unwritten->status;
    pass->record = told;
  }
  Decision decision = pass->record->errors.empty() ? Advance(pass) : RefuseSpec(pass);
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

Decision Reconciler::Advance(const std::shared_ptr<Pass>& pass) {
  const JobRecord& record = *pass->record;
  Memory& memory = pass->memory;
  for (Memory::Hold* hold : {&memory.starts, &memory.publishing}) {
    hold->until =
        std::min<double>(hold->until, pass->now + kObstacleBackoff.max_seconds);  // a clock may have been ahead
  }
  if (!LacksVerdict(*pass)) return Plan(pass, absl::OkStatus());
  const auto check = [this, pass] { return CheckTemplates(*pass->record, pass->memory, pass->now); };
  if (RolesWithTemplates(record.job.spec).empty()) return Plan(pass, check());  // nobody is asked
  return {{}, [this, pass, check] {
            const Decision decision = Plan(pass, check());
            return decision.carry_out ? decision.carry_out() : decision.result;
          }};
}

Decision Reconciler::Plan(const std::shared_ptr<Pass>& pass, const absl::Status& checked) {
  const JobRecord& record = *pass->record;
  const Pods& pods = pass->pods;
  Memory& memory = pass->memory;
  const double now = pass->now;
  memory.over = planner::IsOver(record.job.status);
  memory.moves = false;
  if (memory.over) gateway_->Forget(record.meta.uid);
  planner::Observed observed = Observe(record, pods, memory, gateway_->Latest(record.meta.uid));
  if (!memory.over) {
    FollowCoordinator(record, pods, observed, memory, now);
    observed.answer_due = AnswerDue(memory, observed, now);
  }
  Work work;
  work.checked = checked;
  work.was_blocked = observed.obstacle.has_value();
  work.plan = planner::MakePlan(record.job, observed, now);
  planner::Plan& plan = work.plan;
  NoteReady(record, plan.status, memory, now);
  if (plan.requeue_after.has_value()) work.requeue_after = absl::Seconds(*plan.requeue_after);
  if (!memory.template_error.empty()) work.requeue_after = absl::Seconds(kTemplateRetrySeconds);
  const auto look_again_at = [&work, now](double time) {
    LookAgainAfter(absl::Seconds(time - now), work.requeue_after);
  };

  const News news = Compare(record.job.status, plan);
  if (const std::optional<double> due = StatusDue(*pass, plan, news); due.has_value()) {
    if (now < *due) {
      look_again_at(*due);
    } else {
      work.news = Name(news);
    }
  }
  // Also that it is nowhere: its address may be given to somebody else.
  const std::optional<std::string> address = CoordinatorAddress(pods);
  if (address.has_value() && !IsPublished(*address, plan.status, memory) && !IsSettled(plan.status) &&
      !record.meta.deletion_time.has_value()) {
    work.published = address;
    work.publishes = now >= memory.publishing.until;
  }
  const std::optional<double> budget_due = BudgetDue(plan.status, memory, now);
  work.makes_budget = budget_due.has_value() && now >= *budget_due;
  if (budget_due.has_value() && now < *budget_due) look_again_at(*budget_due);
  if (IsIdle(work)) return {Do(*pass, work), nullptr};
  return {{}, [this, pass, work = std::move(work)] { return Do(*pass, work); }};
}

bool Reconciler::IsIdle(const Work& work) {
  return work.news.empty() && !work.publishes && !work.makes_budget &&
         std::all_of(work.plan.actions.begin(), work.plan.actions.end(),
                     [](const Action& action) { return action.type == ActionType::kStoreStatus; });
}

ReconcileResult Reconciler::Do(Pass& pass, const Work& work) {
  const JobRecord& record = *pass.record;
  const planner::Plan& plan = work.plan;
  Memory& memory = pass.memory;
  ReconcileResult result;
  result.requeue_after = work.requeue_after;
  if (!work.news.empty()) {
    result.status = StoreStatus(*pass.stored, plan.status, memory, pass.now);
    if (!result.status.ok()) {
      // Not at once, as the plan may want it: the queue backs off.
      if (result.requeue_after.has_value()) result.requeue_after = std::max(*result.requeue_after, kStoreRetry);
      return result;
    }
    if (hooks_.on_status_write) hooks_.on_status_write(work.news);
    Emit(record, plan.events);
  }
  NoteAlive(pass.pods, plan.status, memory);
  const bool starts = std::any_of(plan.actions.begin(), plan.actions.end(),
                                  [](const Action& action) { return action.type == ActionType::kStart; });
  // Those that run need it, and those that start must not be led to whoever has the address by now.
  if (work.publishes) result.status = Publish(record, *work.published, memory);
  if (!work.published.has_value()) memory.publishing = Memory::Hold();
  // Who does not answer is not asked again at once; the next pass publishes nothing yet.
  const bool answers = result.status.ok() || kube::GetApiError(result.status).has_value() ||
                       !(absl::IsUnavailable(result.status) || absl::IsDeadlineExceeded(result.status));
  if (answers) {
    absl::Status carried_out = CarryOut(record, plan, pass.pods, memory);
    result.status.Update(carried_out.ok() ? work.checked : carried_out);
    // Nothing is asked for that could be refused, and not because it was a moment ago.
    if (!starts && pass.now >= memory.starts.until) memory.starts = Memory::Hold();
  }
  // Nothing else may happen that would lead to another try, or to the word that there is no obstacle any more.
  for (const Memory::Hold* hold : {&memory.starts, &memory.publishing}) {
    if (hold->until <= pass.now) continue;  // as this pass saw it; by now it may be over
    LookAgainAfter(absl::Seconds(std::max<double>(hold->until - clock_(), 0)), result.requeue_after);
  }
  if (work.was_blocked && !StandsInTheWay(memory).has_value()) {
    LookAgainAfter(absl::ZeroDuration(), result.requeue_after);
  }
  if (!result.status.ok() || !work.makes_budget) return result;
  if (const std::optional<absl::Duration> wait = Protect(record, memory, pass.now); wait.has_value()) {
    LookAgainAfter(*wait, result.requeue_after);
  }
  return result;
}

}  // namespace downpour::controller
