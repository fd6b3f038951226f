#include "tests/simulation/simulator.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "tests/simulation/job.h"
#include "trainer/core/block_order.h"

namespace downpour::simulation {
namespace {

constexpr absl::Duration kWatchPeriod = absl::Milliseconds(100);
constexpr char kJobUid[] = "00112233445566778899aabbccddeeff";

const char* NameOf(core::Cuts::Phase phase) {
  switch (phase) {
    case core::Cuts::Phase::kIdle:
      return "";
    case core::Cuts::Phase::kOpening:
      return "opening";
    case core::Cuts::Phase::kMoving:
      return "moving";
    case core::Cuts::Phase::kWriting:
      return "writing";
    case core::Cuts::Phase::kCommitting:
      return "committing";
  }
  return "";
}

const char* NameOf(core::Phase phase, bool restored) {
  switch (phase) {
    case core::Phase::kGathering:
      return "gathering";
    case core::Phase::kAwaitingModel:
    case core::Phase::kSeeking:
      return "seeking";
    case core::Phase::kInstalling:
      return "installing";
    case core::Phase::kInitialising:
      return restored ? "restoring" : "initialising";
    case core::Phase::kTraining:
      return "training";
    case core::Phase::kSwitching:
      return "switching";
    case core::Phase::kFinishing:
      return "finishing";
    case core::Phase::kDone:
    case core::Phase::kFailed:
      break;
  }
  return "done";
}

}  // namespace

Job::Job(const SimulationOptions& options) : options_(options), world_(options.seed * 7919 + 17, options.trace) {
  const bool store = random_.Chance(0.85);
  const auto ps = static_cast<std::uint32_t>(random_.Between(1, 4));
  worker_count_ = static_cast<std::uint32_t>(random_.Between(1, 6));
  const int slices = random_.Between(1, 7);
  sample_count_ = static_cast<std::uint64_t>(random_.Between(8, 60));
  config_.set_job_uid(kJobUid);
  config_.set_job_name("job");
  config_.set_ps_replicas(ps);
  config_.set_epochs(static_cast<std::uint32_t>(random_.Between(1, 4)));
  config_.set_batch_size(static_cast<std::uint32_t>(random_.Between(1, 5)));
  config_.set_updates_per_shard(static_cast<std::uint32_t>(random_.Between(1, 5)));
  config_.set_seed(random_.Below(1000));
  ChangeMode();
  told_.clear_mode();  // it was started so
  config_.set_evaluate(random_.Chance(0.5));
  config_.mutable_optimizer()->set_type(v1::SGD);
  config_.mutable_optimizer()->set_learning_rate(1);
  slowest_update_ = absl::Milliseconds(60);
  if (store) {
    config_.mutable_checkpoint()->set_uri("/checkpoints/job");
    config_.mutable_checkpoint()->set_interval_seconds(
        static_cast<std::uint32_t>(random_.Between(1, random_.Chance(0.7) ? 3 : 8)));
    config_.mutable_checkpoint()->set_keep(static_cast<std::uint32_t>(random_.Between(1, 3)));
    if (random_.Chance(0.3)) extra_bytes_limit_ = static_cast<std::uint64_t>(random_.Between(1, 800));
    // Long enough for some cuts and for what befalls the job after them.
    slowest_update_ = absl::Milliseconds(random_.Between(60, 300));
    config_.set_epochs(static_cast<std::uint32_t>(random_.Between(2, 6)));
  }
  if (options.search) {
    config_.clear_updates_per_step();
    sample_count_ = static_cast<std::uint64_t>(random_.Between(8, 24));
    config_.set_epochs(40);
    config_.set_mode(v1::SANDBLASTER);
    config_.clear_staleness();
    config_.mutable_optimizer()->Clear();
    config_.mutable_optimizer()->set_type(v1::LBFGS);
    config_.mutable_optimizer()->set_history(static_cast<std::uint32_t>(random_.Between(1, 6)));
    config_.mutable_lbfgs()->set_gradient_tolerance(1e-3);
    slowest_update_ = absl::Milliseconds(30);
  }
  if (options.heeds) ChooseDecisions();
  if (options.replicas) ChooseReplicas();
  if (options.slow_worker) {
    // So many data shards that there is something to share out.
    sample_count_ = 100;
    worker_count_ = std::max(worker_count_, 2u);
    config_.set_batch_size(1);
    config_.set_updates_per_shard(1);
  }
  skip_every_ = random_.Chance(0.3) ? static_cast<std::uint64_t>(random_.Between(3, 20)) : 0;
  for (int i = 0; i < slices; ++i) {
    v1::TensorSpec tensor;
    tensor.set_name(absl::StrCat("tensor", i));
    tensor.set_type(v1::FLOAT32);
    tensor.add_shape(static_cast<std::int64_t>(kSamples + sample_count_));
    // What a worker divides its gradients by, as the learning rate is multiplied by it, is not for buffers.
    if (tensors_.size() % 3 == 2 && !config_.has_reduce_on_plateau()) tensor.set_kind(v1::BUFFER);
    tensors_.push_back(tensor);
  }
  if (options.search) {
    skip_every_ = 0;  // what is not finite is so at a point, not in an update
    for (std::uint32_t slice = 0; slice < tensors_.size(); ++slice) {
      if (tensors_[slice].kind() != v1::BUFFER) searched_.insert(slice);
    }
  } else if (!options.heeds) {
    ChooseUpdates();
  }
  // Of the seed alone: what else a seed does stays as it was.
  if (options.seed % 3 == 1) config_.mutable_dataset()->set_shuffle_block(1 + options.seed / 3 % 5);
  v1::DataPlan data;
  data.set_sample_count(sample_count_);
  data.set_batch_size(core::SamplesOfUpdate(config_));
  data.set_updates_per_shard(config_.updates_per_shard());
  data.set_epochs(config_.epochs());
  data.set_seed(config_.seed());
  if (const std::uint64_t block = config_.dataset().shuffle_block(); block != 0) {
    data.set_shuffle_block(block);
    data.set_shuffle_window(core::WindowFor(block, std::uint64_t{data.batch_size()} * data.updates_per_shard()));
  }
  plan_ = *core::DataPlan::Create(data);
  if (options.steps) {
    config_.set_steps(1 + random_.Below(plan_->updates()));
    config_.clear_epochs();
    plan_ = *core::DataPlan::CreateEnding(data, config_);
  }
  StallChecks::Durations durations;
  durations.update = (options.slow_worker ? 11 : 1) * slowest_update_ + slices * absl::Milliseconds(8);
  // Where memory for a cut is short pushes wait until it is written.
  if (extra_bytes_limit_ != 0) durations.cut = (slices + 1) * absl::Milliseconds(150);
  // Of a task that fails everywhere the last tries are 15 s apart.
  if (options.failing_tasks != FailingTasks::kNowhere) durations.pause = absl::Seconds(15);
  stall_checks_.emplace(&world_, options.faults || options.deadly_shard, durations);
  staleness_checks_.emplace(&world_, static_cast<std::uint32_t>(tensors_.size()));
  if (lossy()) residual_checks_.emplace(&world_, codec_, config_.mode() == v1::SYNCHRONOUS);
  if (options.deadly_shard) {
    deadly_ = core::UpdateId{static_cast<std::uint32_t>(options.seed % plan_->epochs()),
                             static_cast<std::uint32_t>(options.seed / 3 % plan_->shards_in_epoch(0)), 0};
    result_.deadly_shard =
        absl::StrCat("data shard ", deadly_->data_shard, " of epoch ", deadly_->dataset_epoch + 1, " ");
  }
  faults_end_ = absl::Seconds(random_.Between(3, 40));
  // With a codec the sums are of one mode; fetchEvery and a search are of theirs.
  const bool may_switch =
      !lossy() && !options.search && config_.local_steps().fetch_every() <= 1 && !config_.has_reduce_on_plateau();
  switches_ = options.faults && random_.Chance(0.6) && may_switch;
  if (lossy()) config_.clear_replication_lag();  // what is lost with it is not known to the bit
  network_.emplace(&world_, options.faults ? faults_end_ : absl::ZeroDuration());
  disk_.emplace(&world_, random_.Below(1u << 30), /*lies=*/options.faults && random_.Chance(0.1));
  checks_.emplace(
      &world_, &*disk_, [this](const core::UpdateId& update) { return Skipped(update); },
      [this](std::uint32_t slice) { return searched_.count(slice) == 0; }, config_.updates_per_step(), lossy());
  faults_ = std::make_unique<Faults>(this);
  result_.shape = absl::StrCat(
      config_.ps_replicas(), " ps, ", worker_count_, " workers, ", slices, " slices, ",
      config_.steps() > 0 ? absl::StrCat(config_.steps(), " updates in ") : "", plan_->epochs(), " epochs of ",
      sample_count_, " samples, batch ", config_.batch_size(), ", ", config_.updates_per_shard(), " updates a shard",
      options.search ? absl::StrCat(", L-BFGS of ", config_.optimizer().history(), " pairs") : "",
      config_.mode() == v1::BOUNDED_STALENESS ? absl::StrCat(", at most ", config_.staleness(), " ahead")
      : config_.mode() == v1::SYNCHRONOUS     ? absl::StrCat(", ", config_.updates_per_step(), " updates a step")
                                              : "",
      config_.dataset().shuffle_block() != 0 ? absl::StrCat(", blocks of ", config_.dataset().shuffle_block()) : "",
      config_.has_early_stopping() ? absl::StrCat(", patience ", config_.early_stopping().patience()) : "",
      config_.has_reduce_on_plateau() ? absl::StrCat(", reduced after ", config_.reduce_on_plateau().patience()) : "",
      lossy() ? absl::StrCat(", codec ", static_cast<int>(codec_.codec)) : "",
      config_.local_steps().fetch_every() > 1
          ? absl::StrCat(", values before each update of ", config_.local_steps().fetch_every())
          : "",
      switches_ ? ", in changing modes" : "",
      config_.replication_factor() > 1
          ? absl::StrCat(", standbys",
                         config_.replication_lag() > 0 ? absl::StrCat(" ", config_.replication_lag(), " behind") : "")
          : "",
      scales_ ? ", ps come and go" : "",
      store ? absl::StrCat(", a checkpoint every ", config_.checkpoint().interval_seconds(), " s",
                           disk_->lies() ? ", a disk that lies" : "")
            : "");
}

void Job::ChooseDecisions() {
  config_.set_epochs(static_cast<std::uint32_t>(random_.Between(3, 9)));
  config_.set_evaluate(true);
  if (random_.Chance(0.7)) {
    config_.mutable_early_stopping()->set_metric("Loss");
    config_.mutable_early_stopping()->set_patience(static_cast<std::uint32_t>(random_.Between(1, 2)));
  }
  if (random_.Chance(0.5)) {
    v1::ReduceOnPlateauConfig& rule = *config_.mutable_reduce_on_plateau();
    rule.set_metric("Loss");
    rule.set_factor(0.5);
    rule.set_patience(static_cast<std::uint32_t>(random_.Between(0, 1)));
    // A step that is in the middle as the rate is reduced has gradients of before and after it.
    if (config_.mode() == v1::SYNCHRONOUS) config_.set_mode(v1::ASYNC);
    config_.clear_updates_per_step();
  }
  evaluation_checks_.emplace(&world_, config_, options_.seed);
}

void Job::ChooseReplicas() {
  Random random(options_.seed * 92821 + 3);
  if (random.Chance(0.8)) {
    config_.set_replication_factor(2);
    config_.set_ps_replicas(static_cast<std::uint32_t>(random.Between(2, 5)));
    const bool may_lag = config_.mode() == v1::ASYNC || config_.mode() == v1::BOUNDED_STALENESS;
    if (may_lag && random.Chance(0.25)) config_.set_replication_lag(static_cast<std::uint32_t>(random.Between(1, 4)));
  }
  scales_ = config_.replication_factor() < 2 || random.Chance(0.6);
}

void Job::ScalePs(std::uint32_t count) {
  config_.set_ps_replicas(count);
  v1::WantedPs& wanted = *told_.mutable_ps();
  wanted.set_revision(++ps_revision_);
  wanted.set_count(count);
  told_.clear_leaving_ps();
  for (std::uint32_t index = 0; index < count; ++index) {
    const ProcessPointer process = Current(Kind::kPs, index);
    if (index < ps_started_ && process != nullptr && process->alive) continue;
    world_.At(now() + random_.Delay(absl::Milliseconds(10), absl::Milliseconds(800)), [this, index] {
      const ProcessPointer there = Current(Kind::kPs, index);
      if (!done_ && index < config_.ps_replicas() && (there == nullptr || !there->alive)) Start(Kind::kPs, index);
    });
  }
  ps_started_ = std::max(ps_started_, count);
}

void Job::DrainPs(std::uint32_t index) {
  told_.clear_leaving_ps();
  told_.add_leaving_ps(index);
}

void Job::EndPs(const v1::ProgressReply& progress) {
  if (progress.phase() != v1::PHASE_TRAINING && progress.phase() != v1::PHASE_FINISHING) return;
  const std::set<std::uint32_t> placed(progress.placed_ps().begin(), progress.placed_ps().end());
  for (std::uint32_t index = 0; index < ps_started_; ++index) {
    const bool leaves =
        std::find(told_.leaving_ps().begin(), told_.leaving_ps().end(), index) != told_.leaving_ps().end();
    if ((index < config_.ps_replicas() && !leaves) || placed.count(index) != 0) continue;
    const ProcessPointer process = Current(Kind::kPs, index);
    if (process == nullptr || !process->alive) continue;
    Kill(process, "as it has no place any more");
    if (!leaves) continue;
    told_.clear_leaving_ps();
    ReplaceSoon(process);
  }
}

// Some of each have no draw in common with the rest of the job, so that all others are as without.
void Job::ChooseUpdates() {
  Random random(options_.seed * 104729 + 5);
  constexpr core::FrameCodec kCodecs[] = {core::FrameCodec::kBf16, core::FrameCodec::kInt8, core::FrameCodec::kTopK,
                                          core::FrameCodec::kOneBit};
  if (random.Chance(0.3)) codec_ = {kCodecs[random.Below(std::size(kCodecs))], 0.1 + 0.3 * random.Uniform()};
  // What the gradients of a step weigh rests on how many there are of them.
  const bool open = config_.mode() == v1::SYNCHRONOUS && config_.updates_per_step() == 0;
  if (lossy() && open) config_.set_updates_per_step(worker_count_);
  // About as many samples an update.
  const auto divide = [this](std::uint32_t by) { config_.set_batch_size((config_.batch_size() + by - 1) / by); };
  if (random.Chance(0.15)) {
    config_.set_accumulate(static_cast<std::uint32_t>(random.Between(2, 3)));
    divide(config_.accumulate());
  } else if (random.Chance(0.2)) {
    v1::LocalStepsConfig& steps = *config_.mutable_local_steps();
    steps.set_count(static_cast<std::uint32_t>(random.Between(2, 3)));
    divide(steps.count());
    if (config_.mode() == v1::ASYNC) steps.set_fetch_every(static_cast<std::uint32_t>(random.Between(1, 4)));
  }
}

std::string Job::ProtocolState() const {
  const ProcessPointer process = Coordinator();
  if (process == nullptr || !process->alive) return "no coordinator";
  const core::CoordinatorCore& coordinator = *process->coordinator;
  const core::Cuts::Phase cut = coordinator.checkpoints().cuts().phase();
  const bool open = cut != core::Cuts::Phase::kIdle;
  const bool training = coordinator.phase() == core::Phase::kTraining || coordinator.phase() == core::Phase::kFinishing;
  if (open && training) return NameOf(cut);
  if (training || coordinator.phase() == core::Phase::kSwitching) {
    bool copying = false, unprotected = false;
    for (const v1::SlicePlacement& placement : coordinator.view().layout()) {
      if (placement.frozen()) return "frozen";
      copying = copying || placement.has_joining();
      unprotected = unprotected || (coordinator.view().replication_factor() > 1 && !placement.has_standby());
    }
    if (copying) return "copying";
    if (unprotected) return "unprotected";
  }
  return NameOf(coordinator.phase(), coordinator.checkpoints().restored());
}

std::uint32_t Job::CheckSearch() {
  v1::View view;
  view.mutable_tensors()->Assign(tensors_.begin(), tensors_.end());
  *view.mutable_data() = plan_->proto();
  *view.mutable_optimizer() = config_.optimizer();
  const Objective::Minimum expected = Objective::Search(view, config_.lbfgs());
  result_.iterations = expected.iterations;
  const v1::SearchProgress found = Coordinator()->coordinator->GetProgress(Coordinator()->clock(now())).search();
  if (found.outcome() != expected.outcome) {
    world_.Violation(absl::StrCat("the search ended: ", found.outcome(), "; expected: ", expected.outcome));
  }
  for (const auto& [ps, session] : final_ps_) {
    const ProcessPointer process = by_session_[session];
    if (process == nullptr || !process->alive) continue;
    for (const auto& [slice, value] : expected.values) {
      const auto at_end = process->ps->value(slice);
      if (at_end == nullptr) continue;
      for (std::size_t i = kSamples; i < value.size(); ++i) {
        if ((*at_end)[i] == value[i]) continue;
        world_.Violation(absl::StrCat("slice ", slice, ": element ", i, " is ", (*at_end)[i], ", expected ", value[i]));
        break;
      }
    }
  }
  return expected.evaluations;
}

void Job::CheckEnd() {
  const std::uint32_t epochs = options_.search ? CheckSearch() : plan_->epochs();
  std::set<std::uint32_t> seen;
  const v1::View& view = Coordinator()->coordinator->view();
  final_ps_.clear();
  for (const v1::PsMember& member : view.ps()) final_ps_[member.index()] = member.session();
  for (const auto& [index, session] : final_ps_) {
    const ProcessPointer process = by_session_[session];
    if (process == nullptr || !process->alive) continue;
    // A ps that has not heard of the newest view may take slices for its own that others have by now.
    if (core::CompareStamps(process->ps->view().stamp(), view.stamp()) != 0) continue;
    const v1::LedgerReply tables = process->ps->ReadLedger();
    result_.stopped_early = result_.stopped_early || tables.has_end();
    result_.reduced = result_.reduced || process->ps->view().has_learning_rate_scale();
    // Where the batch size changed on the way it differs from the one that the job began with.
    const bool planned =
        config_.steps() > 0 ? tables.data().steps() == config_.steps() : tables.data().epochs() == config_.epochs();
    if (!planned) {
      world_.Violation(absl::StrCat("no plan of ", config_.epochs(), " epochs or ", config_.steps(),
                                    " updates: ", tables.data().ShortDebugString()));
    }
    const v1::ShardId& end = tables.end();
    v1::DataPlan done = tables.data();
    if (config_.steps() == 0) done.set_epochs(epochs);
    const core::DataPlan plan = *core::DataPlan::Create(done);
    std::uint64_t skipped = 0;
    std::vector<std::uint64_t> samples(sample_count_, 0);
    ForEachUpdate(plan, [&](const core::UpdateId& update) {
      if (Skipped(update)) {
        ++skipped;
        return;
      }
      for (std::int64_t sample : plan.SampleIndices(update)) ++samples[static_cast<std::size_t>(sample)];
    });
    if (skipped == 0 && config_.steps() == 0 && !tables.has_end() &&
        samples != std::vector<std::uint64_t>(sample_count_, epochs)) {
      world_.Violation(absl::StrCat("no plan of ", epochs, " epochs: ", plan.proto().ShortDebugString()));
    }
    for (const v1::SliceLedger& ledger : tables.slices()) {
      seen.insert(ledger.slice());
      const auto value = process->ps->value(ledger.slice());
      const std::string where = absl::StrCat("slice ", ledger.slice());
      checks_->CheckSlice(HistoryOf(*process), where, plan, ledger, *value);
      checks_->CheckSum(where, HistoryOf(*process), BeginningOf(*process), plan, ledger, *value);
      const std::uint64_t expected =
          tables.has_end() ? plan.updates_before(end.dataset_epoch(), end.shard()) : plan.updates();
      if (ledger.version() != expected) {
        world_.Violation(absl::StrCat(where, ": ", ledger.version(), " updates, expected ", expected));
      }
      if (tables.has_end()) evaluation_checks_->CheckEnd(where, plan, end, ledger);
    }
  }
  // A ps that died after the last check is not replaced any more.
  const bool all_alive = std::all_of(final_ps_.begin(), final_ps_.end(), [this, &view](const auto& ps) {
    const ProcessPointer& process = by_session_[ps.second];
    return process != nullptr && process->alive && core::CompareStamps(process->ps->view().stamp(), view.stamp()) == 0;
  });
  CheckStandbys();
  if (all_alive && seen.size() != tensors_.size()) {
    world_.Violation(absl::StrCat(seen.size(), " slices at the end, expected ", tensors_.size()));
  }
}

void Job::CheckStandbys() {
  const v1::View& view = Coordinator()->coordinator->view();
  for (int slice = 0; slice < view.layout_size(); ++slice) {
    const v1::SlicePlacement& placement = view.layout(slice);
    if (!placement.has_standby()) continue;
    const auto number = static_cast<std::uint32_t>(slice);
    const auto replica = [&](std::uint32_t ps, std::uint64_t id) -> const core::Replica* {
      const auto session = final_ps_.find(ps);
      const ProcessPointer process = session == final_ps_.end() ? nullptr : by_session_[session->second];
      if (process == nullptr || !process->alive) return nullptr;
      const auto entry = process->ps->replicas().entries().find(number);
      if (entry == process->ps->replicas().entries().end() || entry->second.replica.number() != id) return nullptr;
      return &entry->second.replica;
    };
    const core::Replica* const primary = replica(placement.primary(), placement.primary_replica());
    const core::Replica* const standby = replica(placement.standby(), placement.standby_replica());
    if (primary == nullptr || standby == nullptr || primary->sequence() != standby->sequence()) continue;
    ++result_.standbys_compared;
    const core::ReplicaCopy a = primary->Export(), b = standby->Export();
    bool same = *a.snapshot.value == *b.snapshot.value && a.step_width == b.step_width &&
                a.snapshot.table.version() == b.snapshot.table.version() &&
                a.snapshot.optimizer.vectors.size() == b.snapshot.optimizer.vectors.size();
    for (std::size_t i = 0; same && i < a.snapshot.optimizer.vectors.size(); ++i) {
      same = *a.snapshot.optimizer.vectors[i].values == *b.snapshot.optimizer.vectors[i].values;
    }
    if (!same) world_.Violation(absl::StrCat("the standby of slice ", slice, " is not the same to the bit"));
  }
}

void Job::ChangeMode() {
  const std::uint64_t mode = random_.Below(3);
  config_.set_mode(mode == 0 ? v1::ASYNC : mode == 1 ? v1::BOUNDED_STALENESS : v1::SYNCHRONOUS);
  config_.set_staleness(mode == 1 ? static_cast<std::uint32_t>(random_.Below(4)) : 0);
  const bool given = mode == 2 && random_.Chance(0.8);
  config_.set_updates_per_step(
      given ? static_cast<std::uint32_t>(random_.Between(1, static_cast<int>(worker_count_) + 1)) : 0);
  config_.set_workers(worker_count_);
  v1::WantedMode& wanted = *told_.mutable_mode();
  wanted.set_revision(++mode_revision_);
  wanted.set_mode(config_.mode());
  wanted.set_staleness(config_.staleness());
  wanted.set_updates_per_step(config_.updates_per_step());
  wanted.set_workers(config_.workers());
  mode_changed_ = now();
}

void Job::CheckMode(const v1::ProgressReply& progress) {
  // Without one it is on its way: if it never came, the job would hang.
  if (progress.phase() != v1::PHASE_TRAINING || !progress.has_mode() ||
      now() < std::max(mode_changed_, faults_end_) + absl::Seconds(20))
    return;
  const v1::ModeInForce& mode = progress.mode();
  const bool same = mode.mode() == config_.mode() && mode.staleness() == config_.staleness() &&
                    (config_.updates_per_step() == 0 || mode.updates_per_step() == config_.updates_per_step());
  if (!same) world_.Violation(absl::StrCat("the mode is not taken up: ", progress.ShortDebugString()));
}

void Job::Watch() {
  CheckStalls();
  if (stall_checks_->calm()) result_.calm_seconds += absl::ToDoubleSeconds(kWatchPeriod);
  const ProcessPointer process = Coordinator();
  if (process != nullptr && process->alive && process->paused_until <= now()) {
    core::CoordinatorCore& coordinator = *process->coordinator;
    coordinator.ReportFailures(told_);
    const v1::ProgressReply progress = coordinator.GetProgress(process->clock(now()));
    result_.generation = std::max(result_.generation, progress.view().generation());
    CheckMode(progress);
    EndPs(progress);
    result_.failovers = std::max<std::uint64_t>(result_.failovers, progress.replication().failovers());
    result_.moves = std::max<std::uint64_t>(result_.moves, progress.replication().moves());
    result_.protected_once =
        result_.protected_once ||
        (progress.replication().factor() > 1 && progress.replication().in_sync() == progress.replication().slices());
    checks_->OnLossTold({process->job_uid, progress.view().generation()}, progress.restoration());
    if (progress.phase() == v1::PHASE_FAILED) {
      const bool deadly = deadly_.has_value() && progress.failure() == v1::FAILURE_DATA_SHARD;
      if (deadly || options_.failing_tasks == FailingTasks::kEverywhere) {
        result_.failure = progress.message();
      } else {
        world_.Violation(absl::StrCat("the job failed: ", progress.message()));
      }
    }
    for (const v1::MemberProgress& member : progress.members()) {
      if (member.role() == "ps") final_ps_[member.index()] = member.session();
    }
    if (progress.phase() != v1::PHASE_DONE) {
      store_outcome_at_.reset();
    } else if (!store_outcome_at_.has_value()) {
      store_outcome_at_ =
          now() + (random_.Chance(0.5) ? absl::ZeroDuration() : random_.Delay(absl::ZeroDuration(), absl::Seconds(3)));
    }
    done_ = store_outcome_at_.has_value() && now() >= *store_outcome_at_;
  }
  if (!done_) world_.At(now() + kWatchPeriod, [this] { Watch(); });
}

SimulationResult Job::Run() {
  world_.At(absl::ZeroDuration(), [this] { StartAll(); });
  faults_->Schedule();
  world_.At(kWatchPeriod, [this] { Watch(); });
  const Time limit = faults_end_ + absl::Seconds(200);
  while (!done_ && world_.violations().empty() && result_.failure.empty() && world_.Step()) {
    if (now() <= limit) continue;
    const ProcessPointer coordinator = Coordinator();
    std::string state = "no coordinator";
    if (coordinator != nullptr && coordinator->alive) {
      state = coordinator->coordinator->GetProgress(coordinator->clock(now())).ShortDebugString();
    }
    world_.Violation(absl::StrCat("the job hangs: ", state));
  }
  if (done_) {
    CheckEnd();
  } else if (world_.violations().empty() && result_.failure.empty()) {
    world_.Violation("nothing is left to happen, and the job is not done");
  }
  result_.violations = world_.violations();
  result_.simulated_seconds = absl::ToDoubleSeconds(now());
  result_.events = world_.steps();
  result_.checkpoints = checks_->committed();
  result_.slices_restored = checks_->restored();
  result_.partial_updates = checks_->forked();
  if (lossy()) {
    result_.lossy = true;
    result_.flushed = residual_checks_->flushed();
    result_.forgotten = residual_checks_->forgotten();
  }
  return result_;
}

SimulationResult Simulate(const SimulationOptions& options) { return Job(options).Run(); }

}  // namespace downpour::simulation
