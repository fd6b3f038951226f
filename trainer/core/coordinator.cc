#include "trainer/core/coordinator.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/layout.h"
#include "trainer/core/progress.h"
#include "trainer/core/step_id.h"
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

std::set<std::uint64_t> QuorumOf(const v1::View& view) { return {view.quorum().begin(), view.quorum().end()}; }

void SetQuorum(const std::set<std::uint64_t>& quorum, v1::View* view) {
  view->mutable_quorum()->Assign(quorum.begin(), quorum.end());
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
      tasks_(options_.config.keep_best()),
      checkpoints_(options_.config, options_.incarnation),
      members_(options_.lease),
      lease_numbers_(options_.incarnation) {}

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
    if (adopt_until_.has_value()) adopt_until_ = now + options_.lease;
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
  if (states_.all_have_view() && view_.has_stamp()) mode_taken_ = view_.mode_epoch();
  if (phase_ == Phase::kInstalling && states_.all_have_view() && committed_) phase_ = Phase::kInitialising;
  if (phase_ == Phase::kInitialising && states_.all_initialised()) phase_ = Phase::kTraining;
  if (phase_ == Phase::kSwitching && committed_ && mode_taken_ == view_.mode_epoch()) phase_ = Phase::kTraining;
  if (phase_ == Phase::kTraining) StepTraining(now);
  if (phase_ == Phase::kFinishing) StepFinishing();
  StepCheckpoints(now);
}

void CoordinatorCore::StepCheckpoints(Time now) {
  const bool training = (phase_ == Phase::kTraining || phase_ == Phase::kFinishing) && !adopt_until_.has_value();
  if (!training || !checkpoints_.enabled()) return;
  JobCheckpoints::Situation situation;
  situation.stamp = view_.stamp();
  situation.members_version = members_.version();
  situation.members_confirmed = states_.least_members_version();
  // A command on vectors is in a cut on every slice or on none: no cut begins while one is under way.
  situation.may_begin = (!search_.has_value() || search_->settled()) && !layout_.HasFrozen();
  situation.sessions = [this] { return members_.sessions(); };
  situation.describe = [this](v1::CheckpointManifest* manifest) {
    *manifest->mutable_tensors() = view_.tensors();
    *manifest->mutable_data() = view_.data();
    manifest->set_mode(view_.mode());
    *manifest->mutable_optimizer() = view_.optimizer();
    tasks_.Describe(manifest);
  };
  checkpoints_.Step(now, situation);
}

void CoordinatorCore::OnStoreReply(std::uint64_t call, StoreReply reply, Time now) {
  checkpoints_.OnStoreReply(call, std::move(reply), now);
  Step(now);
}

void CoordinatorCore::StepTraining(Time now) {
  if (adopt_until_.has_value()) {
    if (!members_.all_known() && now < *adopt_until_) return;
    adopt_until_.reset();
    leases_->InspectFree();
    if (heeds()) AddEvaluation();  // it may be lost with the coordinator before
  }
  // A slice that is about to move goes on as it is.
  const bool may_revise = !layout_.HasFrozen();
  if (const UpdateMode wanted = Wanted(view_); may_revise && wanted != ModeOf(view_)) {
    v1::View view = view_;
    SetMode(wanted, &view);
    return Revise(std::move(view), now);
  }
  if (may_revise && Heed(now)) return;
  leases_->Confirm(states_.least_members_version());
  if (search_.has_value()) return StepSearch();
  while (leases_->Advance()) AddEvaluation();
  // A slice that is about to move gets there first: nobody could read it.
  if (leases_->done() && may_revise) phase_ = Phase::kFinishing;
}

void CoordinatorCore::AddEvaluation() {
  const std::uint32_t done = leases_->watermark();
  const bool between = done > 0 && done < leases_->plan().epochs() && !search_.has_value();
  if (options_.config.evaluate() && between) tasks_.Add({done, v1::TASK_EVALUATE});
}

bool CoordinatorCore::CountNewEvaluations(v1::View* view) const {
  std::vector<v1::Evaluation> settled = tasks_.SettledEvaluations();
  // The last one decides nothing any more.
  std::erase_if(settled, [this](const v1::Evaluation& evaluation) {
    return evaluation.dataset_epoch() > leases_->watermark() || evaluation.dataset_epoch() >= leases_->plan().epochs();
  });
  return CountEvaluations(options_.config, leases_->plan(), leases_->begun_end(), settled, view);
}

bool CoordinatorCore::Heed(Time now) {
  // A cut that is open is of the view as it is. One that is due waits: this comes first.
  if (checkpoints_.cuts().phase() != Cuts::Phase::kIdle) return false;
  if (!heeds() || tasks_.newest_evaluation() <= NewestCounted(view_)) return false;
  v1::View view = view_;
  if (!CountNewEvaluations(&view)) return false;
  Revise(std::move(view), now);
  return true;
}

void CoordinatorCore::SetEnd() {
  const v1::ShardId& end = view_.end();
  leases_->SetEnd(view_.has_end() ? ShardKey(end.dataset_epoch(), end.shard()) : ShardKey(leases_->plan().epochs(), 0));
}

bool CoordinatorCore::SearchAsks() const {
  const bool training = phase_ == Phase::kTraining || phase_ == Phase::kFinishing;
  if (!training || !search_.has_value() || search_->settled()) return false;
  return !EvaluatesPoint() || tasks_.AllDone(leases_->watermark());
}

bool CoordinatorCore::EvaluatesPoint() const {
  return options_.config.evaluate() && search_->known() && search_->lbfgs().at_iteration_end();
}

void CoordinatorCore::StepSearch() {
  if (!search_->error().ok()) return Fail(std::string(search_->error().message()));
  while (leases_->watermark() < search_->end_of_grants() && leases_->Advance()) {
  }
  // While a cut opens workers still push with the number of before it: nothing of the next evaluation may.
  const bool opens = checkpoints_.cuts().phase() == Cuts::Phase::kOpening;
  if (!opens || options_.bug == PlantedBug::kCommandWhileCutOpens) search_->Advance(leases_->watermark());
  if (EvaluatesPoint()) tasks_.Add({leases_->watermark(), v1::TASK_EVALUATE});
  const bool awaited = options_.bug != PlantedBug::kNextPointNotAwaited;
  leases_->SetEndOfGrants(awaited ? search_->end_of_grants() : leases_->watermark() + 1);
  if (!search_->done() || layout_.HasFrozen()) return;
  if (search_->lbfgs().outcome() == sandblaster::Lbfgs::Outcome::kNotFinite) {
    return Fail(search_->lbfgs().Describe(), v1::FAILURE_MODEL_NOT_FINITE);
  }
  phase_ = Phase::kFinishing;
}

UpdateMode CoordinatorCore::Wanted(const v1::View& view) {
  const absl::Status possible = CheckSwitch(view.mode(), options_.config.mode());
  mode_refused_ = std::string(possible.message());
  return possible.ok() ? WantedMode(options_.config, view) : ModeOf(view);
}

void CoordinatorCore::Revise(v1::View view, Time now) {
  // What was computed before is refused by its epoch from the moment on that a ps takes the view. Nobody begins an
  // update under it before every ps has: then what is applied stands still, and is what a mode begins with.
  const std::set<std::uint64_t> quorum = Quorum();
  view_ = std::move(view);
  view_.mutable_stamp()->set_epoch(view_.stamp().epoch() + 1);
  view_.set_mode_epoch(view_.stamp().epoch());
  SetQuorum(quorum, &view_);
  FitEnd(leases_->plan(), &view_);
  SetEnd();
  checkpoints_.cuts().Abort(now);
  BeginMode();
  TakeUpView(/*sessions=*/true);
  phase_ = Phase::kSwitching;
}

void CoordinatorCore::BeginMode() {
  leases_->BeginMode();
  if (view_.mode() != v1::BOUNDED_STALENESS) return;
  for (const std::uint64_t session : members_.sessions()) members_.SetTraining(session, leases_->Holds(session));
}

// ---- the layout

std::set<std::uint64_t> CoordinatorCore::Quorum() const { return committed_ ? PsSessions(view_) : QuorumOf(view_); }

void CoordinatorCore::NoteStored(std::uint64_t session) {
  stored_.insert(session);
  if (committed_) return;
  committed_ = view_.quorum_size() == 0 ? states_.all_have_view() : IsCommittedBy(view_, stored_);
}

std::vector<std::uint32_t> CoordinatorCore::Told() const {
  std::set<std::uint64_t> told = PsSessions(view_);
  if (!committed_) told.merge(QuorumOf(view_));
  return registry_.IndicesOf(told);
}

void CoordinatorCore::TakeUpView(bool sessions) {
  std::set<std::uint32_t> ps;
  for (const v1::PsMember& member : view_.ps()) ps.insert(member.index());
  stored_.clear();
  committed_ = view_.quorum_size() != 0 && IsCommittedBy(view_, stored_);
  states_.SetPs(ps);
  states_.ForgetViews(sessions);
  leases_->SetPs(ps);
  checkpoints_.cuts().SetPs(ps);
  calls_.ForgetAll();
  layout_.OnView(view_);
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
  const bool awaited =
      !knows || adopt_until_.has_value() || checkpoints_.CutIsDue(now) || (search_.has_value() && !search_->settled());
  const Moves moves = !quiet ? Moves::kNone : awaited ? Moves::kUnderWay : Moves::kAll;
  const LayoutKeeper::Decision decision = layout_.Decide(view_, Quorum(), committed_, registry_, calls_, moves, now);
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
  const std::vector<std::uint32_t> told = Told();
  for (const auto& [index, condition] : layout_.conditions()) {
    if (!condition.lives && !std::binary_search(told.begin(), told.end(), index)) registry_.Forget(index);
  }
}

void CoordinatorCore::Relayout(const NextLayout& next, bool loss, Time now) {
  const std::set<std::uint64_t> quorum = Quorum();
  view_.mutable_stamp()->set_epoch(view_.stamp().epoch() + 1);
  view_.mutable_layout()->Assign(next.layout.begin(), next.layout.end());
  view_.mutable_ps()->Assign(next.ps.begin(), next.ps.end());
  SetQuorum(quorum, &view_);
  checkpoints_.cuts().Abort(now);
  layout_.OnChange(next);
  // What may be gone is done again, and nothing that was computed before counts any more.
  const bool lost = loss && next.failovers > 0 && view_.replication_lag() > 0;
  if (lost) {
    view_.set_lost_epoch(view_.stamp().epoch());
    view_.set_mode_epoch(view_.stamp().epoch());
    BeginMode();
  }
  TakeUpView(/*sessions=*/lost);
  phase_ = phase_ == Phase::kInstalling || phase_ == Phase::kInitialising ? Phase::kInstalling : Phase::kSwitching;
}

void CoordinatorCore::StepFinishing() {
  // Searches may end before the epochs are over, and other trainings as well: in the middle of one perhaps.
  const std::uint32_t last = leases_->watermark() + (leases_->end().second > 0 ? 1 : 0);
  tasks_.DropWaiting(last);  // evaluations that nobody began are of no use any more
  // Also where nothing is written: a model that is not finite is no success.
  tasks_.Add({last, v1::TASK_EXPORT});
  if (options_.config.evaluate()) tasks_.Add({last, v1::TASK_EVALUATE});
  // An earlier evaluation that somebody has at hand may be of the best model.
  const bool keeps_best = !options_.config.keep_best().empty();
  if (keeps_best && tasks_.AllDone(0)) tasks_.Add({last, v1::TASK_KEEP_BEST});
  const bool kept = checkpoints_.FinalCutEnded();
  if (tasks_.AllDone(last) && states_.least_watermark() == leases_->watermark() && kept) phase_ = Phase::kDone;
}

v1::FinishReply CoordinatorCore::OnFinish(const v1::FinishRequest& request) {
  v1::FinishReply reply;
  if (request.job_uid() != options_.config.job_uid()) {
    reply.set_message("another job");
  } else if (!over()) {
    reply.set_message("the job is not over");
  } else {
    finished_ = true;
    reply.set_accepted(true);
  }
  return reply;
}

// ---- histories

void CoordinatorCore::ConsiderGathered(Time now) {
  const bool all = registry_.complete();
  // Those that are still missing may be on their way.
  if (!all && now - gathering_since_ <= options_.lease) return;
  const v1::View* newest = registry_.Newest();
  if (view_.has_stamp() && (newest == nullptr || CompareStamps(newest->stamp(), view_.stamp()) <= 0)) newest = &view_;
  if (newest == nullptr) {
    if (all) phase_ = Phase::kAwaitingModel;
    return;
  }
  // One that came first, although the process that replaced it is in the view.
  if (registry_.DropZombies(*newest)) return;
  checkpoints_.cuts().NoteNumber(registry_.HighestCut());
  const bool own = newest->stamp().incarnation() == options_.incarnation;
  // What of it can go on with those that are here.
  v1::View rest = *newest;
  PsConditions conditions = layout_.Conditions(registry_, calls_, now);
  for (auto& [index, condition] : conditions) condition.lives = !condition.ended;  // they have come, and promised
  for (const v1::PsMember& member : newest->ps()) {
    if (conditions.count(member.index()) != 0 || !registry_.HasEnded(member)) continue;
    conditions[member.index()] = {.member = member, .lives = false, .ended = true};
  }
  const AfterLoss after = PlanAfterLoss(*newest, conditions, options_.bug);
  // Enough of those that decide on it have to be there to make it count.
  const auto decide = [&](const std::set<std::uint64_t>& sessions, const std::set<std::uint64_t>& live) {
    if (after.kind == AfterLoss::Kind::kNothing) return !own || IsCommittedBy(*newest, live);
    return after.kind == AfterLoss::Kind::kGoesOn && !own && MayTakeOver(*newest, sessions) && MayGoOn(*newest, live);
  };
  bool goes_on = decide(registry_.sessions(), registry_.live());
  if (after.kind == AfterLoss::Kind::kGoesOn && !own) {
    goes_on = goes_on || options_.bug == PlantedBug::kMajoritySkipped;
    rest.mutable_layout()->Assign(after.next.layout.begin(), after.next.layout.end());
    rest.mutable_ps()->Assign(after.next.ps.begin(), after.next.ps.end());
    if (after.next.failovers > 0 && rest.replication_lag() > 0) rest.set_lost_epoch(rest.stamp().epoch() + 1);
  }
  if (!goes_on && (!all || after.kind == AfterLoss::Kind::kWaits)) return;
  if (!goes_on) {
    // Also with more ps than are wanted by now: of those that are not known to be gone each may decide yet.
    std::set<std::uint64_t> awaited;
    for (const v1::PsMember& member : newest->ps()) {
      if (registry_.Find(member.index()) == nullptr && !registry_.HasEnded(member)) awaited.insert(member.session());
    }
    std::set<std::uint64_t> sessions = registry_.sessions(), live = registry_.live();
    sessions.insert(awaited.begin(), awaited.end());
    live.insert(awaited.begin(), awaited.end());
    if (decide(sessions, live)) return;
  }
  if (!own) {
    // A history that another coordinator made: who was a member of mine is none of it.
    if (view_.has_stamp()) {
      for (std::uint64_t session : members_.sessions()) EndSession(session);
    }
    AdoptSessions(rest, now);
  }
  // What a ps holds that has not loaded its checkpoint says nothing of what is applied: then it is begun with again.
  const bool begun = !rest.has_restore() || own || registry_.HasBegun(rest);
  if (goes_on && begun) {
    if (after.kind == AfterLoss::Kind::kGoesOn) layout_.OnChange(after.next);
    return Resume(std::move(rest), *newest, now);
  }
  // A ps that held slices is gone, and nobody else has them: all go back to the last cut.
  view_ = v1::View(*newest);
  model_.TakeFrom(view_);
  LoseHistory(now);
}

void CoordinatorCore::LoseHistory(Time now) {
  parameters_lost_ = true;
  if (leases_.has_value())
    updates_at_loss_ = std::max({updates_seen_, leases_->retired_updates(), updates_at_loss_.value_or(0)});
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

void CoordinatorCore::Resume(v1::View view, const v1::View& before, Time now) {
  if (view_.has_stamp() && CompareStamps(view.stamp(), view_.stamp()) == 0 &&
      view_.stamp().incarnation() == options_.incarnation) {
    phase_ = Phase::kInstalling;  // nothing was lost: a ps only registered anew
    return;
  }
  const absl::StatusOr<DataPlan> plan = DataPlan::Create(view.data());
  if (!plan.ok()) return Fail(std::string(plan.status().message()));
  const Ledger ledger = registry_.LedgerOf(view, *plan);
  view.mutable_stamp()->set_incarnation(options_.incarnation);
  SetQuorum(PsSessions(before), &view);
  const UpdateMode mode = Wanted(view);
  const bool lost = view.lost_epoch() > view.stamp().epoch();
  const bool another_mode = mode != ModeOf(view);
  // Whatever the coordinator before made of this view and nobody knows any more had the next number.
  if (another_mode || view.ps_size() != before.ps_size()) view.mutable_stamp()->set_epoch(view.stamp().epoch() + 1);
  if (another_mode || lost) view.set_mode_epoch(view.stamp().epoch());
  if (another_mode) {
    SetMode(mode, &view);
    FitEnd(*plan, &view);
  }
  if (options_.bug == PlantedBug::kEvaluationsForgotten) view.clear_evaluations();
  for (v1::PsMember& member : *view.mutable_ps()) member = *registry_.Find(member.index());
  model_.TakeFrom(view);
  parameters_lost_ = view.stamp().generation() > 1;
  checkpoints_.ResumeHistory(view.restore(), now);
  BeginHistory(std::move(view), ledger);
  tasks_.Restore(view_);
  leases_->AssumeLeased();
  adopt_until_ = now + options_.lease;
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
  const absl::StatusOr<std::uint64_t> generation = NextGeneration(view_.stamp().generation(), options_.incarnation);
  if (!generation.ok()) return Fail(std::string(generation.status().message()));
  v1::ViewStamp stamp;
  stamp.set_generation(*generation);
  stamp.set_incarnation(options_.incarnation);
  stamp.set_epoch(1);
  absl::StatusOr<v1::View> view = model_.MakeView(options_.config, stamp, registry_.members());
  if (!view.ok()) return Fail(std::string(view.status().message()));
  Ledger ledger;
  if (beginning.checkpoint.has_value()) {
    const FoundCheckpoint& checkpoint = *beginning.checkpoint;
    absl::Status fits = CheckFits(checkpoint, options_.config, model_.tensors(), model_.sample_count());
    const absl::StatusOr<DataPlan> plan = ResumedPlan(checkpoint.manifest, options_.config);
    if (fits.ok()) fits = plan.status();
    if (!fits.ok()) return Fail(std::string(fits.message()), v1::FAILURE_CHECKPOINT);
    *view->mutable_data() = plan->proto();
    view->mutable_restore()->set_store(checkpoint.store);
    view->mutable_restore()->set_checkpoint(checkpoint.name);
    view->mutable_restore()->set_updates(checkpoint.manifest.updates());
    ledger = LedgerOf(checkpoint.manifest, *plan);
  }
  BeginHistory(*std::move(view), ledger);
  checkpoints_.BeginHistory(beginning.checkpoint, updates_at_loss_, now);
  updates_at_loss_.reset();
  if (!beginning.checkpoint.has_value()) return;
  const v1::CheckpointManifest& manifest = beginning.checkpoint->manifest;
  updates_seen_ = manifest.updates();
  tasks_.Restore(manifest, manifest.job_uid() == options_.config.job_uid());
  leases_->AssumeBegun({manifest.end().dataset_epoch(), manifest.end().shard()});
  if (heeds() && CountNewEvaluations(&view_)) SetEnd();  // nobody has the view yet
  AddEvaluation();
  adopt_until_ = now;  // nobody holds anything, and what is not retired may be applied in part
}

void CoordinatorCore::BeginHistory(v1::View view, const Ledger& ledger) {
  const absl::StatusOr<DataPlan> plan = DataPlan::Create(view.data());
  if (!plan.ok()) return Fail(std::string(plan.status().message()));
  view_ = std::move(view);
  leases_.emplace(*plan, std::set<std::uint32_t>(), ledger, options_.bug);
  search_.reset();
  if (view_.mode() == v1::SANDBLASTER) {
    search_.emplace(view_, options_.config.lbfgs());
    leases_->SetEndOfGrants(0);
  }
  SetEnd();
  tasks_.Forget();
  states_.ForgetAll();
  mode_taken_ = 0;
  TakeUpView(/*sessions=*/true);
  adopt_until_.reset();
  initialiser_ = 0;
  updates_seen_ = 0;
  phase_ = Phase::kInstalling;
  registry_.ForgetViews();
}

// ---- ps

v1::RegisterPsReply CoordinatorCore::OnRegisterPs(const v1::RegisterPsRequest& request, Time now) {
  v1::RegisterPsReply reply;
  reply.set_incarnation(options_.incarnation);
  reply.set_status(v1::SYNC_OK);
  const auto refuse = [&reply](v1::SyncStatus status, std::string why) {
    reply.set_status(status);
    reply.set_message(std::move(why));
    return reply;
  };
  const v1::PsMember& self = request.self();
  if (request.job_uid() != options_.config.job_uid()) return refuse(v1::SYNC_WRONG_JOB, "another job");
  if (request.highest_incarnation() > options_.incarnation) {
    fenced_ =
        absl::AbortedError(absl::StrCat("ps-", self.index(), " has seen incarnation ", request.highest_incarnation(),
                                        " of the coordinator; this is ", options_.incarnation));
    return refuse(v1::SYNC_REFUSED, "an older coordinator");
  }
  const bool stranger = self.index() >= registry_.count() && registry_.Find(self.index()) == nullptr;
  if (stranger && phase_ != Phase::kGathering && !request.has_holds()) {
    // Whoever started it may know of more than this coordinator has been told.
    return refuse(v1::SYNC_WAIT, absl::StrCat("this job has ", registry_.count(), " ps"));
  }
  const bool known = registry_.Knows(self);
  if (request.highest_incarnation() < options_.incarnation) {
    // What it says counts only once it refuses older coordinators: until then they may still change it.
    reply.set_tell_all(!known);
    return refuse(v1::SYNC_WAIT, "register again");
  }
  if (registry_.IsZombie(self)) return refuse(v1::SYNC_REPLACED, "replaced by a newer process");
  if (!known && over()) return refuse(v1::SYNC_WAIT, "the job is over");
  if (!known && request.has_holds() && !request.has_view()) {
    reply.set_tell_all(true);
    return refuse(v1::SYNC_WAIT, "say what you hold");
  }
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
  return states_.has_view(ps) && states_.members_version(ps) == members_.version() && states_.initialised(ps) &&
         !leases_->asking() && !layout_.Awaits(ps) && states_.committed(ps) == committed_ &&
         states_.watermark(ps) == leases_->watermark() && checkpoints_.cuts().Told(ps) && !SearchAsks();
}

v1::DirectRequest CoordinatorCore::MakeDirective(std::uint32_t ps) const {
  v1::DirectRequest request;
  request.set_job_uid(options_.config.job_uid());
  request.set_session(registry_.Find(ps)->session());
  *request.mutable_stamp() = view_.stamp();
  if (stored_.count(registry_.Find(ps)->session()) == 0) *request.mutable_view() = view_;
  request.set_committed(committed_);
  members_.Tell(states_.members_version(ps), &request);
  leases_->Ask(ps, &request);
  request.set_watermark(leases_->watermark());
  if (const std::optional<v1::CutOrder> order = checkpoints_.cuts().order(); order.has_value()) {
    *request.mutable_cut() = *order;
  }
  if (SearchAsks()) search_->Ask(&request);
  return request;
}

std::vector<DirectCall> CoordinatorCore::TakeDirectives(Time now) {
  Step(now);
  std::vector<DirectCall> due;
  // What is due by now and was not done waits for something else than the time.
  next_timer_ = now + options_.lease / 6;
  if (checkpoints_.next_timer() > now) next_timer_ = std::min(next_timer_, checkpoints_.next_timer());
  if (fenced_.has_value() || !leases_.has_value() || phase_ == Phase::kGathering || phase_ == Phase::kAwaitingModel ||
      phase_ == Phase::kSeeking) {
    return due;
  }
  for (const std::uint32_t ps : Told()) {
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
  states_.SetStats(*ps, reply->stats());
  if (CompareStamps(reply->stamp(), view_.stamp()) == 0) {
    states_.Confirm(*ps, *reply);
    NoteStored(registry_.Find(*ps)->session());
    layout_.OnReply(*ps, registry_.Find(*ps)->session(), *reply, now);
    for (const v1::ShardBitmap& answer : reply->shards()) {
      const std::optional<ShardKey> retired = leases_->Answer(*ps, answer);
      if (retired.has_value()) shard_failures_.Retire(*retired);
    }
    if (reply->has_vectors() && search_.has_value()) search_->Answer(reply->vectors());
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
  tasks_.EndSession(session);
  std::vector<ShardKey> held;
  if (leases_.has_value()) held = leases_->EndSession(session, members_.version());
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
  if (!verdict.guilty.empty()) Fail(Describe(verdict, leases_->plan()), v1::FAILURE_DATA_SHARD);
}

void CoordinatorCore::Adopt(const v1::WorkerSyncRequest& request) {
  if (!adopt_until_.has_value() || request.view().generation() != view_.stamp().generation()) return;
  for (const v1::HeldLease& held : request.held()) {
    if (held.kind() == v1::TASK_TRAIN) {
      leases_->Adopt(held, request.session(), request.index());
    } else {
      tasks_.Adopt(held, request.session());
    }
  }
}

void CoordinatorCore::Grant(const v1::WorkerSyncRequest& request, const Member& member, Time now,
                            v1::WorkerSyncReply* reply) {
  tasks_.Grant(request.session(), member.index, request.wanted() > 0, members_.available(), now, lease_numbers_, reply);
  std::set<std::uint64_t> all_sent;
  for (const v1::HeldLease& held : request.held()) {
    if (held.all_sent()) all_sent.insert(held.lease());
  }
  const std::uint32_t working = leases_->List(request.session(), all_sent, reply);
  // Data shards are begun in their order: a job that resumes within an epoch does not go on with the next one.
  const bool may = phase_ == Phase::kTraining && !adopt_until_.has_value() && !leases_->inspecting();
  const std::uint32_t width = StepWidth(view_);
  const bool twice = HasBackupExecutions(view_.mode());
  for (int i = 0; twice && i < request.held_size(); ++i) leases_->Report(request.held(i), request.session());
  if (width != 0) {
    if (!may || request.wanted() == 0) return leases_->NoSpare(request.session());
    const std::uint32_t workers = std::max<std::uint32_t>(1, options_.config.workers());
    return leases_->GrantInBands(request.session(), width, (width + workers - 1) / workers, request.starving(),
                                 lease_numbers_, reply);
  }
  const bool warming =
      leases_->retired_updates() < options_.config.warm_start() && leases_->OthersHold(request.session());
  const bool gives = may && !warming && working < request.wanted();
  if (view_.mode() == v1::BOUNDED_STALENESS) {
    const bool told = member.training;
    members_.SetTraining(request.session(), leases_->Holds(request.session()) || (gives && leases_->HasFree()));
    if (!told) return;  // nothing before every ps knows that it has to be waited for
  }
  if (gives) leases_->Grant(request.session(), request.wanted() - working, lease_numbers_, reply, member.index);
  if (gives && twice && request.starving()) leases_->GrantOneOfTheLast(request.session(), lease_numbers_, reply);
}

const Member* CoordinatorCore::Admit(const v1::WorkerSyncRequest& request, Time now, v1::WorkerSyncReply* refusal) {
  const auto refuse = [refusal](v1::SyncStatus status, std::string why = "") {
    refusal->set_status(status);
    refusal->set_message(std::move(why));
    return nullptr;
  };
  const std::uint64_t session = request.session();
  if (session == 0) return refuse(v1::SYNC_REFUSED, "a session must not be 0");
  const Member* member = members_.Find(session);
  if (member == nullptr) {
    if (request.leaving()) return refuse(v1::SYNC_FINISHED);
    if (members_.ended(session)) return refuse(v1::SYNC_SESSION_ENDED);
    if (request.accepted()) {
      // Before the ps are gathered nobody knows which sessions an earlier coordinator accepted.
      const bool rebuilding = phase_ == Phase::kGathering;
      return refuse(rebuilding ? v1::SYNC_WAIT : v1::SYNC_SESSION_ENDED);
    }
    if (request.incarnation() != options_.incarnation) return refuse(v1::SYNC_WAIT, "propose the session again");
    if (members_.IsZombie({request.index(), request.process_incarnation()})) {
      return refuse(v1::SYNC_REPLACED, "replaced by a newer process");
    }
    std::string objection = model_.Check(request);
    if (!objection.empty()) return refuse(v1::SYNC_REFUSED, std::move(objection));
    members_.Add(session);
    member = members_.Find(session);
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
  if (view_.has_stamp() && first_contact) Adopt(request);
  const bool committed = phase_ == Phase::kInitialising || phase_ == Phase::kTraining || phase_ == Phase::kFinishing ||
                         phase_ == Phase::kDone;
  if (!committed || states_.least_members_version() < member->version) return answer(v1::SYNC_WAIT);
  if (!request.has_view() || CompareStamps(request.view(), view_.stamp()) < 0) *reply.mutable_view() = view_;
  // Before it is given anything to begin with.
  Cuts& cuts = checkpoints_.cuts();
  cuts.OnSession(request.session(), request.cut());
  const bool told = options_.bug != PlantedBug::kJoinerBeginsWithOldCut || request.accepted();
  if (told) reply.set_cut(cuts.announced());
  if (request.view().generation() == view_.stamp().generation()) {
    for (const v1::TaskResult& result : request.results()) {
      const std::optional<Tasks::Failure> failure = tasks_.Accept(result, request.session(), member->process(), now);
      if (failure.has_value()) Fail(failure->message, failure->kind);
    }
    if (phase_ == Phase::kInitialising && view_.has_restore()) {
      // The ps load the values.
    } else if (phase_ == Phase::kInitialising) {
      if (initialiser_ == 0) initialiser_ = request.session();
      reply.set_initialise(initialiser_ == request.session());
    } else {
      Grant(request, *member, now, &reply);
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
  const bool moves = phase_ == Phase::kSwitching && mode_taken_ == view_.mode_epoch();
  const Phase phase = moves ? Phase::kTraining : phase_;
  progress.set_phase(JobPhaseOf(phase, again, adopt_until_.has_value()));
  progress.set_message(phase_ == Phase::kFailed ? message_ : Awaited(phase, registry_, members_, tasks_, checkpoints_));
  progress.set_failure(failure_);
  if (view_.has_stamp()) *progress.mutable_view() = view_.stamp();
  progress.set_epochs(options_.config.epochs());
  progress.set_parameters_lost(parameters_lost_);
  progress.set_first_update_milliseconds(first_update_milliseconds_);
  progress.set_lease_expirations(lease_expirations_);
  if (phase == Phase::kTraining || phase == Phase::kFinishing || phase == Phase::kDone) {
    progress.mutable_mode()->set_mode(view_.mode());
    progress.mutable_mode()->set_staleness(view_.staleness());
    progress.mutable_mode()->set_updates_per_step(view_.updates_per_step());
  }
  if (progress.message().empty()) progress.set_message(mode_refused_);
  ReportPs(registry_, states_, calls_, options_.lease, now, &progress);
  members_.Report(now, &progress);
  checkpoints_.Report(now, &progress);
  tasks_.Report(&progress);
  if (!leases_.has_value()) return progress;
  layout_.Report(view_, &progress);
  // Who had a place in the view before is needed until this one counts for another coordinator as well.
  if (IsDecidedAlone(view_) ? !states_.all_have_view() : !committed_) {
    const std::set<std::uint32_t> placed(progress.placed_ps().begin(), progress.placed_ps().end());
    for (const std::uint32_t index : registry_.IndicesOf(QuorumOf(view_))) {
      if (placed.count(index) == 0) progress.add_placed_ps(index);
    }
  }
  ReportDecisions(options_.config, view_, &progress);
  if (!search_.has_value()) ReportLearningRate(options_.config, view_, *leases_, &progress);
  // Of a search that has stepped back from where the loss was not finite nobody needs to be warned.
  ReportUpdates(*leases_, states_, phase_ == Phase::kDone && !search_.has_value(), &progress);
  if (!search_.has_value()) return progress;
  search_->Report(&progress);
  if (!search_->done()) return progress;
  // What it does without is not expected any more.
  progress.set_epochs(leases_->watermark());
  progress.set_updates_expected(leases_->plan().updates_before(leases_->watermark()));
  if (phase_ == Phase::kDone && search_->lbfgs().outcome() != sandblaster::Lbfgs::Outcome::kConverged) {
    progress.add_warnings(progress.search().outcome());
  }
  return progress;
}

}  // namespace downpour::core
