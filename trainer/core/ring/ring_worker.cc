#include "trainer/core/ring/ring_worker.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/layout.h"

namespace downpour::core {
namespace {

constexpr absl::Duration kWaitPeriod = absl::Milliseconds(20);
constexpr absl::Duration kAfterNoAnswer = absl::Milliseconds(100);

// Whether a coordinator says `a` after `b`. One that began anew may go on with a generation that is not the newest that
// some worker has heard of: only that worker has.
bool IsLater(const v1::ViewStamp& a, const v1::ViewStamp& b) {
  return a.incarnation() != b.incarnation() ? a.incarnation() > b.incarnation() : CompareStamps(a, b) > 0;
}
bool IsSame(const v1::ViewStamp& a, const v1::ViewStamp& b) { return CompareStamps(a, b) == 0; }

}  // namespace

RingWorkerCore::RingWorkerCore(RingWorkerOptions options, std::function<std::uint64_t()> new_session)
    : options_(std::move(options)), new_session_(std::move(new_session)), session_(new_session_()) {
  meter_.SetState("registering");
  meter_.SetDevice(options_.device, options_.devices);
}

void RingWorkerCore::Start(Time now, RingOutput* output) {
  meter_.Start(now);
  next_sync_ = now;
  Pump(now, output);
}

void RingWorkerCore::OnTimer(Time now, RingOutput* output) { Pump(now, output); }

void RingWorkerCore::Leave(Time now, RingOutput* output) {
  leaving_ = true;
  sync_urgent_ = true;
  Pump(now, output);
}

void RingWorkerCore::Fail(std::string why, Time now, RingOutput* output) {
  failure_ = std::move(why);
  sync_urgent_ = true;
  Pump(now, output);
}

RingPosition RingWorkerCore::position() const {
  if (!replica_.has_value() || !took_.has_value()) return RingPosition();
  RingPosition position = looked_;
  position.known = true;
  position.took = *took_;
  return position;
}

std::optional<int> RingWorkerCore::RankIn(const v1::View& view) const {
  for (int rank = 0; rank < view.ring_size(); ++rank) {
    if (view.ring(rank).session() == session_) return rank;
  }
  return std::nullopt;
}

// ---- the coordinator

void RingWorkerCore::Sync(Time now, RingOutput* output) {
  SyncCall call;
  call.call = sync_call_ = next_call_++;
  call.deadline = options_.sync_deadline;
  v1::WorkerSyncRequest& request = call.request;
  Introduce(options_, accepted_, &request);
  request.set_session(session_);
  request.set_sequence(++sequence_);
  request.set_incarnation(incarnation_);
  if (view_.has_stamp()) *request.mutable_view() = view_.stamp();
  for (const auto& [id, task] : tasks_) {
    v1::HeldLease* lease = request.add_held();
    lease->set_lease(id);
    lease->set_kind(task.lease.kind());
    *lease->mutable_shard() = task.lease.shard();
    if (task.result.has_value()) *request.add_results() = *task.result;
  }
  const bool waits = Waits() && !working_;
  request.set_wanted(waits && !leaving_ ? 1 : 0);
  request.set_leaving(leaving_);
  request.set_failure(failure_);
  *request.mutable_stats() = meter_.stats();
  v1::RingState& ring = *request.mutable_ring();
  ring.set_address(options_.address);
  if (took_.has_value()) {
    *ring.mutable_took() = *took_;
    ring.set_updates(looked_.updates);
    ring.set_watermark(watermark_);
  }
  if (joined_.generation() != 0) *ring.mutable_joined() = joined_;
  ring.set_broken(broken_);
  ring.set_waits(waits);
  if (waits && digest_.has_value()) ring.set_digest(*digest_);
  ring.set_restore_error(restore_error_);
  ring.set_state_lost(state_lost_);
  for (const StateShare& share : looked_.shares) {
    v1::RingShare* const told = ring.add_shares();
    told->set_rank(share.rank);
    told->set_holders(share.holders);
  }
  if (order_.cut() != 0) *ring.mutable_cut() = cut_state_;
  if (tell_view_ && view_.has_stamp()) *ring.mutable_view() = view_;
  sync_in_flight_ = true;
  sync_urgent_ = false;
  next_sync_ = now + options_.sync_period;
  output->syncs.push_back(std::move(call));
}

void RingWorkerCore::OnSyncReply(std::uint64_t call, const absl::StatusOr<v1::WorkerSyncReply>& reply, Time now,
                                 RingOutput* output) {
  if (!sync_in_flight_ || call != sync_call_ || finished_.has_value()) return;
  sync_in_flight_ = false;
  const bool wrong_job = reply.ok() && reply->status() == v1::SYNC_WRONG_JOB;
  if (!reply.ok() || wrong_job) {
    // The ring goes on without a coordinator.
    next_sync_ = std::min(next_sync_, now + kAfterNoAnswer);
    if (wrong_job) {
      if (absl::Status lost = wrong_job_.OnWrongJob(now); !lost.ok()) finished_ = std::move(lost);
    }
    return Pump(now, output);
  }
  wrong_job_.Forget();
  if (reply->incarnation() < incarnation_) return Pump(now, output);  // an older coordinator
  incarnation_ = reply->incarnation();
  tell_view_ = reply->ring().tell_view();
  // The coordinator that accepted it never told a view: another one has to accept it again.
  if (tell_view_ && !view_.has_stamp()) accepted_ = false;
  switch (reply->status()) {
    case v1::SYNC_WAIT:
      next_sync_ = now + kWaitPeriod;
      break;
    case v1::SYNC_OK:
      accepted_ = true;
      if (reply->has_view()) AdoptView(reply->view(), output);
      if (view_.has_stamp()) Reconcile(*reply);
      break;
    case v1::SYNC_SESSION_ENDED:
      // What it has may still be what the others need.
      if (working_ && work_.kind != RingWork::Kind::kTask) output->abort = true;
      phase_ = Phase::kOut;
      session_ = new_session_();
      accepted_ = false;
      tasks_.clear();
      next_sync_ = now;
      break;
    default:
      finished_ = EndOf(*reply);
      break;
  }
  if (finished_.has_value()) output->abort = true;
  Pump(now, output);
}

void RingWorkerCore::AdoptView(const v1::View& view, RingOutput* output) {
  if (view_.has_stamp() && !IsLater(view.stamp(), view_.stamp())) return;
  const bool same_ring = view.stamp().generation() == view_.stamp().generation() &&
                         view.stamp().incarnation() == view_.stamp().incarnation() &&
                         view.ring_epoch() == view_.ring_epoch();
  view_ = view;
  if (same_ring && phase_ == Phase::kReady && !working_) {
    // All of it wait between two epochs.
    joined_ = view_.stamp();
    if (absl::Status taken = replica_->SetView(view_); !taken.ok()) failure_ = std::string(taken.message());
    Look();
    return;
  }
  order_.Clear();
  cut_state_.Clear();
  gathers_ = gathered_ = 0;
  restore_error_.clear();
  // The one that is out belongs to another group.
  if (working_ && work_.kind != RingWork::Kind::kTask) output->abort = true;
  phase_ = Phase::kOut;
}

void RingWorkerCore::Reconcile(const v1::WorkerSyncReply& reply) {
  std::map<std::uint64_t, HeldTask> held;
  for (const v1::Lease& lease : reply.leases()) {
    const auto known = tasks_.find(lease.lease());
    held[lease.lease()] = known == tasks_.end() ? HeldTask{lease, std::nullopt} : std::move(known->second);
  }
  tasks_ = std::move(held);
  epochs_open_ = reply.ring().epochs_open();
  const v1::CutOrder& order = reply.ring().cut();
  if (order.cut() != order_.cut()) {
    cut_state_.Clear();
    cut_state_.set_cut(order.cut());
    cut_taken_ = false;
    sync_urgent_ = order.cut() != 0;
  }
  order_ = order;
  if (order.sealed()) cut_state_.set_sealed(true);
}

// ---- work

void RingWorkerCore::Begin(RingWork work, RingOutput* output) {
  work.token = ++token_;
  work_ = work;
  working_ = true;
  output->work = std::move(work);
}

bool RingWorkerCore::End(std::uint64_t token) {
  if (!working_ || token != token_ || finished_.has_value()) return false;
  working_ = false;
  const std::uint64_t before = looked_.updates;
  Look();
  // A step of a divided state counts once all are prepared for it, whatever fails then.
  if (replica_.has_value() && replica_->divided() && looked_.updates > before) {
    if (work_.kind == RingWork::Kind::kStep) took_ = joined_;
    if (work_.kind == RingWork::Kind::kHeal) took_ = positions_[static_cast<std::size_t>(source_)].took;
    digest_.reset();
  }
  return true;
}

void RingWorkerCore::Look() {
  if (working_ || !replica_.has_value()) return;
  looked_.updates = replica_->updates();
  if (replica_->divided()) {
    looked_.whole = replica_->whole();
    looked_.shares = replica_->shares();
    looked_.prepared.reset();
    if (replica_->prepared().has_value()) {
      looked_.prepared = prepared_;
      looked_.prepared_updates = replica_->UpdatesWith(*replica_->prepared());
    }
    looked_.last = replica_->last();
  }
  watermark_ = replica_->watermark();
  const std::vector<UpdateId> next = replica_->NextStep();
  next_epoch_.reset();
  if (!next.empty()) next_epoch_ = next.front().dataset_epoch;
}

void RingWorkerCore::Break(const absl::Status& status) {
  // Of a view that has been left by now nobody asks.
  if (phase_ == Phase::kOut) return;
  broken_ = status.ToString();
  phase_ = Phase::kOut;
  sync_urgent_ = true;
}

void RingWorkerCore::OnFormed(std::uint64_t token, const absl::Status& status, Time now, RingOutput* output) {
  if (!End(token)) return;
  if (!status.ok()) {
    Break(status);
  } else if (phase_ == Phase::kForming) {
    phase_ = Phase::kAligning;
  }
  Pump(now, output);
}

void RingWorkerCore::OnAligned(std::uint64_t token, const absl::StatusOr<std::vector<RingPosition>>& positions,
                               Time now, RingOutput* output) {
  if (!End(token)) return;
  if (!positions.ok()) {
    Break(positions.status());
  } else if (phase_ == Phase::kAligning) {
    positions_ = *positions;
    source_ = NewestOf(positions_);
    const auto& newest = positions_[static_cast<std::size_t>(source_)];
    const bool alike = std::all_of(positions_.begin(), positions_.end(),
                                   [&](const RingPosition& one) { return ComparePositions(one, newest) == 0; });
    if (!newest.known && RankIn(view_) == 0) {
      phase_ = Phase::kBeginning;
    } else if (replica_->divided() && !AllSettled(positions_, holders())) {
      if (absl::Status planned = PlanHealing(); planned.ok()) {
        phase_ = Phase::kHealing;
      } else {
        state_lost_ = std::string(planned.message());
        Break(planned);
      }
    } else {
      phase_ = newest.known && alike ? Phase::kReady : Phase::kHealing;
    }
  }
  Pump(now, output);
}

absl::Status RingWorkerCore::PlanHealing() {
  const auto rank = static_cast<std::size_t>(group_rank_);
  recovery_ = RingWork::Recovery();
  if (rank < holders()) recovery_.share = StateShare{static_cast<std::uint32_t>(rank), holders()};
  std::vector<RingPosition> positions = positions_;
  if (!positions[static_cast<std::size_t>(source_)].known) {
    // Rank 0 begins, and has all of it then.
    positions[0].known = true;
    positions[0].shares = {StateShare()};
  }
  absl::StatusOr<RingRecovery> planned =
      PlanRecovery(positions, replica_->layout(), replica_->slices(), view_.state_copies());
  if (!planned.ok()) return planned.status();
  source_ = planned->source;
  const RingPosition& newest = positions[static_cast<std::size_t>(source_)];
  recovery_.fragments = std::move(planned->fragments);
  recovery_.keeps = ComparePositions(positions[rank], newest) == 0;
  recovery_.finish = !recovery_.keeps && CanFinish(positions[rank], newest);
  recovery_.keeps = recovery_.keeps || recovery_.finish;
  recovery_.last = newest.last;
  return absl::OkStatus();
}

void RingWorkerCore::OnBegun(std::uint64_t token, const absl::Status& status, Time now, RingOutput* output) {
  if (!End(token)) return;
  if (!status.ok()) {
    // What was given up says nothing about the checkpoint.
    if (phase_ == Phase::kBeginning && !absl::IsAborted(status)) restore_error_ = std::string(status.message());
    Break(status);
  } else {
    took_ = joined_;
    if (phase_ == Phase::kBeginning) phase_ = positions_.size() > 1 ? Phase::kHealing : Phase::kReady;
    if (phase_ == Phase::kHealing && replica_->divided()) {
      if (absl::Status planned = PlanHealing(); !planned.ok()) Break(planned);
    }
  }
  Pump(now, output);
}

void RingWorkerCore::OnHealed(std::uint64_t token, const absl::Status& status, Time now, RingOutput* output) {
  if (!End(token)) return;
  if (status.ok()) {
    // Also where another view has come meanwhile: what it has is what its source had.
    const RingPosition& source = positions_[static_cast<std::size_t>(work_.source)];
    took_ = source.known ? source.took : joined_;
    if (group_rank_ != work_.source) digest_.reset();
  }
  if (!status.ok()) {
    Break(status);
  } else if (phase_ == Phase::kHealing) {
    phase_ = replica_->divided() ? Phase::kSettling : Phase::kReady;
  }
  Pump(now, output);
}

void RingWorkerCore::OnSettled(std::uint64_t token, const absl::Status& status, Time now, RingOutput* output) {
  if (!End(token)) return;
  if (!status.ok()) {
    Break(status);
  } else {
    if (recovery_.share.has_value() && options_.bug != PlantedBug::kShareOfBeforeKept) replica_->Settle();
    Look();
    if (phase_ == Phase::kSettling) phase_ = Phase::kReady;
    sync_urgent_ = sync_urgent_ || Waits();  // who leaves waits for that
  }
  Pump(now, output);
}

void RingWorkerCore::OnGathered(std::uint64_t token, absl::StatusOr<std::vector<SliceSnapshot>> slices, Time now,
                                RingOutput* output) {
  if (!End(token)) return;
  if (!slices.ok()) {
    Break(slices.status());
  } else if (group_rank_ == 0 && order_.cut() == work_.cut && order_.cut() != 0) {
    output->cut = DescribeCut();
    output->cut->slices = *std::move(slices);
  }
  Pump(now, output);
}

void RingWorkerCore::OnStepTaken(std::uint64_t token, const absl::StatusOr<StepResult>& result, Time now,
                                 RingOutput* output) {
  if (!End(token)) return;
  if (result.ok()) {
    took_ = joined_;
    digest_ = result->digest;
    if (phase_ == Phase::kReady) gathers_ = result->cut;  // not in another ring
    meter_.OnUpdate(result->computed, true, result->sum_took);
    meter_.OnPush(result->sent_bytes, result->unencoded_bytes);
    const int updates = static_cast<int>(work_.updates.size());
    consecutive_skips_ = result->computed.verdict == Verdict::kSkip ? consecutive_skips_ + updates : 0;
    if (consecutive_skips_ >= options_.skips_until_failure) {
      failure_ = absl::StrCat("worker-", options_.index, ": neither loss nor gradients were finite in ",
                              consecutive_skips_, " updates in a row; a smaller learning rate may help");
      sync_urgent_ = true;
    }
    if (Waits()) sync_urgent_ = true;
  } else {
    Break(result.status());
  }
  Pump(now, output);
}

void RingWorkerCore::OnTaskDone(std::uint64_t token, v1::TaskResult result, Time now, RingOutput* output) {
  if (!End(token)) return;
  const auto held = tasks_.find(work_.lease);
  if (held != tasks_.end()) {
    result.set_lease(work_.lease);
    result.set_kind(work_.task);
    result.set_dataset_epoch(work_.dataset_epoch);
    held->second.result = std::move(result);
    sync_urgent_ = true;
  }
  Pump(now, output);
}

bool RingWorkerCore::Waits() const {
  const bool hands_over = holders() > 0 && static_cast<int>(holders()) < view_.ring_size();
  return phase_ == Phase::kReady && (hands_over || !next_epoch_.has_value() || *next_epoch_ >= epochs_open_);
}

bool RingWorkerCore::PickTask(RingOutput* output) {
  for (const auto& [id, task] : tasks_) {
    if (task.result.has_value()) continue;
    RingWork work;
    work.kind = RingWork::Kind::kTask;
    work.task = task.lease.kind();
    work.dataset_epoch = task.lease.shard().dataset_epoch();
    work.lease = id;
    Begin(std::move(work), output);
    return true;
  }
  return false;
}

RingCut RingWorkerCore::DescribeCut() const {
  RingCut cut;
  cut.cut = order_.cut();
  cut.checkpoint = order_.checkpoint();
  cut.tensors.assign(view_.tensors().begin(), view_.tensors().end());
  cut.data = view_.data();
  return cut;
}

bool RingWorkerCore::TakeCut(RingOutput* output) {
  const bool ordered = order_.cut() != 0 && order_.sealed() && !cut_taken_;
  if (!replica_->divided()) {
    if (!ordered) return false;
    cut_taken_ = true;
    if (absl::Status here = replica_->ToHost(); !here.ok()) {
      cut_state_.set_error(std::string(here.message()));
      sync_urgent_ = true;
      return false;
    }
    output->cut = DescribeCut();
    for (std::uint32_t slice = 0; slice < replica_->slices().size(); ++slice)
      output->cut->slices.push_back(replica_->Export(slice));
    return false;
  }
  // All of them come to it at the same place: behind the step with which they heard of it, or behind the last one. At
  // the end of another dataset epoch some may go on before others have heard of it.
  std::uint32_t due = std::exchange(gathers_, 0);
  const bool ends = !next_epoch_.has_value() || (options_.bug == PlantedBug::kGatheredAtAnyWait && Waits());
  if (due == 0 && ordered && ends) due = order_.cut();
  if (due == 0 || due == gathered_) return false;
  gathered_ = due;
  cut_taken_ = cut_taken_ || due == order_.cut();
  RingWork work;
  work.kind = RingWork::Kind::kGather;
  work.cut = due;
  Begin(std::move(work), output);
  return true;
}

void RingWorkerCore::OnCutWritten(std::uint32_t cut, const absl::StatusOr<v1::PsFiles>& files, Time now,
                                  RingOutput* output) {
  if (cut != order_.cut()) return;
  if (files.ok()) {
    *cut_state_.mutable_files() = *files;
  } else {
    cut_state_.set_error(std::string(files.status().message()));
  }
  sync_urgent_ = true;
  Pump(now, output);
}

void RingWorkerCore::Pump(Time now, RingOutput* output) {
  next_timer_ = absl::InfiniteDuration();
  if (finished_.has_value()) return;
  if (!working_ && failure_.empty()) {
    const std::optional<int> rank = RankIn(view_);
    RingWork work;
    switch (phase_) {
      case Phase::kOut: {
        const bool tried = IsSame(joined_, view_.stamp());
        if (!rank.has_value() || tried || !accepted_) break;
        joined_ = view_.stamp();
        broken_.clear();
        restore_error_.clear();
        state_lost_.clear();
        group_rank_ = *rank;
        const bool another =
            !replica_.has_value() || replica_->view().stamp().generation() != view_.stamp().generation();
        if (another) {
          took_.reset();
          looked_ = RingPosition();
          digest_.reset();
          replica_.reset();  // there may not be memory for both
          absl::StatusOr<RingReplica> replica = RingReplica::Create(view_, options_.make_vectors);
          if (replica.ok()) {
            replica_ = *std::move(replica);
          } else {
            failure_ = std::string(replica.status().message());
          }
        } else if (absl::Status taken = replica_->SetView(view_); !taken.ok()) {
          failure_ = std::string(taken.message());
        }
        if (!failure_.empty()) {
          sync_urgent_ = true;
          break;
        }
        Look();
        phase_ = Phase::kForming;
        work.kind = RingWork::Kind::kForm;
        work.view = view_;
        work.rank = *rank;
        Begin(std::move(work), output);
        break;
      }
      case Phase::kAligning:
        work.kind = RingWork::Kind::kAlign;
        Begin(std::move(work), output);
        break;
      case Phase::kBeginning:
        work.kind = RingWork::Kind::kBegin;
        work.view = view_;
        Begin(std::move(work), output);
        break;
      case Phase::kHealing:
        work.kind = RingWork::Kind::kHeal;
        work.source = source_;
        work.recovery = recovery_;
        if (options_.bug == PlantedBug::kHealedFromAnybody) {
          for (std::size_t other = 0; other < positions_.size(); ++other) {
            if (positions_[other].known) work.source = static_cast<int>(other);
          }
        }
        Begin(std::move(work), output);
        break;
      case Phase::kSettling:
        work.kind = RingWork::Kind::kSettle;
        Begin(std::move(work), output);
        break;
      case Phase::kReady:
        if (TakeCut(output)) break;
        if (PickTask(output)) break;
        if (Waits()) break;
        work.kind = RingWork::Kind::kStep;
        if (replica_->divided()) {
          replica_->ForgetPrepared();
          prepared_ = joined_;
          if (*rank == 0 && order_.sealed() && !cut_taken_) work.cut = order_.cut();
        }
        work.updates = replica_->NextStep();
        for (std::size_t i = 0; i < work.updates.size(); ++i) {
          if (i % static_cast<std::size_t>(view_.ring_size()) == static_cast<std::size_t>(*rank)) {
            work.own.push_back(work.updates[i]);
          }
        }
        Begin(std::move(work), output);
        break;
      case Phase::kForming:
        break;
    }
  }
  const bool trains = working_ && work_.kind == RingWork::Kind::kStep;
  meter_.SetState(!accepted_                                        ? "registering"
                  : leaving_                                        ? "leaving"
                  : trains                                          ? "computing"
                  : working_ && work_.kind == RingWork::Kind::kTask ? "evaluating"
                                                                    : "waiting");
  meter_.UpdateRate(now, trains);
  const bool stands = !working_ || work_.kind == RingWork::Kind::kForm;
  if (stands) next_sync_ = std::min(next_sync_, now + kWaitPeriod);
  if (!sync_in_flight_ && (sync_urgent_ || now >= next_sync_)) Sync(now, output);
  WakeAt(sync_in_flight_ ? now + options_.sync_period : next_sync_);
}

}  // namespace downpour::core
