#include "trainer/core/coordinator.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/admission.h"
#include "trainer/core/counted_evaluations.h"
#include "trainer/core/layout.h"
#include "trainer/core/progress.h"
#include "trainer/core/restore.h"
#include "trainer/core/update_mode.h"

namespace downpour::core {
namespace {

constexpr absl::Duration kAfterNoAnswer = absl::Milliseconds(20);
constexpr absl::Duration kAfterRefusal = absl::Milliseconds(100);

// Where a standby can take over, the loss of a ps is to be noticed soon; a thousand of them are asked no more often.
absl::Duration PeriodOf(const CoordinatorOptions& options) {
  if (options.config.replication_factor() < 2) return options.directive_period;
  return std::min(options.directive_period,
                  std::max(absl::Milliseconds(100), options.config.ps_replicas() * absl::Milliseconds(10)));
}

}  // namespace

CoordinatorCore::CoordinatorCore(CoordinatorOptions options, Time now)
    : options_(std::move(options)),
      started_(now),
      last_activity_(now),
      next_timer_(now),
      registry_(options_.config.ps_replicas()),
      calls_(options_.directive_pace, PeriodOf(options_)),
      layout_({.incarnation = options_.incarnation,
               .patience = options_.lease,
               .load_window = options_.load_window,
               .bug = options_.bug}),
      gathering_since_(now),
      work_(options_.config, options_.incarnation, options_.bug),
      checkpoints_(options_.config, options_.incarnation),
      members_(options_.lease) {}

void CoordinatorCore::Fail(std::string message, v1::FailureKind kind) {
  if (over()) return;
  phase_ = Phase::kFailed;
  message_ = std::move(message);
  failure_ = kind;
}

// ---- phases

void CoordinatorCore::Step(Time now) {
  if (now - last_activity_ > options_.lease / 2) {
    // It was paused: the workers could not have reached it. Nobody is expired for that.
    members_.Extend(now);
    layout_.OnPause(now);
    gathering_since_ = now;
    work_.ExtendAdoption(now + options_.lease);
  }
  last_activity_ = now;
  if (fenced_.has_value() || over()) return;
  for (std::uint64_t session : members_.Expired(now)) {
    ++lease_expirations_;
    EndSession(session);
  }
  StepLayout(now);
  if (phase_ == Phase::kGathering) ConsiderGathered(now);
  if (phase_ == Phase::kAwaitingModel) {
    checkpoints_.Seek(now);  // while the first worker is on its way
    if (model_.known()) phase_ = Phase::kSeeking;
  }
  if (phase_ == Phase::kSeeking) StartHistory(now);
  in_force_.NoteMode();
  if (phase_ == Phase::kInstalling && states().all_have_view() && in_force_.committed()) phase_ = Phase::kInitialising;
  if (phase_ == Phase::kInitialising && states().all_initialised()) phase_ = Phase::kTraining;
  if (phase_ == Phase::kSwitching && in_force_.committed() && in_force_.mode_taken()) phase_ = Phase::kTraining;
  if (phase_ == Phase::kTraining) StepTraining(now);
  if (phase_ == Phase::kFinishing) StepFinishing();
  StepCheckpoints(now);
}

void CoordinatorCore::StepCheckpoints(Time now) {
  const bool training = (phase_ == Phase::kTraining || phase_ == Phase::kFinishing) && !work_.adopting();
  if (!training || !checkpoints_.enabled()) return;
  JobCheckpoints::Situation situation;
  situation.stamp = view().stamp();
  situation.members_version = members_.version();
  situation.members_confirmed = states().least_members_version();
  // A command on vectors is in a cut on every slice or on none: no cut begins while one is under way.
  situation.may_begin = work_.settled() && !layout_.HasFrozen();
  situation.sessions = [this] { return members_.sessions(); };
  situation.describe = [this](v1::CheckpointManifest* manifest) {
    *manifest->mutable_tensors() = view().tensors();
    *manifest->mutable_data() = view().data();
    manifest->set_mode(view().mode());
    *manifest->mutable_optimizer() = view().optimizer();
    work_.tasks().Describe(manifest);
  };
  checkpoints_.Step(now, situation);
}

void CoordinatorCore::OnStoreReply(std::uint64_t call, StoreReply reply, Time now) {
  checkpoints_.OnStoreReply(call, std::move(reply), now);
  Step(now);
}

void CoordinatorCore::StepTraining(Time now) {
  if (!work_.EndAdoption(now, members_.all_known())) return;
  // A slice that is about to move goes on as it is.
  const bool may_revise = !layout_.HasFrozen();
  if (const UpdateMode wanted = Wanted(view()); may_revise && wanted != ModeOf(view())) {
    v1::View next = view();
    SetMode(wanted, &next);
    return Revise(std::move(next), now);
  }
  if (may_revise && Heed(now)) return;
  if (const absl::Status error = work_.error(); !error.ok()) return Fail(std::string(error.message()));
  work_.Step(states().least_members_version(), checkpoints_.cuts().phase() == Cuts::Phase::kOpening);
  // A slice that is about to move gets there first: nobody could read it.
  if (!work_.done() || !may_revise) return;
  if (std::string why = work_.NotFinite(); !why.empty()) return Fail(std::move(why), v1::FAILURE_MODEL_NOT_FINITE);
  phase_ = Phase::kFinishing;
}

bool CoordinatorCore::Heed(Time now) {
  // A cut that is open is of the view as it is. One that is due waits: this comes first.
  if (checkpoints_.cuts().phase() != Cuts::Phase::kIdle) return false;
  if (!work_.HasNewEvaluations(view())) return false;
  v1::View next = view();
  if (!work_.CountNewEvaluations(&next)) return false;
  Revise(std::move(next), now);
  return true;
}

bool CoordinatorCore::SearchAsks() const {
  return (phase_ == Phase::kTraining || phase_ == Phase::kFinishing) && work_.SearchAsks();
}

UpdateMode CoordinatorCore::Wanted(const v1::View& view) {
  const absl::Status possible = CheckSwitch(view.mode(), options_.config.mode());
  mode_refused_ = std::string(possible.message());
  return possible.ok() ? WantedMode(options_.config, view) : ModeOf(view);
}

void CoordinatorCore::Revise(v1::View next, Time now) {
  // What was computed before is refused by its epoch from the moment on that a ps takes the view. Nobody begins an
  // update under it before every ps has: then what is applied stands still, and is what a mode begins with.
  FitEnd(work_.leases().plan(), &next);
  work_.SetEnd(next);
  GoOn(std::move(next), /*mode=*/true, now);
  phase_ = Phase::kSwitching;
}

void CoordinatorCore::GoOn(v1::View next, bool mode, Time now) {
  in_force_.GoOn(std::move(next), mode);
  checkpoints_.cuts().Abort(now);
  if (mode) work_.BeginMode(view(), &members_);
  OnView();
}

// ---- the layout

void CoordinatorCore::OnView() {
  const std::set<std::uint32_t> ps = in_force_.ps();
  work_.SetPs(ps);
  checkpoints_.cuts().SetPs(ps);
  calls_.ForgetAll();
  layout_.OnView(view());
}

void CoordinatorCore::StepLayout(Time now) {
  if (const std::optional<std::uint32_t> wanted = layout_.wanted(); wanted.has_value()) registry_.SetCount(*wanted);
  if (!layout_.Due(now)) return;
  const bool begun = phase_ == Phase::kInstalling || phase_ == Phase::kInitialising || phase_ == Phase::kTraining ||
                     phase_ == Phase::kSwitching || phase_ == Phase::kFinishing;
  if (!begun) return;
  Cuts& cuts = checkpoints_.cuts();
  using Moves = LayoutKeeper::Moves;
  const bool quiet = phase_ == Phase::kTraining && cuts.phase() == Cuts::Phase::kIdle;
  // A cut that is due, and a command on vectors, come before other moves; but they wait for slices that are frozen. And
  // whoever is to leave is known once somebody has told.
  const bool knows = layout_.heard() || now - started_ > options_.lease;
  const bool awaited = !knows || work_.adopting() || checkpoints_.CutIsDue(now) || !work_.settled();
  const Moves moves = !quiet ? Moves::kNone : awaited ? Moves::kUnderWay : Moves::kAll;
  const LayoutKeeper::Decision decision =
      layout_.Decide(view(), in_force_.Quorum(), in_force_.committed(), registry_, calls_, moves, now);
  switch (decision.kind) {
    case LayoutKeeper::Decision::Kind::kNothing:
      return ForgetGone();
    case LayoutKeeper::Decision::Kind::kChange:
      return Relayout(decision.next, decision.loss, now);
    case LayoutKeeper::Decision::Kind::kLost:
      cuts.Abort(now);
      phase_ = Phase::kGathering;
      gathering_since_ = now;
  }
}

void CoordinatorCore::ForgetGone() {
  const std::vector<std::uint32_t> told = registry_.IndicesOf(in_force_.Told());
  for (const auto& [index, condition] : layout_.conditions()) {
    if (!condition.lives && !std::binary_search(told.begin(), told.end(), index)) registry_.Forget(index);
  }
}

void CoordinatorCore::Relayout(const NextLayout& change, bool loss, Time now) {
  v1::View next = view();
  next.mutable_layout()->Assign(change.layout.begin(), change.layout.end());
  next.mutable_ps()->Assign(change.ps.begin(), change.ps.end());
  layout_.OnChange(change);
  // What may be gone is done again, and nothing that was computed before counts any more.
  const bool lost = loss && change.failovers > 0 && next.replication_lag() > 0;
  if (lost) next.set_lost_epoch(next.stamp().epoch() + 1);
  GoOn(std::move(next), /*mode=*/lost, now);
  phase_ = phase_ == Phase::kInstalling || phase_ == Phase::kInitialising ? Phase::kInstalling : Phase::kSwitching;
}

void CoordinatorCore::StepFinishing() {
  const bool done = work_.Finish();
  const bool kept = checkpoints_.FinalCutEnded();
  if (done && states().least_watermark() == work_.leases().watermark() && kept) phase_ = Phase::kDone;
}

v1::FinishReply CoordinatorCore::OnFinish(const v1::FinishRequest& request) {
  v1::FinishReply reply = AnswerFinish(request, options_.config.job_uid(), phase_);
  if (reply.accepted()) finished_ = true;
  return reply;
}

// ---- histories

void CoordinatorCore::ConsiderGathered(Time now) {
  // Those that are still missing may be on their way.
  if (!registry_.complete() && now - gathering_since_ <= options_.lease) return;
  const v1::View* newest = registry_.Newest();
  if (view().has_stamp() && (newest == nullptr || CompareStamps(newest->stamp(), view().stamp()) <= 0)) {
    newest = &view();
  }
  if (newest == nullptr) {
    if (registry_.complete()) phase_ = Phase::kAwaitingModel;
    return;
  }
  // One that came first, although the process that replaced it is in the view.
  if (registry_.DropZombies(*newest)) return;
  checkpoints_.cuts().NoteNumber(registry_.HighestCut());
  const Gathered gathered =
      PlanGathered(*newest, registry_, layout_.Conditions(registry_, calls_, now), options_.incarnation, options_.bug);
  if (gathered.kind == Gathered::Kind::kWaits) return;
  if (!gathered.own) {
    // A history that another coordinator made: who was a member of mine is none of it.
    if (view().has_stamp()) {
      for (std::uint64_t session : members_.sessions()) EndSession(session);
    }
    AdoptSessions(gathered.view, now);
  }
  if (gathered.kind == Gathered::Kind::kGoesOn) {
    if (gathered.change.has_value()) layout_.OnChange(*gathered.change);
    return Resume(gathered, *newest, now);
  }
  // A ps that held slices is gone, and nobody else has them: all go back to the last cut.
  in_force_.Lose(v1::View(*newest));
  model_.TakeFrom(view());
  LoseHistory(now);
}

void CoordinatorCore::LoseHistory(Time now) {
  parameters_lost_ = true;
  if (work_.begun())
    updates_at_loss_ = std::max({updates_seen_, work_.leases().retired_updates(), updates_at_loss_.value_or(0)});
  phase_ = Phase::kSeeking;
  StartHistory(now);
}

void CoordinatorCore::AdoptSessions(const v1::View& newest, Time now) {
  // A session that some ps of the newest history does not know was being added, and its worker was not told yet, or
  // was being ended. In both cases it is over: what is over for one ps must never come back.
  for (const auto& [session, everywhere] : registry_.SessionsOf(newest)) {
    if (everywhere && !members_.ended(session)) {
      members_.Adopt(session, now);
    } else {
      EndSession(session);
    }
  }
}

void CoordinatorCore::Resume(const Gathered& gathered, const v1::View& newest, Time now) {
  if (gathered.own && CompareStamps(gathered.view.stamp(), view().stamp()) == 0) {
    phase_ = Phase::kInstalling;  // nothing was lost: a ps only registered anew
    return;
  }
  const absl::StatusOr<DataPlan> plan = DataPlan::Create(gathered.view.data());
  if (!plan.ok()) return Fail(std::string(plan.status().message()));
  const Ledger ledger = registry_.LedgerOf(gathered.view, *plan);
  v1::View next =
      ResumedView(gathered.view, newest, registry_, *plan, Wanted(gathered.view), options_.incarnation, options_.bug);
  model_.TakeFrom(next);
  parameters_lost_ = next.stamp().generation() > 1;
  checkpoints_.ResumeHistory(next.restore(), now);
  BeginHistory(std::move(next), ledger);
  work_.AdoptUntil(now + options_.lease, view());
}

void CoordinatorCore::StartHistory(Time now) {
  if (!registry_.complete()) {  // some have ended since
    phase_ = Phase::kGathering;
    gathering_since_ = now;
    return;
  }
  const JobCheckpoints::Beginning beginning = checkpoints_.Seek(now);
  if (absl::IsUnavailable(beginning.status)) return;
  if (!beginning.status.ok()) return Fail(std::string(beginning.status.message()), v1::FAILURE_CHECKPOINT);
  const absl::StatusOr<std::uint64_t> generation = NextGeneration(view().stamp().generation(), options_.incarnation);
  if (!generation.ok()) return Fail(std::string(generation.status().message()));
  v1::ViewStamp stamp;
  stamp.set_generation(*generation);
  stamp.set_incarnation(options_.incarnation);
  stamp.set_epoch(1);
  absl::StatusOr<v1::View> first = model_.MakeView(options_.config, stamp, registry_.members());
  if (!first.ok()) return Fail(std::string(first.status().message()));
  absl::StatusOr<Ledger> ledger = Ledger();
  if (beginning.checkpoint.has_value()) ledger = BeginWith(*beginning.checkpoint, options_.config, &*first);
  if (!ledger.ok()) return Fail(std::string(ledger.status().message()), v1::FAILURE_CHECKPOINT);
  BeginHistory(*std::move(first), *ledger);
  checkpoints_.BeginHistory(beginning.checkpoint, updates_at_loss_, now);
  updates_at_loss_.reset();
  if (!beginning.checkpoint.has_value()) return;
  updates_seen_ = beginning.checkpoint->manifest.updates();
  v1::View counted = view();
  if (work_.Restore(now, beginning.checkpoint->manifest, &counted)) in_force_.Amend(std::move(counted));
}

void CoordinatorCore::BeginHistory(v1::View first, const Ledger& ledger) {
  const absl::StatusOr<DataPlan> plan = DataPlan::Create(first.data());
  if (!plan.ok()) return Fail(std::string(plan.status().message()));
  in_force_.Begin(std::move(first));
  work_.Begin(view(), *plan, ledger);
  OnView();
  initialiser_ = 0;
  updates_seen_ = 0;
  phase_ = Phase::kInstalling;
  registry_.ForgetViews();
}

// ---- ps

v1::RegisterPsReply CoordinatorCore::OnRegisterPs(const v1::RegisterPsRequest& request, Time now) {
  v1::RegisterPsReply reply = AnswerPs(request, options_.config.job_uid(), options_.incarnation, phase_, registry_);
  const v1::PsMember& self = request.self();
  if (reply.status() == v1::SYNC_REFUSED) {
    fenced_ =
        absl::AbortedError(absl::StrCat("ps-", self.index(), " has seen incarnation ", request.highest_incarnation(),
                                        " of the coordinator; this is ", options_.incarnation));
  }
  if (reply.status() != v1::SYNC_OK) return reply;
  const bool known = registry_.Knows(self);
  calls_.Hear(self.index(), /*new_process=*/!known, now);
  if (known) {
    registry_.SetAddress(self);
  } else {
    // A process that was not there before has no place in the view; what becomes of its predecessor's is decided with
    // the layout.
    registry_.Register(request);
    layout_.Reconsider();
  }
  Step(now);
  return reply;
}

bool CoordinatorCore::IsSettled(std::uint32_t ps) const {
  return states().has_view(ps) && states().members_version(ps) == members_.version() && states().initialised(ps) &&
         !work_.leases().asking() && !layout_.Awaits(ps) && states().committed(ps) == in_force_.committed() &&
         states().watermark(ps) == work_.leases().watermark() && checkpoints_.cuts().Told(ps) && !SearchAsks();
}

v1::DirectRequest CoordinatorCore::MakeDirective(std::uint32_t ps) const {
  const std::uint64_t session = registry_.Find(ps)->session();
  v1::DirectRequest request;
  request.set_job_uid(options_.config.job_uid());
  request.set_session(session);
  in_force_.Tell(session, &request);
  members_.Tell(states().members_version(ps), &request);
  work_.Ask(ps, SearchAsks(), &request);
  if (const std::optional<v1::CutOrder> order = checkpoints_.cuts().order(); order.has_value()) {
    *request.mutable_cut() = *order;
  }
  return request;
}

std::vector<DirectCall> CoordinatorCore::TakeDirectives(Time now) {
  Step(now);
  std::vector<DirectCall> due;
  // What is due by now and was not done waits for something else than the time.
  next_timer_ = now + options_.lease / 6;
  if (checkpoints_.next_timer() > now) next_timer_ = std::min(next_timer_, checkpoints_.next_timer());
  if (fenced_.has_value() || !work_.begun() || phase_ == Phase::kGathering || phase_ == Phase::kAwaitingModel ||
      phase_ == Phase::kSeeking) {
    return due;
  }
  for (const std::uint32_t ps : registry_.IndicesOf(in_force_.Told())) {
    const v1::PsMember* self = registry_.Find(ps);
    const std::optional<Time> at = calls_.Due(ps, IsSettled(ps) && first_update_milliseconds_ != 0);
    if (!at.has_value()) continue;
    if (now < *at) {
      next_timer_ = std::min(next_timer_, *at);
      continue;
    }
    const std::uint64_t call = calls_.Begin(ps, now);
    due.push_back({.call = call,
                   .ps = ps,
                   .address = self->address(),
                   .request = MakeDirective(ps),
                   .deadline = options_.directive_deadline});
    due.back().request.set_sequence(call);
  }
  return due;
}

void CoordinatorCore::OnDirectReply(std::uint64_t call, const absl::StatusOr<v1::DirectReply>& reply, Time now) {
  const std::optional<std::uint32_t> ps = calls_.End(call);
  if (!ps.has_value() || registry_.Find(*ps) == nullptr) return;
  // Silence is not loss: its slices may be all right. Only another process in its place says that they are gone.
  if (!reply.ok()) {
    if (absl::IsUnavailable(reply.status())) calls_.Broken(*ps, now);
    return calls_.Postpone(*ps, now + kAfterNoAnswer);
  }
  calls_.Answered(*ps, now);
  if (reply->status() == v1::SYNC_SESSION_ENDED) {
    fenced_ = absl::AbortedError(absl::StrCat("ps-", *ps, ": ", reply->message()));
    return;
  }
  if (reply->status() != v1::SYNC_OK) return calls_.Postpone(*ps, now + kAfterRefusal);
  if (in_force_.OnReply(*ps, registry_.Find(*ps)->session(), *reply)) {
    layout_.OnReply(*ps, registry_.Find(*ps)->session(), *reply, now);
    for (const ShardKey& retired : work_.Answer(*ps, *reply)) shard_failures_.Retire(retired);
    if (reply->has_cut()) checkpoints_.cuts().OnPsState(*ps, reply->cut(), now);
    checkpoints_.OnRestoreWaits(reply->initialised() ? "" : reply->restore_waits());
    if (!reply->restore_error().empty() && phase_ == Phase::kInitialising) {
      checkpoints_.OnRestoreError(absl::StrCat("ps-", *ps, ": ", reply->restore_error()));
      return LoseHistory(now);
    }
    if (reply->initialised() && reply->stats().slices() > 0) {
      updates_seen_ = std::max(updates_seen_, reply->stats().applied() / reply->stats().slices());
    }
    if (first_update_milliseconds_ == 0 && reply->stats().applied() > reply->stats().restored()) {
      first_update_milliseconds_ =
          static_cast<std::uint64_t>(std::max<std::int64_t>(1, absl::ToInt64Milliseconds(now - started_)));
    }
  }
  Step(now);
}

// ---- workers

void CoordinatorCore::EndSession(std::uint64_t session, bool left) {
  const std::optional<Member> member = members_.End(session);
  if (!member.has_value()) return;
  if (initialiser_ == session) initialiser_ = 0;
  checkpoints_.cuts().OnSessionEnded(session, members_.version());
  std::vector<ShardKey> held = work_.EndSession(session, members_.version());
  if (left) held.clear();
  if (!member->known) return;
  Convict(shard_failures_.EndSession(member->process(), std::move(held), members_.InSession(member->process())));
}

void CoordinatorCore::ReportFailures(const v1::ProgressRequest& request) {
  checkpoints_.OnRequest(request.checkpoint_request());
  layout_.OnWish(request);
  if (request.has_mode() && request.mode().revision() >= mode_revision_) {
    mode_revision_ = request.mode().revision();
    SetWantedMode(request.mode(), &options_.config);
  }
  for (const v1::MemberFailure& failure : request.failures()) {
    if (failure.role() == "ps") registry_.OnEnded(failure.index(), failure.process_incarnation());
    Convict(shard_failures_.Report(failure, members_.InSession({failure.index(), failure.process_incarnation()})));
  }
}

void CoordinatorCore::Convict(const ShardFailures::Verdict& verdict) {
  if (!verdict.guilty.empty()) Fail(Describe(verdict, work_.leases().plan()), v1::FAILURE_DATA_SHARD);
}

const Member* CoordinatorCore::Admit(const v1::WorkerSyncRequest& request, Time now, v1::WorkerSyncReply* refusal) {
  const auto refuse = [refusal](v1::SyncStatus status, std::string why = "") {
    refusal->set_status(status);
    refusal->set_message(std::move(why));
    return nullptr;
  };
  std::optional<Refusal> refused = RefuseSession(request, options_.incarnation, phase_, members_);
  if (refused.has_value()) return refuse(refused->status, std::move(refused->message));
  const Member* member = members_.Find(request.session());
  if (member == nullptr) {
    std::string objection = model_.Check(request);
    if (!objection.empty()) return refuse(v1::SYNC_REFUSED, std::move(objection));
    members_.Add(request.session());
    member = members_.Find(request.session());
  }
  if (request.sequence() <= member->sequence) return refuse(v1::SYNC_WAIT, "an older call");
  const std::optional<std::uint64_t> replaced = members_.Hear(request, now);
  if (replaced.has_value()) EndSession(*replaced);
  return member;
}

v1::WorkerSyncReply CoordinatorCore::OnSyncWorker(const v1::WorkerSyncRequest& request, Time now) {
  Step(now);
  v1::WorkerSyncReply reply;
  reply.set_incarnation(options_.incarnation);
  reply.set_sequence(request.sequence());
  const auto answer = [&reply](v1::SyncStatus status, std::string why = "") {
    reply.set_status(status);
    reply.set_message(std::move(why));
    return reply;
  };
  if (request.job_uid() != options_.config.job_uid()) return answer(v1::SYNC_WRONG_JOB, "another job");
  if (fenced_.has_value()) return answer(v1::SYNC_WAIT, "an older coordinator");
  checkpoints_.cuts().NoteNumber(request.cut());
  // Nobody goes before the outcome is stored: should this coordinator die first, the next one needs the workers.
  if (finished_) {
    members_.End(request.session());
    return answer(v1::SYNC_FINISHED);
  }
  const Member* known = members_.Find(request.session());
  const bool first_contact = known == nullptr || !known->known;
  const Member* member = Admit(request, now, &reply);
  if (member == nullptr) return reply;
  if (!request.failure().empty()) {
    Fail(request.failure());
    return answer(v1::SYNC_WAIT);
  }
  if (phase_ == Phase::kAwaitingModel) Step(now);
  if (request.leaving()) {
    EndSession(request.session(), /*left=*/true);
    return answer(v1::SYNC_FINISHED);
  }
  // Adopting comes before anything that could give the lease to somebody else.
  const bool of_history = view().has_stamp() && request.view().generation() == view().stamp().generation();
  if (of_history && first_contact) work_.Adopt(request);
  const bool committed = phase_ == Phase::kInitialising || phase_ == Phase::kTraining || phase_ == Phase::kFinishing ||
                         phase_ == Phase::kDone;
  if (!committed || states().least_members_version() < member->version) return answer(v1::SYNC_WAIT);
  if (!request.has_view() || CompareStamps(request.view(), view().stamp()) < 0) *reply.mutable_view() = view();
  // Before it is given anything to begin with.
  Cuts& cuts = checkpoints_.cuts();
  cuts.OnSession(request.session(), request.cut());
  const bool told = options_.bug != PlantedBug::kJoinerBeginsWithOldCut || request.accepted();
  if (told) reply.set_cut(cuts.announced());
  if (of_history) {
    const std::optional<Tasks::Failure> failure = work_.Accept(request, *member, now);
    if (failure.has_value()) Fail(failure->message, failure->kind);
    if (phase_ != Phase::kInitialising) {
      work_.Grant(request, *member, view(), phase_ == Phase::kTraining, now, &members_, &reply);
    } else if (!view().has_restore()) {  // else the ps load the values
      if (initialiser_ == 0) initialiser_ = request.session();
      reply.set_initialise(initialiser_ == request.session());
    }
  }
  Step(now);
  reply.set_status(phase_ == Phase::kFailed ? v1::SYNC_WAIT : v1::SYNC_OK);
  return reply;
}

// ---- progress

v1::ProgressReply CoordinatorCore::GetProgress(Time now) const {
  v1::ProgressReply progress;
  const bool again = options_.incarnation > 1 || parameters_lost_;
  // Training goes on while slices go elsewhere.
  const bool moves = phase_ == Phase::kSwitching && in_force_.mode_taken();
  const Phase phase = moves ? Phase::kTraining : phase_;
  progress.set_phase(JobPhaseOf(phase, again, work_.adopting()));
  progress.set_message(phase_ == Phase::kFailed ? message_
                                                : Awaited(phase, registry_, members_, work_.tasks(), checkpoints_));
  progress.set_failure(failure_);
  if (view().has_stamp()) *progress.mutable_view() = view().stamp();
  progress.set_epochs(options_.config.epochs());
  progress.set_parameters_lost(parameters_lost_);
  progress.set_first_update_milliseconds(first_update_milliseconds_);
  progress.set_lease_expirations(lease_expirations_);
  if (phase == Phase::kTraining || phase == Phase::kFinishing || phase == Phase::kDone) {
    progress.mutable_mode()->set_mode(view().mode());
    progress.mutable_mode()->set_staleness(view().staleness());
    progress.mutable_mode()->set_updates_per_step(view().updates_per_step());
  }
  if (progress.message().empty()) progress.set_message(mode_refused_);
  ReportPs(registry_, states(), calls_, options_.lease, now, &progress);
  members_.Report(now, &progress);
  checkpoints_.Report(now, &progress);
  work_.Report(view(), states(), phase_ == Phase::kDone, &progress);
  if (!work_.begun()) return progress;
  layout_.Report(view(), &progress);
  // Who had a place in the view before is needed until this one counts for another coordinator as well.
  const std::set<std::uint32_t> placed(progress.placed_ps().begin(), progress.placed_ps().end());
  for (const std::uint32_t index : registry_.IndicesOf(in_force_.Before())) {
    if (placed.count(index) == 0) progress.add_placed_ps(index);
  }
  return progress;
}

}  // namespace downpour::core
