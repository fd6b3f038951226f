#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "tests/simulation/job.h"
#include "trainer/core/codec/codec.h"
#include "trainer/core/layout.h"
#include "trainer/core/schedule.h"

namespace downpour::simulation {

using core::Frame;

// ---- processes

ProcessPointer Job::Current(Kind kind, std::uint32_t index) const {
  const auto found = current_.find({kind, index});
  return found == current_.end() ? nullptr : found->second;
}

void Job::StartAll() {
  Start(Kind::kCoordinator, 0);
  const auto start = [&](Kind kind, std::uint32_t index, absl::Duration most) {
    world_.At(now() + random_.Delay(absl::ZeroDuration(), most), [this, kind, index] {
      // Everything may have been started anew meanwhile.
      const bool wanted = index < (kind == Kind::kPs ? config_.ps_replicas() : worker_count_);
      if (wanted && Current(kind, index) == nullptr && !done_) Start(kind, index);
    });
  };
  for (std::uint32_t index = 0; index < config_.ps_replicas(); ++index)
    start(Kind::kPs, index, absl::Milliseconds(500));
  ps_started_ = config_.ps_replicas();
  for (std::uint32_t index = 0; index < worker_count_; ++index) start(Kind::kWorker, index, absl::Milliseconds(900));
}

ProcessPointer Job::Start(Kind kind, std::uint32_t index) {
  auto process = std::make_shared<Process>();
  process->kind = kind;
  process->index = index;
  process->incarnation = ++incarnations_[{kind, index}];
  process->number = numbers_.process++;
  process->job_uid = config_.job_uid();
  process->origin = now() - absl::Seconds(random_.Between(0, 1000));
  const ProcessPointer before = Current(kind, index);
  // Pod addresses are reused; only then may messages to the old process reach the new one.
  const bool reuse = before != nullptr && !before->alive && random_.Chance(0.5);
  process->address = reuse ? before->address : absl::StrCat("address", numbers_.address++);
  if (before != nullptr && kind != Kind::kPs) stall_checks_->OnFault();
  addresses_[process->address] = process;
  current_[{kind, index}] = process;
  all_.push_back(process);
  Trace(absl::StrCat("start ", process->name()));
  if (kind == Kind::kCoordinator) {
    core::CoordinatorOptions options;
    options.config = config_;
    options.incarnation = process->incarnation;
    options.bug = options_.bug;
    options.load_window = absl::Seconds(1);
    process->coordinator = std::make_unique<core::CoordinatorCore>(options, process->clock(now()));
    if (config_.has_checkpoint()) {
      process->store = *checkpoint::JobStore::Create(
          config_, process->incarnation, [this](const std::string& uri) { return disk_->Open(uri); },
          [this] { return absl::ToDoubleSeconds(now()); });
    }
    AtProcess(now(), process, [this, process] { TickCoordinator(process); });
  } else if (kind == Kind::kPs) {
    core::PsOptions options;
    options.job_uid = config_.job_uid();
    options.index = index;
    options.address = process->address;
    options.session = process->session = numbers_.session++;
    options.process_incarnation = process->incarnation;
    options.pending_bytes_limit = random_.Chance(0.2) ? 1000 : 1u << 20;
    options.has_store = config_.has_checkpoint();
    options.extra_bytes_limit = extra_bytes_limit_;
    options.bug = options_.bug;
    options.on_push = [this, ps = process.get()](const Frame& push, core::ReplyStatus status, std::uint64_t sequence) {
      OnPush(*ps, push, status, sequence);
    };
    process->ps = *core::PsCore::Create(options);
    by_session_[process->session] = process;
    AtProcess(now(), process, [this, process] { TickPs(process); });
  } else {
    core::WorkerOptions options;
    options.job_uid = config_.job_uid();
    options.index = index;
    options.process_incarnation = process->incarnation;
    options.tensors = tensors_;
    options.sample_count = sample_count_;
    options.wanted_leases = static_cast<std::uint32_t>(random_.Between(1, 3));
    options.early_push_bytes = random_.Chance(0.5) ? 1 : 300;
    options.message_bytes = random_.Chance(0.5) ? 1 : 1000;
    options.exchanges_in_flight = random_.Between(1, 4);
    options.data_deadline = absl::Milliseconds(random_.Between(200, 4000));
    options.fetch_every = std::max(config_.local_steps().fetch_every(), 1u);
    options.codec = codec_;
    options.bug = options_.bug;
    process->shell = std::make_unique<WorkerShell>(&numbers_, searched_);
    process->worker = std::make_unique<core::WorkerCore>(options, process->shell.get());
    AtProcess(now(), process, [this, process] {
      core::WorkerOutput output;
      process->worker->Start(process->clock(now()), &output);
      CarryOut(process, std::move(output));
    });
  }
  return process;
}

void Job::Kill(const ProcessPointer& process, const char* why, bool platform) {
  if (process->kind == Kind::kWorker) {
    v1::MemberFailure* failure = told_.add_failures();
    failure->set_role("worker");
    failure->set_index(process->index);
    failure->set_process_incarnation(process->incarnation);
    failure->set_platform(platform);
    failure->set_cause(platform ? "Evicted" : "Killed by signal 11");
  }
  if (process->kind == Kind::kPs && options_.replicas) {
    // Soon or late.
    const absl::Duration later = random_.Delay(absl::ZeroDuration(), absl::Seconds(random_.Chance(0.5) ? 0.1 : 6));
    world_.At(now() + later, [this, process, uid = config_.job_uid()] {
      if (uid != config_.job_uid()) return;
      v1::MemberFailure* failure = told_.add_failures();
      failure->set_role("ps");
      failure->set_index(process->index);
      failure->set_process_incarnation(process->incarnation);
      failure->set_platform(true);
    });
  }
  // That one ends which has no place any more breaks nothing.
  if (process->kind != Kind::kPs || IsPlaced(*process)) stall_checks_->OnFault();
  Trace(absl::StrCat("kill ", process->name(), " ", why));
  process->alive = false;
  ++result_.kills;
}

void Job::ReplaceSoon(const ProcessPointer& process) {
  world_.At(now() + random_.Delay(absl::Milliseconds(10), absl::Seconds(3)), [this, process] {
    const bool wanted = process->kind != Kind::kPs || process->index < config_.ps_replicas();
    if (!done_ && wanted && Current(process->kind, process->index) == process) Start(process->kind, process->index);
  });
}

// ---- the coordinator

void Job::TickCoordinator(const ProcessPointer& process) {
  if (process->coordinator->fenced().has_value()) {
    if (process == Coordinator() && !done_) world_.Violation("the newest coordinator was fenced");
    process->alive = false;
    return;
  }
  std::vector<core::DirectCall> calls = process->coordinator->TakeDirectives(process->clock(now()));
  for (core::DirectCall& call : calls) CarryOut(process, std::move(call));
  for (core::StoreCall& call : process->coordinator->TakeStoreCalls()) process->store_calls.push_back(std::move(call));
  StepStore(process);
  const core::Phase phase = process->coordinator->phase();
  const core::Cuts::Phase cut = process->coordinator->checkpoints().cuts().phase();
  if (process->phase_seen != phase || process->cut_phase_seen != cut) {
    // To change the layout once more is not to go on.
    const bool switches = phase == core::Phase::kSwitching || process->phase_seen == core::Phase::kSwitching;
    if (process == Coordinator() && process->phase_seen != phase && !switches) stall_checks_->OnProgress();
    process->phase_seen = phase;
    process->cut_phase_seen = cut;
    Trace(absl::StrCat(process->name(), ": ", ProtocolState()));
    if (process == Coordinator()) faults_->OnPhase();
  }
  const Time next = process->coordinator->next_timer() + process->origin;
  if (next >= process->tick_at && process->tick_at > now()) return;
  process->tick_at = next;
  AtProcess(next, process, [this, process, next] {
    if (process->tick_at == next) process->tick_at = absl::InfiniteDuration();
    TickCoordinator(process);
  });
}

void Job::CarryOut(const ProcessPointer& process, core::DirectCall call) {
  checks_->OnHistory({process->job_uid, call.request.stamp().generation()}, process->found);
  network_->Call<v1::DirectReply>(
      process, [this, address = call.address] { return At(address); }, call.deadline,
      [this, request = call.request](Process& target, const std::function<void(v1::DirectReply)>& reply) {
        if (target.ps == nullptr) return;
        const Standing before = StandingOf(target);
        v1::DirectReply answer = target.ps->OnDirect(request, target.clock(now()));
        if (options_.replicas && options_.seed % 4 == 0) {  // some are busier than others
          const double share = static_cast<double>(1 + target.session % 10) / 10;
          answer.mutable_stats()->set_busy_seconds(share * absl::ToDoubleSeconds(target.clock(now())));
        }
        const bool another = core::CompareStamps(before.stamp, target.ps->view().stamp()) != 0;
        if (evaluation_checks_.has_value() && another) {
          evaluation_checks_->OnView(HistoryOf(target), target.ps->view());
        }
        NoteView(target, before);
        if (answer.committed() && core::CompareStamps(request.stamp(), target.ps->view().stamp()) == 0) {
          for (const std::uint32_t slice : target.ps->replicas().primaries()) TakeUp(target, slice);
        }
        CheckReplies(target, target.ps->TakeOwedReplies());
        NoteSessions(target, request, answer);
        StepStore(addresses_[target.address]);
        Replicate(addresses_[target.address]);
        reply(answer);
      },
      [this, process, id = call.call](absl::StatusOr<v1::DirectReply> reply) {
        process->coordinator->OnDirectReply(id, reply, process->clock(now()));
        TickCoordinator(process);
      });
}

// ---- a ps

Job::Standing Job::StandingOf(const Process& ps) {
  Standing standing;
  standing.stamp = ps.ps->view().stamp();
  standing.mode_epoch = ps.ps->view().mode_epoch();
  for (const auto& [slice, entry] : ps.ps->replicas().entries()) {
    standing.sequences[slice] = entry.replica.sequence();
  }
  return standing;
}

void Job::NoteView(Process& ps, const Standing& before) {
  const v1::View& view = ps.ps->view();
  const v1::ViewStamp& stamp = view.stamp();
  if (core::CompareStamps(stamp, before.stamp) == 0) return;
  rollback_checks_.OnView(ps.job_uid, view, ps.session, [this](std::uint64_t session) {
    const auto found = by_session_.find(session);
    return found != by_session_.end() && found->second->alive &&
           Current(Kind::kPs, found->second->index) == found->second;
  });
  const bool same_history = stamp.generation() == before.stamp.generation();
  const bool another_mode = !same_history || view.mode_epoch() != before.mode_epoch;
  if (same_history && another_mode && modes_.emplace(HistoryOf(ps), view.mode_epoch()).second) {
    ++result_.mode_changes;
    Trace(absl::StrCat("epoch ", stamp.epoch(), ": ", v1::Mode_Name(view.mode()), ", at most ", view.staleness(),
                       " ahead, ", view.updates_per_step(), " updates a step"));
  }
  ps.takes_up.clear();
  for (const std::uint32_t slice : ps.ps->replicas().primaries()) {
    const std::uint64_t sequence = ps.ps->replicas().Primary(slice)->replica.sequence();
    const auto known = before.sequences.find(slice);
    const std::uint64_t had = same_history && known != before.sequences.end() ? known->second : 0;
    ps.takes_up[slice] = [this, &ps, slice, view, sequence, had, another_mode] {
      const bool promoted = checks_->OnPrimary(HistoryOf(ps), slice, ps.number, view.stamp(), had,
                                               view.replication_lag(), *core::DataPlan::Create(view.data()));
      if (promoted) {
        Trace(
            absl::StrCat(ps.name(), " takes slice ", slice, " over at record ", had, ", epoch ", view.stamp().epoch()));
      }
      if (promoted || another_mode) checks_->OnMode(HistoryOf(ps), view, BeginningOf(ps), slice, sequence);
    };
    // Nobody else has it: it goes on.
    if (!same_history || checks_->Owns(HistoryOf(ps), slice, ps.number)) TakeUp(ps, slice);
  }
  if (view.mode() == v1::BOUNDED_STALENESS) staleness_checks_->OnMode(EraOf(ps), view.staleness());
}

ProcessPointer Job::At(const std::string& address) const {
  const auto found = addresses_.find(address);
  return found == addresses_.end() ? nullptr : found->second;
}

void Job::TakeUp(Process& ps, std::uint32_t slice) {
  const auto pending = ps.takes_up.find(slice);
  if (pending == ps.takes_up.end()) return;
  const std::function<void()> take_up = std::move(pending->second);
  ps.takes_up.erase(pending);
  take_up();
}

void Job::Replicate(const ProcessPointer& process) {
  for (core::ReplicationCall& call : process->ps->TakeReplicationCalls(process->clock(now()))) {
    network_->Call<std::vector<Frame>>(
        process, [this, address = call.address] { return At(address); }, call.deadline,
        [this, frames = call.frames](Process& target, std::function<void(std::vector<Frame>)> reply) {
          if (target.ps != nullptr) Receive(target, frames, std::move(reply));
        },
        [this, process, id = call.call](const absl::StatusOr<std::vector<Frame>>& reply) {
          std::vector<core::PsCore::DataReply> replies;
          process->ps->OnReplicationReply(id, reply, process->clock(now()), &replies);
          CheckReplies(*process, replies);
          Replicate(process);
        });
  }
  const Time next = process->ps->replication_timer();
  if (next == absl::InfiniteDuration()) return;
  const Time at = next + process->origin;
  if (process->replicate_at > now() && process->replicate_at <= at) return;
  process->replicate_at = at;
  AtProcess(std::max(at, now() + absl::Microseconds(50)), process, [this, process, at] {
    if (process->replicate_at == at) process->replicate_at = absl::InfiniteDuration();
    Replicate(process);
  });
}

void Job::Receive(Process& target, const std::vector<Frame>& frames, std::function<void(std::vector<Frame>)> reply) {
  const std::uint64_t id = target.next_call++;
  std::vector<Frame> received = frames;
  for (Frame& frame : received) {
    // A payload that fails its checksum is delivered so by the transport.
    if (frame.payload.size() == 0 || !network_->Corrupted()) continue;
    frame.payload = core::Payload();
    frame.header.status = core::ReplyStatus::kCorrupt;
  }
  target.open[id] = {received, std::move(reply)};
  std::vector<core::PsCore::DataReply> replies;
  target.ps->OnData(id, received, &replies);
  CheckReplies(target, replies);
  Replicate(addresses_[target.address]);
}

void Job::NoteTraining(const Process& ps, const v1::DirectRequest& request) {
  const std::set<std::uint64_t> training(request.training().begin(), request.training().end());
  std::set<std::uint64_t> others(request.sessions().begin(), request.sessions().end());
  if (request.members_since() == 0) others.insert(ps.sessions_confirmed.begin(), ps.sessions_confirmed.end());
  for (std::uint64_t session : training) others.erase(session);
  others.insert(request.ended().begin(), request.ended().end());
  staleness_checks_->OnTraining(EraOf(ps), ps.index, training, others);
}

void Job::NoteSessions(Process& ps, const v1::DirectRequest& request, const v1::DirectReply& answer) {
  if (answer.status() != v1::SYNC_OK || answer.stamp().SerializeAsString() != request.stamp().SerializeAsString()) {
    return;
  }
  if (answer.members_version() == request.members_version()) {
    if (ps.ps->view().mode() == v1::BOUNDED_STALENESS) NoteTraining(ps, request);
    // From here on this ps has confirmed who may push in this generation.
    if (std::exchange(ps.generation, answer.stamp().generation()) != answer.stamp().generation()) {
      ps.sessions_over.clear();
      ps.sessions_confirmed.clear();
    }
    std::set<std::uint64_t> live(request.sessions().begin(), request.sessions().end());
    if (request.members_since() != 0) live.insert(ps.sessions_confirmed.begin(), ps.sessions_confirmed.end());
    for (std::uint64_t session : request.ended()) live.erase(session);
    if (live != ps.sessions_confirmed) {
      std::string names;
      for (std::uint64_t session : live) absl::StrAppend(&names, " ", session);
      Trace(absl::StrCat(ps.name(), " takes sessions", names, " of coordinator ", request.stamp().incarnation()));
    }
    for (std::uint64_t session : ps.sessions_confirmed) {
      // One that its worker never heard was accepted may be proposed again: nothing was pushed in its name.
      if (live.count(session) == 0 && accepted_.count(session) != 0) ps.sessions_over.insert(session);
    }
    ps.sessions_confirmed = live;
  }
  if (answer.cut().sealed()) {
    checks_->OnSealed(HistoryOf(ps), answer.cut().cut(), [this, &ps] {
      std::set<std::uint64_t> sessions;
      for (const v1::PsMember& member : ps.ps->view().ps()) {
        const ProcessPointer& other = by_session_[member.session()];
        if (other == nullptr || other->generation != ps.generation) continue;
        sessions.insert(other->sessions_confirmed.begin(), other->sessions_confirmed.end());
      }
      return sessions;
    });
  }
}

void Job::TickPs(const ProcessPointer& process) {
  if (process->ps->ShouldRegister(process->clock(now())) && !process->registering) {
    process->registering = true;
    network_->Call<v1::RegisterPsReply>(
        process, [this] { return Coordinator(); }, absl::Seconds(1),
        [this, request = process->ps->MakeRegistration()](Process& target,
                                                          const std::function<void(v1::RegisterPsReply)>& reply) {
          reply(target.coordinator->OnRegisterPs(request, target.clock(now())));
          const ProcessPointer coordinator = Coordinator();
          if (coordinator.get() == &target) TickCoordinator(coordinator);
        },
        [this, process](const absl::StatusOr<v1::RegisterPsReply>& reply) {
          process->registering = false;
          if (!reply.ok()) return;
          const absl::Status registered = process->ps->OnRegisterReply(*reply, process->clock(now()));
          if (!registered.ok()) {
            Trace(absl::StrCat(process->name(), " ends: ", registered.ToString()));
            process->alive = false;
          }
        });
  }
  AtProcess(now() + absl::Milliseconds(50), process, [this, process] { TickPs(process); });
}

void Job::CheckReplies(Process& ps, const std::vector<core::PsCore::DataReply>& replies) {
  for (const core::PsCore::DataReply& reply : replies) {
    const auto found = ps.open.find(reply.call);
    if (found == ps.open.end()) {
      world_.Violation(absl::StrCat(ps.name(), " answered a call twice"));
      continue;
    }
    Process::Open open = std::move(found->second);
    ps.open.erase(found);
    if (reply.frames.size() != open.frames.size()) {
      world_.Violation("a reply has another number of frames than its call");
    }
    for (std::size_t i = 0; i < reply.frames.size(); ++i) {
      if (open.frames[i].header.kind == core::FrameKind::kPush) {
        CheckAnswer(ps, open.frames[i], reply.frames[i].header.status);
      }
    }
    open.reply(reply.frames);
  }
}

// What a worker is told.
void Job::CheckAnswer(Process& ps, const Frame& push, core::ReplyStatus status) {
  if (status == core::ReplyStatus::kDuplicate) ++result_.duplicates;
  if (status == core::ReplyStatus::kRefused) ++result_.refused;
  const bool there = status == core::ReplyStatus::kApplied || status == core::ReplyStatus::kDuplicate;
  if (!there || push.header.generation != ps.ps->view().stamp().generation()) return;
  checks_->OnAcknowledged(HistoryOf(ps), BeginningOf(ps), ps.name(), push.header, ps.ps->view().replication_lag());
  // An answer of a ps that was given up meanwhile is late: its worker has had another one.
  const bool counts = checks_->Owns(HistoryOf(ps), push.header.slice, ps.number);
  if (counts && lossy() && push.payload.size() != 0 && !IsBuffer(push.header.slice)) {
    residual_checks_->OnAnswer(push, status,
                               MakeGradient(*core::DataPlan::Create(ps.ps->view().data()), push.header.update));
  }
}

// What a ps does with a push, whether it can say so already or not.
void Job::OnPush(Process& ps, const Frame& push, core::ReplyStatus status, std::uint64_t sequence) {
  TakeUp(ps, push.header.slice);
  if (!checks_->Owns(HistoryOf(ps), push.header.slice, ps.number)) return;  // nobody will hear of it
  const bool there = status == core::ReplyStatus::kApplied || status == core::ReplyStatus::kDuplicate;
  if (there && ps.ps->view().mode() == v1::BOUNDED_STALENESS) staleness_checks_->OnUpdate(EraOf(ps), push.header);
  if (status == core::ReplyStatus::kDuplicate) checks_->OnDuplicate(HistoryOf(ps), push.header, sequence);
  if (status == core::ReplyStatus::kApplied) CheckApplied(ps, push, sequence);
}

void Job::CheckApplied(Process& ps, const Frame& push, std::uint64_t sequence) {
  stall_checks_->OnProgress();
  rollback_checks_.OnApplied(ps.job_uid, ps.ps->view().stamp().generation());
  const core::DataPlan plan = *core::DataPlan::Create(ps.ps->view().data());
  const std::uint32_t width = core::StepWidth(ps.ps->view());
  if (width != 0 && push.payload.size() != 0 && !lossy()) {
    // Every gradient is of the values that have all of the steps before and nothing else.
    const auto* gradient = static_cast<const Gradient*>(push.payload.owner().get());
    checks_->CheckSteps(HistoryOf(ps), ps.ps->view(),
                        absl::StrCat(ps.name(), ": slice ", push.header.slice, ": ", NameOf(push.header.update)),
                        core::StepOf(push.header.update, width), gradient->steps);
  }
  core::FrameHeader header = push.header;
  header.epoch = ps.ps->view().mode_epoch();
  checks_->OnApplied(HistoryOf(ps), BeginningOf(ps), ps.name(), plan, header, Adds(push), sequence);
  if (ps.sessions_over.count(push.header.session) != 0) {
    world_.Violation(absl::StrCat(ps.name(), " applied a push of session ", push.header.session,
                                  " after it confirmed that the session is over"));
  }
  if (push.payload.size() == 0) return;
  if (lossy()) {  // and the values are not those that count
    const std::uint64_t generation = ps.ps->view().stamp().generation();
    if (push.header.generation != generation) {
      world_.Violation(absl::StrCat(ps.name(), " applied to slice ", push.header.slice, " of generation ", generation,
                                    " a push of generation ", push.header.generation));
    }
    return;
  }
  const auto* gradient = static_cast<const Gradient*>(push.payload.owner().get());
  const float history = (*ps.ps->value(push.header.slice))[kHistory];
  const std::uint64_t generation = ps.ps->view().stamp().generation();
  if (searched_.count(push.header.slice) != 0 && gradient->point != *ps.ps->value(push.header.slice)) {
    world_.Violation(absl::StrCat(ps.name(), ": slice ", push.header.slice, ": ", NameOf(push.header.update),
                                  " has the gradient of another point"));
  }
  if (gradient->history != history || gradient->generation != generation) {
    world_.Violation(absl::StrCat(ps.name(), " applied to slice ", push.header.slice, " of generation ", generation,
                                  ", history ", history, ", a gradient of generation ", gradient->generation,
                                  ", history ", gradient->history));
  }
}

std::vector<float> Job::Adds(const Frame& push) const {
  if (!lossy() || Skipped(push.header.update)) return {};
  std::vector<float> adds(push.header.elements);
  core::Decode(push.header.codec, push.payload, absl::MakeSpan(adds));
  for (float& value : adds) value /= -Weight(push.header.update);
  return adds;
}

float Job::Weight(const core::UpdateId& update) const {
  if (!lossy() || config_.mode() != v1::SYNCHRONOUS) return 1;
  const std::uint32_t width = config_.updates_per_step();
  std::uint32_t samples = 0;
  core::ForEachUpdateOf(core::StepOf(update, width), width, *plan_, [&](const core::UpdateId& other) {
    samples += Skipped(other) ? 0 : plan_->samples_in_update(other);
  });
  return static_cast<float>(samples) / static_cast<float>(plan_->samples_in_update(update));
}

// ---- a worker

void Job::TickWorker(const ProcessPointer& process) {
  core::WorkerOutput output;
  process->worker->OnTimer(process->clock(now()), &output);
  CarryOut(process, std::move(output));
}

void Job::Sync(const ProcessPointer& process, const core::SyncCall& call) {
  network_->Call<v1::WorkerSyncReply>(
      process, [this] { return Coordinator(); }, call.deadline,
      [this, request = call.request](Process& target, const std::function<void(v1::WorkerSyncReply)>& reply) {
        reply(target.coordinator->OnSyncWorker(request, target.clock(now())));
        const ProcessPointer coordinator = Coordinator();
        if (coordinator.get() == &target) TickCoordinator(coordinator);
      },
      [this, process, id = call.call](const absl::StatusOr<v1::WorkerSyncReply>& reply) {
        if (reply.ok() && reply->status() == v1::SYNC_OK) accepted_.insert(process->worker->session());
        core::WorkerOutput next;
        process->worker->OnSyncReply(id, reply, process->clock(now()), &next);
        CarryOut(process, std::move(next));
      });
}

void Job::Exchange(const ProcessPointer& process, const core::ExchangeCall& call) {
  for (const Frame& frame : call.frames) {
    const bool of_parameter = frame.header.kind == core::FrameKind::kPush && !IsBuffer(frame.header.slice);
    if (lossy() && of_parameter) residual_checks_->OnSend(*process, frame.header);
  }
  network_->Call<std::vector<Frame>>(
      process, [this, address = call.address] { return At(address); }, call.deadline,
      [this, frames = call.frames](Process& target, std::function<void(std::vector<Frame>)> reply) {
        if (target.ps == nullptr) return;
        Receive(target, frames, std::move(reply));
      },
      [this, process, id = call.call](const absl::StatusOr<std::vector<Frame>>& reply) {
        core::WorkerOutput next;
        process->worker->OnExchangeReply(id, reply, process->clock(now()), &next);
        CarryOut(process, std::move(next));
      },
      // A worker takes a duplicate at the first try for somebody else's, and nothing that travels over TCP comes twice.
      /*may_repeat=*/!lossy());
}

void Job::Train(const ProcessPointer& process, const core::Work& work) {
  if (IsDeadly(work.update)) {
    Kill(process, "by its data", /*platform=*/false);
    ++result_.deaths_by_shard;
    ReplaceSoon(process);
    return;
  }
  staleness_checks_->OnBegin(*process);
  const bool skip = Skipped(work.update);
  const core::DataPlan& plan = *process->worker->plan();
  const double loss = process->shell->Compute(plan, work.update,
                                              MakeGradient(plan, work.update, core::RateScale(process->worker->view())),
                                              process->worker->generation());
  Time at = now() + random_.Delay(absl::Milliseconds(1), slowest_update_);
  if (options_.slow_worker && process->index == 0) at += 10 * slowest_update_;
  for (std::size_t tensor = tensors_.size(); tensor-- > 0 && !skip;) {
    at += random_.Delay(absl::Microseconds(10), absl::Milliseconds(8));
    AtProcess(at, process, [this, process, work, tensor] {
      core::WorkerOutput next;
      process->worker->OnGradient(work.token, static_cast<std::uint32_t>(tensor), process->clock(now()), &next);
      CarryOut(process, std::move(next));
    });
  }
  AtProcess(at + absl::Microseconds(10), process, [this, process, work, skip, loss] {
    ++result_.computed[process->index];
    core::ComputeResult result;
    result.verdict = skip ? core::Verdict::kSkip : core::Verdict::kApply;
    result.loss = loss;
    result.samples = 1;
    core::WorkerOutput next;
    process->worker->OnComputed(work.token, result, process->clock(now()), &next);
    CarryOut(process, std::move(next));
  });
}

void Job::CarryOutTask(const ProcessPointer& process, const core::Work& work) {
  const Time at = now() + random_.Delay(absl::Milliseconds(5), absl::Milliseconds(500));
  AtProcess(at, process, [this, process, work] {
    stall_checks_->OnProgress();
    v1::TaskResult result;
    const bool fails = options_.failing_tasks == FailingTasks::kEverywhere ||
                       (options_.failing_tasks == FailingTasks::kEverywhereButAtOne && process->index > 0);
    if (fails) {
      ++result_.failed_tasks;
      result.set_error(absl::StrCat("worker-", process->index, ": it cannot be done here"));
    } else if (work.kind == v1::TASK_EVALUATE) {
      result.set_accuracy(0.5);
      v1::Metric* metric = result.add_metrics();
      metric->set_name("Accuracy");
      metric->set_value(0.5);
      if (evaluation_checks_.has_value()) result.set_loss(evaluation_checks_->Loss(work.dataset_epoch));
      result.set_samples(1);
    }
    core::WorkerOutput next;
    process->worker->OnTaskDone(work.token, result, process->clock(now()), &next);
    CarryOut(process, std::move(next));
  });
}

void Job::CarryOut(const ProcessPointer& process, core::WorkerOutput output) {
  if (lossy()) {
    const core::WorkerCore& worker = *process->worker;
    if (std::exchange(process->updates_seen, worker.stats().steps()) != worker.stats().steps()) {
      residual_checks_->OnUpdateDone(*process);
    }
    const std::uint64_t before = std::exchange(process->session, worker.session());
    if (before != worker.session()) residual_checks_->OnSessionOver(*process, before);
  }
  for (const core::SyncCall& call : output.syncs) Sync(process, call);
  for (const core::ExchangeCall& call : output.exchanges) Exchange(process, call);
  if (output.work.has_value()) {
    if (output.work->kind == v1::TASK_TRAIN) {
      Train(process, *output.work);
      if (!process->alive) return;
    } else {
      CarryOutTask(process, *output.work);
    }
  }
  if (process->worker->finished().has_value()) {
    Trace(absl::StrCat(process->name(), " ends: ", process->worker->finished()->ToString()));
    process->alive = false;
    if (!done_ && process == Current(Kind::kWorker, process->index) && !process->worker->finished()->ok()) {
      world_.Violation(absl::StrCat(process->name(), " gave up: ", process->worker->finished()->ToString()));
    }
    return;
  }
  const Time next = process->worker->next_timer() + process->origin;
  if (next >= process->tick_at && process->tick_at > now()) return;
  process->tick_at = next;
  AtProcess(std::max(next, now() + absl::Microseconds(50)), process, [this, process, next] {
    if (process->tick_at == next) process->tick_at = absl::InfiniteDuration();
    TickWorker(process);
  });
}

}  // namespace downpour::simulation
