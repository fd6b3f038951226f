#include "operator/planner/failure.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "operator/planner/fake_world.h"

namespace downpour::planner {
namespace {

using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kCoordinator = api::Role::kCoordinator;
constexpr auto kPs = api::Role::kParameterServer;
constexpr auto kWorker = api::Role::kWorker;

Instance Ended(InstancePhase phase, std::optional<int> exit_code, std::string reason = "") {
  Instance instance;
  instance.phase = phase;
  instance.exit_code = exit_code;
  instance.reason = std::move(reason);
  return instance;
}

TEST(ClassifyCauseTest, InOrderOfTrust) {
  struct Case {
    Instance instance;
    std::string cause;
    bool infrastructure;
  };
  Instance disrupted = Ended(InstancePhase::kFailed, 137, "OOMKilled");
  disrupted.conditions = {{"Ready", "False"}, {"DisruptionTarget", "True"}};
  Instance not_disrupted = disrupted;
  not_disrupted.conditions = {{"DisruptionTarget", "False"}};
  Instance deleted = Ended(InstancePhase::kFailed, 143);
  deleted.terminating = true;
  Instance killed_while_deleted = deleted;
  killed_while_deleted.reason = "OOMKilled";
  const std::vector<Case> cases = {
      {disrupted, "DisruptionTarget", true},
      {not_disrupted, "OOMKilled", false},
      {deleted, "Deleted", true},
      {killed_while_deleted, "OOMKilled", false},
      {Ended(InstancePhase::kFailed, 137, "Evicted"), "Evicted", true},
      {Ended(InstancePhase::kFailed, std::nullopt, "NodeLost"), "NodeLost", true},
      {Ended(InstancePhase::kFailed, std::nullopt, "UnexpectedAdmissionError"), "UnexpectedAdmissionError", true},
      {Ended(InstancePhase::kFailed, 137, "Error"), "Killed by signal 9", false},
      {Ended(InstancePhase::kFailed, 139), "Killed by signal 11", false},
      {Ended(InstancePhase::kFailed, 128), "Exit code 128", false},
      {Ended(InstancePhase::kFailed, 255), "Exit code 255", false},
      {Ended(InstancePhase::kFailed, 1, "Error"), "Exit code 1", false},
      {Ended(InstancePhase::kFailed, std::nullopt), "Unknown", false},
      {Ended(InstancePhase::kSucceeded, 0, "Completed"), "UnexpectedExit", false},
  };
  for (const Case& c : cases) {
    const Cause cause = ClassifyCause(c.instance);
    EXPECT_EQ(cause.name, c.cause);
    EXPECT_EQ(cause.infrastructure, c.infrastructure) << c.cause;
    EXPECT_FALSE(cause.description.empty());
  }
}

TEST(DecideActionTest, FirstMatchingRuleElseTheBuiltInDefault) {
  api::FailurePolicy policy;
  api::FailureRule disrupted;
  disrupted.name = "disrupted";
  disrupted.on_pod_conditions = {{"DisruptionTarget", "True"}};
  disrupted.counts_towards_limit = false;
  api::FailureRule oom;
  oom.name = "oom";
  oom.roles = {kWorker};
  oom.on_container_reasons = {"OOMKilled"};
  oom.action = api::RestartAction::kFailJob;
  api::FailureRule ignored;
  ignored.name = "ignored";
  ignored.on_exit_codes = api::ExitCodeRule{true, {77}};
  ignored.action = api::RestartAction::kIgnore;
  api::FailureRule others;
  others.name = "others";
  others.roles = {kPs};
  others.on_exit_codes = api::ExitCodeRule{false, {1, 137}};
  others.action = api::RestartAction::kRestartJob;
  policy.rules = {disrupted, oom, ignored, others};

  struct Case {
    api::Role role;
    Instance instance;
    std::string rule;
    api::RestartAction action;
    bool counted;
  };
  Instance with_condition = Ended(InstancePhase::kFailed, 2, "OOMKilled");
  with_condition.conditions = {{"DisruptionTarget", "True"}};
  const auto failed = [](std::optional<int> code, std::string reason = "") {
    return Ended(InstancePhase::kFailed, code, std::move(reason));
  };
  using Action = api::RestartAction;
  const std::vector<Case> cases = {
      {kWorker, with_condition, "disrupted", Action::kReplace, false},
      {kWorker, failed(137, "OOMKilled"), "oom", Action::kFailJob, true},
      {kPs, failed(137, "OOMKilled"), "", Action::kReplace, true},
      {kWorker, failed(77), "ignored", Action::kIgnore, false},
      {kPs, failed(3), "others", Action::kRestartJob, true},
      {kPs, failed(2), "others", Action::kRestartJob, true},
      {kWorker, failed(2), "", Action::kFailJob, true},
      {kWorker, failed(2, "Evicted"), "", Action::kReplace, false},
      {kWorker, failed(1), "", Action::kReplace, true},
      {kPs, failed(std::nullopt), "", Action::kReplace, true},
  };
  for (Case c : cases) {
    c.instance.role = c.role;
    const Verdict verdict = DecideAction(policy, c.instance, ClassifyCause(c.instance));
    SCOPED_TRACE(c.instance.exit_code.value_or(-1));
    EXPECT_EQ(verdict.rule, c.rule);
    EXPECT_EQ(verdict.action, c.action);
    EXPECT_EQ(verdict.counted, c.counted);
  }
}

TEST(ClassifyCauseTest, NamesTheContainerThatIsNotOurs) {
  Instance instance = Ended(InstancePhase::kFailed, 42, "Error");
  instance.container = "init container fetch";
  EXPECT_EQ(ClassifyCause(instance).name, "Exit code 42");
  EXPECT_EQ(ClassifyCause(instance).description, "exit code 42 in the init container fetch");
  instance.exit_code = 137;
  EXPECT_EQ(ClassifyCause(instance).description, "killed by signal 9 in the init container fetch");
  instance.reason = "OOMKilled";
  EXPECT_EQ(ClassifyCause(instance).description, "out of memory in the init container fetch");
}

TEST(DecideActionTest, AnotherContainersCodeMatchesRulesAndIsNotOurBadInput) {
  Instance instance = Ended(InstancePhase::kFailed, 2, "Error");
  instance.container = "init container fetch";
  api::FailurePolicy policy;
  EXPECT_EQ(DecideAction(policy, instance, ClassifyCause(instance)).action, api::RestartAction::kReplace);
  api::FailureRule rule;
  rule.name = "fetch";
  rule.on_exit_codes = api::ExitCodeRule{true, {2}};
  rule.action = api::RestartAction::kFailJob;
  policy.rules = {rule};
  EXPECT_EQ(DecideAction(policy, instance, ClassifyCause(instance)).rule, "fetch");
  policy.rules[0].on_exit_codes->container_name = "fetch";
  EXPECT_EQ(DecideAction(policy, instance, ClassifyCause(instance)).rule, "fetch");
  policy.rules[0].on_exit_codes->container_name = "trainer";
  EXPECT_EQ(DecideAction(policy, instance, ClassifyCause(instance)).rule, "");
  instance.container.clear();
  EXPECT_EQ(DecideAction(policy, instance, ClassifyCause(instance)).rule, "fetch");
}

TEST(BackoffSecondsTest, NoneFirstThenDoublesUpToTheMaximum) {
  const api::Backoff backoff{1, 300};
  EXPECT_EQ(BackoffSeconds(backoff, 0), 0);
  EXPECT_EQ(BackoffSeconds(backoff, 1), 0);
  EXPECT_EQ(BackoffSeconds(backoff, 2), 1);
  EXPECT_EQ(BackoffSeconds(backoff, 3), 2);
  EXPECT_EQ(BackoffSeconds(backoff, 10), 256);
  EXPECT_EQ(BackoffSeconds(backoff, 11), 300);
  EXPECT_EQ(BackoffSeconds(backoff, 1'000'000), 300);
  EXPECT_EQ(BackoffSeconds({500, 300}, 2), 300);
  EXPECT_EQ(BackoffSeconds({0, 300}, 100), 0);
}

TEST(FailureTest, WhoAbortedSaidWhy) {
  FakeWorld world = FakeWorld::Training(2, 3);
  world.Fail(kWorker, 1, 134);
  world.Get(kWorker, 1).last_log_line = "what(): a defect";
  const Plan plan = world.Step();
  ASSERT_EQ(plan.status.failures.size(), 1u);
  EXPECT_EQ(plan.status.failures[0].message, "worker-1 ended: killed by signal 6; its last line: what(): a defect");
  EXPECT_EQ(plan.status.failures[0].last_log_line, "what(): a defect");
}

TEST(FailureTest, WorkerIsReplacedAndNothingElseTouched) {
  FakeWorld world = FakeWorld::Training(2, 3);
  world.Fail(kWorker, 1, 137);
  world.Get(kWorker, 1).last_log_line = "step 7";
  const Plan plan = world.Step();
  EXPECT_THAT(Starts(plan), ElementsAre("worker-1#2"));
  EXPECT_EQ(plan.actions.front().type, ActionType::kStoreStatus);
  EXPECT_EQ(plan.actions.size(), 2u);
  EXPECT_THAT(EventReasons(plan), ElementsAre("WorkerLost", "WorkerReplaced"));
  EXPECT_EQ(plan.status.restarts_total, 1);
  EXPECT_EQ(plan.status.restarts_counted, 1);
  EXPECT_EQ(plan.status.worker.restarts, 1);
  EXPECT_FALSE(IsTrue(plan.status, kRecovering));
  ASSERT_EQ(plan.status.failures.size(), 1u);
  const api::FailureRecord& record = plan.status.failures[0];
  EXPECT_EQ(record.cause, "Killed by signal 9");
  EXPECT_EQ(record.action, "Replace");
  EXPECT_EQ(record.message, "worker-1 ended: killed by signal 9") << "its last line is no last word";
  EXPECT_EQ(record.exit_code, 137);

  const Plan again = world.Step();
  EXPECT_THAT(Starts(again), IsEmpty());
  EXPECT_THAT(again.events, IsEmpty());
  EXPECT_EQ(again.status.restarts_total, 1);
}

TEST(FailureTest, CountedOnceThoughThePlannerStopsBeforeTheStart) {
  FakeWorld world = FakeWorld::Training(1, 1);
  world.Fail(kWorker, 0, 1);
  for (int crash = 0; crash < 3; ++crash) {
    const Plan plan = world.MakePlanNow();
    ASSERT_EQ(plan.actions.at(0).type, ActionType::kStoreStatus);
    world.Apply(plan.actions[0], plan);  // and the planner dies
  }
  EXPECT_EQ(world.job.status.restarts_total, 1);
  EXPECT_EQ(world.job.status.incarnations.at("worker-0"), 4);
  EXPECT_THAT(Starts(world.Step()), ElementsAre("worker-0#5"));
}

TEST(FailureTest, PsLossSaysPlainlyThatParametersAreLost) {
  FakeWorld world = FakeWorld::Training(2, 1);
  world.now += 1;
  world.Fail(kPs, 0, 137);
  const Plan plan = world.Step();
  EXPECT_THAT(Starts(plan), ElementsAre("ps-0#2"));
  EXPECT_THAT(EventReasons(plan), ElementsAre("PsLost", "PsReplaced"));
  const std::string message =
      "parameters were lost: ps-0 ended (killed by signal 9) and no checkpoint is configured; training starts again "
      "from the beginning under a new generation";
  EXPECT_EQ(plan.events[0].message, message);
  EXPECT_EQ(FindCondition(plan.status, kParametersLost)->message, message);
  EXPECT_TRUE(IsTrue(plan.status, kParametersLost));
  EXPECT_EQ(plan.status.phase, "Recovering");
}

TEST(FailureTest, NothingIsLostWithAPsThatNeverHadParameters) {
  FakeWorld world(1, 1);
  world.Step();
  world.now += 1;
  world.Report(CoordinatorPhase::kStarting);
  world.Fail(kPs, 0, 1);
  const Plan plan = world.Step();
  EXPECT_FALSE(IsTrue(plan.status, kParametersLost));
  EXPECT_THAT(Starts(plan), ElementsAre("ps-0#2"));
}

TEST(FailureTest, CoordinatorIsReplacedWithAHigherIncarnation) {
  FakeWorld world = FakeWorld::Training(1, 2);
  world.now += 1;
  world.Fail(kCoordinator, 0, 139);
  const Plan plan = world.Step();
  EXPECT_THAT(Starts(plan), ElementsAre("coordinator-0#2"));
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 0);
  EXPECT_TRUE(IsTrue(plan.status, kRecovering));
  EXPECT_FALSE(IsTrue(plan.status, kParametersLost));
  EXPECT_EQ(plan.status.phase, "Recovering");
}

TEST(FailureTest, BackoffGrowsWithTheFailuresOfOneReplicaOnly) {
  FakeWorld world = FakeWorld::Training(1, 2);
  world.job.spec.failure_policy.backoff = {4, 10};
  const double waits[] = {0, 4, 8, 10, 10};
  int incarnation = 1;
  for (const double wait : waits) {
    world.Fail(kWorker, 0, 1);
    Plan plan = world.Step();
    if (wait > 0) {
      EXPECT_THAT(Starts(plan), IsEmpty());
      ASSERT_TRUE(plan.requeue_after.has_value());
      EXPECT_DOUBLE_EQ(*plan.requeue_after, wait);
      world.now += wait - 0.5;
      EXPECT_THAT(Starts(world.Step()), IsEmpty());
      world.now += 0.5;
      plan = world.Step();
    }
    EXPECT_THAT(Starts(plan), ElementsAre(absl::StrCat("worker-0#", ++incarnation)));
  }
  world.Fail(kWorker, 1, 1);
  EXPECT_THAT(Starts(world.Step()), ElementsAre("worker-1#2"));
}

TEST(FailureTest, InfrastructureIsNotCountedAndReplacedAfterTheInitialBackoff) {
  FakeWorld world = FakeWorld::Training(1, 1);
  world.job.spec.failure_policy.max_restarts = 0;
  for (int i = 1; i <= 20; ++i) {
    world.Fail(kWorker, 0, 137);
    world.Get(kWorker, 0).reason = "Evicted";
    const Plan plan = world.Step();
    EXPECT_THAT(Starts(plan), IsEmpty());
    EXPECT_EQ(plan.requeue_after, 1);
    world.now += 1;
    EXPECT_THAT(Starts(world.Step()), ElementsAre(absl::StrCat("worker-0#", i + 1)));
  }
  EXPECT_EQ(world.job.status.restarts_total, 20);
  EXPECT_EQ(world.job.status.restarts_counted, 0);
  EXPECT_EQ(world.job.status.failures.size(), 10u);
  EXPECT_EQ(world.job.status.recent_failures.size(), 1u);
  EXPECT_LE(world.job.status.counted_uids.size(), 1u);
}

TEST(FailureTest, LimitOfOneReplicaWithinTheWindow) {
  FakeWorld world = FakeWorld::Training(1, 1);
  api::FailurePolicy& policy = world.job.spec.failure_policy;
  policy.max_restarts_per_replica = 2;
  policy.window_seconds = 100;
  policy.backoff = {0, 0};
  // Two in a window, for ever.
  for (int i = 0; i < 10; ++i) {
    world.now += 50;
    world.Report(CoordinatorPhase::kTraining, 100 + static_cast<std::uint64_t>(i));
    world.Fail(kWorker, 0, 1);
    ASSERT_EQ(Starts(world.Step()).size(), 1u) << i;
  }
  world.now += 1;
  world.Fail(kWorker, 0, 139);
  const Plan plan = world.Step();
  EXPECT_THAT(Starts(plan), IsEmpty());
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 2);
  const api::Condition* target = FindCondition(plan.status, kFailureTarget);
  ASSERT_NE(target, nullptr);
  EXPECT_EQ(target->reason, "RestartLimitExceeded");
  EXPECT_EQ(target->message,
            "worker-0 failed 3 times within 100 s, more than maxRestartsPerReplica = 2; last cause: killed by signal "
            "11");
  EXPECT_EQ(plan.status.failures.back().action, "FailJob");
  EXPECT_EQ(plan.status.restarts_total, 10);
}

TEST(FailureTest, LimitOfTheWholeJobForLife) {
  FakeWorld world = FakeWorld::Training(1, 4);
  world.job.spec.failure_policy.max_restarts = 3;
  world.job.spec.failure_policy.window_seconds = 0;
  for (int i = 0; i < 3; ++i) {
    world.now += 100'000;
    world.Report(CoordinatorPhase::kTraining, 100 + static_cast<std::uint64_t>(i));
    world.Fail(kWorker, i, 1);
    EXPECT_EQ(Starts(world.Step()).size(), 1u);
  }
  world.Fail(kWorker, 3, 1);
  const Plan plan = world.Step();
  EXPECT_EQ(FindCondition(plan.status, kFailureTarget)->message,
            "the roles of the job failed 4 times in the life of the job, more than maxRestarts = 3; the last was "
            "worker-3, cause: exit code 1");
}

TEST(FailureTest, BadInputOfOneWorkerDoesNotEndAJobThatTrains) {
  FakeWorld world = FakeWorld::Training(1, 2);
  world.Fail(kWorker, 0, 2);
  const Plan plan = world.Step();
  EXPECT_EQ(Starts(plan).size(), 1u);
  EXPECT_FALSE(IsTrue(plan.status, kFailureTarget));
  EXPECT_EQ(plan.status.restarts_counted, 1) << "where it is everybody's, the limit ends it";
}

TEST(FailureTest, BadInputFailsTheJobUnlessARuleSaysOtherwise) {
  for (const bool with_rule : {false, true}) {
    FakeWorld world(1, 1);
    world.Step();
    if (with_rule) {
      api::FailureRule rule;
      rule.name = "retry";
      rule.on_exit_codes = api::ExitCodeRule{true, {2}};
      world.job.spec.failure_policy.rules = {rule};
    }
    world.Fail(kWorker, 0, 2);
    world.Get(kWorker, 0).last_log_line = "bad magic";
    const Plan plan = world.Step();
    EXPECT_EQ(Starts(plan).size(), with_rule ? 1u : 0u);
    EXPECT_EQ(IsTrue(plan.status, kFailureTarget), !with_rule);
    if (!with_rule) {
      EXPECT_EQ(FindCondition(plan.status, kFailureTarget)->reason, "BadInput");
      EXPECT_THAT(FindCondition(plan.status, kFailureTarget)->message, HasSubstr("bad magic"));
    }
  }
}

TEST(FailureTest, NoOperatorMatchesExitCodeZero) {
  api::FailurePolicy policy;
  policy.rules.resize(1);
  policy.rules[0].name = "a";
  policy.rules[0].action = api::RestartAction::kFailJob;
  policy.rules[0].on_exit_codes = api::ExitCodeRule{/*in=*/false, {1}};
  const auto decides = [&policy](InstancePhase phase, std::optional<int> code) {
    const Instance instance = Ended(phase, code);
    return DecideAction(policy, instance, ClassifyCause(instance)).rule == "a";
  };
  EXPECT_TRUE(decides(InstancePhase::kFailed, 3));
  EXPECT_FALSE(decides(InstancePhase::kFailed, 1));
  EXPECT_FALSE(decides(InstancePhase::kSucceeded, 0));
  EXPECT_FALSE(decides(InstancePhase::kFailed, std::nullopt));
}

// As a leader that is new: it has asked, and has no answer yet.
TEST(FailureTest, WorkerThatExitedZeroWaitsForTheFirstWordOfTheCoordinatorToo) {
  FakeWorld world = FakeWorld::Training(1, 1);
  world.End(world.Get(kWorker, 0), InstancePhase::kSucceeded, 0);
  world.now += 100;
  world.observed.report.reset();
  world.observed.answer_due = world.now + 7;
  Plan plan = world.Step();
  EXPECT_THAT(Starts(plan), IsEmpty());
  EXPECT_EQ(plan.status.restarts_total, 0);
  ASSERT_TRUE(plan.requeue_after.has_value());
  EXPECT_LE(*plan.requeue_after, 7);
  const FakeWorld waiting = world;
  world.now += 3;
  world.Report(CoordinatorPhase::kDone, 20);
  EXPECT_TRUE(IsTrue(world.Step().status, kSuccessCriteriaMet));
  EXPECT_EQ(world.job.status.restarts_total, 0);
  // None comes.
  world = waiting;
  world.now += 7;
  EXPECT_EQ(world.Step().status.restarts_total, 1);
}

TEST(FailureTest, WorkerThatExitsZeroWaitsForTheCoordinatorsNextWord) {
  // Dismissed: the report that follows says Finishing, then Done.
  FakeWorld world = FakeWorld::Training(1, 1);
  world.now += 1;
  world.End(world.Get(kWorker, 0), InstancePhase::kSucceeded, 0);
  Plan plan = world.Step();
  EXPECT_THAT(Starts(plan), IsEmpty());
  EXPECT_EQ(plan.status.restarts_total, 0);
  ASSERT_TRUE(plan.requeue_after.has_value());
  EXPECT_LE(*plan.requeue_after, 10);
  world.now += 0.1;
  world.Report(CoordinatorPhase::kFinishing, 20);
  EXPECT_THAT(Starts(world.Step()), IsEmpty());
  world.now += 100;
  EXPECT_THAT(Starts(world.Step()), IsEmpty());
  world.Report(CoordinatorPhase::kDone, 20);
  EXPECT_TRUE(IsTrue(world.Step().status, kSuccessCriteriaMet));
  EXPECT_EQ(world.job.status.restarts_total, 0);

  // Not dismissed: the report that follows says Training.
  world = FakeWorld::Training(1, 1);
  world.now += 1;
  world.End(world.Get(kWorker, 0), InstancePhase::kSucceeded, 0);
  world.now += 0.1;
  world.Report(CoordinatorPhase::kTraining, 20);
  EXPECT_THAT(Starts(world.Step()), IsEmpty()) << "the answer may be older than the exit";
  world.now += 1;
  world.Report(CoordinatorPhase::kTraining, 20);
  plan = world.Step();
  EXPECT_THAT(Starts(plan), ElementsAre("worker-0#2"));
  EXPECT_EQ(plan.status.failures.back().cause, "UnexpectedExit");

  // No word for ten seconds.
  world = FakeWorld::Training(1, 1);
  world.now += 1;
  world.End(world.Get(kWorker, 0), InstancePhase::kSucceeded, 0);
  world.now += 10;
  EXPECT_THAT(Starts(world.Step()), ElementsAre("worker-0#2"));
}

TEST(FailureTest, ExitZeroOfCoordinatorOrPsBeforeTheEndIsAFailure) {
  for (const api::Role role : {kCoordinator, kPs}) {
    FakeWorld world = FakeWorld::Training(1, 1);
    world.End(world.Get(role, 0), InstancePhase::kSucceeded, 0);
    const Plan plan = world.Step();
    EXPECT_EQ(plan.status.failures.back().cause, "UnexpectedExit");
    EXPECT_EQ(Starts(plan).size(), 1u);
  }
}

TEST(FailureTest, VanishedInstanceCountsAsDeleted) {
  FakeWorld world = FakeWorld::Training(2, 1);
  world.now += 1;
  std::erase_if(world.observed.instances, [](const Instance& i) { return i.role == kPs && i.index == 1; });
  const Plan plan = world.Step();
  EXPECT_EQ(plan.status.failures.back().cause, "Deleted");
  EXPECT_EQ(plan.status.restarts_counted, 0);
  EXPECT_TRUE(IsTrue(plan.status, kParametersLost));
  EXPECT_EQ(world.Step().status.restarts_total, 1);
  world.now += 1;
  EXPECT_THAT(Starts(world.Step()), ElementsAre("ps-1#2"));
}

TEST(FailureTest, VanishedWhileTheJobIsScaledUpCountsAsDeleted) {
  FakeWorld world = FakeWorld::Training(1, 2);
  world.now += 1;
  std::erase_if(world.observed.instances, [](const Instance& i) { return i.role == kWorker && i.index == 0; });
  world.job.spec.worker.replicas = 3;
  const Plan plan = world.Step();
  ASSERT_EQ(plan.status.failures.size(), 1u);
  EXPECT_EQ(plan.status.failures.back().cause, "Deleted");
  EXPECT_EQ(world.Step().status.restarts_total, 1);
}

TEST(FailureTest, DeletedBySomebodyElseCountsOnceWhenTheDeletionIsSeen) {
  FakeWorld world = FakeWorld::Training(1, 1);
  world.Get(kWorker, 0).terminating = true;
  world.Get(kWorker, 0).terminating_since = world.now;
  Plan plan = world.Step();
  EXPECT_EQ(plan.status.failures.back().cause, "Deleted");
  EXPECT_THAT(Starts(plan), IsEmpty());
  world.now += 5;
  world.EndTerminating();
  plan = world.Step();
  EXPECT_THAT(Starts(plan), ElementsAre("worker-0#2"));
  EXPECT_EQ(plan.status.restarts_total, 1);
}

TEST(FailureTest, RestartJobStopsEverythingBeforeAnythingStartsAgain) {
  FakeWorld world = FakeWorld::Training(1, 2);
  api::FailureRule rule;
  rule.name = "all";
  rule.roles = {kPs};
  rule.action = api::RestartAction::kRestartJob;
  world.job.spec.failure_policy.rules = {rule};
  world.Fail(kPs, 0, 1);
  Plan plan = world.Step();
  EXPECT_THAT(EventReasons(plan), Contains("JobRestarting"));
  EXPECT_EQ(CountActions(plan, ActionType::kStop), 3);
  EXPECT_THAT(Starts(plan), IsEmpty());
  EXPECT_THAT(Starts(world.Step()), IsEmpty());
  world.EndTerminating();
  plan = world.Step();
  EXPECT_THAT(Starts(plan), ElementsAre("coordinator-0#2", "ps-0#2", "worker-0#2", "worker-1#2"));
  EXPECT_EQ(plan.status.restarts_total, 1);
  EXPECT_FALSE(IsTrue(plan.status, kRestarting));
}

}  // namespace
}  // namespace downpour::planner
