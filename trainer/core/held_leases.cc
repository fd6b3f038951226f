#include "trainer/core/held_leases.h"

#include <algorithm>
#include <utility>

#include "trainer/core/bitmap.h"

namespace downpour::core {

// ---- what the coordinator says

void HeldLeases::Begin(DataPlan plan) {
  leases_.clear();
  plan_ = std::move(plan);
}

bool HeldLeases::Reconcile(const v1::WorkerSyncReply& reply) {
  std::map<std::uint64_t, Held> now_held;
  bool trains = false;
  for (const v1::Lease& lease : reply.leases()) {
    const auto held = leases_.find(lease.lease());
    if (held != leases_.end()) {
      trains = trains || lease.kind() == v1::TASK_TRAIN;
      held->second.lease.set_done(lease.done());
      now_held.emplace(lease.lease(), std::move(held->second));
    } else {
      Held fresh;
      fresh.lease = lease;
      now_held.emplace(lease.lease(), std::move(fresh));
    }
  }
  leases_ = std::move(now_held);
  return trains;
}

void HeldLeases::SendAgain(bool lost) {
  for (auto& [id, held] : leases_) {
    if (held.lease.kind() != v1::TASK_TRAIN) continue;
    held.all_sent = false;
    if (lost) held.next = 0;
  }
}

void HeldLeases::Describe(v1::WorkerSyncRequest* request) const {
  for (const auto& [id, held] : leases_) {
    v1::HeldLease* lease = request->add_held();
    lease->set_lease(id);
    lease->set_kind(held.lease.kind());
    *lease->mutable_shard() = held.lease.shard();
    lease->set_all_sent(held.all_sent);
    lease->set_next(held.next);
    if (held.result.has_value()) *request->add_results() = *held.result;
  }
}

// ---- what is to be done next

UpdateId HeldLeases::FirstUpdate(const Held& held, std::uint32_t from, const Steps& steps) const {
  const std::uint32_t epoch = held.lease.shard().dataset_epoch();
  const std::uint32_t shard = held.lease.shard().shard();
  const std::uint32_t count = plan_->updates_in_shard(epoch, shard);
  const Bitmap done = Bitmap::FromBytes(count, held.lease.done());
  while (from < count && (done.Test(from) || steps.AreOver({epoch, shard, from}))) ++from;
  return {epoch, shard, from};
}

const v1::Lease* HeldLeases::NextTask() const {
  for (const auto& [id, held] : leases_) {
    if (held.lease.kind() != v1::TASK_TRAIN && !held.result.has_value()) return &held.lease;
  }
  return nullptr;
}

std::optional<HeldLeases::Update> HeldLeases::NextUpdate(const Steps& steps, bool* all_sent) {
  std::optional<Update> first;
  for (auto& [id, held] : leases_) {
    if (held.lease.kind() != v1::TASK_TRAIN) continue;
    const UpdateId update = FirstUpdate(held, held.next, steps);
    held.next = update.group;
    if (!plan_->Contains(update)) {
      if (!std::exchange(held.all_sent, true)) *all_sent = true;
      continue;
    }
    if (steps.width == 0) return Update{id, update};
    // Of one step what it was given first: what it took over comes after its own.
    if (first.has_value() && !(StepOf(update, steps.width) < StepOf(first->update, steps.width))) continue;
    first = Update{id, update};
  }
  return first;
}

bool HeldLeases::IsNext(const Update& update, const Steps& steps) const {
  const auto held = leases_.find(update.lease);
  return held != leases_.end() && FirstUpdate(held->second, held->second.next, steps) == update.update;
}

std::vector<UpdateId> HeldLeases::UpdatesAfter(const std::optional<Update>& current, const Steps& steps,
                                               std::size_t most) const {
  std::vector<UpdateId> next;
  for (const auto& [id, held] : leases_) {
    if (held.lease.kind() != v1::TASK_TRAIN) continue;
    const bool begun = current.has_value() && id == current->lease && held.next == current->update.group;
    UpdateId update = FirstUpdate(held, held.next + (begun ? 1 : 0), steps);
    // Leases are done one after another, or step by step.
    const std::size_t end = (steps.width == 0 ? 0 : next.size()) + most;
    while (next.size() < end && plan_->Contains(update)) {
      next.push_back(update);
      update = FirstUpdate(held, update.group + 1, steps);
    }
  }
  if (steps.width != 0) {
    std::stable_sort(next.begin(), next.end(), [&steps](const UpdateId& a, const UpdateId& b) {
      return StepOf(a, steps.width) < StepOf(b, steps.width);
    });
  }
  if (next.size() > most) next.resize(most);
  return next;
}

// ---- what was done

bool HeldLeases::OnSent(const Update& update, const Steps& steps) {
  const auto held = leases_.find(update.lease);
  if (held == leases_.end() || held->second.all_sent) return false;
  held->second.all_sent = !plan_->Contains(FirstUpdate(held->second, update.update.group + 1, steps));
  return held->second.all_sent;
}

void HeldLeases::OnDone(const Update& update) {
  const auto held = leases_.find(update.lease);
  if (held != leases_.end()) held->second.next = update.update.group + 1;
}

void HeldLeases::OnTaskDone(std::uint64_t lease, v1::TaskResult result) {
  const auto held = leases_.find(lease);
  if (held == leases_.end()) return;
  held->second.result = std::move(result);
  held->second.all_sent = true;
}

}  // namespace downpour::core
