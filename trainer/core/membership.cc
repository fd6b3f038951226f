#include "trainer/core/membership.h"

namespace downpour::core {

const Member* Membership::Find(std::uint64_t session) const {
  const auto found = members_.find(session);
  return found == members_.end() ? nullptr : &found->second;
}

bool Membership::IsZombie(const ProcessKey& process) const {
  const auto newest = by_index_.find(process.first);
  return newest != by_index_.end() && members_.at(newest->second).process_incarnation > process.second;
}

bool Membership::InSession(const ProcessKey& process) const {
  const auto newest = by_index_.find(process.first);
  return newest != by_index_.end() && members_.at(newest->second).process() == process;
}

std::vector<std::uint64_t> Membership::sessions() const {
  std::vector<std::uint64_t> sessions;
  for (const auto& [session, member] : members_) sessions.push_back(session);
  return sessions;
}

void Membership::Note(std::uint64_t session, bool ended) {
  ++version_;
  changes_.push_back({session, ended});
  // Beyond that the whole list is shorter.
  while (changes_.size() > members_.size()) changes_.pop_front();
}

void Membership::Add(std::uint64_t session) {
  Member& member = members_[session];
  ++unknown_;
  deadlines_.push({absl::ZeroDuration(), session});
  Note(session, /*ended=*/false);
  member.version = version_;
}

void Membership::Adopt(std::uint64_t session, Time now) {
  if (Find(session) == nullptr) {
    Add(session);
  }
  Member& member = members_.at(session);
  member.training = true;  // for all that is known
  member.expires = now + lease_;
  member.last_heard = now;
}

void Membership::SetTraining(std::uint64_t session, bool training) {
  Member& member = members_.at(session);
  if (std::exchange(member.training, training) == training) return;
  Note(session, /*ended=*/false);
  if (training) member.version = version_;
}

std::optional<std::uint64_t> Membership::Hear(const v1::WorkerSyncRequest& request, Time now) {
  Member& member = members_.at(request.session());
  std::optional<std::uint64_t> replaced;
  if (!member.known) {
    member.known = true;
    member.index = request.index();
    member.process_incarnation = request.process_incarnation();
    --unknown_;
    const auto [newest, first] = by_index_.try_emplace(member.index, request.session());
    if (!first) replaced = std::exchange(newest->second, request.session());
  }
  if (request.wanted() > 0 && !request.leaving()) {
    available_.insert(member.index);
  } else {
    available_.erase(member.index);
  }
  member.sequence = request.sequence();
  member.last_heard = now;
  member.expires = now + lease_;
  member.stats = request.stats();
  return replaced;
}

std::optional<Member> Membership::End(std::uint64_t session) {
  ended_.insert(session);
  const auto found = members_.find(session);
  if (found == members_.end()) return std::nullopt;
  Member member = std::move(found->second);
  members_.erase(found);
  if (!member.known) --unknown_;
  const auto newest = by_index_.find(member.index);
  if (newest != by_index_.end() && newest->second == session) {
    by_index_.erase(newest);
    available_.erase(member.index);
  }
  Note(session, /*ended=*/true);
  return member;
}

std::vector<std::uint64_t> Membership::Expired(Time now) {
  std::vector<std::uint64_t> expired;
  while (!deadlines_.empty() && deadlines_.top().first < now) {
    const std::uint64_t session = deadlines_.top().second;
    deadlines_.pop();
    ++looked_at_;
    const Member* member = Find(session);
    if (member == nullptr) continue;
    if (ExpiryOf(*member) < now) {
      expired.push_back(session);
    } else {
      deadlines_.push({ExpiryOf(*member), session});
    }
  }
  return expired;
}

void Membership::Tell(std::uint64_t since, v1::DirectRequest* directive) const {
  directive->set_members_version(version_);
  const auto tell = [directive](std::uint64_t session, const Member& member) {
    directive->add_sessions(session);
    if (member.training) directive->add_training(session);
  };
  if (since == 0 || since > version_ || version_ - since > changes_.size()) {
    for (const auto& [session, member] : members_) tell(session, member);
    return;
  }
  directive->set_members_since(since);
  for (std::size_t i = changes_.size() - (version_ - since); i < changes_.size(); ++i) {
    if (changes_[i].ended) {
      directive->add_ended(changes_[i].session);
    } else if (const Member* member = Find(changes_[i].session); member != nullptr) {
      tell(changes_[i].session, *member);
    }
  }
}

void Membership::Report(Time now, v1::ProgressReply* progress) const {
  double loss = 0;
  int losses = 0;
  for (const auto& [session, member] : members_) {
    if (!member.known) continue;
    v1::MemberProgress* entry = progress->add_members();
    entry->set_role("worker");
    entry->set_index(member.index);
    entry->set_session(session);
    entry->set_process_incarnation(member.process_incarnation);
    entry->set_silent_milliseconds(static_cast<std::uint64_t>(absl::ToInt64Milliseconds(now - member.last_heard)));
    entry->set_state(member.stats.state());
    *entry->mutable_worker() = member.stats;
    if (member.stats.has_samples_per_second()) {
      progress->set_samples_per_second(progress->samples_per_second() + member.stats.samples_per_second());
    }
    if (member.stats.has_loss()) {
      loss += member.stats.loss();
      ++losses;
    }
  }
  if (losses > 0) progress->set_loss(loss / losses);
}

}  // namespace downpour::core
