#include "cli/drilled_job.h"
#include "cli/drilled_run.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli {
namespace {

Process MakeProcess(api::Role role, int index, int incarnation) {
  Process process;
  process.role = role;
  process.index = index;
  process.incarnation = incarnation;
  process.name = ProcessName(role, index);
  process.uid = ProcessUid(role, index, incarnation);
  process.created_time = 100;
  return process;
}

v1::MemberProgress* AddMember(v1::ProgressReply* reply, const char* role, std::uint32_t index,
                              std::uint32_t incarnation) {
  v1::MemberProgress* const member = reply->add_members();
  member->set_role(role);
  member->set_index(index);
  member->set_process_incarnation(incarnation);
  return member;
}

TEST(RunLookTest, MembersAreWhoTheCoordinatorCounts) {
  RunState state;
  state.processes = {MakeProcess(api::Role::kCoordinator, 0, 1), MakeProcess(api::Role::kParameterServer, 0, 1),
                     MakeProcess(api::Role::kWorker, 0, 2), MakeProcess(api::Role::kWorker, 1, 1)};
  state.processes[3].finished_time = 150;
  v1::ProgressReply reply;
  reply.set_phase(v1::PHASE_TRAINING);
  reply.mutable_view()->set_generation(3);
  reply.set_updates_applied(70);
  AddMember(&reply, "ps", 0, 1)->set_silent_milliseconds(500);
  AddMember(&reply, "worker", 0, 1);  // an earlier start
  const DrillLook look = MakeRunLook(state, reply, 200, [](const Process& process) { return process.index == 0; });
  EXPECT_TRUE(look.training);
  ASSERT_EQ(look.members.size(), 4u);
  EXPECT_TRUE(look.members[0].member);
  EXPECT_EQ(look.members[0].heard, 200);
  EXPECT_TRUE(look.members[1].member);
  EXPECT_EQ(look.members[1].heard, 199.5);
  EXPECT_FALSE(look.members[2].member);
  EXPECT_TRUE(look.members[2].alive);
  EXPECT_EQ(look.members[2].id, "worker-0.2");
  EXPECT_FALSE(look.members[3].alive);
  EXPECT_EQ(look.progress->updates, 70u);
  EXPECT_EQ(look.progress->generation, 3u);
  EXPECT_FALSE(look.progress->lost.has_value());
}

TEST(RunLookTest, WithoutAnAnswerNobodyIsAMember) {
  RunState state;
  state.processes = {MakeProcess(api::Role::kCoordinator, 0, 1)};
  const DrillLook look = MakeRunLook(state, std::nullopt, 200, [](const Process&) { return true; });
  EXPECT_FALSE(look.training);
  EXPECT_FALSE(look.progress.has_value());
  EXPECT_TRUE(look.members[0].alive);
  EXPECT_FALSE(look.members[0].member);
}

TEST(RunLookTest, WhatARestorationCost) {
  v1::ProgressReply reply;
  reply.mutable_restoration()->set_updates(40);
  reply.mutable_restoration()->set_lost_updates(9);
  const DrillLook look = MakeRunLook({}, reply, 200, [](const Process&) { return true; });
  EXPECT_EQ(look.progress->restored, 40u);
  EXPECT_EQ(look.progress->lost, 9u);
}

controller::JobRecord Record(const std::string& phase, std::uint64_t step, double written) {
  controller::JobRecord record;
  record.meta.name = "lenet";
  record.meta.uid = "1-2";
  record.job.status.phase = phase;
  record.job.status.progress.emplace();
  record.job.status.progress->step = step;
  record.job.status.progress->last_update_time = written;
  return record;
}

controller::Pod MakePod(const std::string& uid, int index, bool ready) {
  controller::Pod pod;
  pod.meta.uid = uid;
  pod.role = api::Role::kWorker;
  pod.index = index;
  pod.node = "n1";
  pod.phase = "Running";
  if (ready) pod.conditions.push_back({"Ready", "True", "", ""});
  return pod;
}

TEST(JobWatchTest, PodsThatAreReadyAreMembers) {
  controller::Pod ends = MakePod("c", 2, true);
  ends.meta.deletion_time = 5;
  JobWatch watch;
  const DrillLook look =
      watch.MakeLook(Record("Running", 7, 90), {MakePod("a", 0, true), MakePod("b", 1, false), ends}, 100);
  EXPECT_TRUE(look.training);
  ASSERT_EQ(look.members.size(), 3u);
  EXPECT_TRUE(look.members[0].member);
  EXPECT_EQ(look.members[0].node, "n1");
  EXPECT_FALSE(look.members[1].member);
  EXPECT_TRUE(look.members[1].alive);
  EXPECT_FALSE(look.members[2].alive);
  EXPECT_EQ(look.progress->updates, 7u);
  EXPECT_EQ(look.progress->word, 90);
}

TEST(JobWatchTest, ALossIsAnotherGenerationFromTheNextWordOn) {
  JobWatch watch;
  controller::JobRecord record = Record("Running", 100, 90);
  record.job.status.recovery.emplace();
  record.job.status.recovery->last_start_time = 50;
  record.job.status.recovery->lost_updates = 5;  // before the drill
  EXPECT_EQ(watch.MakeLook(record, {}, 100).progress->generation, 1u);
  record.job.status.recovery->last_start_time = 101;
  record.job.status.recovery->lost_updates.reset();
  EXPECT_EQ(watch.MakeLook(record, {}, 102).progress->generation, 1u);
  record.job.status.recovery->lost_updates = 20;
  record.job.status.recovery->step = 80;
  // What the progress says is from before the loss.
  EXPECT_FALSE(watch.MakeLook(record, {}, 103).progress.has_value());
  record.job.status.progress->last_update_time = 104;
  record.job.status.progress->step = 81;
  const DrillLook look = watch.MakeLook(record, {}, 105);
  EXPECT_EQ(look.progress->generation, 2u);
  EXPECT_EQ(look.progress->updates, 81u);
  EXPECT_EQ(look.progress->restored, 80u);
  EXPECT_EQ(look.progress->lost, 20u);
  EXPECT_EQ(watch.MakeLook(record, {}, 106).progress->generation, 2u);
}

TEST(JobWatchTest, ItsEndAndItsDeletionAreItsOutcome) {
  JobWatch watch;
  controller::JobRecord record = Record("Succeeded", 100, 90);
  record.job.status.conditions.push_back({"Complete", true, "TrainingFinished", "", 95, 1});
  EXPECT_EQ(watch.MakeLook(record, {}, 100).outcome, "Succeeded");
  record = Record("Running", 100, 90);
  record.meta.deletion_time = 99;
  EXPECT_EQ(watch.MakeLook(record, {}, 100).outcome, "Deleted");
  EXPECT_EQ(watch.MakeLook(Record("Recovering", 100, 90), {}, 100).outcome, "");
}

}  // namespace
}  // namespace downpour::cli
