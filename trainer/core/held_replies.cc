#include "trainer/core/held_replies.h"

#include <utility>

namespace downpour::core {

void HeldReplies::Add(DataReply reply, Needs needs) {
  const std::uint64_t id = next_++;
  for (const auto& [slice, record] : needs) waiting_[slice].emplace(record, id);
  held_.emplace(id, Held{std::move(reply), std::move(needs)});
}

void HeldReplies::Settle(std::uint64_t id, std::uint32_t slice, std::vector<DataReply>* replies) {
  const auto held = held_.find(id);
  held->second.needs.erase(slice);
  if (!held->second.needs.empty()) return;
  replies->push_back(std::move(held->second.reply));
  held_.erase(held);
}

void HeldReplies::Release(std::uint32_t slice, std::uint64_t held, std::vector<DataReply>* replies) {
  const auto waiting = waiting_.find(slice);
  if (waiting == waiting_.end()) return;
  std::multimap<std::uint64_t, std::uint64_t>& by_record = waiting->second;
  while (!by_record.empty() && by_record.begin()->first <= held) {
    const std::uint64_t id = by_record.begin()->second;
    by_record.erase(by_record.begin());
    Settle(id, slice, replies);
  }
  if (by_record.empty()) waiting_.erase(waiting);
}

void HeldReplies::Deny(std::uint32_t slice, ReplyStatus status, std::vector<DataReply>* replies) {
  const auto waiting = waiting_.find(slice);
  if (waiting == waiting_.end()) return;
  const std::multimap<std::uint64_t, std::uint64_t> by_record = std::move(waiting->second);
  waiting_.erase(waiting);
  for (const auto& [record, id] : by_record) {
    for (Frame& frame : held_.at(id).reply.frames) {
      if (frame.header.slice == slice) frame = ReplyTo(frame.header, status);
    }
    Settle(id, slice, replies);
  }
}

void HeldReplies::DenyAll(ReplyStatus status, std::vector<DataReply>* replies) {
  waiting_.clear();
  for (auto& [id, held] : std::exchange(held_, {})) {
    for (Frame& frame : held.reply.frames) frame = ReplyTo(frame.header, status);
    replies->push_back(std::move(held.reply));
  }
}

}  // namespace downpour::core
