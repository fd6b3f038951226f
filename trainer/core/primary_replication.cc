#include "trainer/core/primary_replication.h"

#include <optional>
#include <set>

#include "trainer/core/optimizer.h"
#include "trainer/core/replica_copy.h"

namespace downpour::core {

PrimaryReplication::PrimaryReplication(PsReplicas* replicas, const JobUid& uid)
    : replicas_(*replicas), uid_(uid), replication_(Replication::Options{}) {}

// ---- what the view says

void PrimaryReplication::SetView(const v1::View& view) {
  replication_.SetView(view, uid_);
  lag_ = view.replication_lag();
  keeps_pulled_ = NeedsPulledValues(view.optimizer());
}

void PrimaryReplication::Begin(const v1::View& view, std::vector<DataReply>* replies) {
  held_.DenyAll(ReplyStatus::kRefused, replies);
  replication_.Clear();
  followers_to_drop_.clear();
  SetView(view);
}

void PrimaryReplication::Change(const v1::View& view, const std::vector<std::uint32_t>& before,
                                std::vector<DataReply>* replies) {
  SetView(view);
  for (const std::uint32_t slice : before) {
    if (replicas_.Primary(slice) != nullptr) continue;
    for (const std::uint64_t follower : replication_.Followers(slice)) replication_.Unfollow(slice, follower);
    held_.Deny(slice, ReplyStatus::kWrongOwner, replies);
  }
}

void PrimaryReplication::SetFollowers(const v1::View& view) {
  followers_to_drop_.clear();
  for (const auto& [slice, entry] : replicas_.entries()) {
    if (!entry.leads()) continue;
    const v1::SlicePlacement& placement = view.layout(static_cast<int>(slice));
    const std::uint64_t sequence = entry.replica.sequence();
    std::set<std::uint64_t> wanted;
    if (placement.has_standby()) {
      // One that this ps has not brought up itself came with a slice that moved here: it has what the slice had then.
      replication_.Follow(slice, placement.standby(), placement.standby_replica(), /*has_all=*/true, sequence);
      wanted.insert(placement.standby_replica());
    }
    if (placement.has_joining()) {
      replication_.Follow(slice, placement.joining(), placement.joining_replica(), /*has_all=*/false, sequence);
      wanted.insert(placement.joining_replica());
    }
    for (const std::uint64_t follower : replication_.Followers(slice)) {
      if (wanted.count(follower) == 0) followers_to_drop_.emplace_back(slice, follower);
    }
  }
}

void PrimaryReplication::Commit(std::vector<DataReply>* replies) {
  for (const auto& [slice, follower] : std::exchange(followers_to_drop_, {})) {
    replication_.Unfollow(slice, follower);
    held_.Release(slice, released(slice), replies);
  }
}

// ---- what changes slices

absl::StatusOr<Replica::Done> PrimaryReplication::Record(Entry& entry, RecordKind kind, Frame record) {
  record.header.kind = FrameKind::kRecord;
  record.header.record = kind;
  record.header.slice = entry.replica.state().number();
  record.header.sequence = entry.replica.sequence() + 1;
  record.header.clock = entry.replica.number();
  absl::StatusOr<Replica::Done> done = entry.replica.Do(record);
  if (done.ok()) replication_.Append(entry.replica.state().number(), std::move(record));
  return done;
}

void PrimaryReplication::SetStepWidth(std::uint32_t width) {
  for (auto& [slice, entry] : replicas_.entries()) {
    if (!entry.leads() || entry.replica.state().step_width() == width) continue;
    Frame record;
    record.header.version = width;
    Record(entry, RecordKind::kStepWidth, std::move(record)).IgnoreError();
  }
}

void PrimaryReplication::KeepPulled(Entry& entry, std::uint64_t session, const LiveSessions& live) {
  if (!keeps_pulled_ || !live.Contains(session) || entry.replica.buffer() || entry.replica.has_pulled(session)) return;
  Frame record;
  record.header.session = session;
  Record(entry, RecordKind::kPulled, std::move(record)).IgnoreError();
}

void PrimaryReplication::ForgetPulled(std::uint64_t session) {
  if (!keeps_pulled_) return;
  for (auto& [slice, entry] : replicas_.entries()) {
    if (!entry.leads() || entry.frozen || !entry.replica.keeps(session)) continue;
    Frame record;
    record.header.session = session;
    Record(entry, RecordKind::kSessionEnded, std::move(record)).IgnoreError();
  }
}

void PrimaryReplication::ForgetPulledOfOthers(const LiveSessions& live) {
  if (!keeps_pulled_) return;
  std::set<std::uint64_t> over;
  for (const auto& [slice, entry] : replicas_.entries()) {
    if (!entry.leads()) continue;
    for (const std::uint64_t session : entry.replica.pulled_sessions()) {
      if (!live.Contains(session)) over.insert(session);
    }
  }
  for (const std::uint64_t session : over) ForgetPulled(session);
}

// ---- what is said of them

std::uint64_t PrimaryReplication::released(std::uint32_t slice) const {
  const std::uint64_t held = replication_.held(slice);
  return held > UINT64_MAX - lag_ ? UINT64_MAX : held + lag_;
}

void PrimaryReplication::Answer(DataReply reply, Needs needs, std::vector<DataReply>* replies) {
  if (needs.empty()) {
    replies->push_back(std::move(reply));
  } else {
    held_.Add(std::move(reply), std::move(needs));
  }
}

bool PrimaryReplication::JoiningAreSettled(const v1::View& view) const {
  for (const auto& [number, entry] : replicas_.entries()) {
    if (!entry.leads()) continue;
    const bool joins = view.layout(static_cast<int>(number)).has_joining();
    if (joins && replication_.held(number) < entry.replica.sequence()) return false;
  }
  return true;
}

void PrimaryReplication::Describe(const v1::View& view, v1::DirectReply* reply) const {
  for (const auto& [number, entry] : replicas_.entries()) {
    const v1::SlicePlacement& placement = view.layout(static_cast<int>(number));
    if (!entry.leads() || !(placement.has_joining() || placement.frozen())) continue;
    v1::ReplicaState* state = reply->add_replicas();
    state->set_slice(number);
    state->set_replica(placement.joining_replica());
    state->set_level(placement.has_joining() && replication_.level(number, placement.joining_replica()));
    state->set_frozen(entry.frozen && replication_.AllHave(number, entry.replica.sequence()));
  }
}

void PrimaryReplication::Describe(v1::PsStats* stats) const {
  stats->set_log_bytes(replication_.log_bytes());
  stats->set_copied_bytes(replication_.copied_bytes());
  stats->set_logged_bytes(replication_.logged_bytes());
}

// ---- to other ps

bool PrimaryReplication::LogIsFull(std::uint32_t slice, std::uint64_t limit) const {
  return replication_.Wants(slice) && replication_.log_bytes() > limit;
}

std::vector<ReplicationCall> PrimaryReplication::Take(Time now, std::uint32_t cut) {
  return replication_.Take(now, [this, cut](std::uint32_t slice) -> std::optional<ReplicaCopy> {
    const Entry* entry = replicas_.Primary(slice);
    if (entry == nullptr || !entry->replica.state().initialised()) return std::nullopt;
    ReplicaCopy copy = entry->replica.Export();
    copy.cut = cut;
    return copy;
  });
}

void PrimaryReplication::OnReply(std::uint64_t call, const absl::StatusOr<std::vector<Frame>>& reply, Time now,
                                 std::vector<DataReply>* replies) {
  for (const std::uint32_t slice : replication_.OnReply(call, reply, now)) {
    held_.Release(slice, released(slice), replies);
  }
}

}  // namespace downpour::core
