#include "trainer/core/live_sessions.h"

#include <algorithm>

namespace downpour::core {

std::optional<std::vector<std::uint64_t>> LiveSessions::Take(const v1::DirectRequest& request) {
  const bool whole = request.members_since() == 0;
  if (request.stamp().incarnation() > incarnation_) {
    if (!whole) return std::nullopt;  // the whole one will come
    incarnation_ = request.stamp().incarnation();
  } else if (request.members_version() <= version_ || request.members_since() > version_) {
    return std::nullopt;
  }
  version_ = request.members_version();
  // Sessions never come back, so a difference may begin before the version that is here.
  const std::set<std::uint64_t> added(request.sessions().begin(), request.sessions().end());
  std::vector<std::uint64_t> ended(request.ended().begin(), request.ended().end());
  if (bug_ == PlantedBug::kEndedSessionsKept) ended.clear();
  for (const std::uint64_t session : sessions_) {
    if (whole && added.count(session) == 0) ended.push_back(session);
  }
  std::erase_if(ended, [this](std::uint64_t session) { return sessions_.erase(session) == 0; });
  sessions_.insert(added.begin(), added.end());
  return ended;
}

void LiveSessions::Clear() {
  sessions_.clear();
  version_ = 0;
}

std::optional<std::uint64_t> LiveSessions::version(std::uint32_t incarnation) const {
  if (incarnation != incarnation_) return std::nullopt;
  return version_;
}

}  // namespace downpour::core
