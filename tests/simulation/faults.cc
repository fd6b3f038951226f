#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tests/simulation/job.h"

namespace downpour::simulation {
namespace {

constexpr int kWholeJobs = 3;  // at most, of one seed

}  // namespace

Faults::Faults(Job* job) : job_(job), random_(job->random_) {
  if (!job->options_.faults) return;
  // A job with checkpoints has to come to one now and then.
  const bool store = job->config_.has_checkpoint();
  rate_ = random_.Chance(0.15) ? 0 : 0.1 + (store ? 0.7 : 1.5) * random_.Uniform();
  kill_ps_ = random_.Chance(store ? 0.95 : 0.5) || job->options_.replicas;
  loss_to_come_ = store && kill_ps_;
}

void Faults::Schedule() {
  if (job_->switches_) {
    for (int changes = random_.Between(1, 3); changes > 0; --changes) {
      world().At(absl::Milliseconds(random_.Between(200, 10000)), [this] {
        if (job_->done_) return;
        job_->Count("mode changes", /*breaks=*/false);
        job_->ChangeMode();
        job_->Trace(absl::StrCat("wanted: ", job_->told_.mode().ShortDebugString()));
      });
    }
  }
  if (job_->scales_) {
    for (int changes = random_.Between(1, 4); changes > 0; --changes) {
      world().At(absl::Milliseconds(random_.Between(300, 12000)), [this] {
        if (!job_->done_) ChangePs();
      });
    }
  }
  if (rate_ == 0) return;
  Time at = absl::Milliseconds(random_.Between(10, 1500));
  while (at < job_->faults_end_) {
    world().At(at, [this] {
      if (!job_->done_) Strike();
    });
    at += absl::Seconds(-std::log(1.0 - 0.999 * random_.Uniform()) / rate_);
  }
}

void Faults::ChangePs() {
  const std::uint32_t least = job_->config_.replication_factor() > 1 ? 2 : 1;
  if (random_.Chance(0.3)) {
    const auto index = static_cast<std::uint32_t>(random_.Below(job_->config_.ps_replicas()));
    job_->Count("ps drained", /*breaks=*/false);
    job_->Trace(absl::StrCat("ps-", index, " is to leave"));
    return job_->DrainPs(index);
  }
  const auto count = least + static_cast<std::uint32_t>(random_.Below(6 - least));
  job_->Count("ps scaled", /*breaks=*/false);
  job_->Trace(absl::StrCat(count, " ps are wanted"));
  job_->ScalePs(count);
}

void Faults::OnPhase() {
  if (rate_ == 0 || !job_->network_->faulty()) return;
  const core::CoordinatorCore& coordinator = *job_->Coordinator()->coordinator;
  const bool restoring = coordinator.phase() == core::Phase::kInitialising && coordinator.checkpoints().restored();
  const core::Cuts& cuts = coordinator.checkpoints().cuts();
  const bool switching = coordinator.phase() == core::Phase::kSwitching;
  if (cuts.phase() == core::Cuts::Phase::kIdle && !restoring && !switching) return;
  const bool committing = cuts.phase() == core::Cuts::Phase::kCommitting;
  if (!random_.Chance(restoring ? 0.8 : committing || switching ? 0.6 : 0.2)) return;
  const absl::Duration most = absl::Milliseconds(switching ? 10 : 100);
  world().At(world().now() + random_.Delay(absl::ZeroDuration(), most), [this] {
    if (!job_->done_ && job_->network_->faulty()) Strike();
  });
}

void Faults::OnCheckpoint() {
  if (!std::exchange(loss_to_come_, false)) return;
  world().At(world().now() + random_.Delay(absl::ZeroDuration(), absl::Milliseconds(400)), [this] {
    const auto ps = static_cast<std::uint32_t>(random_.Below(job_->config_.ps_replicas()));
    const ProcessPointer process = job_->Current(Kind::kPs, ps);
    if (job_->done_ || process == nullptr || !process->alive) return;
    job_->Count("kill ps");
    job_->Kill(process, "behind a checkpoint");
    job_->ReplaceSoon(process);
  });
}

void Faults::Strike() {
  if (job_->options_.replicas && random_.Chance(0.08)) return Divide();
  const double what = random_.Uniform();
  if (what < 0.6) return StrikeProcess();
  if (what < 0.68) {
    if (const ProcessPointer process = Any(); process != nullptr) LeapClock(process);
  } else if (what < 0.76) {
    CutOff();
  } else if (what < 0.82) {
    job_->told_.set_checkpoint_request(absl::StrCat("wish at ", absl::FormatDuration(world().now())));
  } else if (what < 0.84) {
    WholeJob();
  } else if (job_->config_.has_checkpoint()) {
    StrikeDisk();
  } else {
    StrikeProcess();
  }
}

Time Faults::Until(absl::Duration low, absl::Duration high) {
  // What is broken is mended, as machines are, or nothing would be exact in the end.
  return std::min(world().now() + random_.Delay(low, high), std::max(world().now(), job_->faults_end_));
}

ProcessPointer Faults::Any() {
  std::vector<ProcessPointer> alive;
  for (const auto& [role, process] : job_->current_) {
    if (process->alive) alive.push_back(process);
  }
  return alive.empty() ? nullptr : alive[random_.Below(alive.size())];
}

// ---- processes

void Faults::StrikeProcess() {
  const double what = random_.Uniform();
  const double workers = job_->options_.replicas ? 0.3 : 0.55;
  StrikeProcess(what < workers ? Kind::kWorker : what < workers + 0.25 ? Kind::kCoordinator : Kind::kPs);
}

void Faults::StrikeProcess(Kind kind) {
  const std::uint32_t count = kind == Kind::kWorker ? job_->worker_count_
                              : kind == Kind::kPs   ? job_->config_.ps_replicas()
                                                    : 1;
  const ProcessPointer process = job_->Current(kind, static_cast<std::uint32_t>(random_.Below(count)));
  if (process == nullptr || !process->alive) return;
  const double how = random_.Uniform();
  if (kind == Kind::kPs && (!kill_ps_ || how < 0.5)) {
    return Pause(process, random_.Delay(absl::Milliseconds(50), absl::Seconds(5)));
  }
  if (kind != Kind::kPs && how < 0.4) {
    return Pause(process, random_.Delay(absl::Milliseconds(50), absl::Seconds(8)));
  }
  if (how > 0.9) return Everything();
  if (how > 0.8) {
    // A machine cut off: replaced while the old process lives on and comes back later.
    job_->Count(absl::StrCat("cut off ", NameOf(kind)));
    job_->Trace(absl::StrCat("cut off ", process->name()));
    process->paused_until = world().now() + random_.Delay(absl::Milliseconds(200), absl::Seconds(9));
    ++job_->result_.pauses;
    ++job_->result_.zombies;
  } else if (kind == Kind::kWorker && how < 0.6 && process->paused_until <= world().now()) {
    Leave(process);
  } else {
    job_->Count(absl::StrCat("kill ", NameOf(kind)));
    job_->Kill(process, "");
  }
  job_->ReplaceSoon(process);
}

void Faults::Pause(const ProcessPointer& process, absl::Duration length) {
  job_->Count(absl::StrCat("pause ", NameOf(process->kind)));
  job_->Trace(absl::StrCat("pause ", process->name(), " for ", absl::FormatDuration(length)));
  process->paused_until = world().now() + length;
  ++job_->result_.pauses;
}

void Faults::Leave(const ProcessPointer& process) {
  job_->Count("worker leaves");
  job_->Trace(absl::StrCat("leave ", process->name()));
  ++job_->result_.leaves;
  process->leaving = true;
  core::WorkerOutput output;
  process->worker->Leave(process->clock(world().now()), &output);
  job_->CarryOut(process, std::move(output));
  // The longest task, exchange and synchronisation; nothing is tried twice, but where memory for a cut is short pushes
  // wait until a slice is written.
  const absl::Duration most = absl::Seconds(job_->extra_bytes_limit_ == 0 ? 15 : 60);
  world().At(world().now() + most, [this, process, most] {
    if (process->alive && process->paused_until < world().now() - most && !job_->done_) {
      world().Violation(absl::StrCat(process->name(), " was asked to leave and is still there"));
    }
  });
}

void Faults::Everything() {
  // Workers only seem dead.
  job_->Count("all at once");
  job_->Trace("everything at once");
  for (const auto& [role, process] : std::map(job_->current_)) {
    if (!process->alive || (process->kind == Kind::kPs && !kill_ps_)) continue;
    if (process->kind == Kind::kWorker) {
      process->paused_until = world().now() + random_.Delay(absl::Milliseconds(100), absl::Seconds(6));
      ++job_->result_.pauses;
    } else {
      job_->Kill(process, "(all)");
      job_->ReplaceSoon(process);
    }
  }
}

void Faults::WholeJob() {
  if (!kill_ps_ || whole_jobs_ == kWholeJobs) return;
  ++whole_jobs_;
  job_->Count("whole job");
  job_->Trace("the whole job");
  for (const std::weak_ptr<Process>& one : job_->all_) {
    const ProcessPointer process = one.lock();
    if (process != nullptr && process->alive) job_->Kill(process, "(whole job)");
  }
  job_->all_.clear();
  job_->current_.clear();
  job_->final_ps_.clear();
  job_->told_.clear_ps();
  job_->told_.clear_leaving_ps();
  v1::TrainingConfig& config = job_->config_;
  // The shard that is deadly is one of the plan that the job began with.
  if (!job_->options_.deadly_shard && random_.Chance(0.5)) {
    config.set_ps_replicas(static_cast<std::uint32_t>(random_.Between(config.replication_factor() > 1 ? 2 : 1, 4)));
    // The end of a search is known to the bit for updates of one size only; and with a codec the weights of a step's
    // updates, which the gradients undo, are those of the plan that the job began with.
    const bool steps = job_->lossy() && config.mode() == v1::SYNCHRONOUS;
    if (!steps && !job_->options_.search) {
      config.set_batch_size(static_cast<std::uint32_t>(random_.Between(1, 5)));
    }
    job_->worker_count_ = static_cast<std::uint32_t>(random_.Between(1, 6));
    job_->Trace(absl::StrCat("now ", config.ps_replicas(), " ps, ", job_->worker_count_, " workers, batch ",
                             config.batch_size()));
  }
  if (!job_->options_.deadly_shard && random_.Chance(0.3)) {
    // Made again under its name. Eight digits that two uids have in common are nothing to rely on.
    const bool alike = random_.Chance(0.3);
    config.set_job_uid(absl::StrFormat(alike ? "00112233%024x" : "%08x445566778899aabbccddeeff", whole_jobs_));
    job_->incarnations_.clear();
    job_->told_.Clear();
    if (job_->switches_) job_->ChangeMode();
    if (config.has_checkpoint()) {
      v1::CheckpointConfig& checkpoint = *config.mutable_checkpoint();
      const std::string newest = job_->checks_->NewestIntact(config);
      const double resume = random_.Uniform();
      if (resume < 0.2) {
        checkpoint.set_resume(v1::RESUME_NEVER);
      } else if (resume < 0.5 && !newest.empty() && !job_->disk_->lies()) {
        checkpoint.set_resume(v1::RESUME_FROM);
        checkpoint.set_resume_uri(newest.substr(0, newest.rfind('/')));
        checkpoint.set_uri(absl::StrCat("/checkpoints/job", whole_jobs_));
      } else {
        checkpoint.set_resume(v1::RESUME_LATEST);
      }
    }
    job_->Trace(absl::StrCat("as another job, ", config.checkpoint().ShortDebugString()));
  }
  world().At(world().now() + random_.Delay(absl::Milliseconds(10), absl::Seconds(3)), [this] {
    if (!job_->done_ && job_->Coordinator() == nullptr) job_->StartAll();
  });
}

void Faults::LeapClock(const ProcessPointer& process) {
  const absl::Duration leap = random_.Delay(absl::Milliseconds(100), absl::Minutes(random_.Chance(0.5) ? 5 : 0.1));
  job_->Count("clock leaps");
  job_->Trace(absl::StrCat("the clock of ", process->name(), " leaps by ", absl::FormatDuration(leap)));
  process->origin -= leap;
}

void Faults::CutOff() {
  const ProcessPointer from = Any(), to = Any();
  if (from == nullptr || from == to) return;
  job_->Count("one-way cut");
  const Time until = Until(absl::Milliseconds(200), absl::Seconds(8));
  job_->Trace(absl::StrCat("nothing of ", from->name(), " reaches ", to->name(), " for ",
                           absl::FormatDuration(until - world().now())));
  job_->network_->CutOff(*from, *to, until);
}

void Faults::Divide() {
  const ProcessPointer first = job_->Coordinator();
  const auto index = static_cast<std::uint32_t>(random_.Below(job_->config_.ps_replicas()));
  const ProcessPointer left = job_->Current(Kind::kPs, index);
  if (first == nullptr || left == nullptr || !first->alive || !left->alive) return;
  job_->Count("divided");
  job_->Trace(absl::StrCat(first->name(), " and ", left->name(), " do not hear each other"));
  const Time until = Until(absl::Seconds(4), absl::Seconds(8));
  job_->network_->CutOff(*first, *left, until);
  job_->network_->CutOff(*left, *first, until);
  world().At(world().now() + random_.Delay(absl::Seconds(3), absl::Seconds(5)), [this, first, left] {
    if (job_->done_ || !job_->network_->faulty() || job_->Coordinator() != first || !first->alive) return;
    job_->Kill(first, "and the next one hears nobody else");
    const ProcessPointer next = job_->Start(Kind::kCoordinator, 0);
    const Time end = Until(absl::Seconds(4), absl::Seconds(9));
    for (const auto& [role, process] : job_->current_) {
      if (role.first != Kind::kPs || process == left) continue;
      job_->network_->CutOff(*next, *process, end);
      job_->network_->CutOff(*process, *next, end);
    }
  });
}

// ---- the disk

void Faults::StrikeDisk() {
  Disk& disk = *job_->disk_;
  const double what = random_.Uniform();
  if (what < 0.4) {
    // Told where it strikes.
    disk.Arm(what < 0.2 ? Disk::Strike::kProcessDies : Disk::Strike::kMachineStops);
    return;
  }
  if (what < 0.55) {
    job_->Count("disk error");
    return disk.Arm(Disk::Strike::kError);
  }
  if (what < 0.65) {
    job_->Count("machine stops");
    job_->Trace("the machine of the disk stops");
    job_->checks_->BeforeStop();
    disk.StopMachine();
    return job_->checks_->AfterStop();
  }
  const Time until = Until(absl::Milliseconds(300), absl::Seconds(9));
  const char* const name = what < 0.77 ? "disk full" : what < 0.9 ? "store away" : "disk slow";
  job_->Count(name);
  job_->Trace(absl::StrCat(name, " for ", absl::FormatDuration(until - world().now())));
  if (what < 0.77) return disk.FillUp(until);
  if (what < 0.9) return disk.GoAway(until);
  disk.SlowDown(until);
}

}  // namespace downpour::simulation
