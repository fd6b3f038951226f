#include "trainer/core/admission.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace downpour::core {

v1::RegisterPsReply AnswerPs(const v1::RegisterPsRequest& request, const std::string& job_uid,
                             std::uint32_t incarnation, Phase phase, const PsRegistry& registry) {
  v1::RegisterPsReply reply;
  reply.set_incarnation(incarnation);
  reply.set_status(v1::SYNC_OK);
  const auto refuse = [&reply](v1::SyncStatus status, std::string why) {
    reply.set_status(status);
    reply.set_message(std::move(why));
    return reply;
  };
  const v1::PsMember& self = request.self();
  if (request.job_uid() != job_uid) return refuse(v1::SYNC_WRONG_JOB, "another job");
  if (request.highest_incarnation() > incarnation) return refuse(v1::SYNC_REFUSED, "an older coordinator");
  const bool stranger = self.index() >= registry.count() && registry.Find(self.index()) == nullptr;
  if (stranger && phase != Phase::kGathering && !request.has_holds()) {
    // Whoever started it may know of more than this coordinator has been told.
    return refuse(v1::SYNC_WAIT, absl::StrCat("this job has ", registry.count(), " ps"));
  }
  const bool known = registry.Knows(self);
  if (request.highest_incarnation() < incarnation) {
    // What it says counts only once it refuses older coordinators: until then they may still change it.
    reply.set_tell_all(!known);
    return refuse(v1::SYNC_WAIT, "register again");
  }
  if (registry.IsZombie(self)) return refuse(v1::SYNC_REPLACED, "replaced by a newer process");
  const bool over = phase == Phase::kDone || phase == Phase::kFailed;
  if (!known && over) return refuse(v1::SYNC_WAIT, "the job is over");
  if (!known && request.has_holds() && !request.has_view()) {
    reply.set_tell_all(true);
    return refuse(v1::SYNC_WAIT, "say what you hold");
  }
  return reply;
}

std::optional<Refusal> RefuseSession(const v1::WorkerSyncRequest& request, std::uint32_t incarnation, Phase phase,
                                     const Membership& members) {
  const std::uint64_t session = request.session();
  if (session == 0) return Refusal{v1::SYNC_REFUSED, "a session must not be 0"};
  if (members.Find(session) != nullptr) return std::nullopt;
  if (request.leaving()) return Refusal{v1::SYNC_FINISHED, ""};
  if (members.ended(session)) return Refusal{v1::SYNC_SESSION_ENDED, ""};
  if (request.accepted()) {
    // Before the ps are gathered nobody knows which sessions an earlier coordinator accepted.
    return Refusal{phase == Phase::kGathering ? v1::SYNC_WAIT : v1::SYNC_SESSION_ENDED, ""};
  }
  if (request.incarnation() != incarnation) return Refusal{v1::SYNC_WAIT, "propose the session again"};
  if (members.IsZombie({request.index(), request.process_incarnation()})) {
    return Refusal{v1::SYNC_REPLACED, "replaced by a newer process"};
  }
  return std::nullopt;
}

v1::FinishReply AnswerFinish(const v1::FinishRequest& request, const std::string& job_uid, Phase phase) {
  v1::FinishReply reply;
  if (request.job_uid() != job_uid) {
    reply.set_message("another job");
  } else if (phase != Phase::kDone && phase != Phase::kFailed) {
    reply.set_message("the job is not over");
  } else {
    reply.set_accepted(true);
  }
  return reply;
}

}  // namespace downpour::core
