#include "trainer/core/quorum.h"

#include <algorithm>

#include "trainer/core/layout.h"

namespace downpour::core {
namespace {

template <typename Sessions>
bool HasMajority(const Sessions& of, const std::set<std::uint64_t>& sessions) {
  const auto there =
      std::count_if(of.begin(), of.end(), [&](std::uint64_t session) { return sessions.count(session) != 0; });
  return 2 * there > static_cast<std::ptrdiff_t>(of.size());
}

}  // namespace

std::set<std::uint64_t> QuorumOf(const v1::View& view) { return {view.quorum().begin(), view.quorum().end()}; }

void SetQuorum(const std::set<std::uint64_t>& quorum, v1::View* view) {
  view->mutable_quorum()->Assign(quorum.begin(), quorum.end());
}

bool IsDecidedAlone(const v1::View& view) { return static_cast<std::size_t>(view.quorum_size()) < kFewPs; }

bool IsCommittedBy(const v1::View& view, const std::set<std::uint64_t>& sessions) {
  return IsDecidedAlone(view) || HasMajority(view.quorum(), sessions);
}

bool MayTakeOver(const v1::View& view, const std::set<std::uint64_t>& sessions) {
  const std::set<std::uint64_t> ps = PsSessions(view);
  if (ps.size() < kFewPs) return std::includes(sessions.begin(), sessions.end(), ps.begin(), ps.end());
  return HasMajority(ps, sessions) && IsCommittedBy(view, sessions);
}

bool MayGoOn(const v1::View& view, const std::set<std::uint64_t>& sessions) {
  const std::set<std::uint64_t> ps = PsSessions(view);
  return ps.size() < kFewPs || HasMajority(ps, sessions);
}

}  // namespace downpour::core
