#include "cli/why/explanation.h"

#include <random>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "cli/render/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/planner/checkpoint.h"
#include "operator/planner/conditions.h"

namespace downpour::cli {
namespace {

using planner::Instance;
using planner::InstancePhase;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr double kNow = 100000;

Instance Member(api::Role role, int index, InstancePhase phase = InstancePhase::kRunning) {
  Instance instance;
  instance.role = role;
  instance.index = index;
  instance.uid = absl::StrCat("uid-", static_cast<int>(role), "-", index);
  instance.phase = phase;
  instance.ready = phase == InstancePhase::kRunning;
  instance.created_time = kNow - 300;
  instance.node = phase == InstancePhase::kPending ? "" : "node-0";
  return instance;
}

// A job with two workers that trains and lacks nothing.
Situation Training() {
  Situation situation;
  situation.subject = "lenet in namespace team-a";
  situation.on_cluster = true;
  situation.logs_command = "downpour logs lenet -n team-a";
  situation.created_time = kNow - 310;
  api::TrainingJob& job = situation.job;
  job.metadata.generation = 2;
  job.spec.parameter_server.emplace();
  job.spec.worker.replicas = 2;
  job.status.observed_generation = 2;
  job.status.phase = "Running";
  job.status.start_time = kNow - 305;
  job.status.last_progress_time = kNow - 5;
  job.status.coordinator.desired = job.status.coordinator.ready = 1;
  job.status.parameter_server.desired = job.status.parameter_server.ready = 1;
  job.status.worker.desired = job.status.worker.ready = 2;
  job.status.progress.emplace();
  job.status.progress->step = 400;
  job.status.progress->total_steps = 1000;
  job.status.progress->last_update_time = kNow - 5;
  situation.instances = {Member(api::Role::kCoordinator, 0), Member(api::Role::kParameterServer, 0),
                         Member(api::Role::kWorker, 0), Member(api::Role::kWorker, 1)};
  return situation;
}

void SetCondition(Situation& situation, const std::string& type, bool status, const std::string& reason,
                  const std::string& message) {
  situation.job.status.conditions.push_back({type, status, reason, message, kNow - 60, 2});
}

api::FailureRecord Failure(double time, int index, const std::string& cause, std::optional<int> exit_code) {
  api::FailureRecord record;
  record.time = time;
  record.index = index;
  record.uid = absl::StrCat("uid-", static_cast<int>(api::Role::kWorker), "-", index);
  record.cause = cause;
  record.exit_code = exit_code;
  record.action = "Replace";
  record.node = "node-0";
  record.message = absl::StrCat("worker-", index, " ended");
  return record;
}

// The lines of the section whose title begins so; empty if there is none.
std::vector<std::string> Section(const Explanation& explanation, const std::string& title) {
  for (const ExplanationSection& section : explanation.sections) {
    if (section.title.rfind(title, 0) == 0) return section.lines;
  }
  return {};
}

TEST(ExplainTest, NothingIsWrong) {
  const Explanation explanation = Explain(Training(), kNow);
  EXPECT_EQ(explanation.severity, Severity::kFine);
  EXPECT_EQ(explanation.facts, "Running, workers 2/2, ps 1/1, update 400/1000, age 5m10s");
  EXPECT_EQ(explanation.headline, "The job trains.");
  EXPECT_THAT(explanation.sections, IsEmpty());
}

TEST(ExplainTest, AMemberThatFitsOnNoNode) {
  Situation situation = Training();
  Instance& worker = (*situation.instances)[3] = Member(api::Role::kWorker, 1, InstancePhase::kPending);
  worker.waiting_reason = "Unschedulable: 0/1 nodes are available: 1 Insufficient memory.";
  situation.job.status.worker.ready = 1;
  SetCondition(situation, planner::kScheduled, false, "Unschedulable", "1 of 2 workers: Unschedulable: 0/1 nodes");
  SetCondition(situation, planner::kReady, false, "MembersMissing", "workers 1/2");
  situation.events = {{kNow - 9, 7, "worker-1", "FailedScheduling", "0/1 nodes are available: 1 Insufficient memory."},
                      {kNow - 8, 1, "worker-1", "Other", "another warning"}};
  const Explanation explanation = Explain(situation, kNow);
  EXPECT_EQ(explanation.severity, Severity::kAttention);
  EXPECT_EQ(explanation.headline,
            "Training goes on with 1 of 2 workers: worker-1 is pending: Unschedulable: 0/1 nodes are available: 1 "
            "Insufficient memory.");
  // What the headline says is not said again.
  EXPECT_THAT(Section(explanation, "Conditions"), ElementsAre("Scheduled is false for 1m0s: Unschedulable"));
  EXPECT_THAT(Section(explanation, "Pods that are not ready"),
              ElementsAre("worker-1: pending for 5m0s, Unschedulable"));
  EXPECT_THAT(
      Section(explanation, "What happens next"),
      ElementsAre("worker-1 counts as failed and is replaced if still pending in 10m0s (pendingTimeoutSeconds)"));
  EXPECT_THAT(Section(explanation, "Recent warnings"), ElementsAre("8s ago, worker-1: Other: another warning"));

  situation.job.status.phase = "Starting";
  (*situation.instances)[2] = worker;
  (*situation.instances)[2].index = 0;
  const Explanation both = Explain(situation, kNow);
  EXPECT_THAT(both.headline, HasSubstr("Training waits: worker-0, worker-1 are pending: Unschedulable"));
  EXPECT_THAT(Section(both, "Pods that are not ready"),
              ElementsAre("worker-0, worker-1: pending for 5m0s, Unschedulable"));
}

TEST(ExplainTest, AMemberThatFailsAgainAndAgain) {
  Situation situation = Training();
  situation.instances->pop_back();
  Instance ended = Member(api::Role::kWorker, 1, InstancePhase::kFailed);
  ended.finished_time = kNow - 3;
  situation.instances->push_back(ended);
  situation.job.spec.failure_policy.backoff.initial_seconds = 20;
  for (const double time : {kNow - 40, kNow - 3}) {
    api::FailureRecord failure = Failure(time, 1, "Exit code 3", 3);
    failure.last_log_line = "no data";
    situation.job.status.failures.push_back(failure);
    situation.job.status.recent_failures.push_back(failure);
  }
  situation.job.status.counted_uids = {ended.uid};
  situation.job.status.restarts_total = situation.job.status.restarts_counted = 2;
  situation.job.status.worker.ready = 1;
  const Explanation explanation = Explain(situation, kNow);
  EXPECT_EQ(explanation.headline,
            "Training goes on with 1 of 2 workers: worker-1 ended (Exit code 3) and is started again in 17s.");
  EXPECT_THAT(Section(explanation,
                      "Failures: 2 restarts, 2 of them towards the limits (10 a member, 100 the job, within 1h0m)"),
              ElementsAre("3s ago, worker-1: Exit code 3 on node-0, 2 times, Replace: \"no data\""));
  EXPECT_THAT(Section(explanation, "What happens next"),
              ElementsAre("worker-1 is started again in 17s (back-off)",
                          "more in its log: downpour logs lenet -n team-a --role worker --index 1"));
  EXPECT_THAT(Section(explanation, "Operator"), IsEmpty());
}

TEST(ExplainTest, AFailureNamesTheContainerThatIsNotOurs) {
  Situation situation = Training();
  situation.job.spec.failure_policy.backoff.initial_seconds = 20;
  situation.job.metadata.name = "lenet";
  situation.job.metadata.namespace_name = "team-a";
  (*situation.instances)[3] = Member(api::Role::kWorker, 1, InstancePhase::kFailed);
  api::FailureRecord failure = Failure(kNow - 3, 1, "Exit code 42", 42);
  failure.uid = (*situation.instances)[3].uid;
  failure.container = "init container fetch";
  situation.job.status.failures = situation.job.status.recent_failures = {failure, failure};
  situation.job.status.counted_uids = {failure.uid};
  const Explanation explanation = Explain(situation, kNow);
  EXPECT_THAT(explanation.headline, HasSubstr("worker-1 ended (Exit code 42 in the init container fetch)"));
  EXPECT_THAT(Section(explanation, "Failures"),
              ElementsAre("3s ago, worker-1: Exit code 42 in the init container fetch on node-0, 2 times, Replace"));
  EXPECT_THAT(Section(explanation, "What happens next"),
              Contains("more in its log: kubectl logs lenet-worker-1 -n team-a -c fetch"));
}

TEST(ExplainTest, WhatIsTheSameIsToldOnceAndWhatDiffersIsNot) {
  Situation situation = Training();
  auto& failures = situation.job.status.failures;
  failures = {Failure(kNow - 50, 0, "OOMKilled", 137), Failure(kNow - 40, 0, "OOMKilled", 137),
              Failure(kNow - 30, 1, "Deleted", std::nullopt), Failure(kNow - 20, 1, "PendingTimeout", std::nullopt)};
  failures[2].counted = false;
  failures[3].message = "worker-1 ended: pending for more than 900 s";
  const Explanation explanation = Explain(situation, kNow);
  EXPECT_THAT(Section(explanation, "Failures"),
              ElementsAre("20s ago, worker-1: PendingTimeout on node-0, Replace: pending for more than 900 s",
                          "30s ago, worker-1: Deleted on node-0, Replace, not counted",
                          "40s ago, worker-0: OOMKilled (exit code 137) on node-0, 2 times, Replace"));
  EXPECT_EQ(explanation.headline, "The job trains; the newest failure was worker-1 20s ago (PendingTimeout).");
}

TEST(ExplainTest, LostParametersAreToldUntilTheEnd) {
  Situation situation = Training();
  SetCondition(situation, planner::kParametersLost, true, "PsLost", "parameters were lost: ps-0 ended");
  (*situation.instances)[1] = Member(api::Role::kParameterServer, 0, InstancePhase::kPending);
  (*situation.instances)[1].waiting_reason = "ContainerCreating";
  situation.events = {{kNow - 9, 1, "", "PsLost", "parameters were lost: ps-0 ended"}};
  Explanation explanation = Explain(situation, kNow);
  EXPECT_EQ(explanation.severity, Severity::kAlarm);
  EXPECT_THAT(Section(explanation, "Recent warnings"), IsEmpty()) << "the headline says it";
  EXPECT_EQ(explanation.headline, "Parameters were lost: ps-0 ended. Now: ps-0 is pending: ContainerCreating.");
  situation = Training();
  SetCondition(situation, planner::kParametersLost, false, "TrainingStartedAgain",
               "training started again under generation 2");
  explanation = Explain(situation, kNow);
  EXPECT_EQ(explanation.severity, Severity::kAttention);
  EXPECT_EQ(explanation.headline,
            "The job trains. Parameters were lost, and 1m0s ago training started again under generation 2.");
}

TEST(ExplainTest, WhatACheckpointSavedAndWhatItDidNot) {
  Situation situation = Training();
  situation.job.spec.checkpoint.emplace();
  situation.job.spec.checkpoint->on_disruption = api::OnDisruption{90};
  situation.job.status.checkpoint = api::CheckpointStatus{"/ckpt/a/7", 120, kNow - 30, 0, ""};
  SetCondition(situation, planner::kResumed, true, "RolledBack", "resumed from /ckpt/a/7 at update 120");
  SetCondition(situation, planner::kParametersLost, false, "RolledBack",
               "training went on from /ckpt/a/7 (update 120; lost 5 updates, 3 s of training) under generation 2");
  Explanation explanation = Explain(situation, kNow);
  EXPECT_THAT(explanation.facts, HasSubstr("checkpoint of update 120 30s ago"));
  EXPECT_EQ(explanation.headline,
            "The job trains. Parameters were lost, and 1m0s ago training went on from /ckpt/a/7 (update 120; lost 5 "
            "updates, 3 s of training) under generation 2.");
  EXPECT_THAT(Section(explanation, "Conditions"), IsEmpty());

  situation.job.status.conditions.clear();
  SetCondition(situation, planner::kCheckpointFailing, true, "WriteFailed", "the newest checkpoint could not be made");
  EXPECT_EQ(Explain(situation, kNow).headline, "The job trains: the newest checkpoint could not be made.");

  SetCondition(situation, planner::kDrainWaits, true, "NodeCordoned", "a drain waits");
  EXPECT_THAT(Section(Explain(situation, kNow), "What happens next"),
              ElementsAre("evictions of parameter servers are let through when a checkpoint is made, or in 30s "
                          "(onDisruption.timeoutSeconds)"));

  situation.job.status.conditions.clear();
  SetCondition(situation, planner::kSuspended, false, planner::kMakingCheckpoint,
               "making a checkpoint before it is suspended");
  situation.job.status.checkpoint_request = {"suspend-4", kNow - 10};
  explanation = Explain(situation, kNow);
  EXPECT_EQ(explanation.headline, "The job still trains: making a checkpoint before it is suspended.");
  EXPECT_THAT(Section(explanation, "What happens next"),
              ElementsAre("the job is suspended when a checkpoint is made, or in 1m20s"));

  situation.job.status.conditions.clear();
  SetCondition(situation, planner::kSuspended, true, "SuspendRequested", "the job is suspended");
  EXPECT_THAT(Section(Explain(situation, kNow), "What happens next"),
              ElementsAre("the job goes on from /ckpt/a/7 (update 120) when spec.suspend is false"));
}

TEST(ExplainTest, AJobThatLacksStandbysSaysWhatThatMeans) {
  Situation situation = Training();
  situation.job.spec.parameter_server->replicas = 2;
  situation.job.spec.parameter_server->replication_factor = 2;
  situation.job.status.slices = {12, 9, 3, {0, 1, 2}};
  SetCondition(situation, planner::kProtected, true, "InSync", "each of the 12 slices has a standby that is in sync");
  EXPECT_EQ(Explain(situation, kNow).severity, Severity::kFine);
  situation.job.status.conditions.clear();
  SetCondition(situation, planner::kProtected, false, "Degraded", "9 of 12 slices have a standby that is in sync");
  const Explanation explanation = Explain(situation, kNow);
  EXPECT_EQ(explanation.severity, Severity::kAttention);
  EXPECT_EQ(
      explanation.headline,
      "The job trains, and the loss of a parameter server would cost progress: 9 of 12 slices have a standby that "
      "is in sync.");
  EXPECT_THAT(explanation.facts, HasSubstr("slices with a standby 9/12"));
  EXPECT_THAT(Section(explanation, "Conditions"), ElementsAre(HasSubstr("Protected is false for")));
  // The job wants one.
  EXPECT_THAT(Section(explanation, "What happens next"),
              ElementsAre("ps-1, ps-2 end once what is there has gone to the other parameter servers"));
}

TEST(ExplainTest, ConditionsThatSayItAll) {
  struct Case {
    const char* type;
    const char* headline;
    const char* next;
  };
  for (const Case& test :
       {Case{"SpecInvalid", "The operator cannot read the spec: the message.", "nothing, until the spec"},
        Case{planner::kSuspended, "The message.", "spec.suspend is false"},
        Case{planner::kTemplateInvalid, "A pod template is refused: the message. Nothing was started.",
             "asked again every 30 s"},
        Case{planner::kBlocked, "The platform refuses what the operator asks for (TheReason): the message.",
             "tried again with a back-off"},
        Case{planner::kRestarting, "The whole job is restarted: the message.", ""},
        Case{planner::kRecovering, "Training stands still while the job recovers: the message.", ""},
        Case{planner::kFailureTarget, "The job is failing (TheReason): the message.", "then the job has failed"}}) {
    Situation situation = Training();
    SetCondition(situation, test.type, true, "TheReason", "the message.");
    const Explanation explanation = Explain(situation, kNow);
    EXPECT_EQ(explanation.headline, test.headline);
    EXPECT_NE(explanation.severity, Severity::kFine) << test.type;
    EXPECT_THAT(Section(explanation, "Conditions"),
                ElementsAre(absl::StrCat(test.type, " is true for 1m0s: TheReason")));
    std::string next;
    for (const std::string& line : Section(explanation, "What happens next")) next += line;
    EXPECT_THAT(next, HasSubstr(test.next)) << test.type;
  }
}

TEST(ExplainTest, AConditionThatIsNotKnownIsShownWhenTrue) {
  Situation situation = Training();
  SetCondition(situation, "Degraded", true, "StandbyMissing", "ps-1 has no standby");
  SetCondition(situation, "Scaling", false, "", "");
  EXPECT_THAT(Section(Explain(situation, kNow), "Conditions"),
              ElementsAre("Degraded is true for 1m0s: StandbyMissing, ps-1 has no standby"));
}

TEST(ExplainTest, TheEnd) {
  Situation situation = Training();
  situation.outcome = kOutcomeSucceeded;
  situation.job.status.phase = "Succeeded";
  situation.job.status.completion_time = kNow - 5;
  situation.job.status.progress->test_accuracy = "0.8712";
  situation.job.spec.ttl_seconds_after_finished = 65;
  situation.instances->clear();
  SetCondition(situation, planner::kReady, false, "MembersMissing", "");
  Explanation explanation = Explain(situation, kNow);
  EXPECT_EQ(explanation.severity, Severity::kFine);
  EXPECT_EQ(explanation.headline, "The job finished 5s ago, 5m0s after its start; test accuracy 0.8712.");
  situation.job.status.progress->test_metrics = {{"MeanAbsoluteError", "0.0312"}, {"Custom", "2.5000"}};
  EXPECT_EQ(Explain(situation, kNow).headline,
            "The job finished 5s ago, 5m0s after its start; test MeanAbsoluteError 0.0312, Custom 2.5000.");
  Situation early = situation;
  early.job.status.training.emplace().stop_reason = "stopped early after epoch 7";
  EXPECT_EQ(
      Explain(early, kNow).headline,
      "The job finished 5s ago, 5m0s after its start; test MeanAbsoluteError 0.0312, Custom 2.5000; stopped early "
      "after epoch 7.");
  EXPECT_THAT(Section(explanation, "Conditions"), IsEmpty());
  EXPECT_THAT(Section(explanation, "What happens next"),
              ElementsAre("the job is deleted in 1m0s (ttlSecondsAfterFinished)"));

  SetCondition(situation, planner::kOutputTemporary, true, "Kept", "the model is in the pod lenet-worker-1 until then");
  EXPECT_THAT(Section(Explain(situation, kNow), "Conditions"),
              ElementsAre("OutputTemporary: the model is in the pod lenet-worker-1 until then"));

  situation.outcome = kOutcomeFailed;
  situation.outcome_message = "worker-0 failed 5 times";
  situation.job.status.reason = "RestartLimitExceeded";
  explanation = Explain(situation, kNow);
  EXPECT_EQ(explanation.severity, Severity::kAlarm);
  EXPECT_EQ(explanation.headline, "The job failed 5s ago (RestartLimitExceeded): worker-0 failed 5 times.");

  situation = Training();
  situation.deletion_requested = true;
  EXPECT_EQ(Explain(situation, kNow).headline, "The job is being deleted; 4 pods have not ended yet.");
}

TEST(ExplainTest, ADrainThatWaits) {
  Situation situation = Training();
  situation.job.spec.parameter_server->max_protect_seconds = 660;
  SetCondition(situation, planner::kDrainWaits, true, "NodeCordoned", "a drain waits, as ps-0 runs on node-0");
  const Explanation explanation = Explain(situation, kNow);
  EXPECT_EQ(explanation.severity, Severity::kAttention);
  EXPECT_EQ(explanation.headline, "The job trains: a drain waits, as ps-0 runs on node-0.");
  EXPECT_THAT(Section(explanation, "Conditions"), ElementsAre("DrainWaits is true for 1m0s: NodeCordoned"));
  EXPECT_THAT(Section(explanation, "What happens next"),
              ElementsAre("evictions of parameter servers are let through in 10m0s (maxProtectSeconds)"));

  situation.job.status.conditions.clear();
  SetCondition(situation, planner::kDrainWaits, false, "LetThrough", "a drain has waited");
  EXPECT_EQ(Explain(situation, kNow).headline, "The job trains.");
}

TEST(ExplainTest, ASidecarThatDoesNotEnd) {
  Situation situation = Training();
  situation.job.status.phase = "Finishing";
  situation.instances->erase(situation.instances->begin(), situation.instances->begin() + 3);
  (*situation.instances)[0].running_containers = {"sidecar"};
  SetCondition(situation, planner::kSuccessCriteriaMet, true, "TrainingFinished", "");
  EXPECT_EQ(Explain(situation, kNow).headline,
            "Training is finished; 1 pod has not ended yet: worker-1 (container sidecar).");
  situation.job.status.conditions.clear();
  SetCondition(situation, planner::kFailureTarget, true, "TrainingFailed", "it failed");
  EXPECT_THAT(Section(Explain(situation, kNow), "What happens next"),
              Contains("what still runs is stopped: worker-1 (container sidecar); then the job has failed"));
}

TEST(ExplainTest, AnOperatorThatSeemsAbsent) {
  Situation situation = Training();
  situation.job.status = {};
  situation.instances->clear();
  EXPECT_THAT(Explain(situation, kNow).headline,
              HasSubstr("No operator has looked at this job in the 5m10s since it was made"));
  situation.created_time = kNow - 2;
  EXPECT_THAT(Explain(situation, kNow).headline, HasSubstr("just made"));
  situation.instances = Training().instances;
  EXPECT_THAT(Explain(situation, kNow).headline, HasSubstr("The job begins: 4 pods are there"));

  situation = Training();
  situation.job.metadata.generation = 3;
  EXPECT_THAT(Section(Explain(situation, kNow), "Operator"),
              ElementsAre(HasSubstr("has acted on generation 2 of the spec, the newest is 3")));

  situation = Training();
  (*situation.instances)[3].phase = InstancePhase::kFailed;
  (*situation.instances)[3].finished_time = kNow - 120;
  EXPECT_THAT(Section(Explain(situation, kNow), "Operator"), ElementsAre(HasSubstr("worker-1 ended 2m0s ago and")));
  situation.job.status.counted_uids = {(*situation.instances)[3].uid};
  EXPECT_THAT(Section(Explain(situation, kNow), "Operator"), IsEmpty());

  situation = Training();
  situation.instances->pop_back();
  Explanation gone = Explain(situation, kNow);
  EXPECT_THAT(Section(gone, "Operator"), ElementsAre(HasSubstr("worker-1 is gone and the status does not say so")));
  EXPECT_EQ(gone.headline, "Training goes on with 1 of 2 workers: worker-1 is not there.");

  situation = Training();
  situation.job.status.progress->last_update_time = kNow - 200;
  EXPECT_THAT(Section(Explain(situation, kNow), "Operator"),
              ElementsAre(HasSubstr("no progress was reported for 3m20s")));
  situation.job.status.progress->next_update_time = kNow - 50;
  EXPECT_THAT(Section(Explain(situation, kNow), "Operator"), IsEmpty()) << "one of many jobs, which take turns";
  situation.job.status.progress->next_update_time = kNow - 70;
  EXPECT_THAT(Section(Explain(situation, kNow), "Operator"), ElementsAre(HasSubstr("either training stands still")));

  situation = Training();
  situation.managed_by = "kueue.x-k8s.io/multikueue";
  EXPECT_THAT(Explain(situation, kNow).headline, HasSubstr("another controller"));
}

TEST(ExplainTest, WhatCannotBeReadIsSaidAndTheConditionSpeaks) {
  Situation situation = Training();
  situation.job.status.phase = "Pending";
  situation.instances.reset();
  situation.gaps = {"pods: no permission"};
  SetCondition(situation, planner::kScheduled, false, "Unschedulable", "1 of 2 workers: no room");
  const Explanation explanation = Explain(situation, kNow);
  EXPECT_EQ(explanation.headline, "Training waits: 1 of 2 workers: no room.");
  EXPECT_THAT(Section(explanation, "Could not be read"), ElementsAre("pods: no permission"));
}

TEST(ExplainTest, ARunOfThisMachine) {
  Situation situation = Training();
  situation.on_cluster = false;
  situation.subject = "run lenet-3";
  situation.logs_command = "downpour logs lenet-3";
  situation.job.status.phase = "Starting";
  situation.coordinator_message = "waiting for ps-0 to register";
  EXPECT_EQ(Explain(situation, kNow).headline, "Training waits: waiting for ps-0 to register.");
  situation.outcome = "Lost";
  situation.outcome_message = "the process that ran it is gone";
  situation.job.status.failures = {Failure(kNow - 50, 0, "Exit code 1", 1)};
  const Explanation explanation = Explain(situation, kNow);
  EXPECT_EQ(explanation.headline, "The process that ran it is gone.");
  EXPECT_THAT(Section(explanation, "What happens next"),
              ElementsAre("more in its log: downpour logs lenet-3 --role worker --index 0"))
      << "logs of runs are kept";
}

TEST(MemberStateTest, IsOneWord) {
  Instance instance = Member(api::Role::kWorker, 0);
  EXPECT_EQ(MemberState(instance), "running");
  instance.ready = false;
  EXPECT_EQ(MemberState(instance), "starting");
  instance.terminating = true;
  EXPECT_EQ(MemberState(instance), "stopping");
  instance = Member(api::Role::kWorker, 0, InstancePhase::kPending);
  EXPECT_EQ(MemberState(instance), "pending");
  instance.waiting_reason = "Unschedulable: 0/1 nodes";
  EXPECT_EQ(MemberState(instance), "Unschedulable");
  EXPECT_EQ(MemberState(Member(api::Role::kWorker, 0, InstancePhase::kFailed)), "ended");
}

// ---- the screen

std::string RandomText(std::mt19937& random, unsigned longest) {
  std::string text;
  for (auto i = random() % (longest + 1); i > 0; --i) {
    text.push_back(random() % 6 == 0 ? ' ' : static_cast<char>(random() % 256));
  }
  return text;
}

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(ExplanationTextTest, FitsTheScreenWhateverIsSaid) {
  for (unsigned seed = 0; seed < 2000; ++seed) {
    std::mt19937 random(seed);
    Explanation explanation;
    explanation.subject = RandomText(random, 120);
    explanation.facts = RandomText(random, 120);
    explanation.headline = RandomText(random, 1500);
    for (auto i = random() % 8; i > 0; --i) {
      ExplanationSection section{RandomText(random, 150), {}};
      for (auto line = 1 + random() % 30; line > 0; --line) section.lines.push_back(RandomText(random, 300));
      explanation.sections.push_back(section);
    }
    const int columns = 10 + static_cast<int>(random() % 130);
    const int most = 8 + static_cast<int>(random() % 30);
    const std::vector<std::string> lines = Lines(ExplanationText(explanation, columns, most, false));
    EXPECT_LE(lines.size(), static_cast<std::size_t>(most)) << seed;
    for (const std::string& line : lines) {
      EXPECT_LE(Columns(line), static_cast<std::size_t>(columns)) << seed;
      EXPECT_EQ(CleanText(line), line) << seed;
    }
  }
}

TEST(ExplanationTextTest, CutsTheLongestSectionsAndSaysSo) {
  Explanation explanation;
  explanation.subject = "lenet";
  explanation.facts = "Running";
  explanation.headline = "All is well.";
  explanation.sections = {{"Few", {"one"}}, {"Many", std::vector<std::string>(40, "line")}};
  const std::vector<std::string> lines = Lines(ExplanationText(explanation, 80, 12, false));
  EXPECT_EQ(lines.size(), 12u);
  EXPECT_THAT(lines,
              ::testing::IsSupersetOf({"lenet  Running", "All is well.", "Few", "  one", "Many (6 of 40 shown)"}));
}

TEST(ExplanationTextTest, LongLinesGoOnWhereThereIsRoom) {
  Explanation explanation;
  explanation.sections = {{"Failures", {"one two three four five six seven eight nine ten eleven"}}};
  EXPECT_THAT(Lines(ExplanationText(explanation, 40, 20, false)),
              ::testing::IsSupersetOf({"  one two three four five six seven", "      eight nine ten eleven"}));
  explanation.sections.front().lines.resize(30, "line");
  EXPECT_THAT(ExplanationText(explanation, 40, 20, false), Not(HasSubstr("eleven")));
}

TEST(ExplanationTextTest, ColoursOnlyWhereAsked) {
  Explanation explanation;
  explanation.subject = "lenet";
  explanation.headline = "It failed.";
  explanation.severity = Severity::kAlarm;
  EXPECT_THAT(ExplanationText(explanation, 80, 24, true), HasSubstr("\x1b[31mIt failed.\x1b[0m"));
  EXPECT_THAT(ExplanationText(explanation, 80, 24, false), Not(HasSubstr("\x1b")));
}

// A job without parameter servers that trains and lacks nothing.
Situation TrainingInARing() {
  Situation situation = Training();
  api::TrainingJob& job = situation.job;
  job.spec.strategy = api::Strategy::kAllReduce;
  job.spec.parameter_server.reset();
  job.status.parameter_server = {};
  job.status.ring.emplace();
  job.status.ring->members = job.status.ring->wanted = 2;
  job.status.ring->formed = true;
  situation.instances = {Member(api::Role::kCoordinator, 0), Member(api::Role::kWorker, 0),
                         Member(api::Role::kWorker, 1)};
  return situation;
}

TEST(ExplainTest, ARingThatTrains) {
  const Explanation explanation = Explain(TrainingInARing(), kNow);
  EXPECT_EQ(explanation.severity, Severity::kFine);
  EXPECT_EQ(explanation.facts, "Running, workers 2/2, ring of 2/2, update 400/1000, age 5m10s");
  EXPECT_EQ(explanation.headline, "The job trains.");
  EXPECT_THAT(explanation.sections, IsEmpty());
}

TEST(ExplainTest, ARingThatIsFormedAnew) {
  Situation situation = TrainingInARing();
  api::RingStatus& ring = *situation.job.status.ring;
  ring.formed = false;
  EXPECT_EQ(Explain(situation, kNow).headline, "The job trains.") << "it is there again in a moment";
  ring.members = 1;
  ring.message = "rank 1 is gone: 1 workers";
  situation.instances->pop_back();
  situation.job.status.worker.ready = 1;
  const Explanation explanation = Explain(situation, kNow);
  EXPECT_EQ(explanation.severity, Severity::kAttention);
  EXPECT_THAT(explanation.facts, HasSubstr("workers 1/2, ring of 1/2, not formed, update"));
  EXPECT_EQ(explanation.headline,
            "Training stands still until its ring of workers is formed anew: rank 1 is gone: 1 workers; "
            "worker-1 is not there.");
}

TEST(ExplainTest, AWorkerThatRunsAndIsNotInTheRing) {
  Situation situation = TrainingInARing();
  situation.job.status.ring->members = 1;
  situation.job.status.ring->message = "worker-0 has a task";
  const Explanation explanation = Explain(situation, kNow);
  EXPECT_EQ(explanation.severity, Severity::kAttention);
  EXPECT_EQ(explanation.headline, "The job trains; 1 of 2 are in its ring: worker-0 has a task.");
}

TEST(ExplainTest, ARingOfWhichAllWorkersWereLost) {
  Situation situation = TrainingInARing();
  SetCondition(situation, planner::kRingFormed, true, "Formed", "2 workers train together, 2 updates a step");
  SetCondition(situation, planner::kParametersLost, true, "WorkersLostInGeneration1",
               "the parameters are lost: no worker is left that holds them; training goes back to /ckpt/lenet/3");
  EXPECT_THAT(Explain(situation, kNow).headline, HasSubstr("training goes back to /ckpt/lenet/3."));
  api::Condition& lost = situation.job.status.conditions.back();
  lost.status = false;
  lost.message = "training went on from /ckpt/lenet/3 (update 300; lost 20 updates) under generation 2";
  const Explanation explanation = Explain(situation, kNow);
  EXPECT_EQ(
      explanation.headline,
      "The job trains. Parameters were lost, and 1m0s ago training went on from /ckpt/lenet/3 (update 300; lost 20 "
      "updates) under generation 2.");
  EXPECT_THAT(Section(explanation, "Conditions"), IsEmpty()) << "a ring that is formed is as it should be";
}

TEST(ExplainTest, ARingThatNothingIsKnownOfButItsCondition) {
  Situation situation = TrainingInARing();
  situation.job.status.phase = "Starting";
  situation.job.status.progress.reset();
  situation.job.status.ring.reset();
  SetCondition(situation, planner::kRingFormed, false, "Waiting", "1 of at least 2 workers are there");
  const Explanation explanation = Explain(situation, kNow);
  EXPECT_EQ(explanation.headline, "Training waits: 1 of at least 2 workers are there.");
  EXPECT_THAT(Section(explanation, "Conditions"), ElementsAre("RingFormed is false for 1m0s: Waiting"));
}

TEST(ExplainTest, ARingThatWaitsForWorkers) {
  Situation situation = TrainingInARing();
  situation.job.status.phase = "Starting";
  situation.job.status.progress.reset();
  situation.job.status.ring->members = 0;
  situation.job.status.ring->formed = false;
  situation.job.status.ring->message = "1 of at least 2 workers are there";
  EXPECT_EQ(Explain(situation, kNow).headline, "Training waits: 1 of at least 2 workers are there.");
  situation.instances->back() = Member(api::Role::kWorker, 1, InstancePhase::kPending);
  situation.instances->back().waiting_reason = "Unschedulable: 0/3 nodes are available";
  situation.job.status.worker.ready = 1;
  EXPECT_EQ(Explain(situation, kNow).headline,
            "Training waits: 1 of at least 2 workers are there; worker-1 is pending: Unschedulable: 0/3 nodes are "
            "available.");
}

}  // namespace
}  // namespace downpour::cli
