#include "trainer/core/admission.h"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "gtest/gtest.h"

namespace downpour::core {
namespace {

constexpr char kJob[] = "job";

v1::RegisterPsRequest PsRequest(std::uint32_t index, std::uint64_t session, std::uint32_t process_incarnation = 1) {
  v1::RegisterPsRequest request;
  request.set_job_uid(kJob);
  request.set_highest_incarnation(3);
  request.mutable_self()->set_index(index);
  request.mutable_self()->set_session(session);
  request.mutable_self()->set_process_incarnation(process_incarnation);
  return request;
}

TEST(AnswerPsTest, SaysWhoIsTakenInAndWhyOthersAreNot) {
  PsRegistry registry(2);
  registry.Register(PsRequest(0, 100, /*process_incarnation=*/2));
  struct Case {
    std::string what;
    v1::RegisterPsRequest request;
    Phase phase;
    v1::SyncStatus status;
    bool tell_all;
  };
  const auto with = [](v1::RegisterPsRequest request, const std::function<void(v1::RegisterPsRequest&)>& change) {
    change(request);
    return request;
  };
  const auto holds = [](v1::RegisterPsRequest& request) { request.mutable_holds()->set_generation(1); };
  const auto older = [](v1::RegisterPsRequest& request) { request.set_highest_incarnation(2); };
  const auto told = [](v1::RegisterPsRequest& request) {
    request.mutable_holds()->set_generation(1);
    request.mutable_view();
  };
  const Case cases[] = {
      {"one that is wanted", PsRequest(1, 101), Phase::kTraining, v1::SYNC_OK, false},
      {"one that is known", PsRequest(0, 100, 2), Phase::kDone, v1::SYNC_OK, false},
      {"of another job", with(PsRequest(1, 101), [](auto& request) { request.set_job_uid("other"); }), Phase::kTraining,
       v1::SYNC_WRONG_JOB, false},
      {"that has seen a newer one", with(PsRequest(1, 101), [](auto& request) { request.set_highest_incarnation(4); }),
       Phase::kTraining, v1::SYNC_REFUSED, false},
      {"that obeys older ones", with(PsRequest(1, 101), older), Phase::kTraining, v1::SYNC_WAIT, true},
      {"that is known and obeys older ones", with(PsRequest(0, 100, 2), older), Phase::kTraining, v1::SYNC_WAIT, false},
      {"more than are wanted", PsRequest(2, 102), Phase::kTraining, v1::SYNC_WAIT, false},
      {"that may be needed", PsRequest(2, 102), Phase::kGathering, v1::SYNC_OK, false},
      {"more than are wanted, with slices", with(PsRequest(2, 102), told), Phase::kTraining, v1::SYNC_OK, false},
      {"a start before", PsRequest(0, 90, 1), Phase::kTraining, v1::SYNC_REPLACED, false},
      {"a later start", PsRequest(0, 110, 3), Phase::kTraining, v1::SYNC_OK, false},
      {"after the end", PsRequest(1, 101), Phase::kDone, v1::SYNC_WAIT, false},
      {"after a failure", PsRequest(1, 101), Phase::kFailed, v1::SYNC_WAIT, false},
      {"that does not say what it holds", with(PsRequest(1, 101), holds), Phase::kTraining, v1::SYNC_WAIT, true},
      {"that does", with(PsRequest(1, 101), told), Phase::kTraining, v1::SYNC_OK, false},
  };
  for (const Case& one : cases) {
    const v1::RegisterPsReply reply = AnswerPs(one.request, kJob, 3, one.phase, registry);
    EXPECT_EQ(reply.status(), one.status) << one.what << ": " << reply.message();
    EXPECT_EQ(reply.tell_all(), one.tell_all) << one.what;
    EXPECT_EQ(reply.message().empty(), one.status == v1::SYNC_OK) << one.what;
    EXPECT_EQ(reply.incarnation(), 3u);
  }
}

TEST(RefuseSessionTest, ASessionIsProposedOnceToTheCoordinatorThatThereIs) {
  Membership members(absl::Seconds(3));
  const auto make = [](std::uint64_t session, bool accepted) {
    v1::WorkerSyncRequest request;
    request.set_session(session);
    request.set_accepted(accepted);
    request.set_incarnation(3);
    request.set_index(4);
    request.set_process_incarnation(2);
    request.set_sequence(1);
    return request;
  };
  const auto status = [&](const v1::WorkerSyncRequest& request, Phase phase = Phase::kTraining) {
    const std::optional<Refusal> refusal = RefuseSession(request, 3, phase, members);
    return refusal.has_value() ? refusal->status : v1::SYNC_OK;
  };
  EXPECT_EQ(status(make(0, false)), v1::SYNC_REFUSED);
  EXPECT_EQ(status(make(7, false)), v1::SYNC_OK);
  EXPECT_EQ(status(make(7, true)), v1::SYNC_SESSION_ENDED) << "by an earlier coordinator, and over";
  EXPECT_EQ(status(make(7, true), Phase::kGathering), v1::SYNC_WAIT) << "it may not be over";
  v1::WorkerSyncRequest other = make(7, false);
  other.set_incarnation(2);
  EXPECT_EQ(status(other), v1::SYNC_WAIT) << "it was proposed to another one";
  other = make(7, false);
  other.set_leaving(true);
  EXPECT_EQ(status(other), v1::SYNC_FINISHED);
  members.Add(7);
  members.Hear(make(7, false), absl::ZeroDuration());
  EXPECT_EQ(status(make(7, true)), v1::SYNC_OK);
  other = make(8, false);
  other.set_process_incarnation(1);
  EXPECT_EQ(status(other), v1::SYNC_REPLACED);
  members.End(7);
  EXPECT_EQ(status(make(7, false)), v1::SYNC_SESSION_ENDED);
}

TEST(AnswerFinishTest, IsAcceptedOnceTheJobIsOver) {
  v1::FinishRequest request;
  request.set_job_uid(kJob);
  EXPECT_TRUE(AnswerFinish(request, kJob, Phase::kDone).accepted());
  EXPECT_TRUE(AnswerFinish(request, kJob, Phase::kFailed).accepted());
  const v1::FinishReply early = AnswerFinish(request, kJob, Phase::kTraining);
  EXPECT_FALSE(early.accepted());
  EXPECT_EQ(early.message(), "the job is not over");
  const v1::FinishReply stranger = AnswerFinish(request, "other", Phase::kDone);
  EXPECT_FALSE(stranger.accepted());
  EXPECT_EQ(stranger.message(), "another job");
}

}  // namespace
}  // namespace downpour::core
