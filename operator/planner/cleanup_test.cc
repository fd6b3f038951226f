#include "operator/planner/cleanup.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace downpour::planner {
namespace {

Instance MakeInstance(const std::string& uid, InstancePhase phase) {
  Instance instance;
  instance.uid = uid;
  instance.phase = phase;
  instance.index = static_cast<int>(uid.size());
  return instance;
}

api::TrainingJob MakeJob(const char* outcome) {
  api::TrainingJob job;
  job.spec.parameter_server.emplace();
  job.status.conditions.push_back({outcome, true, "", "", 100, 1});
  job.status.start_time = 50;
  job.status.completion_time = 100;
  return job;
}

std::vector<std::string> Removed(const Plan& plan) {
  std::vector<std::string> uids;
  for (const Action& action : plan.actions) {
    if (action.type == ActionType::kRemove) uids.push_back(action.uid);
  }
  return uids;
}

bool DeletesJob(const Plan& plan) {
  return std::any_of(plan.actions.begin(), plan.actions.end(),
                     [](const Action& action) { return action.type == ActionType::kDeleteJob; });
}

TEST(CleanupTest, EachPolicyRemovesWhatItSays) {
  Observed observed;
  observed.instances = {MakeInstance("a", InstancePhase::kSucceeded), MakeInstance("bb", InstancePhase::kFailed)};
  using Uids = std::vector<std::string>;
  const std::pair<api::CleanupPolicy, Uids> cases[] = {{api::CleanupPolicy::kAll, {"a", "bb"}},
                                                       {api::CleanupPolicy::kKeepFailed, {"a"}},
                                                       {api::CleanupPolicy::kRunning, {}},
                                                       {api::CleanupPolicy::kNone, {}}};
  for (const auto& [policy, expected] : cases) {
    api::TrainingJob job = MakeJob(kComplete);
    job.spec.pod_cleanup.on_success = policy;
    job.spec.pod_cleanup.on_failure = api::CleanupPolicy::kNone;
    EXPECT_EQ(Removed(MakePlan(job, observed, 101)), expected);
    job = MakeJob(kFailed);
    job.spec.pod_cleanup.on_success = api::CleanupPolicy::kNone;
    job.spec.pod_cleanup.on_failure = policy;
    EXPECT_EQ(Removed(MakePlan(job, observed, 101)), expected);
  }
}

TEST(CleanupTest, ARoleMayHaveItsOwn) {
  Observed observed;
  const std::pair<const char*, api::Role> members[] = {
      {"coordinator", api::Role::kCoordinator}, {"ps", api::Role::kParameterServer}, {"worker", api::Role::kWorker}};
  for (const auto& [uid, role] : members) {
    observed.instances.push_back(MakeInstance(uid, InstancePhase::kFailed));
    observed.instances.back().role = role;
  }
  using Uids = std::vector<std::string>;
  for (const bool succeeded : {true, false}) {
    api::TrainingJob job = MakeJob(succeeded ? kComplete : kFailed);
    api::PodCleanup& cleanup = job.spec.pod_cleanup;
    cleanup.on_success = cleanup.on_failure = api::CleanupPolicy::kAll;
    cleanup.worker = api::RoleCleanup{api::CleanupPolicy::kNone, api::CleanupPolicy::kKeepFailed};
    cleanup.coordinator = api::RoleCleanup{api::CleanupPolicy::kRunning, std::nullopt};
    cleanup.parameter_server.emplace();
    EXPECT_EQ(Removed(MakePlan(job, observed, 101)), succeeded ? Uids({"ps"}) : Uids({"coordinator", "ps"}));
  }
}

TEST(CleanupTest, AJobGoesWhenItsTimeIsOver) {
  api::TrainingJob job = MakeJob(kComplete);
  EXPECT_FALSE(DeletesJob(MakePlan(job, {}, 1e9)));
  job.spec.ttl_seconds_after_finished = 60;
  const Plan before = MakePlan(job, {}, 130);
  EXPECT_FALSE(DeletesJob(before));
  EXPECT_EQ(before.requeue_after, 30);
  EXPECT_TRUE(DeletesJob(MakePlan(job, {}, 160)));
}

}  // namespace
}  // namespace downpour::planner
