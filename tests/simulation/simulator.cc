#include "tests/simulation/simulator.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <memory>
#include <queue>
#include <random>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "trainer/core/coordinator.h"
#include "trainer/core/ps.h"
#include "trainer/core/worker.h"

namespace downpour::simulation {
namespace {

using core::Frame;
using core::Time;

constexpr char kJobUid[] = "00112233445566778899aabbccddeeff";
constexpr std::size_t kCounter = 0;
constexpr std::size_t kHistory = 1;  // a number that whoever initialised the slice chose
constexpr std::size_t kSamples = 2;

// What a gradient remembers of the value that it was computed with.
struct Gradient {
  std::vector<float> values;
  float history = 0;
};

class Random {
 public:
  explicit Random(std::uint64_t seed) : engine_(seed) {}
  std::uint64_t Below(std::uint64_t bound) {
    return std::uniform_int_distribution<std::uint64_t>(0, bound - 1)(engine_);
  }
  int Between(int low, int high) { return low + static_cast<int>(Below(static_cast<std::uint64_t>(high - low + 1))); }
  double Uniform() { return std::uniform_real_distribution<double>(0, 1)(engine_); }
  bool Chance(double probability) { return Uniform() < probability; }
  absl::Duration Delay(absl::Duration low, absl::Duration high) { return low + (high - low) * Uniform(); }

 private:
  std::mt19937_64 engine_;
};

enum class Kind { kCoordinator, kPs, kWorker };

struct Process;

class Simulator {
 public:
  explicit Simulator(const SimulationOptions& options);
  SimulationResult Run();

 private:
  friend struct Process;
  friend class WorkerShell;

  void At(Time time, std::function<void()> action) { events_.push({time, next_event_++, std::move(action)}); }
  // Runs `action` at `time` on a process if it still lives; a paused one runs it when it wakes.
  void AtProcess(Time time, const std::shared_ptr<Process>& process, std::function<void()> action);
  void Trace(const std::string& text) const {
    if (options_.trace) std::printf("%10.4f  %s\n", absl::ToDoubleSeconds(now_), text.c_str());
  }
  void Violation(std::string text) {
    Trace(absl::StrCat("VIOLATION ", text));
    if (result_.violations.size() < 10) result_.violations.push_back(std::move(text));
  }
  absl::Duration NetworkDelay();
  bool Lost() { return faulty() && random_.Chance(drop_); }
  bool Corrupted() { return faulty() && random_.Chance(drop_ / 4); }
  bool Repeated() { return faulty() && random_.Chance(repeat_); }
  bool faulty() const { return options_.faults && now_ < faults_end_; }

  // One call: the request travels, `serve` runs at the target and yields a reply, the reply travels, `done` runs at
  // the caller exactly once with a reply or, at the deadline, an error.
  template <typename Reply>
  void Call(const std::shared_ptr<Process>& from, std::function<std::shared_ptr<Process>()> find_target,
            absl::Duration deadline, std::function<void(Process&, std::function<void(Reply)>)> serve,
            std::function<void(absl::StatusOr<Reply>)> done);

  std::shared_ptr<Process> Start(Kind kind, std::uint32_t index);
  void Kill(const std::shared_ptr<Process>& process, const char* why, bool platform = true);
  bool IsDeadly(const core::UpdateId& update) const {
    return deadly_.has_value() && update.dataset_epoch == deadly_->dataset_epoch &&
           update.data_shard == deadly_->data_shard;
  }
  void Pause(const std::shared_ptr<Process>& process, absl::Duration length);
  void Leave(const std::shared_ptr<Process>& process);
  void ScheduleFaults();
  void Replace(Kind kind, std::uint32_t index);
  void TickCoordinator(const std::shared_ptr<Process>& process);
  void TickPs(const std::shared_ptr<Process>& process);
  void TickWorker(const std::shared_ptr<Process>& process);
  void CarryOut(const std::shared_ptr<Process>& process, core::WorkerOutput output);
  void CarryOut(const std::shared_ptr<Process>& process, std::vector<core::DirectCall> calls);
  void CheckReplies(Process& ps, const std::vector<core::PsCore::DataReply>& replies);
  void CheckEnd();
  std::shared_ptr<Process> Current(Kind kind, std::uint32_t index) const;
  std::string NameOf(const Process& process) const;
  bool Skipped(const core::UpdateId& update) const {
    return skip_every_ != 0 && plan_->UpdateSeed(update) % skip_every_ == 0;
  }

  struct Event {
    Time at;
    std::uint64_t order;
    std::function<void()> action;
    bool operator<(const Event& other) const { return std::tie(other.at, other.order) < std::tie(at, order); }
  };

  SimulationOptions options_;
  Random random_;
  SimulationResult result_;
  Time now_ = absl::ZeroDuration();
  Time faults_end_;
  std::priority_queue<Event> events_;
  std::uint64_t next_event_ = 0;
  double drop_ = 0, repeat_ = 0, slow_ = 0;

  v1::TrainingConfig config_;
  std::uint64_t sample_count_ = 0;
  std::optional<core::DataPlan> plan_;
  std::optional<core::UpdateId> deadly_;  // any update of the shard
  v1::ProgressRequest failures_;          // as the operator knows them
  std::vector<v1::TensorSpec> tensors_;
  std::uint64_t skip_every_ = 0;
  std::uint32_t worker_count_ = 0;
  std::map<std::pair<Kind, std::uint32_t>, std::shared_ptr<Process>> current_;
  std::map<std::pair<Kind, std::uint32_t>, std::uint32_t> incarnations_;
  std::map<std::string, std::shared_ptr<Process>> addresses_;  // who answers there
  std::uint64_t next_session_ = 1;
  std::uint64_t next_address_ = 1;
  float next_history_ = 1;
  std::map<std::uint64_t, std::shared_ptr<Process>> by_session_;  // ps
  std::map<std::uint32_t, std::uint64_t> final_ps_;
  std::set<std::uint64_t> accepted_;  // sessions whose worker heard so
  bool done_ = false;
  bool finish_sent_ = false;
};

// A worker's values and gradients.
class WorkerShell final : public core::WorkerHost {
 public:
  explicit WorkerShell(Simulator* simulator) : simulator_(simulator) {}
  std::uint64_t NewSession() override { return simulator_->next_session_++; }
  core::Payload InitialValue(std::uint32_t, const core::Slice& slice) override {
    auto values = std::make_shared<std::vector<float>>(slice.elements, 0.0f);
    (*values)[kHistory] = simulator_->next_history_++;
    const absl::Span<const float> span(*values);
    return core::Payload::OfFloats(span, std::move(values));
  }
  core::Payload Gradient(std::uint32_t number, const core::Slice&) override {
    auto gradient = std::make_shared<simulation::Gradient>();
    gradient->values = update_;
    gradient->history = computed_with_[number];
    const absl::Span<const float> span(gradient->values);
    return core::Payload::OfFloats(span, std::move(gradient));
  }
  void StoreValue(std::uint32_t number, const core::Slice&, const core::Payload& value) override {
    value.ForEachFloats([&](std::size_t first, absl::Span<const float> run) {
      if (first <= kHistory && kHistory < first + run.size()) held_[number] = run[kHistory - first];
    });
  }
  void Compute(const core::DataPlan& plan, const core::UpdateId& update) {
    update_.assign(kSamples + plan.proto().sample_count(), 0.0f);
    update_[kCounter] = -1;  // the learning rate is one: the counter rises by one
    for (std::int64_t sample : plan.SampleIndices(update)) update_[kSamples + static_cast<std::size_t>(sample)] -= 1;
    computed_with_ = held_;
  }

 private:
  Simulator* simulator_;
  std::vector<float> update_;
  std::map<std::uint32_t, float> held_, computed_with_;
};

struct Process {
  Kind kind = Kind::kWorker;
  std::uint32_t index = 0;
  std::uint32_t incarnation = 1;
  std::string address;
  bool alive = true;
  Time paused_until = absl::ZeroDuration();
  Time origin = absl::ZeroDuration();  // each process has a clock of its own
  Time tick_at = absl::InfiniteDuration();

  std::unique_ptr<core::CoordinatorCore> coordinator;
  std::unique_ptr<core::PsCore> ps;
  std::unique_ptr<WorkerShell> shell;
  std::unique_ptr<core::WorkerCore> worker;

  // ps: calls that wait for their reply, with their frames; sessions that it confirmed to be over.
  std::uint64_t next_call = 1;
  struct Open {
    std::vector<Frame> frames;
    std::map<std::uint32_t, float> histories;  // of the slices before
    std::function<void(std::vector<Frame>)> reply;
  };
  std::map<std::uint64_t, Open> open;
  std::set<std::uint64_t> sessions_confirmed;
  std::set<std::uint64_t> sessions_over;
  std::uint64_t generation = 0;
  std::uint64_t session = 0;
  bool registering = false;
};

Simulator::Simulator(const SimulationOptions& options) : options_(options), random_(options.seed * 7919 + 17) {
  const auto ps = static_cast<std::uint32_t>(random_.Between(1, 4));
  worker_count_ = static_cast<std::uint32_t>(random_.Between(1, 6));
  const int slices = random_.Between(1, 7);
  sample_count_ = static_cast<std::uint64_t>(random_.Between(8, 60));
  config_.set_job_uid(kJobUid);
  config_.set_ps_replicas(ps);
  config_.set_epochs(static_cast<std::uint32_t>(random_.Between(1, 4)));
  config_.set_batch_size(static_cast<std::uint32_t>(random_.Between(1, 5)));
  config_.set_updates_per_shard(static_cast<std::uint32_t>(random_.Between(1, 5)));
  config_.set_seed(random_.Below(1000));
  config_.set_mode(v1::ASYNC);
  config_.set_evaluate(random_.Chance(0.5));
  config_.mutable_optimizer()->set_type(v1::SGD);
  config_.mutable_optimizer()->set_learning_rate(1);
  skip_every_ = random_.Chance(0.3) ? static_cast<std::uint64_t>(random_.Between(3, 20)) : 0;
  for (int i = 0; i < slices; ++i) {
    v1::TensorSpec tensor;
    tensor.set_name(absl::StrCat("tensor", i));
    tensor.set_type(v1::FLOAT32);
    tensor.add_shape(static_cast<std::int64_t>(kSamples + sample_count_));
    if (tensors_.size() % 3 == 2) tensor.set_kind(v1::BUFFER);
    tensors_.push_back(tensor);
  }
  v1::DataPlan data;
  data.set_sample_count(sample_count_);
  data.set_batch_size(config_.batch_size());
  data.set_updates_per_shard(config_.updates_per_shard());
  data.set_epochs(config_.epochs());
  data.set_seed(config_.seed());
  plan_ = *core::DataPlan::Create(data);
  if (options.deadly_shard) {
    deadly_ = core::UpdateId{static_cast<std::uint32_t>(options.seed % plan_->epochs()),
                             static_cast<std::uint32_t>(options.seed / 3 % plan_->shards_in_epoch(0)), 0};
    result_.deadly_shard =
        absl::StrCat("data shard ", deadly_->data_shard, " of epoch ", deadly_->dataset_epoch + 1, " ");
  }
  drop_ = random_.Chance(0.7) ? 0.1 * random_.Uniform() : 0;
  repeat_ = random_.Chance(0.7) ? 0.1 * random_.Uniform() : 0;
  slow_ = random_.Chance(0.7) ? 0.1 * random_.Uniform() : 0;
  faults_end_ = absl::Seconds(random_.Between(3, 40));
  result_.shape = absl::StrCat(ps, " ps, ", worker_count_, " workers, ", slices, " slices, ", config_.epochs(),
                               " epochs of ", sample_count_, " samples, batch ", config_.batch_size(), ", ",
                               config_.updates_per_shard(), " updates a shard");
}

std::string Simulator::NameOf(const Process& process) const {
  const char* role = process.kind == Kind::kCoordinator ? "coordinator" : process.kind == Kind::kPs ? "ps" : "worker";
  return absl::StrCat(role, "-", process.index, ".", process.incarnation);
}

void Simulator::AtProcess(Time time, const std::shared_ptr<Process>& process, std::function<void()> action) {
  At(time, [this, process, action = std::move(action)]() mutable {
    if (!process->alive) return;
    if (process->paused_until > now_) {
      AtProcess(process->paused_until + absl::Microseconds(random_.Between(0, 500)), process, std::move(action));
      return;
    }
    action();
  });
}

absl::Duration Simulator::NetworkDelay() {
  if (faulty() && random_.Chance(slow_)) return random_.Delay(absl::Milliseconds(20), absl::Milliseconds(4000));
  return random_.Delay(absl::Microseconds(100), absl::Milliseconds(5));
}

template <typename Reply>
void Simulator::Call(const std::shared_ptr<Process>& from, std::function<std::shared_ptr<Process>()> find_target,
                     absl::Duration deadline, std::function<void(Process&, std::function<void(Reply)>)> serve,
                     std::function<void(absl::StatusOr<Reply>)> done) {
  auto answered = std::make_shared<bool>(false);
  auto finish = [answered, done = std::move(done)](absl::StatusOr<Reply> reply) {
    if (std::exchange(*answered, true)) return;
    done(std::move(reply));
  };
  AtProcess(now_ + deadline, from, [finish] { finish(absl::DeadlineExceededError("deadline")); });
  const int copies = Lost() ? 0 : Repeated() ? 2 : 1;
  for (int copy = 0; copy < copies; ++copy) {
    At(now_ + NetworkDelay(), [this, from, find_target, serve, finish] {
      std::shared_ptr<Process> target = find_target();
      if (target == nullptr || !target->alive) {
        AtProcess(now_ + absl::Milliseconds(1), from, [finish] { finish(absl::UnavailableError("nobody there")); });
        return;
      }
      AtProcess(now_, target, [this, from, target, serve, finish] {
        serve(*target, [this, from, finish](Reply reply) {
          if (Lost()) return;
          AtProcess(now_ + NetworkDelay(), from, [finish, reply = std::move(reply)] { finish(reply); });
        });
      });
    });
  }
}

std::shared_ptr<Process> Simulator::Current(Kind kind, std::uint32_t index) const {
  const auto found = current_.find({kind, index});
  return found == current_.end() ? nullptr : found->second;
}

std::shared_ptr<Process> Simulator::Start(Kind kind, std::uint32_t index) {
  auto process = std::make_shared<Process>();
  process->kind = kind;
  process->index = index;
  process->incarnation = ++incarnations_[{kind, index}];
  process->origin = now_ - absl::Seconds(random_.Between(0, 1000));
  const std::shared_ptr<Process> before = Current(kind, index);
  // Pod addresses are reused; only then may messages to the old process reach the new one.
  const bool reuse = before != nullptr && !before->alive && random_.Chance(0.5);
  process->address = reuse ? before->address : absl::StrCat("address", next_address_++);
  addresses_[process->address] = process;
  current_[{kind, index}] = process;
  Trace(absl::StrCat("start ", NameOf(*process)));
  if (kind == Kind::kCoordinator) {
    core::CoordinatorOptions options;
    options.config = config_;
    options.incarnation = process->incarnation;
    options.bug = options_.bug;
    process->coordinator = std::make_unique<core::CoordinatorCore>(options, now_ - process->origin);
    AtProcess(now_, process, [this, process] { TickCoordinator(process); });
  } else if (kind == Kind::kPs) {
    core::PsOptions options;
    options.job_uid = kJobUid;
    options.index = index;
    options.address = process->address;
    options.session = process->session = next_session_++;
    options.process_incarnation = process->incarnation;
    options.pending_bytes_limit = random_.Chance(0.2) ? 1000 : 1u << 20;
    options.bug = options_.bug;
    process->ps = *core::PsCore::Create(options);
    by_session_[process->session] = process;
    AtProcess(now_, process, [this, process] { TickPs(process); });
  } else {
    core::WorkerOptions options;
    options.job_uid = kJobUid;
    options.index = index;
    options.process_incarnation = process->incarnation;
    options.tensors = tensors_;
    options.sample_count = sample_count_;
    options.wanted_leases = static_cast<std::uint32_t>(random_.Between(1, 3));
    options.early_push_bytes = random_.Chance(0.5) ? 1 : 300;
    options.message_bytes = random_.Chance(0.5) ? 1 : 1000;
    options.exchanges_in_flight = random_.Between(1, 4);
    options.data_deadline = absl::Milliseconds(random_.Between(200, 4000));
    process->shell = std::make_unique<WorkerShell>(this);
    process->worker = std::make_unique<core::WorkerCore>(options, process->shell.get());
    AtProcess(now_, process, [this, process] {
      core::WorkerOutput output;
      process->worker->Start(now_ - process->origin, &output);
      CarryOut(process, std::move(output));
    });
  }
  return process;
}

// ---- the shells

void Simulator::TickCoordinator(const std::shared_ptr<Process>& process) {
  if (process->coordinator->fenced().has_value()) {
    if (process == Current(Kind::kCoordinator, 0) && !done_) {
      Violation("the newest coordinator was fenced");
    }
    process->alive = false;
    return;
  }
  CarryOut(process, process->coordinator->TakeDirectives(now_ - process->origin));
  const Time next = process->coordinator->next_timer() + process->origin;
  if (next >= process->tick_at && process->tick_at > now_) return;
  process->tick_at = next;
  AtProcess(next, process, [this, process, next] {
    if (process->tick_at == next) process->tick_at = absl::InfiniteDuration();
    TickCoordinator(process);
  });
}

void Simulator::CarryOut(const std::shared_ptr<Process>& process, std::vector<core::DirectCall> calls) {
  for (core::DirectCall& call : calls) {
    Call<v1::DirectReply>(
        process,
        [this, address = call.address] {
          const auto found = addresses_.find(address);
          return found == addresses_.end() ? nullptr : found->second;
        },
        call.deadline,
        [this, request = call.request](Process& target, const std::function<void(v1::DirectReply)>& reply) {
          if (target.ps == nullptr) return;
          const v1::DirectReply answer = target.ps->OnDirect(request, now_ - target.origin);
          CheckReplies(target, target.ps->TakeOwedReplies());
          if (answer.status() == v1::SYNC_OK && answer.members_version() == request.members_version() &&
              answer.stamp().SerializeAsString() == request.stamp().SerializeAsString()) {
            // From here on this ps has confirmed who may push in this generation.
            if (std::exchange(target.generation, answer.stamp().generation()) != answer.stamp().generation()) {
              target.sessions_over.clear();
              target.sessions_confirmed.clear();
            }
            std::set<std::uint64_t> live(request.sessions().begin(), request.sessions().end());
            if (request.members_since() != 0)
              live.insert(target.sessions_confirmed.begin(), target.sessions_confirmed.end());
            for (std::uint64_t session : request.ended()) live.erase(session);
            if (live != target.sessions_confirmed) {
              std::string names;
              for (std::uint64_t session : live) absl::StrAppend(&names, " ", session);
              Trace(absl::StrCat(NameOf(target), " takes sessions", names, " of coordinator ",
                                 request.stamp().incarnation()));
            }
            for (std::uint64_t session : target.sessions_confirmed) {
              // One that its worker never heard was accepted may be proposed again: nothing was pushed in its name.
              if (live.count(session) == 0 && accepted_.count(session) != 0) target.sessions_over.insert(session);
            }
            target.sessions_confirmed = live;
          }
          reply(answer);
        },
        [this, process, id = call.call](absl::StatusOr<v1::DirectReply> reply) {
          process->coordinator->OnDirectReply(id, reply, now_ - process->origin);
          TickCoordinator(process);
        });
  }
}

void Simulator::TickPs(const std::shared_ptr<Process>& process) {
  if (process->ps->ShouldRegister(now_ - process->origin) && !process->registering) {
    process->registering = true;
    Call<v1::RegisterPsReply>(
        process, [this] { return Current(Kind::kCoordinator, 0); }, absl::Seconds(1),
        [this, request = process->ps->MakeRegistration()](Process& target,
                                                          const std::function<void(v1::RegisterPsReply)>& reply) {
          reply(target.coordinator->OnRegisterPs(request, now_ - target.origin));
          const std::shared_ptr<Process> coordinator = Current(Kind::kCoordinator, 0);
          if (coordinator.get() == &target) TickCoordinator(coordinator);
        },
        [this, process](const absl::StatusOr<v1::RegisterPsReply>& reply) {
          process->registering = false;
          if (!reply.ok()) return;
          const absl::Status registered = process->ps->OnRegisterReply(*reply, now_ - process->origin);
          if (!registered.ok()) {
            Trace(absl::StrCat(NameOf(*process), " ends: ", registered.ToString()));
            process->alive = false;
          }
        });
  }
  AtProcess(now_ + absl::Milliseconds(50), process, [this, process] { TickPs(process); });
}

void Simulator::CheckReplies(Process& ps, const std::vector<core::PsCore::DataReply>& replies) {
  for (const core::PsCore::DataReply& reply : replies) {
    const auto found = ps.open.find(reply.call);
    if (found == ps.open.end()) {
      Violation(absl::StrCat(NameOf(ps), " answered a call twice"));
      continue;
    }
    Process::Open open = std::move(found->second);
    ps.open.erase(found);
    if (reply.frames.size() != open.frames.size()) Violation("a reply has another number of frames than its call");
    for (std::size_t i = 0; i < reply.frames.size(); ++i) {
      const core::FrameHeader& request = open.frames[i].header;
      if (request.kind != core::FrameKind::kPush) continue;
      const core::ReplyStatus status = reply.frames[i].header.status;
      if (status == core::ReplyStatus::kDuplicate) ++result_.duplicates;
      if (status == core::ReplyStatus::kRefused) ++result_.refused;
      if (status != core::ReplyStatus::kApplied) continue;
      if (ps.sessions_over.count(request.session) != 0) {
        Violation(absl::StrCat(NameOf(ps), " applied a push of session ", request.session,
                               " after it confirmed that the session is over"));
      }
      if (open.frames[i].payload.size() == 0) continue;
      const auto* gradient = static_cast<const Gradient*>(open.frames[i].payload.owner().get());
      const float history = (*ps.ps->value(request.slice))[kHistory];
      if (gradient->history != history) {
        Violation(absl::StrCat(NameOf(ps), " applied to slice ", request.slice, " of history ", history,
                               " a gradient of history ", gradient->history));
      }
    }
    open.reply(reply.frames);
  }
}

void Simulator::TickWorker(const std::shared_ptr<Process>& process) {
  core::WorkerOutput output;
  process->worker->OnTimer(now_ - process->origin, &output);
  CarryOut(process, std::move(output));
}

void Simulator::CarryOut(const std::shared_ptr<Process>& process, core::WorkerOutput output) {
  for (core::SyncCall& call : output.syncs) {
    Call<v1::WorkerSyncReply>(
        process, [this] { return Current(Kind::kCoordinator, 0); }, call.deadline,
        [this, request = call.request](Process& target, const std::function<void(v1::WorkerSyncReply)>& reply) {
          reply(target.coordinator->OnSyncWorker(request, now_ - target.origin));
          const std::shared_ptr<Process> coordinator = Current(Kind::kCoordinator, 0);
          if (coordinator.get() == &target) TickCoordinator(coordinator);
        },
        [this, process, id = call.call](const absl::StatusOr<v1::WorkerSyncReply>& reply) {
          if (reply.ok() && reply->status() == v1::SYNC_OK) accepted_.insert(process->worker->session());
          core::WorkerOutput next;
          process->worker->OnSyncReply(id, reply, now_ - process->origin, &next);
          CarryOut(process, std::move(next));
        });
  }
  for (core::ExchangeCall& call : output.exchanges) {
    Call<std::vector<Frame>>(
        process,
        [this, address = call.address] {
          const auto found = addresses_.find(address);
          return found == addresses_.end() ? nullptr : found->second;
        },
        call.deadline,
        [this, frames = call.frames](Process& target, std::function<void(std::vector<Frame>)> reply) {
          if (target.ps == nullptr) return;
          const std::uint64_t id = target.next_call++;
          std::vector<Frame> received = frames;
          for (Frame& frame : received) {
            // A payload that fails its checksum is delivered so by the transport.
            if (frame.payload.size() == 0 || !Corrupted()) continue;
            frame.payload = core::Payload();
            frame.header.status = core::ReplyStatus::kCorrupt;
          }
          target.open[id] = {received, {}, std::move(reply)};
          std::vector<core::PsCore::DataReply> replies;
          target.ps->OnData(id, received, &replies);
          CheckReplies(target, replies);
        },
        [this, process, id = call.call](const absl::StatusOr<std::vector<Frame>>& reply) {
          core::WorkerOutput next;
          process->worker->OnExchangeReply(id, reply, now_ - process->origin, &next);
          CarryOut(process, std::move(next));
        });
  }
  if (output.work.has_value()) {
    const core::Work work = *output.work;
    if (work.kind == v1::TASK_TRAIN && IsDeadly(work.update)) {
      Kill(process, "by its data", /*platform=*/false);
      ++result_.deaths_by_shard;
      At(now_ + random_.Delay(absl::Milliseconds(10), absl::Seconds(3)), [this, process] {
        if (Current(process->kind, process->index) == process) Replace(process->kind, process->index);
      });
      return;
    }
    if (work.kind == v1::TASK_TRAIN) {
      const bool skip = Skipped(work.update);
      process->shell->Compute(*process->worker->plan(), work.update);
      Time at = now_ + random_.Delay(absl::Milliseconds(1), absl::Milliseconds(60));
      for (std::size_t tensor = tensors_.size(); tensor-- > 0 && !skip;) {
        at += random_.Delay(absl::Microseconds(10), absl::Milliseconds(8));
        AtProcess(at, process, [this, process, work, tensor] {
          core::WorkerOutput next;
          process->worker->OnGradient(work.token, static_cast<std::uint32_t>(tensor), now_ - process->origin, &next);
          CarryOut(process, std::move(next));
        });
      }
      AtProcess(at + absl::Microseconds(10), process, [this, process, work, skip] {
        core::ComputeResult result;
        result.verdict = skip ? core::Verdict::kSkip : core::Verdict::kApply;
        result.loss = 1;
        result.samples = 1;
        core::WorkerOutput next;
        process->worker->OnComputed(work.token, result, now_ - process->origin, &next);
        CarryOut(process, std::move(next));
      });
    } else {
      AtProcess(now_ + random_.Delay(absl::Milliseconds(5), absl::Milliseconds(500)), process, [this, process, work] {
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
          result.set_samples(1);
        }
        core::WorkerOutput next;
        process->worker->OnTaskDone(work.token, result, now_ - process->origin, &next);
        CarryOut(process, std::move(next));
      });
    }
  }
  if (process->worker->finished().has_value()) {
    Trace(absl::StrCat(NameOf(*process), " ends: ", process->worker->finished()->ToString()));
    process->alive = false;
    if (!done_ && process == Current(Kind::kWorker, process->index)) {
      if (!process->worker->finished()->ok()) {
        Violation(absl::StrCat(NameOf(*process), " gave up: ", process->worker->finished()->ToString()));
      }
    }
    return;
  }
  const Time next = process->worker->next_timer() + process->origin;
  if (next >= process->tick_at && process->tick_at > now_) return;
  process->tick_at = next;
  AtProcess(std::max(next, now_ + absl::Microseconds(50)), process, [this, process, next] {
    if (process->tick_at == next) process->tick_at = absl::InfiniteDuration();
    TickWorker(process);
  });
}

// ---- faults

void Simulator::Kill(const std::shared_ptr<Process>& process, const char* why, bool platform) {
  if (process->kind == Kind::kWorker) {
    v1::MemberFailure* failure = failures_.add_failures();
    failure->set_role("worker");
    failure->set_index(process->index);
    failure->set_process_incarnation(process->incarnation);
    failure->set_platform(platform);
    failure->set_cause(platform ? "Evicted" : "Killed by signal 11");
  }
  Trace(absl::StrCat("kill ", NameOf(*process), " ", why));
  process->alive = false;
  ++result_.kills;
}

void Simulator::Pause(const std::shared_ptr<Process>& process, absl::Duration length) {
  Trace(absl::StrCat("pause ", NameOf(*process), " for ", absl::FormatDuration(length)));
  process->paused_until = now_ + length;
  ++result_.pauses;
}

void Simulator::Leave(const std::shared_ptr<Process>& process) {
  Trace(absl::StrCat("leave ", NameOf(*process)));
  ++result_.leaves;
  core::WorkerOutput output;
  process->worker->Leave(now_ - process->origin, &output);
  CarryOut(process, std::move(output));
  // The longest task, exchange and synchronisation; nothing is tried twice.
  const absl::Duration most = absl::Seconds(15);
  At(now_ + most, [this, process, most] {
    if (process->alive && process->paused_until < now_ - most && !done_) {
      Violation(absl::StrCat(NameOf(*process), " was asked to leave and is still there"));
    }
  });
}

void Simulator::Replace(Kind kind, std::uint32_t index) {
  if (done_) return;
  Start(kind, index);
}

void Simulator::ScheduleFaults() {
  if (!options_.faults) return;
  const double rate = random_.Chance(0.15) ? 0 : 0.1 + 1.5 * random_.Uniform();  // a second
  if (rate == 0) return;
  const bool kill_ps = random_.Chance(0.5);
  Time at = absl::Milliseconds(random_.Between(10, 1500));
  while (at < faults_end_) {
    At(at, [this, kill_ps] {
      if (done_) return;
      const double what = random_.Uniform();
      const Kind kind = what < 0.55 ? Kind::kWorker : what < 0.8 ? Kind::kCoordinator : Kind::kPs;
      const std::uint32_t count = kind == Kind::kWorker ? worker_count_ : kind == Kind::kPs ? config_.ps_replicas() : 1;
      const std::uint32_t index = static_cast<std::uint32_t>(random_.Below(count));
      const std::shared_ptr<Process> process = Current(kind, index);
      if (process == nullptr || !process->alive) return;
      const double how = random_.Uniform();
      if (kind == Kind::kPs && (!kill_ps || how < 0.6)) {
        Pause(process, random_.Delay(absl::Milliseconds(50), absl::Seconds(5)));
        return;
      }
      if (kind != Kind::kPs && how < 0.4) {
        Pause(process, random_.Delay(absl::Milliseconds(50), absl::Seconds(8)));
        return;
      }
      if (how > 0.9) {
        // Everything at once, and workers that only seem dead.
        Trace("everything at once");
        for (const auto& [role, other] : std::map(current_)) {
          if (!other->alive || (other->kind == Kind::kPs && !kill_ps)) continue;
          if (other->kind == Kind::kWorker) {
            Pause(other, random_.Delay(absl::Milliseconds(100), absl::Seconds(6)));
          } else {
            Kill(other, "(all)");
            At(now_ + random_.Delay(absl::Milliseconds(10), absl::Seconds(2)),
               [this, role] { Replace(role.first, role.second); });
          }
        }
        return;
      }
      if (how > 0.8) {
        // A machine cut off: replaced while the old process lives on and comes back later.
        Trace(absl::StrCat("cut off ", NameOf(*process)));
        Pause(process, random_.Delay(absl::Milliseconds(200), absl::Seconds(9)));
        ++result_.zombies;
      } else if (kind == Kind::kWorker && how < 0.6 && process->paused_until <= now_) {
        Leave(process);
      } else {
        Kill(process, "");
      }
      At(now_ + random_.Delay(absl::Milliseconds(10), absl::Seconds(3)), [this, process] {
        if (Current(process->kind, process->index) == process) Replace(process->kind, process->index);
      });
    });
    at += absl::Seconds(-std::log(1.0 - 0.999 * random_.Uniform()) / rate);
  }
}

// ---- the run

void Simulator::CheckEnd() {
  std::set<std::uint32_t> seen;
  std::uint64_t skipped = 0;
  std::vector<std::uint64_t> samples(sample_count_, 0);
  for (std::uint32_t epoch = 0; epoch < plan_->epochs(); ++epoch) {
    for (std::uint32_t shard = 0; shard < plan_->shards_in_epoch(epoch); ++shard) {
      for (std::uint32_t group = 0; group < plan_->updates_in_shard(epoch, shard); ++group) {
        const core::UpdateId update{epoch, shard, group};
        if (Skipped(update)) {
          ++skipped;
          continue;
        }
        for (std::int64_t sample : plan_->SampleIndices(update)) ++samples[static_cast<std::size_t>(sample)];
      }
    }
  }
  const std::uint64_t updates = plan_->updates();
  for (std::uint32_t index = 0; index < config_.ps_replicas(); ++index) {
    // The process that the coordinator counts as this ps.
    const std::shared_ptr<Process> process = by_session_[final_ps_[index]];
    if (process == nullptr || !process->alive) continue;
    const v1::LedgerReply tables = process->ps->ReadLedger();
    for (const v1::SliceLedger& ledger : tables.slices()) {
      seen.insert(ledger.slice());
      const auto value = process->ps->value(ledger.slice());
      const auto counter = static_cast<std::uint64_t>((*value)[kCounter]);
      if (counter != updates - skipped) {
        Violation(absl::StrCat("slice ", ledger.slice(), ": counter ", counter, ", expected ", updates - skipped));
      }
      if (ledger.version() != updates) {
        Violation(absl::StrCat("slice ", ledger.slice(), ": ", ledger.version(), " steps, expected ", updates));
      }
      for (std::size_t sample = 0; sample < samples.size(); ++sample) {
        if (static_cast<std::uint64_t>((*value)[kSamples + sample]) != samples[sample]) {
          Violation(absl::StrCat("slice ", ledger.slice(), ": sample ", sample, " counted ",
                                 (*value)[kSamples + sample], ", expected ", samples[sample]));
        }
      }
    }
  }
  // A ps that died after the last check is not replaced any more.
  const bool all_alive = std::all_of(final_ps_.begin(), final_ps_.end(), [this](const auto& ps) {
    const std::shared_ptr<Process>& process = by_session_[ps.second];
    return process != nullptr && process->alive;
  });
  if (all_alive && seen.size() != tensors_.size()) {
    Violation(absl::StrCat(seen.size(), " slices at the end, expected ", tensors_.size()));
  }
}

SimulationResult Simulator::Run() {
  At(absl::ZeroDuration(), [this] {
    Start(Kind::kCoordinator, 0);
    for (std::uint32_t index = 0; index < config_.ps_replicas(); ++index) {
      At(now_ + random_.Delay(absl::ZeroDuration(), absl::Milliseconds(500)),
         [this, index] { Start(Kind::kPs, index); });
    }
    for (std::uint32_t index = 0; index < worker_count_; ++index) {
      At(now_ + random_.Delay(absl::ZeroDuration(), absl::Milliseconds(900)),
         [this, index] { Start(Kind::kWorker, index); });
    }
  });
  ScheduleFaults();
  // The operator's part: ask for progress, and replace what ended although it should not have.
  std::function<void()> watch = [this, &watch] {
    const std::shared_ptr<Process> coordinator = Current(Kind::kCoordinator, 0);
    if (coordinator != nullptr && coordinator->alive && coordinator->paused_until <= now_) {
      coordinator->coordinator->ReportFailures(failures_);
      const v1::ProgressReply progress = coordinator->coordinator->GetProgress(now_ - coordinator->origin);
      result_.generation = progress.view().generation();
      if (progress.phase() == v1::PHASE_FAILED) {
        const bool deadly = deadly_.has_value() && progress.failure() == v1::FAILURE_DATA_SHARD;
        if (deadly || options_.failing_tasks == FailingTasks::kEverywhere) {
          result_.failure = progress.message();
        } else {
          Violation(absl::StrCat("the job failed: ", progress.message()));
        }
      }
      if (progress.phase() == v1::PHASE_DONE) done_ = true;
      for (const v1::MemberProgress& member : progress.members()) {
        if (member.role() == "ps") final_ps_[member.index()] = member.session();
      }
    }
    if (!done_) {
      At(now_ + absl::Milliseconds(100), watch);
    }
  };
  At(absl::Milliseconds(100), watch);

  const Time limit = faults_end_ + absl::Seconds(200);
  while (!events_.empty() && !done_ && result_.violations.empty() && result_.failure.empty()) {
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    ++result_.events;
    if (now_ > limit) {
      const std::shared_ptr<Process> coordinator = Current(Kind::kCoordinator, 0);
      std::string state = "no coordinator";
      if (coordinator != nullptr && coordinator->alive) {
        state = coordinator->coordinator->GetProgress(now_ - coordinator->origin).ShortDebugString();
      }
      Violation(absl::StrCat("the job hangs: ", state));
      break;
    }
    event.action();
  }
  result_.simulated_seconds = absl::ToDoubleSeconds(now_);
  if (!result_.failure.empty()) return result_;
  if (done_) {
    CheckEnd();
  } else if (result_.violations.empty()) {
    Violation("nothing is left to happen, and the job is not done");
  }
  return result_;
}

}  // namespace

SimulationResult Simulate(const SimulationOptions& options) { return Simulator(options).Run(); }

}  // namespace downpour::simulation
