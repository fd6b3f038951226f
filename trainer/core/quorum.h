#ifndef DOWNPOUR_TRAINER_CORE_QUORUM_H_
#define DOWNPOUR_TRAINER_CORE_QUORUM_H_

#include <cstddef>
#include <cstdint>
#include <set>

#include "downpour/v1/control.pb.h"

// Whether a view counts, and who may go on from it: pure functions of the view and of sessions of ps.
namespace downpour::core {

// Of fewer that decide nobody has to be asked.
inline constexpr std::size_t kFewPs = 3;

// Sessions of the ps that decide on the view; none: it is the first of its history, which every ps must have.
std::set<std::uint64_t> QuorumOf(const v1::View& view);
void SetQuorum(const std::set<std::uint64_t>& quorum, v1::View* view);

// So few ps decide on the view that nobody has to be asked: the coordinator does it alone, as another one would need
// all of them.
bool IsDecidedAlone(const v1::View& view);
// Whether a majority of the ps that decide on a view is among `sessions`, if any of them has to be asked.
bool IsCommittedBy(const v1::View& view, const std::set<std::uint64_t>& sessions);
// Whether a coordinator that did not make the view may go on from it, if no other ps than those with `sessions` has
// come to it: whatever another coordinator may have made of the view, one of them would know.
bool MayTakeOver(const v1::View& view, const std::set<std::uint64_t>& sessions);
// Whether so many of the ps of the view are among `sessions` that they can decide on the next one.
bool MayGoOn(const v1::View& view, const std::set<std::uint64_t>& sessions);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_QUORUM_H_
