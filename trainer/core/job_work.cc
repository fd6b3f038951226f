#include "trainer/core/job_work.h"

#include <algorithm>
#include <utility>

#include "trainer/core/counted_evaluations.h"
#include "trainer/core/progress.h"
#include "trainer/core/step_id.h"
#include "trainer/core/update_mode.h"

namespace downpour::core {

JobWork::JobWork(const v1::TrainingConfig& config, std::uint32_t incarnation, PlantedBug bug)
    : config_(config), bug_(bug), lease_numbers_(incarnation), tasks_(config.keep_best()) {}

// ---- histories

void JobWork::Begin(const v1::View& view, const DataPlan& plan, const Ledger& ledger) {
  leases_.emplace(plan, std::set<std::uint32_t>(), ledger, bug_);
  search_.reset();
  if (view.mode() == v1::SANDBLASTER) {
    search_.emplace(view, config_.lbfgs());
    leases_->SetEndOfGrants(0);
  }
  SetEnd(view);
  tasks_.Forget();
  adopt_until_.reset();
}

void JobWork::AdoptUntil(Time until, const v1::View& view) {
  tasks_.Restore(view);
  leases_->AssumeLeased();
  adopt_until_ = until;
}

bool JobWork::Restore(Time now, const v1::CheckpointManifest& manifest, v1::View* view) {
  tasks_.Restore(manifest, manifest.job_uid() == config_.job_uid());
  leases_->AssumeBegun({manifest.end().dataset_epoch(), manifest.end().shard()});
  const bool counted = CountNewEvaluations(view);
  if (counted) SetEnd(*view);
  AddEvaluation();
  adopt_until_ = now;  // nobody holds anything, and what is not retired may be applied in part
  return counted;
}

void JobWork::SetEnd(const v1::View& view) {
  const v1::ShardId& end = view.end();
  leases_->SetEnd(view.has_end() ? ShardKey(end.dataset_epoch(), end.shard()) : ShardKey(leases_->plan().epochs(), 0));
}

void JobWork::BeginMode(const v1::View& view, Membership* members) {
  leases_->BeginMode();
  if (view.mode() != v1::BOUNDED_STALENESS) return;
  for (const std::uint64_t session : members->sessions()) members->SetTraining(session, leases_->Holds(session));
}

// ---- how far it is

void JobWork::ExtendAdoption(Time until) {
  if (adopt_until_.has_value()) adopt_until_ = until;
}

bool JobWork::EndAdoption(Time now, bool all_known) {
  if (!adopt_until_.has_value()) return true;
  if (!all_known && now < *adopt_until_) return false;
  adopt_until_.reset();
  leases_->InspectFree();
  if (heeds()) AddEvaluation();  // it may be lost with the coordinator before
  return true;
}

bool JobWork::SearchAsks() const {
  if (!search_.has_value() || search_->settled()) return false;
  return !EvaluatesPoint() || tasks_.AllDone(leases_->watermark());
}

bool JobWork::EvaluatesPoint() const {
  return config_.evaluate() && search_->known() && search_->lbfgs().at_iteration_end();
}

bool JobWork::heeds() const { return HeedsEvaluations(config_) && !search_.has_value(); }

void JobWork::AddEvaluation() {
  const std::uint32_t done = leases_->watermark();
  const bool between = done > 0 && done < leases_->plan().epochs() && !search_.has_value();
  if (config_.evaluate() && between) tasks_.Add({done, v1::TASK_EVALUATE});
}

void JobWork::Step(std::uint64_t members_confirmed, bool cut_opens) {
  leases_->Confirm(members_confirmed);
  if (search_.has_value()) return StepSearch(cut_opens);
  while (leases_->Advance()) AddEvaluation();
}

void JobWork::StepSearch(bool cut_opens) {
  while (leases_->watermark() < search_->end_of_grants() && leases_->Advance()) {
  }
  // While a cut opens workers still push with the number of before it: nothing of the next evaluation may.
  if (!cut_opens || bug_ == PlantedBug::kCommandWhileCutOpens) search_->Advance(leases_->watermark());
  if (EvaluatesPoint()) tasks_.Add({leases_->watermark(), v1::TASK_EVALUATE});
  const bool awaited = bug_ != PlantedBug::kNextPointNotAwaited;
  leases_->SetEndOfGrants(awaited ? search_->end_of_grants() : leases_->watermark() + 1);
}

std::string JobWork::NotFinite() const {
  const bool finite = !search_.has_value() || search_->lbfgs().outcome() != sandblaster::Lbfgs::Outcome::kNotFinite;
  return finite ? "" : search_->lbfgs().Describe();
}

bool JobWork::Finish() {
  // Searches may end before the epochs are over, and other trainings as well: in the middle of one perhaps.
  const std::uint32_t last = leases_->watermark() + (leases_->end().second > 0 ? 1 : 0);
  tasks_.DropWaiting(last);  // evaluations that nobody began are of no use any more
  // Also where nothing is written: a model that is not finite is no success.
  tasks_.Add({last, v1::TASK_EXPORT});
  if (config_.evaluate()) tasks_.Add({last, v1::TASK_EVALUATE});
  // An earlier evaluation that somebody has at hand may be of the best model.
  const bool keeps_best = !config_.keep_best().empty();
  if (keeps_best && tasks_.AllDone(0)) tasks_.Add({last, v1::TASK_KEEP_BEST});
  return tasks_.AllDone(last);
}

bool JobWork::HasNewEvaluations(const v1::View& view) const {
  return heeds() && tasks_.newest_evaluation() > NewestCounted(view);
}

bool JobWork::CountNewEvaluations(v1::View* view) const {
  if (!HasNewEvaluations(*view)) return false;
  std::vector<v1::Evaluation> settled = tasks_.SettledEvaluations();
  // The last one decides nothing any more.
  std::erase_if(settled, [this](const v1::Evaluation& evaluation) {
    return evaluation.dataset_epoch() > leases_->watermark() || evaluation.dataset_epoch() >= leases_->plan().epochs();
  });
  return CountEvaluations(config_, leases_->plan(), leases_->begun_end(), settled, view);
}

// ---- of ps

void JobWork::Ask(std::uint32_t ps, bool asks_search, v1::DirectRequest* directive) const {
  leases_->Ask(ps, directive);
  directive->set_watermark(leases_->watermark());
  if (asks_search) search_->Ask(directive);
}

std::vector<ShardKey> JobWork::Answer(std::uint32_t ps, const v1::DirectReply& reply) {
  std::vector<ShardKey> retired;
  for (const v1::ShardBitmap& answer : reply.shards()) {
    if (const std::optional<ShardKey> shard = leases_->Answer(ps, answer); shard.has_value()) retired.push_back(*shard);
  }
  if (reply.has_vectors() && search_.has_value()) search_->Answer(reply.vectors());
  return retired;
}

// ---- of workers

void JobWork::Adopt(const v1::WorkerSyncRequest& request) {
  if (!adopting()) return;
  for (const v1::HeldLease& held : request.held()) {
    if (held.kind() == v1::TASK_TRAIN) {
      leases_->Adopt(held, request.session(), request.index());
    } else {
      tasks_.Adopt(held, request.session());
    }
  }
}

void JobWork::Grant(const v1::WorkerSyncRequest& request, const Member& member, const v1::View& view, bool training,
                    Time now, Membership* members, v1::WorkerSyncReply* reply) {
  tasks_.Grant(request.session(), member.index, request.wanted() > 0, members->available(), now, lease_numbers_, reply);
  GrantShards(request, member, view, training, members, reply);
}

void JobWork::GrantShards(const v1::WorkerSyncRequest& request, const Member& member, const v1::View& view,
                          bool training, Membership* members, v1::WorkerSyncReply* reply) {
  const std::uint64_t session = request.session();
  std::set<std::uint64_t> all_sent;
  for (const v1::HeldLease& held : request.held()) {
    if (held.all_sent()) all_sent.insert(held.lease());
  }
  const std::uint32_t working = leases_->List(session, all_sent, reply);
  // Data shards are begun in their order: a job that resumes within an epoch does not go on with the next one.
  const bool may = training && !adopting() && !leases_->inspecting();
  const std::uint32_t width = StepWidth(view);
  const bool twice = HasBackupExecutions(view.mode());
  // Whoever has not heard yet that a ps took acknowledged updates with it reports some that may be gone.
  const bool knows = request.view().epoch() >= view.lost_epoch();
  for (int i = 0; twice && knows && i < request.held_size(); ++i) leases_->Report(request.held(i), session);
  if (width != 0) {
    if (!may || request.wanted() == 0) return leases_->NoSpare(session);
    const std::uint32_t workers = std::max<std::uint32_t>(1, config_.workers());
    return leases_->GrantInBands(session, width, (width + workers - 1) / workers, request.starving(), lease_numbers_,
                                 reply);
  }
  const bool warming = leases_->retired_updates() < config_.warm_start() && leases_->OthersHold(session);
  const bool gives = may && !warming && working < request.wanted();
  if (view.mode() == v1::BOUNDED_STALENESS) {
    const bool told = member.training;
    members->SetTraining(session, leases_->Holds(session) || (gives && leases_->HasFree()));
    if (!told) return;  // nothing before every ps knows that it has to be waited for
  }
  if (gives) leases_->Grant(session, request.wanted() - working, lease_numbers_, reply, member.index);
  if (gives && twice && request.starving()) leases_->GrantOneOfTheLast(session, lease_numbers_, reply);
}

std::optional<Tasks::Failure> JobWork::Accept(const v1::WorkerSyncRequest& request, const Member& member, Time now) {
  std::optional<Tasks::Failure> first;
  for (const v1::TaskResult& result : request.results()) {
    std::optional<Tasks::Failure> failure = tasks_.Accept(result, request.session(), member.process(), now);
    if (!first.has_value()) first = std::move(failure);
  }
  return first;
}

std::vector<ShardKey> JobWork::EndSession(std::uint64_t session, std::uint64_t members_version) {
  tasks_.EndSession(session);
  if (!begun()) return {};
  return leases_->EndSession(session, members_version);
}

void JobWork::Report(const v1::View& view, const PsStates& states, bool done, v1::ProgressReply* progress) const {
  tasks_.Report(progress);
  if (!begun()) return;
  ReportDecisions(config_, view, progress);
  if (!search_.has_value()) ReportLearningRate(config_, view, *leases_, progress);
  // Of a search that has stepped back from where the loss was not finite nobody needs to be warned.
  ReportUpdates(*leases_, states, done && !search_.has_value(), progress);
  if (!search_.has_value()) return;
  search_->Report(progress);
  if (!search_->done()) return;
  // What it does without is not expected any more.
  progress->set_epochs(leases_->watermark());
  progress->set_updates_expected(leases_->plan().updates_before(leases_->watermark()));
  if (done && search_->lbfgs().outcome() != sandblaster::Lbfgs::Outcome::kConverged) {
    progress->add_warnings(progress->search().outcome());
  }
}

}  // namespace downpour::core
