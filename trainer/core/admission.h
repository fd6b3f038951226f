#ifndef DOWNPOUR_TRAINER_CORE_ADMISSION_H_
#define DOWNPOUR_TRAINER_CORE_ADMISSION_H_

#include <cstdint>
#include <optional>
#include <string>

#include "downpour/v1/control.pb.h"
#include "trainer/core/membership.h"
#include "trainer/core/phase.h"
#include "trainer/core/ps_registry.h"

// Who is let in by a coordinator of this incarnation in this phase, and when it may end: pure functions of what it
// knows.
namespace downpour::core {

// What a ps that registers is told. SYNC_OK: it is taken in, or known already. SYNC_REFUSED: it has seen a newer
// coordinator, and this one must not go on. Others: it is not, and why.
v1::RegisterPsReply AnswerPs(const v1::RegisterPsRequest& request, const std::string& job_uid,
                             std::uint32_t incarnation, Phase phase, const PsRegistry& registry);

struct Refusal {
  v1::SyncStatus status = v1::SYNC_WAIT;
  std::string message;  // for people
};

// Why the session of a worker's call is none; nullopt: it is a member's, or may become one's if its model is the job's.
std::optional<Refusal> RefuseSession(const v1::WorkerSyncRequest& request, std::uint32_t incarnation, Phase phase,
                                     const Membership& members);

// Accepted: the job is over, and the coordinator ends.
v1::FinishReply AnswerFinish(const v1::FinishRequest& request, const std::string& job_uid, Phase phase);

}  // namespace downpour::core

#endif  // DOWNPOUR_TRAINER_CORE_ADMISSION_H_
