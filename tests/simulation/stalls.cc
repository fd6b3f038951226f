#include <string>

#include "absl/strings/str_cat.h"
#include "tests/simulation/job.h"
#include "trainer/core/layout.h"

namespace downpour::simulation {

// ---- who stands still

bool Job::IsPlaced(const Process& ps) const {
  const ProcessPointer process = Coordinator();
  if (process == nullptr) return true;
  return core::PsSessions(process->coordinator->view()).count(ps.session) != 0;
}

bool Job::Broken() const {
  const auto works = [this](const ProcessPointer& process) {
    return process != nullptr && process->alive && process->paused_until <= now();
  };
  const ProcessPointer coordinator = Coordinator();
  if (!network_->perfect() || !disk_->works() || !works(coordinator)) return true;
  for (std::uint32_t index = 0; index < worker_count_; ++index) {
    if (!works(Current(Kind::kWorker, index))) return true;
  }
  for (const std::uint64_t session : core::PsSessions(coordinator->coordinator->view())) {
    const auto found = by_session_.find(session);
    if (found == by_session_.end() || !works(found->second)) return true;
    if (Current(Kind::kPs, found->second->index) != found->second) return true;
  }
  // While slices have their places, others that are wanted may come later.
  const core::Phase phase = coordinator->coordinator->phase();
  const bool placed = phase != core::Phase::kGathering && phase != core::Phase::kSeeking;
  for (std::uint32_t index = 0; index < config_.ps_replicas(); ++index) {
    const ProcessPointer ps = Current(Kind::kPs, index);
    const bool missing = ps == nullptr || !ps->alive;
    if (missing ? !placed : !works(ps)) return true;
  }
  return false;
}

std::string Job::AwaitedBy(const Process& worker) const {
  std::string calls;
  for (const auto& [session, ps] : by_session_) {
    if (ps == nullptr || !ps->alive) continue;
    for (const auto& [id, open] : ps->open) {
      for (const core::Frame& frame : open.frames) {
        const core::FrameHeader& header = frame.header;
        if (header.session != worker.worker->session()) continue;
        const bool push = header.kind == core::FrameKind::kPush;
        const bool pending = push && header.verdict == core::Verdict::kPending;
        absl::StrAppend(&calls, calls.empty() ? "" : ", ", ps->name(), " has its ",
                        push                                    ? "push"
                        : header.kind == core::FrameKind::kPull ? "pull"
                                                                : "call",
                        " of slice ", header.slice, ", ", simulation::NameOf(header.update),
                        pending ? ", that came without its verdict" : "");
      }
    }
  }
  return calls.empty() ? "no ps has a call of it" : calls;
}

void Job::CheckStalls() {
  if (Broken()) return stall_checks_->OnFault();
  for (std::uint32_t index = 0; index < worker_count_; ++index) {
    const ProcessPointer worker = Current(Kind::kWorker, index);
    stall_checks_->OnWorker(*worker, [&] { return AwaitedBy(*worker); });
  }
  const core::CoordinatorCore& coordinator = *Coordinator()->coordinator;
  if (coordinator.phase() == core::Phase::kDone || coordinator.phase() == core::Phase::kFailed) return;
  stall_checks_->OnJob([&] {
    std::string state = coordinator.GetProgress(Coordinator()->clock(now())).ShortDebugString();
    for (std::uint32_t index = 0; index < worker_count_; ++index) {
      const ProcessPointer worker = Current(Kind::kWorker, index);
      absl::StrAppend(&state, "; ", worker->name(), " is ", worker->worker->stats().state());
    }
    return state;
  });
}

}  // namespace downpour::simulation
