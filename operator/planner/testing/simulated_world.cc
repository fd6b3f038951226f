#include "operator/planner/testing/simulated_world.h"

#include <algorithm>
#include <string>

#include "operator/planner/elastic.h"
#include "operator/planner/ring.h"
#include "operator/planner/status.h"

namespace downpour::planner {

SimulatedWorld::SimulatedWorld(Dice& dice, api::Strategy strategy)
    : FakeWorld(dice.Uniform(1, 3), dice.Uniform(1, 4)), dice_(dice) {
  api::TrainingJobSpec& spec = job.spec;
  api::FailurePolicy& policy = spec.failure_policy;
  policy.max_restarts = dice_.Chance(0.3) ? dice_.Uniform(0, 8) : 100;
  policy.max_restarts_per_replica = dice_.Chance(0.3) ? dice_.Uniform(0, 4) : 100;
  policy.window_seconds = dice_.Pick({0, 20, 100, 1000});
  policy.backoff = {dice_.Uniform(0, 3), dice_.Uniform(0, 12)};
  policy.pending_timeout_seconds = dice_.Pick({0, 8, 40});
  policy.termination_timeout_seconds = dice_.Pick({5, 30});
  if (dice_.Chance(0.3)) {
    api::FailureRule rule;
    rule.name = "infrastructure";
    rule.on_container_reasons = {"Evicted"};
    rule.counts_towards_limit = dice_.Chance(0.5);
    policy.rules.push_back(rule);
  }
  if (dice_.Chance(0.3)) {
    api::FailureRule rule;
    rule.name = "code";
    rule.on_exit_codes = api::ExitCodeRule{true, {1}};
    rule.action = static_cast<api::RestartAction>(
        dice_.Pick({static_cast<int>(api::RestartAction::kIgnore), static_cast<int>(api::RestartAction::kRestartJob),
                    static_cast<int>(api::RestartAction::kRestoreRole)}));
    policy.rules.push_back(rule);
    restarts_whole_job_ = rule.action == api::RestartAction::kRestartJob;
  }
  if (dice_.Chance(0.4)) {
    spec.elastic =
        api::ElasticSpec{dice_.Uniform(1, 3), dice_.Uniform(3, 6), dice_.Pick({2, 10}), dice_.Pick({0, 5, 40})};
    room_ = dice_.Uniform(0, 6);
  }
  if (dice_.Chance(0.3)) {
    spec.scheduling.emplace();
    spec.scheduling->avoid_nodes = api::AvoidNodes{dice_.Uniform(1, 3), dice_.Pick({5, 60})};
  }
  spec.progress_deadline_seconds = dice_.Pick({0, 300, 2000});
  if (dice_.Chance(0.05)) spec.active_deadline_seconds = dice_.Uniform(20, 400);
  suspends_ = dice_.Chance(0.2);
  fault_rate_ = dice_.Pick({0, 1, 3, 6}) / 10.0;
  updates_expected_ = dice_.Chance(0.5) ? static_cast<std::uint64_t>(dice_.Uniform(1, 400)) : kForEver;
  start_phase = InstancePhase::kPending;
  refuses_ = dice_.Chance(0.3);
  if (dice_.Chance(0.5)) observed.temporary_output = "/output";
  spec.output.keep_seconds = dice_.Pick({0, 5, 100});
  if (dice_.Chance(0.6)) {
    spec.checkpoint.emplace();
    spec.checkpoint->uri = "/ckpt";
    if (dice_.Chance(0.5)) spec.checkpoint->on_disruption = api::OnDisruption{dice_.Pick({1, 10, 30})};
  }
  if (dice_.Chance(0.4)) {
    spec.parameter_server->replication_factor = 2;
    spec.parameter_server->replicas = std::max(2, spec.parameter_server->replicas);
  }
  scales_ps_ = dice_.Chance(0.4);
  spec.parameter_server->max_protect_seconds = dice_.Pick({5, 50});
  if (dice_.Chance(0.5)) observed.cordoned_nodes.emplace();
  if (strategy == api::Strategy::kParameterServer) return;
  spec.strategy = strategy;
  spec.parameter_server.reset();
  scales_ps_ = false;
}

void SimulatedWorld::CarryOut(const Action& action, const Plan& plan) {
  Apply(action, plan);
  if (action.type != ActionType::kStart) return;
  forbidden_[Get(action.role, action.index).uid] = {action.avoid_nodes.begin(), action.avoid_nodes.end()};
}

void SimulatedWorld::InjectFault() {
  if (suspends_ && dice_.Chance(0.2)) {
    job.spec.suspend = !job.spec.suspend;
    return;
  }
  if (drains() && dice_.Chance(0.2)) {
    if (dice_.Chance(0.5)) {
      observed.cordoned_nodes->clear();
    } else {
      observed.cordoned_nodes = {"node-0", "node-1"};
    }
    return;
  }
  if (scales_ps_ && dice_.Chance(0.4)) {
    job.spec.parameter_server->replicas = dice_.Uniform(job.spec.parameter_server->replication_factor, 4);
    ++job.metadata.generation;
    return;
  }
  if (job.spec.elastic.has_value() && dice_.Chance(0.3)) {
    // Nodes come and go, and users and autoscalers write what they like.
    if (dice_.Chance(0.7)) {
      room_ = dice_.Uniform(0, 6);
    } else {
      job.spec.worker.replicas = dice_.Uniform(0, 8);
    }
    return;
  }
  const std::vector<Instance*> live = Live();
  if (live.empty()) return;
  Instance& victim = *live[static_cast<std::size_t>(dice_.Uniform(0, static_cast<int>(live.size()) - 1))];
  switch (dice_.Uniform(0, 9)) {
    case 0:
      victim.terminating = true;
      if (!victim.terminating_since) victim.terminating_since = now;
      return;
    case 1:
      std::erase_if(observed.instances, [uid = victim.uid](const Instance& instance) { return instance.uid == uid; });
      return;
    case 2:
      if (victim.phase == InstancePhase::kRunning) End(victim, InstancePhase::kSucceeded, 0);
      return;
    case 3:
      stuck_.insert(victim.uid);
      return;
    case 4:
      End(victim, InstancePhase::kFailed, 137);
      victim.reason = dice_.Chance(0.5) ? "Evicted" : "OOMKilled";
      return;
    case 5:
      End(victim, InstancePhase::kFailed, 137);
      victim.conditions = {{"DisruptionTarget", "True"}};
      return;
    case 6:
      End(victim, InstancePhase::kFailed, dice_.Chance(0.05) ? 2 : 1);
      return;
    default:
      End(victim, InstancePhase::kFailed, dice_.Pick({134, 137, 137, 137, 139, 255}));
      return;
  }
}

void SimulatedWorld::GoOn(bool calm) {
  auto placed = std::count_if(observed.instances.begin(), observed.instances.end(), [](const Instance& instance) {
    return instance.role == api::Role::kWorker && instance.phase == InstancePhase::kRunning;
  });
  for (Instance& instance : observed.instances) {
    if (!IsLive(instance)) continue;
    if (instance.terminating) {
      if (stuck_.count(instance.uid) == 0 && dice_.Chance(0.5)) {
        End(instance, InstancePhase::kFailed, dice_.Pick({137, 143}));
      }
    } else if (instance.phase == InstancePhase::kPending && (calm || stuck_.count(instance.uid) == 0) &&
               dice_.Chance(0.7)) {
      if (instance.role == api::Role::kWorker && placed++ >= room_) continue;
      const std::string node = FindNode(instance);
      if (node.empty()) continue;
      instance.node = node;
      instance.phase = InstancePhase::kRunning;
      instance.ready = true;
    }
  }
  GoOnTraining();
  // What has ended goes away some time after it was counted.
  std::erase_if(observed.instances, [this](const Instance& instance) {
    const bool counted = std::count(job.status.counted_uids.begin(), job.status.counted_uids.end(), instance.uid) > 0;
    return !IsLive(instance) && counted && dice_.Chance(0.1);
  });
}

std::string SimulatedWorld::FindNode(const Instance& instance) {
  std::vector<std::string> nodes;
  for (const char* node : {"node-0", "node-1", "node-2", "node-3"}) {
    if (!forbidden_[instance.uid].contains(node)) nodes.push_back(node);
  }
  return nodes.empty() ? "" : nodes[static_cast<std::size_t>(dice_.Uniform(0, static_cast<int>(nodes.size()) - 1))];
}

void SimulatedWorld::GoOnTraining() {
  const Instance* coordinator = nullptr;
  std::map<int, std::string> ps;
  std::map<int, std::string> worker_uids;
  int workers = 0;
  for (const Instance& instance : observed.instances) {
    if (instance.phase != InstancePhase::kRunning) continue;
    if (instance.role == api::Role::kWorker) worker_uids[instance.index] = instance.uid;
    if (instance.role == api::Role::kCoordinator) coordinator = &instance;
    if (instance.role == api::Role::kParameterServer) ps[instance.index] = instance.uid;
    if (instance.role == api::Role::kWorker) ++workers;
  }
  if (coordinator == nullptr) return;
  CoordinatorPhase phase = CoordinatorPhase::kStarting;
  const bool all_reduce = IsAllReduce(job.spec);
  if (all_reduce ? PlaceRing(worker_uids) : PlaceSlices(*coordinator, ps)) {
    phase = CoordinatorPhase::kTraining;
    if (updates_ >= updates_expected_) {
      phase = finishing_ ? CoordinatorPhase::kDone : CoordinatorPhase::kFinishing;
      finishing_ = true;
      for (Instance& instance : observed.instances) {
        const bool leaves = instance.role == api::Role::kWorker && instance.phase == InstancePhase::kRunning;
        if (leaves && !output_.has_value())
          output_ = {"/output/model.safetensors", instance.index, instance.incarnation, std::nullopt};
        if (leaves && dice_.Chance(0.3)) End(instance, InstancePhase::kSucceeded, 0);
      }
    } else if (workers > 0) {
      updates_ = std::min(updates_expected_, updates_ + static_cast<std::uint64_t>(dice_.Uniform(1, 20)));
    }
  }
  if (coordinator_ != coordinator->uid && phase == CoordinatorPhase::kTraining) {
    coordinator_ = coordinator->uid;
    phase = CoordinatorPhase::kRecovering;
  }
  const bool moves_later = dice_.Chance(0.5);  // than the answer says
  if (!moves_later && !all_reduce) MoveSlices(ps);
  if (fault_rate_ == 0 || dice_.Chance(0.8)) {
    Report(phase, updates_, generation_);
    if (!all_reduce) TellPlaces();
    if (all_reduce && dice_.Chance(0.9)) {
      ReportRing(static_cast<int>(placed_.size()), !placed_.empty() && dice_.Chance(0.8), times_moved_);
    }
    if (job.spec.checkpoint.has_value()) TellCheckpoints();
    if (phase == CoordinatorPhase::kDone) observed.report->model = output_;
  }
  if (moves_later && !all_reduce) MoveSlices(ps);
}

bool SimulatedWorld::PlaceSlices(const Instance& coordinator, const std::map<int, std::string>& running) {
  const bool standbys = job.spec.parameter_server->replication_factor > 1;
  if (placing_ != coordinator.uid) {
    placing_ = coordinator.uid;
    wanted_ps_ = job.spec.parameter_server->replicas;
    told_ = ToldOfPs();
  }
  const auto ends = [&running](const auto& place) {
    const auto found = running.find(place.first);
    return found == running.end() || found->second != place.second;
  };
  if (const auto lost = std::count_if(placed_.begin(), placed_.end(), ends); lost > 0) {
    const bool kept = in_sync_ && lost == 1 && placed_.size() > 1;
    std::erase_if(placed_, ends);
    if (kept) ++times_moved_;
    if (!kept) placed_.clear();
    in_sync_ = false;
  }
  std::map<int, std::string> target = running;
  std::erase_if(target, [this](const auto& place) { return place.first >= wanted_ps_; });
  if (placed_.empty()) {
    if (static_cast<int>(target.size()) < wanted_ps_) return false;
    BeginGeneration(target);
    return true;
  }
  if (standbys && placed_.size() > 1 && dice_.Chance(0.5)) in_sync_ = true;
  if (placed_.size() < 2) in_sync_ = false;
  return true;
}

void SimulatedWorld::BeginGeneration(const std::map<int, std::string>& holders) {
  ++generation_;
  restored_ = job.spec.checkpoint.has_value() ? checkpoint_ : std::nullopt;
  updates_ = restored_.value_or(0);
  placed_ = holders;
  finishing_ = false;
}

bool SimulatedWorld::PlaceRing(const std::map<int, std::string>& running) {
  const auto lost = std::erase_if(placed_, [&running](const auto& place) {
    const auto found = running.find(place.first);
    return found == running.end() || found->second != place.second;
  });
  // They leave as the job ends, and nothing is lost with them.
  if (finishing_ && updates_ >= updates_expected_) return true;
  if (placed_.empty()) {
    if (running.empty()) return false;
    BeginGeneration(running);
    return true;
  }
  if (lost > 0) ++times_moved_;
  if (dice_.Chance(0.5)) placed_ = running;  // whoever came gets all from one that trains
  return true;
}

void SimulatedWorld::MoveSlices(const std::map<int, std::string>& running) {
  // One who has not heard who leaves places nothing anew.
  if (placed_.empty() || told_.revision == 0 || !dice_.Chance(0.4)) return;
  std::map<int, std::string> target = running;
  std::erase_if(target, [this](const auto& place) {
    return place.first >= wanted_ps_ ||
           std::find(told_.leaving_ps.begin(), told_.leaving_ps.end(), place.first) != told_.leaving_ps.end();
  });
  if (target.empty() || target == placed_) return;
  placed_ = target;
  ++times_moved_;
}

// Questions come late, and answers may say nothing of it.
void SimulatedWorld::TellPlaces() {
  if (told_.revision == 0 || dice_.Chance(0.7)) {
    told_.revision = job.metadata.generation;
    wanted_ps_ = job.spec.parameter_server->replicas;
    told_.leaving_ps.clear();
    for (const api::LeavingParameterServer& ps : job.status.leaving_parameter_servers) {
      told_.leaving_ps.push_back(ps.index);
    }
  }
  observed.report->told = told_;
  if (dice_.Chance(0.1)) return;
  observed.report->replication = ReplicationReport{10, in_sync_ ? 10 : 0, 0, ""};
  for (const auto& [index, uid] : placed_) observed.report->placed_ps.push_back(index);
}

bool SimulatedWorld::HasPlace(const std::string& uid) const {
  return std::any_of(placed_.begin(), placed_.end(), [&uid](const auto& place) { return place.second == uid; });
}

void SimulatedWorld::TellCheckpoints() {
  const auto make = [this] {
    checkpoint_ = updates_;
    checkpoint_time_ = now;
  };
  const bool trains = observed.report->phase == CoordinatorPhase::kTraining;
  const std::string wanted =
      job.status.checkpoint_request.has_value() ? job.status.checkpoint_request->name : std::string();
  if (wanted != request_) {
    request_ = wanted;
    request_state_ = wanted.empty() ? RequestState::kNone : RequestState::kPending;
    never_answers_ = dice_.Chance(0.2);
  } else if (request_state_ == RequestState::kPending && trains && !never_answers_ && dice_.Chance(0.5)) {
    request_state_ = dice_.Chance(0.7) ? RequestState::kDone : RequestState::kFailed;
    if (request_state_ == RequestState::kDone) make();
  }
  if (trains && dice_.Chance(0.1)) make();
  if (checkpoint_.has_value()) ReportCheckpoint(std::to_string(*checkpoint_), *checkpoint_, checkpoint_time_);
  if (request_state_ == RequestState::kFailed) Checkpoint().error = "disk full";
  Checkpoint().request = request_;
  Checkpoint().request_state = request_state_;
  if (restored_.has_value()) {
    observed.report->restoration = Restoration{std::to_string(*restored_), *restored_, {}, std::nullopt, std::nullopt};
  }
}

RequestState SimulatedWorld::answered() const {
  if (!observed.report.has_value() || !observed.report->checkpoint.has_value()) return RequestState::kNone;
  const CheckpointReport& told = *observed.report->checkpoint;
  const bool about_it =
      job.status.checkpoint_request.has_value() && told.request == job.status.checkpoint_request->name;
  return about_it && told.request_state != RequestState::kPending ? told.request_state : RequestState::kNone;
}

bool SimulatedWorld::CanMakeCheckpoint() const {
  const Context context(job, observed, now);
  return HoldersWork(context) && IsWorking(context.LiveInstance(api::Role::kCoordinator, 0));
}

bool SimulatedWorld::IsRefused(const Action& action) const {
  if (action.type != ActionType::kStart || action.role != api::Role::kWorker || !refuses_) return false;
  return std::count_if(observed.instances.begin(), observed.instances.end(), [](const Instance& instance) {
           return instance.role == api::Role::kWorker && IsLive(instance);
         }) >= room_;
}

bool SimulatedWorld::AsDesired() const {
  for (const Instance& instance : observed.instances) {
    const bool needless = instance.index >= DesiredReplicas(job.spec, api::Role::kParameterServer);
    if (instance.role == api::Role::kParameterServer && needless && IsLive(instance)) return false;
  }
  for (const api::Role role : kStartOrder) {
    for (int index = 0; index < DesiredReplicas(job.spec, role); ++index) {
      const bool runs =
          std::any_of(observed.instances.begin(), observed.instances.end(), [&](const Instance& instance) {
            return instance.role == role && instance.index == index && instance.phase == InstancePhase::kRunning;
          });
      if (!runs) return false;
    }
  }
  return true;
}

bool SimulatedWorld::AnyLive() const {
  return std::any_of(observed.instances.begin(), observed.instances.end(), IsLive);
}

std::vector<Instance*> SimulatedWorld::Live() {
  std::vector<Instance*> live;
  for (Instance& instance : observed.instances) {
    if (IsLive(instance)) live.push_back(&instance);
  }
  return live;
}

}  // namespace downpour::planner
