#include "trainer/core/ring/ring_coordinator.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/admission.h"
#include "trainer/core/counted_evaluations.h"
#include "trainer/core/layout.h"
#include "trainer/core/progress.h"
#include "trainer/core/schedule.h"
#include "trainer/core/step_id.h"

namespace downpour::core {
namespace {

constexpr std::uint32_t kWriter = 0;  // checkpoints are written as if by ps-0

}  // namespace

RingCoordinatorCore::RingCoordinatorCore(CoordinatorOptions options, Time now)
    : options_(std::move(options)),
      started_(now),
      last_activity_(now),
      next_timer_(now),
      wanted_(std::max<std::uint32_t>(1, options_.config.workers())),
      states_(&view_, options_.incarnation),
      members_(options_.lease),
      tasks_(options_.config.keep_best()),
      checkpoints_(options_.config, options_.incarnation),
      lease_numbers_(options_.incarnation) {
  // The one before may have workers that train.
  if (options_.incarnation > 1) adopt_until_ = now + options_.lease;
}

void RingCoordinatorCore::Fail(std::string message, v1::FailureKind kind) {
  if (over()) return;
  phase_ = Phase::kFailed;
  message_ = std::move(message);
  failure_ = kind;
}

bool RingCoordinatorCore::heeds() const { return HeedsEvaluations(options_.config); }

// ---- phases

void RingCoordinatorCore::Step(Time now) {
  if (now - last_activity_ > options_.lease / 2) {
    members_.Extend(now);  // it was paused: nobody is expired for that
    if (adopt_until_.has_value()) adopt_until_ = now + options_.lease;
  }
  last_activity_ = now;
  next_timer_ = now + options_.lease / 6;
  if (fenced_.has_value() || over()) return;
  for (const std::uint64_t session : members_.Expired(now)) {
    ++lease_expirations_;
    if (states_.InRing(session)) states_.Miss(members_.Find(session)->process(), now);
    EndSession(session);
  }
  StepRing(now);
  if (phase_ == Phase::kSeeking && !ring_waits_) StartHistory(now);
  if (phase_ == Phase::kInitialising && states_.Newest() != nullptr) {
    begun_ = true;
    phase_ = Phase::kTraining;
  }
  // What those have who are there is less than is known.
  if (phase_ == Phase::kTraining && !ring_awaits_) StepEpochs(now);
  if (phase_ == Phase::kFinishing && !ring_awaits_) StepFinishing();
  StepCheckpoints(now);
  if (checkpoints_.next_timer() > now) next_timer_ = std::min(next_timer_, checkpoints_.next_timer());
}

void RingCoordinatorCore::StepRing(Time now) {
  if (adopt_until_.has_value()) {
    const std::vector<std::uint64_t>& ring = states_.ring();
    const bool all = !ring.empty() && std::all_of(ring.begin(), ring.end(), [this](std::uint64_t session) {
      return members_.Find(session) != nullptr;
    });
    if (!all && now < *adopt_until_) return;
    adopt_until_.reset();
    for (const v1::RingMember& member : view_.ring()) {
      if (members_.Find(member.session()) == nullptr) states_.Miss({member.index(), 0}, now);
    }
  }
  if (!model_.known()) return;
  RingSituation situation;
  situation.ring = phase_ == Phase::kSeeking ? next_ring_ : states_.ring();
  situation.wish.least = std::max<std::uint32_t>(1, options_.config.all_reduce().least_workers());
  situation.wish.expected = wanted_;
  situation.since = newest_came_;
  situation.of_another_coordinator = view_.has_stamp() && view_.stamp().incarnation() != options_.incarnation;
  situation.holders = view_.state_holders();
  situation.hand_over = view_.state_copies() > 0 && states_.AnyLeaves() && !states_.HaveAllWithoutLeavers();
  situation.incomplete = view_.state_copies() > 0 && !states_.HaveAll();
  if (begun_) situation.may_return_until = states_.MayReturnUntil();
  situation.state_lost = states_.StateLost();
  bool broken = false;
  for (const auto& [session, state] : states_.told()) {
    const Member* const member = members_.Find(session);
    RingCandidate candidate;
    candidate.index = member->index;
    candidate.session = session;
    candidate.address = state.address();
    candidate.has_state = states_.IsRecent(session);
    candidate.broken = states_.IsBroken(state);
    candidate.leaving = states_.Leaves(session);
    candidate.busy = tasks_.Holds(session) && !candidate.broken;  // otherwise it goes on with it in the next ring
    broken = broken || candidate.broken;
    situation.candidates.push_back(std::move(candidate));
  }
  std::sort(situation.candidates.begin(), situation.candidates.end(),
            [](const RingCandidate& a, const RingCandidate& b) { return a.index < b.index; });
  if (!broken) broken_since_.reset();
  if (broken && !broken_since_.has_value()) broken_since_ = now;
  situation.broken_since = broken_since_.value_or(now);
  const RingDecision decision = PlanRing(situation, now);
  if (!decision.reason.empty() || decision.kind != RingDecision::Kind::kKeep) ring_says_ = decision.reason;
  if (decision.kind == RingDecision::Kind::kKeep && decision.reason.empty()) ring_says_.clear();
  next_timer_ = std::min(next_timer_, now + kRingSettles);
  ring_waits_ = decision.kind == RingDecision::Kind::kWait;
  ring_awaits_ = decision.kind == RingDecision::Kind::kAwait;
  switch (decision.kind) {
    case RingDecision::Kind::kKeep:
    case RingDecision::Kind::kWait:
    case RingDecision::Kind::kAwait:
      return;
    case RingDecision::Kind::kForm:
      if (phase_ == Phase::kSeeking) {
        // Those who have the state are back: nothing was lost.
        phase_ = Phase::kInitialising;
        next_ring_.clear();
        updates_at_loss_.reset();
        parameters_lost_ = lost_before_;
      }
      return FormRing(decision, now);
    case RingDecision::Kind::kBegin:
      if (phase_ == Phase::kInitialising && !begun_) return FormRing(decision, now);  // nothing is lost
      if (phase_ != Phase::kSeeking) lost_before_ = parameters_lost_;
      if (begun_) {
        parameters_lost_ = true;
        updates_at_loss_ = std::max(updates_seen_, updates_at_loss_.value_or(0));
      }
      next_ring_ = decision.members;
      checkpoints_.cuts().Abort(now);
      phase_ = Phase::kSeeking;
      return;
  }
}

void RingCoordinatorCore::SetRing(std::vector<std::uint64_t> ring, v1::View* view) {
  if (view->state_copies() > 0) {
    const auto behind = std::stable_partition(ring.begin(), ring.end(),
                                              [this](std::uint64_t session) { return !states_.Leaves(session); });
    view->set_state_holders(static_cast<std::uint32_t>(std::max<std::ptrdiff_t>(1, behind - ring.begin())));
  }
  view->clear_ring();
  for (const std::uint64_t session : ring) {
    v1::RingMember* member = view->add_ring();
    member->set_index(members_.Find(session)->index);
    member->set_session(session);
    member->set_address(states_.told().at(session).address());
  }
  view->set_ring_epoch(view->stamp().epoch());
  if (options_.config.all_reduce().batch_policy() == v1::AllReduceConfig::SCALE_LEARNING_RATE) {
    view->set_updates_per_step(static_cast<std::uint32_t>(ring.size()));
    // That of the first view stays, whatever the manifest says by now.
    const std::uint32_t before = view_.ring_rate_workers();
    view->set_ring_rate_workers(before > 0 ? before : std::max<std::uint32_t>(1, options_.config.workers()));
    FitEnd(*plan_, view);
  }
}

void RingCoordinatorCore::FormRing(const RingDecision& decision, Time now) {
  v1::View view = view_;
  view.mutable_stamp()->set_incarnation(options_.incarnation);
  view.mutable_stamp()->set_epoch(view_.stamp().epoch() + 1);
  SetRing(decision.members, &view);
  checkpoints_.cuts().Abort(now);
  ++rings_;
  TakeView(std::move(view));
}

void RingCoordinatorCore::TakeView(v1::View view) {
  view_ = std::move(view);
  states_.OnView();
  broken_since_.reset();
  checkpoints_.cuts().SetPs({kWriter});
}

void RingCoordinatorCore::StartHistory(Time now) {
  const JobCheckpoints::Beginning beginning = checkpoints_.Seek(now);
  if (absl::IsUnavailable(beginning.status)) return;
  if (!beginning.status.ok()) return Fail(std::string(beginning.status.message()), v1::FAILURE_CHECKPOINT);
  const absl::StatusOr<std::uint64_t> generation = NextGeneration(view_.stamp().generation(), options_.incarnation);
  if (!generation.ok()) return Fail(std::string(generation.status().message()));
  v1::ViewStamp stamp;
  stamp.set_generation(*generation);
  stamp.set_incarnation(options_.incarnation);
  stamp.set_epoch(1);
  absl::StatusOr<v1::View> view = model_.MakeView(options_.config, stamp, {});
  if (!view.ok()) return Fail(std::string(view.status().message()));
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
  }
  absl::StatusOr<DataPlan> plan = DataPlan::Create(view->data());
  if (!plan.ok()) return Fail(std::string(plan.status().message()));
  plan_ = *std::move(plan);
  view->set_state_copies(options_.config.all_reduce().state_copies());
  std::vector<std::uint64_t> ring = std::exchange(next_ring_, {});
  std::erase_if(ring, [this](std::uint64_t session) { return members_.Find(session) == nullptr; });
  SetRing(std::move(ring), &*view);
  tasks_.Forget();
  checkpoints_.BeginHistory(beginning.checkpoint, updates_at_loss_, now);
  updates_at_loss_.reset();
  updates_seen_ = watermark_seen_ = 0;
  states_.BeginHistory();
  epochs_open_ = 0;
  begun_ = false;
  if (beginning.checkpoint.has_value()) {
    const v1::CheckpointManifest& manifest = beginning.checkpoint->manifest;
    updates_seen_ = manifest.updates();
    tasks_.Restore(manifest, manifest.job_uid() == options_.config.job_uid());
  }
  phase_ = Phase::kInitialising;
  ++rings_;
  TakeView(*std::move(view));
}

std::string RingCoordinatorCore::Difference() const {
  const std::vector<std::uint64_t> two = states_.Different();
  if (two.empty()) return "";
  return absl::StrCat("worker-", members_.Find(two[0])->index, " and worker-", members_.Find(two[1])->index,
                      " have different models after the same ", states_.told().at(two[0]).updates(),
                      " updates: do they run the same program on the same kind of processor?");
}

std::uint64_t RingCoordinatorCore::expected() const {
  return view_.has_end() ? plan_->updates_before(view_.end().dataset_epoch(), view_.end().shard()) : plan_->updates();
}

void RingCoordinatorCore::StepEpochs(Time now) {
  const v1::RingState* const newest = states_.Newest();
  if (newest == nullptr) return;
  if (std::string difference = Difference(); !difference.empty()) return Fail(std::move(difference));
  updates_seen_ = newest->updates();
  const std::uint32_t watermark = watermark_seen_ = newest->watermark();
  if (first_update_milliseconds_ == 0 && updates_seen_ > view_.restore().updates()) {
    first_update_milliseconds_ =
        static_cast<std::uint64_t>(std::max<std::int64_t>(1, absl::ToInt64Milliseconds(now - started_)));
  }
  if (states_.AllWait(expected())) {
    phase_ = Phase::kFinishing;
    return;
  }
  if (!options_.config.evaluate()) {
    epochs_open_ = plan_->epochs();
    return;
  }
  // What is begun goes on, whoever opened it.
  const bool within = updates_seen_ > plan_->updates_before(watermark);
  epochs_open_ = std::max(epochs_open_, within || watermark == 0 ? watermark + 1 : 0u);
  // What the coordinator before has opened is known of a ring that this one has formed.
  if (view_.stamp().incarnation() != options_.incarnation) return;
  if (watermark < epochs_open_ || !states_.AllWait(plan_->updates_before(watermark))) return;
  if (watermark > 0) tasks_.Add({watermark, v1::TASK_EVALUATE});
  if (!tasks_.AllDone(0)) return;
  if (heeds()) {
    v1::View view = view_;
    if (CountEvaluations(options_.config, *plan_, {watermark, 0}, tasks_.SettledEvaluations(), &view)) {
      view.mutable_stamp()->set_incarnation(options_.incarnation);
      view.mutable_stamp()->set_epoch(view_.stamp().epoch() + 1);
      if (view_.stamp().incarnation() != options_.incarnation) view.set_ring_epoch(view.stamp().epoch());
      checkpoints_.cuts().Abort(now);
      FitEnd(*plan_, &view);
      TakeView(std::move(view));
      return;
    }
  }
  epochs_open_ = watermark + 1;
}

void RingCoordinatorCore::StepFinishing() {
  const v1::RingState* const newest = states_.Newest();
  if (newest == nullptr) return;  // all are gone: another generation will see
  const std::uint32_t last = newest->watermark() + (view_.has_end() && view_.end().shard() > 0 ? 1 : 0);
  tasks_.DropWaiting(last);
  tasks_.Add({last, v1::TASK_EXPORT});
  if (options_.config.evaluate()) tasks_.Add({last, v1::TASK_EVALUATE});
  if (!options_.config.keep_best().empty() && tasks_.AllDone(0)) tasks_.Add({last, v1::TASK_KEEP_BEST});
  const bool kept = checkpoints_.FinalCutEnded();
  if (tasks_.AllDone(last) && kept) phase_ = Phase::kDone;
}

void RingCoordinatorCore::StepCheckpoints(Time now) {
  const bool training = phase_ == Phase::kTraining || phase_ == Phase::kFinishing;
  if (!training || !checkpoints_.enabled() || !states_.IsFormed()) return;
  JobCheckpoints::Situation situation;
  situation.stamp = view_.stamp();
  situation.sessions = [] { return std::vector<std::uint64_t>(); };
  situation.describe = [this](v1::CheckpointManifest* manifest) {
    *manifest->mutable_tensors() = view_.tensors();
    *manifest->mutable_data() = view_.data();
    manifest->set_mode(view_.mode());
    *manifest->mutable_optimizer() = view_.optimizer();
    tasks_.Describe(manifest);
  };
  checkpoints_.Step(now, situation);
}

void RingCoordinatorCore::OnStoreReply(std::uint64_t call, StoreReply reply, Time now) {
  checkpoints_.OnStoreReply(call, std::move(reply), now);
  Step(now);
}

v1::FinishReply RingCoordinatorCore::OnFinish(const v1::FinishRequest& request) {
  v1::FinishReply reply = AnswerFinish(request, options_.config.job_uid(), phase_);
  if (reply.accepted()) finished_ = true;
  return reply;
}

void RingCoordinatorCore::ReportFailures(const v1::ProgressRequest& request) {
  checkpoints_.OnRequest(request.checkpoint_request());
  if (request.mode().workers() > 0 && request.mode().revision() >= wanted_revision_) {
    wanted_ = request.mode().workers();
    wanted_revision_ = request.mode().revision();
  }
  for (const v1::MemberFailure& failure : request.failures()) {
    if (failure.role() != "worker") continue;
    std::vector<std::uint64_t> ended;
    for (const auto& [session, state] : states_.told()) {
      if (members_.Find(session)->process() == ProcessKey(failure.index(), failure.process_incarnation())) {
        ended.push_back(session);
      }
    }
    for (const std::uint64_t session : ended) EndSession(session);
    states_.Forget({failure.index(), failure.process_incarnation()});
  }
}

v1::RegisterPsReply RingCoordinatorCore::OnRegisterPs(const v1::RegisterPsRequest& request, Time /*now*/) {
  v1::RegisterPsReply reply;
  reply.set_status(request.job_uid() == options_.config.job_uid() ? v1::SYNC_REFUSED : v1::SYNC_WRONG_JOB);
  reply.set_message("this job has no parameter servers");
  return reply;
}

// ---- workers

void RingCoordinatorCore::EndSession(std::uint64_t session) {
  if (!members_.End(session).has_value()) return;
  tasks_.EndSession(session);
  states_.End(session);
}

void RingCoordinatorCore::Adopt(const v1::View& view, Time now) {
  if (view_.has_stamp() && CompareStamps(view.stamp(), view_.stamp()) <= 0) return;
  if (view_.has_stamp() && view_.stamp().incarnation() == options_.incarnation) return;  // it has decided already
  absl::StatusOr<DataPlan> plan = DataPlan::Create(view.data());
  if (!plan.ok()) return;
  plan_ = *std::move(plan);
  view_ = view;
  model_.TakeFrom(view_);
  states_.OnView();
  checkpoints_.ResumeHistory(view_.restore(), now);
  checkpoints_.cuts().SetPs({kWriter});
  tasks_.Forget();
  tasks_.Restore(view_);
  parameters_lost_ = view_.stamp().generation() > 1;
  begun_ = true;
  phase_ = Phase::kInitialising;
}

const Member* RingCoordinatorCore::Admit(const v1::WorkerSyncRequest& request, Time now, v1::WorkerSyncReply* refusal) {
  const auto refuse = [refusal](v1::SyncStatus status, std::string why = "") {
    refusal->set_status(status);
    refusal->set_message(std::move(why));
    return nullptr;
  };
  const std::uint64_t session = request.session();
  if (session == 0) return refuse(v1::SYNC_REFUSED, "a session must not be 0");
  const Member* member = members_.Find(session);
  if (member == nullptr) {
    // What the coordinator before had asked of it is not known yet.
    if (request.leaving() && !states_.InRing(session) && !adopt_until_.has_value()) return refuse(v1::SYNC_FINISHED);
    if (members_.ended(session)) return refuse(v1::SYNC_SESSION_ENDED);
    if (request.incarnation() != options_.incarnation) {
      refusal->mutable_ring()->set_tell_view(true);
      return refuse(v1::SYNC_WAIT, "propose the session again");
    }
    if (members_.IsZombie({request.index(), request.process_incarnation()})) {
      return refuse(v1::SYNC_REPLACED, "replaced by a newer process");
    }
    if (request.accepted() && !request.ring().has_view()) {
      refusal->mutable_ring()->set_tell_view(true);
      return refuse(v1::SYNC_WAIT, "say what you know of the ring");
    }
    if (request.ring().has_view()) Adopt(request.ring().view(), now);
    if (!request.accepted()) {
      std::string objection = model_.Check(request);
      if (!objection.empty()) return refuse(v1::SYNC_REFUSED, std::move(objection));
    }
    states_.Come({request.index(), request.process_incarnation()}, /*alone=*/members_.size() == 0, now);
    members_.Add(session);
    newest_came_ = now;
    member = members_.Find(session);
  }
  if (request.sequence() <= member->sequence) return refuse(v1::SYNC_WAIT, "an older call");
  const std::optional<std::uint64_t> replaced = members_.Hear(request, now);
  if (replaced.has_value()) EndSession(*replaced);
  return member;
}

v1::WorkerSyncReply RingCoordinatorCore::OnSyncWorker(const v1::WorkerSyncRequest& request, Time now) {
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
  if (request.incarnation() > options_.incarnation) {
    fenced_ =
        absl::AbortedError(absl::StrCat("worker-", request.index(), " has seen incarnation ", request.incarnation(),
                                        " of the coordinator; this is ", options_.incarnation));
  }
  if (fenced_.has_value()) return answer(v1::SYNC_WAIT, "an older coordinator");
  if (finished_) {
    EndSession(request.session());
    return answer(v1::SYNC_FINISHED);
  }
  const Member* known = members_.Find(request.session());
  const bool first_contact = known == nullptr || !known->known;
  const Member* member = Admit(request, now, &reply);
  if (member == nullptr) return reply;
  const std::uint64_t session = request.session();
  v1::RingState& state = states_.Tell(session, request.ring());
  state.clear_view();
  if (first_contact) {
    for (const v1::HeldLease& held : request.held()) tasks_.Adopt(held, session);
  }
  if (!request.failure().empty()) {
    Fail(request.failure());
    return answer(v1::SYNC_WAIT);
  }
  if (request.leaving()) states_.Leave(session);
  if (!state.restore_error().empty() && CompareStamps(state.joined(), view_.stamp()) == 0 &&
      phase_ == Phase::kInitialising) {
    checkpoints_.OnRestoreError(absl::StrCat("worker-", request.index(), ": ", state.restore_error()));
    next_ring_ = states_.ring();
    phase_ = Phase::kSeeking;
  }
  for (const v1::TaskResult& result : request.results()) {
    const std::optional<Tasks::Failure> failure = tasks_.Accept(result, session, member->process(), now);
    if (failure.has_value()) Fail(failure->message, failure->kind);
  }
  const bool first_of_ring = !states_.ring().empty() && states_.ring().front() == session;
  if (first_of_ring && state.has_cut()) {
    checkpoints_.cuts().OnPsState(kWriter, state.cut(), now);
  }
  Step(now);
  if (phase_ == Phase::kFailed) return answer(v1::SYNC_WAIT);
  const bool in_ring = states_.InRing(session);
  if (request.leaving() && (!in_ring || ring_waits_)) {
    EndSession(session);
    return answer(v1::SYNC_FINISHED);
  }
  if (!view_.has_stamp() || phase_ == Phase::kSeeking) {
    reply.set_status(v1::SYNC_OK);
    return reply;
  }
  if (!request.has_view() || CompareStamps(request.view(), view_.stamp()) != 0) *reply.mutable_view() = view_;
  v1::RingOrder& order = *reply.mutable_ring();
  order.set_epochs_open(epochs_open_);
  // Of a divided state all have to do with it.
  if (in_ring && (states_.ring().front() == session || view_.state_copies() > 0)) {
    if (const std::optional<v1::CutOrder> cut = checkpoints_.cuts().order(); cut.has_value())
      *order.mutable_cut() = *cut;
  }
  const bool wants = in_ring && state.waits() && request.wanted() > 0;
  tasks_.Grant(session, member->index, wants, members_.available(), now, lease_numbers_, &reply);
  reply.set_status(v1::SYNC_OK);
  return reply;
}

// ---- progress

v1::ProgressReply RingCoordinatorCore::GetProgress(Time now) const {
  v1::ProgressReply progress;
  const bool again = options_.incarnation > 1 || parameters_lost_;
  progress.set_phase(JobPhaseOf(phase_, again, adopt_until_.has_value() || ring_awaits_));
  progress.set_message(phase_ == Phase::kFailed    ? message_
                       : phase_ == Phase::kSeeking ? checkpoints_.AwaitedOfStore()
                                                   : ring_says_);
  progress.set_failure(failure_);
  progress.set_epochs(options_.config.epochs());
  progress.set_parameters_lost(parameters_lost_);
  progress.set_first_update_milliseconds(first_update_milliseconds_);
  progress.set_lease_expirations(lease_expirations_);
  members_.Report(now, &progress);
  checkpoints_.Report(now, &progress);
  tasks_.Report(&progress);
  if (!view_.has_stamp()) return progress;
  *progress.mutable_view() = view_.stamp();
  ReportDecisions(options_.config, view_, &progress);
  v1::RingProgress& ring = *progress.mutable_ring();
  ring.set_members(static_cast<std::uint32_t>(states_.ring().size()));
  ring.set_wanted(wanted_);
  ring.set_formed(states_.IsFormed());
  ring.set_formed_count(rings_);
  ring.set_message(ring_says_);
  ring.set_updates_per_step(StepWidth(view_));
  const v1::RingState* const newest = states_.Newest();
  const std::uint64_t told = states_.LeastUpdates();
  const std::uint64_t updates = newest == nullptr || ring_awaits_ ? std::max(updates_seen_, told) : told;
  const std::uint32_t watermark = ring_awaits_ ? watermark_seen_ : newest == nullptr ? 0 : newest->watermark();
  const std::uint64_t of_epoch = updates - std::min(updates, plan_->updates_before(watermark));
  progress.set_epochs_done(watermark);
  progress.set_samples_per_epoch(plan_->proto().sample_count());
  progress.set_updates_per_epoch(plan_->updates_in_epoch(std::min(watermark, plan_->epochs() - 1)));
  progress.set_updates_expected(expected());
  progress.set_updates_applied(std::min(updates, expected()));
  progress.set_samples_done(
      plan_->samples_before(watermark) +
      std::min(plan_->samples_in_epoch(watermark), of_epoch * plan_->samples_in_update({watermark, 0, 0})));
  return progress;
}

}  // namespace downpour::core
