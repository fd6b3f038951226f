#include "trainer/core/replication.h"

#include <algorithm>

#include "trainer/core/message_size.h"

namespace downpour::core {
namespace {

constexpr absl::Duration kFirstBackoff = absl::Milliseconds(5);
constexpr absl::Duration kMostBackoff = absl::Milliseconds(250);
constexpr absl::Duration kCopyRetry = absl::Milliseconds(20);

}  // namespace

void Replication::SetView(const v1::View& view, const JobUid& uid) {
  stamp_ = FrameHeader();
  stamp_.job_uid = uid;
  stamp_.generation = view.stamp().generation();
  stamp_.incarnation = view.stamp().incarnation();
  stamp_.epoch = view.stamp().epoch();
  for (const v1::PsMember& member : view.ps()) {
    Link& link = links_[member.index()];
    if (link.address == member.address()) continue;
    link.address = member.address();
    link.backoff = link.retry_at = absl::ZeroDuration();
  }
}

void Replication::Clear() {
  logs_.clear();
  links_.clear();
  calls_.clear();
  log_bytes_ = 0;
}

void Replication::Follow(std::uint32_t slice, std::uint32_t ps, std::uint64_t replica, bool has_all,
                         std::uint64_t sequence) {
  Log& log = logs_[slice];
  if (log.followers.empty()) log.end = sequence;
  const auto [entry, fresh] = log.followers.try_emplace(replica);
  if (!fresh) return;
  Follower& follower = entry->second;
  follower.ps = ps;
  follower.copied = has_all;
  if (has_all) {
    follower.has = follower.level_at = sequence;
  } else {
    links_[ps].ready.emplace(slice, replica);
  }
}

void Replication::Unfollow(std::uint32_t slice, std::uint64_t replica) {
  const auto log = logs_.find(slice);
  if (log == logs_.end()) return;
  const auto follower = log->second.followers.find(replica);
  if (follower == log->second.followers.end()) return;
  Link& link = links_[follower->second.ps];
  const Key key(slice, replica);
  link.ready.erase(key);
  if (link.copying == key) link.copying.reset();
  log->second.followers.erase(follower);
  Trim(log->second);
  if (log->second.followers.empty()) logs_.erase(log);
}

std::vector<std::uint64_t> Replication::Followers(std::uint32_t slice) const {
  std::vector<std::uint64_t> followers;
  const auto log = logs_.find(slice);
  if (log == logs_.end()) return followers;
  for (const auto& [replica, follower] : log->second.followers) followers.push_back(replica);
  return followers;
}

bool Replication::Wants(std::uint32_t slice) const { return logs_.count(slice) != 0; }

void Replication::Append(std::uint32_t slice, Frame record) {
  const auto found = logs_.find(slice);
  if (found == logs_.end()) return;
  Log& log = found->second;
  log.end = record.header.sequence;
  bool wanted = false;
  for (auto& [replica, follower] : log.followers) {
    // A copy that is not made yet will have it.
    wanted = wanted || follower.begun();
    if (follower.copied && !follower.in_flight) links_[follower.ps].ready.emplace(slice, replica);
  }
  if (!wanted) return;
  log_bytes_ += record.payload.size();
  log.records.push_back(std::move(record));
}

Replication::Follower* Replication::Find(const Key& key) {
  const auto log = logs_.find(key.first);
  if (log == logs_.end()) return nullptr;
  const auto follower = log->second.followers.find(key.second);
  return follower == log->second.followers.end() ? nullptr : &follower->second;
}

void Replication::Address(std::uint64_t replica, Frame* frame) const {
  FrameHeader& header = frame->header;
  header.job_uid = stamp_.job_uid;
  header.generation = stamp_.generation;
  header.incarnation = stamp_.incarnation;
  header.epoch = stamp_.epoch;
  header.replica = replica;
}

bool Replication::BeginCopy(const Key& key, Link& link, Follower& follower, const MakeCopy& copy) {
  if (link.copying.has_value() && *link.copying != key) return false;
  if (!follower.parts.empty()) return true;
  std::optional<ReplicaCopy> made = copy(key.first);
  if (!made.has_value()) return false;
  absl::StatusOr<std::vector<Frame>> parts = CutCopy(*made);
  if (!parts.ok()) return false;
  link.copying = key;
  follower.has = made->sequence;
  follower.parts = *std::move(parts);
  for (Frame& part : follower.parts) part.header.cut = made->cut;
  follower.has_part.assign(follower.parts.size(), false);
  return true;
}

std::optional<Replication::Sent> Replication::FramesFor(const Key& key, Link& link, const MakeCopy& copy,
                                                        std::size_t* bytes, std::vector<Frame>* frames) {
  Follower& follower = *Find(key);
  Sent sent{key.first, key.second, 0, std::nullopt};
  const auto add = [&](Frame frame) {
    *bytes += frame.payload.size();
    Address(key.second, &frame);
    frames->push_back(std::move(frame));
    ++sent.frames;
  };
  const auto fits = [&](const Frame& frame) {
    return frames->empty() || FitsMessage(frames->size() + 1, *bytes + frame.payload.size(), options_.message_bytes);
  };
  if (!follower.copied) {
    if (!BeginCopy(key, link, follower, copy)) return std::nullopt;
    const auto part = std::find(follower.has_part.begin(), follower.has_part.end(), false);
    sent.part = static_cast<std::size_t>(part - follower.has_part.begin());
    if (!fits(follower.parts[*sent.part])) return std::nullopt;
    copied_bytes_ += follower.parts[*sent.part].payload.size();
    add(follower.parts[*sent.part]);
    return sent;
  }
  const Log& log = logs_.at(key.first);
  for (std::uint64_t next = follower.has + 1; next <= log.end; ++next) {
    const Frame& record = log.records[next - log.first()];
    if (!fits(record)) break;
    logged_bytes_ += record.payload.size();
    add(record);
  }
  return sent.frames == 0 ? std::nullopt : std::optional(sent);
}

std::vector<ReplicationCall> Replication::Take(Time now, const MakeCopy& copy) {
  std::vector<ReplicationCall> calls;
  next_timer_ = absl::InfiniteDuration();
  for (auto& [ps, link] : links_) {
    if (link.ready.empty()) continue;
    if (now < link.retry_at) {
      next_timer_ = std::min(next_timer_, link.retry_at);
      continue;
    }
    auto next = link.ready.begin();
    while (next != link.ready.end() && link.in_flight < options_.calls_in_flight) {
      ReplicationCall call;
      Call under_way{ps, {}};
      std::size_t bytes = 0;
      while (next != link.ready.end() && bytes < options_.message_bytes) {
        const std::optional<Sent> sent = FramesFor(*next, link, copy, &bytes, &call.frames);
        if (sent.has_value()) {
          Find(*next)->in_flight = true;
          under_way.sent.push_back(*sent);
          next = link.ready.erase(next);
        } else {
          // There is nothing, it does not fit, or it is a copy whose turn has not come.
          ++next;
        }
      }
      if (call.frames.empty()) break;
      call.call = next_call_++;
      call.address = link.address;
      call.deadline = options_.deadline;
      ++link.in_flight;
      calls_.emplace(call.call, std::move(under_way));
      calls.push_back(std::move(call));
    }
    if (!link.ready.empty() && link.in_flight == 0) next_timer_ = std::min(next_timer_, now + kCopyRetry);
  }
  return calls;
}

void Replication::EndCopy(const Key& key, Follower& follower) {
  follower.copied = true;
  follower.level_at = logs_.at(key.first).end;
  follower.parts.clear();
  follower.has_part.clear();
  Link& link = links_[follower.ps];
  if (link.copying == key) link.copying.reset();
}

bool Replication::OnAnswers(const Sent& sent, absl::Span<const Frame> answers) {
  const Key key(sent.slice, sent.replica);
  Follower* const follower = Find(key);
  if (follower == nullptr) return false;
  bool again = false;
  for (const Frame& answer : answers) {
    const bool done = answer.header.status == ReplyStatus::kApplied;
    again = again || !done;
    if (!sent.part.has_value()) {
      follower->has = std::max(follower->has, std::min(answer.header.sequence, logs_.at(sent.slice).end));
    } else if (answer.header.status == ReplyStatus::kMalformed) {
      follower->has_part.assign(follower->has_part.size(), false);  // it begins anew
    } else if (done && *sent.part < follower->has_part.size()) {
      follower->has_part[*sent.part] = true;
    }
  }
  const std::vector<bool>& parts = follower->has_part;
  if (!parts.empty() && std::find(parts.begin(), parts.end(), false) == parts.end()) EndCopy(key, *follower);
  return again;
}

std::vector<std::uint32_t> Replication::OnReply(std::uint64_t call, const absl::StatusOr<std::vector<Frame>>& reply,
                                                Time now) {
  std::vector<std::uint32_t> changed;
  const auto found = calls_.find(call);
  if (found == calls_.end()) return changed;
  const Call done = std::move(found->second);
  calls_.erase(found);
  Link& link = links_[done.ps];
  --link.in_flight;
  std::size_t expected = 0;
  for (const Sent& sent : done.sent) expected += sent.frames;
  const bool answered = reply.ok() && reply->size() == expected;
  bool again = !answered;
  std::size_t next = 0;
  for (const Sent& sent : done.sent) {
    const Key key(sent.slice, sent.replica);
    Follower* const follower = Find(key);
    if (follower != nullptr) {
      const std::uint64_t before = held(sent.slice);
      follower->in_flight = false;
      link.ready.insert(key);
      if (answered) again = OnAnswers(sent, absl::MakeConstSpan(*reply).subspan(next, sent.frames)) || again;
      Log& log = logs_.at(sent.slice);
      if (follower->copied && follower->has >= log.end) link.ready.erase(key);
      Trim(log);
      if (held(sent.slice) != before) changed.push_back(sent.slice);
    }
    next += sent.frames;
  }
  if (again) {
    link.backoff = std::clamp(link.backoff * 2, kFirstBackoff, kMostBackoff);
    link.retry_at = now + link.backoff;
  } else {
    link.backoff = absl::ZeroDuration();
  }
  return changed;
}

void Replication::Trim(Log& log) {
  std::uint64_t needed = log.end;
  for (const auto& [replica, follower] : log.followers) {
    if (follower.begun()) needed = std::min(needed, follower.has);
  }
  while (!log.records.empty() && log.first() <= needed) {
    log_bytes_ -= log.records.front().payload.size();
    log.records.pop_front();
  }
}

std::uint64_t Replication::held(std::uint32_t slice) const {
  std::uint64_t held = UINT64_MAX;
  const auto log = logs_.find(slice);
  if (log == logs_.end()) return held;
  for (const auto& [replica, follower] : log->second.followers) {
    if (follower.copied) held = std::min(held, follower.has);
  }
  return held;
}

bool Replication::level(std::uint32_t slice, std::uint64_t replica) const {
  const auto log = logs_.find(slice);
  if (log == logs_.end()) return false;
  const auto follower = log->second.followers.find(replica);
  return follower != log->second.followers.end() && follower->second.copied &&
         follower->second.has >= follower->second.level_at;
}

bool Replication::AllHave(std::uint32_t slice, std::uint64_t sequence) const {
  const auto log = logs_.find(slice);
  if (log == logs_.end()) return true;
  return std::all_of(log->second.followers.begin(), log->second.followers.end(),
                     [sequence](const auto& entry) { return entry.second.copied && entry.second.has >= sequence; });
}

}  // namespace downpour::core
