// The command as users run it: on a run whose processes only pretend to train, and on a job of a fake API server.
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/testing/command_under_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "operator/api/manifest.h"
#include "operator/controller/pod.h"
#include "operator/kube/object.h"
#include "operator/planner/conditions.h"
#include "tests/support/fake_api_server.h"
#include "tests/support/training_job.h"

namespace downpour::cli::testing {
namespace {

using kube::FakeApiServer;
using kube::Json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::StartsWith;

std::string LastLine(const std::string& text) {
  const std::vector<std::string> lines = absl::StrSplit(text, '\n', absl::SkipEmpty());
  return lines.empty() ? "" : lines.back();
}

class DrillRunTest : public ::testing::Test {
 protected:
  void SetUp() override {
    MakeDataset(Path("data"), 50000);
    WriteText(Path("job.yaml"), Manifest(Path("data")));
  }

  std::string Path(const std::string& name) const { return scratch.path() + "/" + name; }

  CommandOptions Options(const std::vector<std::string>& arguments, const std::string& misbehaviour = "") const {
    CommandOptions options;
    options.arguments = arguments;
    options.environment["DOWNPOUR_FAKE"] = misbehaviour;
    options.directory = scratch.path();
    return options;
  }
  CommandOptions RunOptions(const std::string& misbehaviour = "long") const {
    return Options({"run", "job.yaml", "--run-dir", Path("run"), "--set", "failurePolicy.maxRestarts=1000", "--set",
                    "failurePolicy.maxRestartsPerReplica=1000", "--set", "failurePolicy.backoff.initialSeconds=1",
                    "--set", "failurePolicy.backoff.maxSeconds=1"},
                   misbehaviour);
  }
  CommandOptions Drill(std::vector<std::string> more) const {
    std::vector<std::string> arguments = {"drill", Path("run"), "--seed", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Options(arguments);
  }
  Json Status() const { return Json::parse(ReadText(Path("run/status.json")), nullptr, false); }
  bool Trains() const { return !ReadText(Path("run/metrics.jsonl")).empty(); }
  pid_t Pid(const std::string& name) const {
    const Json status = Status();
    if (!status.is_object()) return 0;
    for (const Json& process : status.at("processes")) {
      if (process.at("name") == name) return process.at("pid").get<pid_t>();
    }
    return 0;
  }
  static bool IsStopped(pid_t pid) {
    const std::string stat = ReadText(absl::StrCat("/proc/", pid, "/stat"));
    const std::size_t name_end = stat.rfind(") ");
    return name_end != std::string::npos && stat[name_end + 2] == 'T';
  }
  // One line of errors.
  std::string Refused(const CommandOptions& options, int exit_code) const {
    Command command(options);
    EXPECT_EQ(command.Wait(), exit_code) << command.Output() << command.Errors();
    EXPECT_THAT(command.Errors(), StartsWith("downpour: "));
    return command.Errors();
  }

  ScratchFolder scratch;
};

TEST_F(DrillRunTest, EveryKillIsRecoveredFrom) {
  Command run(RunOptions());
  ASSERT_TRUE(Eventually([&] { return Trains(); })) << run.Errors();
  Command drill(Drill({"--kill", "worker,ps,coordinator", "--every", "100ms", "--for", "4s"}));
  ASSERT_EQ(drill.Wait(), 0) << drill.Output() << drill.Errors();
  EXPECT_THAT(drill.Output(), StartsWith("drill: run, kills worker,ps,coordinator every 0.10 s for 4.00 s, seed 1\n"));
  EXPECT_THAT(drill.Output(), AllOf(HasSubstr("is a member again, "), HasSubstr("updates rise again, "),
                                    HasSubstr("0 applied twice\n")));
  EXPECT_THAT(LastLine(drill.Output()), MatchesRegex("drill: [1-9][0-9]* kills?, ledger exact"));
  const Json status = Status();
  EXPECT_GE(status.at("status").at("restarts").at("total").get<int>(), 1);
  for (const Json& process : status.at("processes")) EXPECT_GT(process.at("startTicks").get<std::uint64_t>(), 0u);
  run.Signal(SIGINT);
  EXPECT_EQ(run.Wait(), 130);
}

TEST_F(DrillRunTest, AnUpdateThatWasAppliedTwiceIsAFailure) {
  Command run(RunOptions("long,duplicate"));
  ASSERT_TRUE(Eventually([&] { return Trains(); })) << run.Errors();
  Command drill(Drill({"--kill", "worker", "--index", "1", "--for", "2s"}));
  EXPECT_EQ(drill.Wait(), 1) << drill.Output();
  EXPECT_THAT(drill.Output(), HasSubstr("killed worker-1\n"));
  EXPECT_THAT(LastLine(drill.Output()), AllOf(StartsWith("drill: 1 kill, ledger: "), HasSubstr("1 applied twice")));
}

TEST_F(DrillRunTest, WhatIsStoppedGoesOn) {
  Command run(RunOptions());
  ASSERT_TRUE(Eventually([&] { return Trains(); })) << run.Errors();
  const pid_t worker = Pid("worker-0");
  Command drill(Drill({"--kill", "worker", "--index", "0", "--signal", "STOP", "--stop-for", "1s", "--for", "500ms"}));
  EXPECT_TRUE(Eventually([&] { return IsStopped(worker); })) << drill.Output() << drill.Errors();
  EXPECT_EQ(drill.Wait(), 0) << drill.Output() << drill.Errors();
  EXPECT_FALSE(IsStopped(worker));
  EXPECT_THAT(drill.Output(), AllOf(HasSubstr("stopped worker-0 for 1.00 s\n"), HasSubstr("worker-0 goes on\n")));
}

TEST_F(DrillRunTest, TheUserEndsItAndNothingStaysStopped) {
  Command run(RunOptions());
  ASSERT_TRUE(Eventually([&] { return Trains(); })) << run.Errors();
  const pid_t worker = Pid("worker-0");
  Command drill(Drill({"--kill", "worker", "--index", "0", "--signal", "STOP", "--stop-for", "1h"}));
  ASSERT_TRUE(Eventually([&] { return IsStopped(worker); })) << drill.Output() << drill.Errors();
  drill.Signal(SIGINT);
  EXPECT_EQ(drill.Wait(), 130) << drill.Output() << drill.Errors();
  EXPECT_FALSE(IsStopped(worker));
  EXPECT_THAT(LastLine(drill.Output()), HasSubstr("stopped by the user"));
}

TEST_F(DrillRunTest, TheEndOfTheRunEndsIt) {
  Command run(RunOptions());
  ASSERT_TRUE(Eventually([&] { return Trains(); })) << run.Errors();
  Command drill(Drill({"--kill", "worker", "--every", "1h", "--for", "2h"}));
  ASSERT_TRUE(Eventually([&] { return drill.Output().find("killed worker-") != std::string::npos; })) << drill.Errors();
  ASSERT_TRUE(Eventually([&] { return drill.Output().find("is a member again") != std::string::npos; }));
  ASSERT_TRUE(Eventually([&] { return drill.Output().find("updates rise again") != std::string::npos; }));
  // The coordinator counts in this file, and may overwrite what it is to find there.
  ASSERT_TRUE(Eventually([&] {
    if (ReadText(Path("run/fake-progress")) != "4000\n") {
      WriteText(Path("progress"), "3999\n");
      std::filesystem::rename(Path("progress"), Path("run/fake-progress"));
    }
    return !ReadText(Path("run/summary.json")).empty();
  }));
  ASSERT_EQ(run.Wait(), 0) << run.Errors();
  EXPECT_EQ(drill.Wait(), 0) << drill.Output() << drill.Errors();
  EXPECT_EQ(LastLine(drill.Output()), "drill: 1 kill, the job is over: Succeeded, ledger exact");
  EXPECT_THAT(Refused(Drill({"--kill", "worker"}), 1), HasSubstr("run is over: Succeeded"));
}

TEST_F(DrillRunTest, WithoutParameterServersWorkersAreKilledAndAsked) {
  WriteText(Path("job.yaml"), RingManifest(Path("data")));
  Command run(RunOptions());
  ASSERT_TRUE(Eventually([&] { return Trains(); })) << run.Errors();
  EXPECT_THAT(Refused(Drill({"--kill", "worker,ps"}), 2),
              HasSubstr("--kill ps: demo has no parameter servers (spec.strategy is AllReduce)"));
  Command drill(Drill({"--kill", "worker,coordinator", "--every", "100ms", "--for", "2s"}));
  ASSERT_EQ(drill.Wait(), 0) << drill.Output() << drill.Errors();
  EXPECT_THAT(drill.Output(), HasSubstr("updates are in every worker's model so far, 0 applied twice\n"));
  EXPECT_THAT(LastLine(drill.Output()), MatchesRegex("drill: [1-9][0-9]* kills?, ledger exact"));
}

TEST_F(DrillRunTest, WhatCannotBeIsRefused) {
  Command run(RunOptions());
  ASSERT_TRUE(Eventually([&] { return Trains(); })) << run.Errors();
  EXPECT_THAT(Refused(Drill({"--kill", "node"}), 2), HasSubstr("a run of this machine has no nodes"));
  EXPECT_THAT(Refused(Drill({"--kill", "server"}), 2), HasSubstr("found \"server\", expected worker, ps"));
  EXPECT_THAT(Refused(Drill({"--kill", "worker", "--index", "7"}), 2), HasSubstr("--index 7: run has no such member"));
  EXPECT_THAT(Refused(Drill({"--kill", "worker", "--every", "5"}), 2), HasSubstr("--every: found \"5\", expected"));
  EXPECT_THAT(Refused(Drill({"--kill", "worker", "--for", "-1s"}), 2), HasSubstr("--for: found"));
  EXPECT_THAT(Refused(Drill({"--kill", "worker", "--ps", "127.0.0.1:1"}), 2), HasSubstr("--ps: "));
  EXPECT_THAT(Refused(Options({"drill", "none", "--kill", "worker"}), 2), HasSubstr("no run folder of that name"));
  EXPECT_EQ(Status().at("status").at("restarts").at("total"), 0);
}

class DrillJobTest : public ::testing::Test {
 protected:
  DrillJobTest() {
    WriteText(kubeconfig_,
              absl::StrCat("current-context: test\nclusters: [{name: test, cluster: {server: '", server_.Start(),
                           "'}}]\nusers: [{name: test, user: {token: secret}}]\n"
                           "contexts: [{name: test, context: {cluster: test, user: test, namespace: "
                           "team}}]\n"));
  }

  void PutJob(const std::string& phase, const std::string& managed_by = "") {
    Json object = TrainingJobObject("team", "lenet", 1, 2);
    object["metadata"]["generation"] = 1;
    if (!managed_by.empty()) object["spec"]["managedBy"] = managed_by;
    object["status"] = Status(phase, 100, 1000);
    uid_ = kube::ReadMeta(server_.Put(kube::kTrainingJobs, object)).uid;
    PutPod("coordinator", 0, 1, "n1");
    PutPod("ps", 0, 1, "n1");
    PutPod("worker", 0, 1, "n2");
    PutPod("worker", 1, 1, "n2");
  }

  static Json Status(const std::string& phase, std::uint64_t step, double written) {
    api::TrainingJobStatus status;
    status.observed_generation = 1;
    status.phase = phase;
    status.start_time = 900;
    status.progress.emplace();
    status.progress->step = step;
    status.progress->total_steps = 400;
    status.progress->last_update_time = written;
    if (phase == "Succeeded") status.conditions.push_back({planner::kComplete, true, "TrainingFinished", "", 1100, 1});
    return Json::parse(api::StatusToJson(status, api::TimeFormat::kRfc3339));
  }
  void SetStatus(const std::string& phase, std::uint64_t step, double written) {
    server_.Modify(kube::kTrainingJobs, "team", "lenet",
                   [&](Json& object) { object["status"] = Status(phase, step, written); });
  }

  void PutPod(const std::string& role, int index, int incarnation, const std::string& node) {
    server_.Put(
        kube::kPods,
        {{"metadata",
          {{"name", absl::StrCat("lenet-", role, "-", index)},
           {"namespace", "team"},
           {"labels",
            {{controller::kJobUidLabel, uid_},
             {controller::kRoleLabel, role},
             {controller::kIndexLabel, absl::StrCat(index)},
             {controller::kIncarnationLabel, absl::StrCat(incarnation)}}}}},
         {"spec", {{"nodeName", node}}},
         {"status", {{"phase", "Running"}, {"conditions", Json::array({{{"type", "Ready"}, {"status", "True"}}})}}}});
  }

  CommandOptions Drill(const std::vector<std::string>& more) const {
    std::vector<std::string> arguments = {"drill", "lenet", "-n", "team"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return {arguments, {{"KUBECONFIG", kubeconfig_}}, scratch_.path(), {}};
  }
  std::string Refused(const std::vector<std::string>& more, int exit_code) const {
    Command command(Drill(more));
    EXPECT_EQ(command.Wait(), exit_code) << command.Output() << command.Errors();
    return command.Errors();
  }

  FakeApiServer server_;
  std::string uid_;
  const ScratchFolder scratch_;
  const std::string kubeconfig_ = scratch_.path() + "/kubeconfig";
};

TEST_F(DrillJobTest, WhatCannotBeIsRefused) {
  PutJob("Running");
  EXPECT_THAT(Refused({"--kill", "worker"}, 2), HasSubstr("--yes: pods of a job on a cluster are deleted"));
  EXPECT_THAT(Refused({"--kill", "worker", "--signal", "STOP", "--yes"}, 2), HasSubstr("--signal STOP: only"));
  EXPECT_THAT(Refused({"--kill", "node", "--index", "1", "--yes"}, 2), HasSubstr("--index: a node has none"));
  EXPECT_THAT(server_.requests(), IsEmpty());
  SetStatus("Recovering", 100, 1000);
  EXPECT_THAT(Refused({"--kill", "worker", "--yes"}, 1), HasSubstr("lenet does not train (Recovering)"));
  SetStatus("Succeeded", 100, 1000);
  EXPECT_THAT(Refused({"--kill", "worker", "--yes"}, 1), HasSubstr("lenet is over: Succeeded"));
  PutJob("Running", "example.com/another");
  EXPECT_THAT(Refused({"--kill", "worker", "--yes"}, 1), HasSubstr("is managed by example.com/another"));
  EXPECT_EQ(server_.CountRequests("DELETE", ""), 0);
}

TEST_F(DrillJobTest, ParameterServersThatAJobHasNotAreRefused) {
  PutJob("Running");
  server_.Modify(kube::kTrainingJobs, "team", "lenet", [](Json& object) {
    object["spec"].erase("parameterServer");
    object["spec"]["strategy"] = "AllReduce";
  });
  EXPECT_THAT(Refused({"--kill", "worker,ps", "--yes"}, 2), HasSubstr("--kill ps: lenet has no parameter servers"));
  EXPECT_EQ(server_.CountRequests("DELETE", ""), 0);
}

TEST_F(DrillJobTest, ANodesPodsAreDeletedAtOnceAndTheirReplacementsSeen) {
  PutJob("Running");
  Command drill(Drill({"--kill", "node", "--every", "1h", "--for", "2h", "--seed", "1", "--yes"}));
  ASSERT_TRUE(Eventually([&] { return server_.CountRequests("DELETE", "/pods/") == 2; })) << drill.Errors();
  std::vector<std::string> deleted;
  for (const FakeApiServer::Request& request : server_.requests()) {
    if (request.method != "DELETE") continue;
    const Json body = Json::parse(request.body);
    EXPECT_EQ(body.at("gracePeriodSeconds"), 0);
    EXPECT_FALSE(body.at("preconditions").at("uid").get<std::string>().empty());
    deleted.push_back(request.path.substr(request.path.rfind('/') + 1));
  }
  const bool first = deleted.front() == "lenet-coordinator-0";
  if (first) {
    EXPECT_THAT(deleted, ElementsAre("lenet-coordinator-0", "lenet-ps-0"));
    PutPod("coordinator", 0, 2, "n1");
    PutPod("ps", 0, 2, "n1");
  } else {
    EXPECT_THAT(deleted, ElementsAre("lenet-worker-0", "lenet-worker-1"));
    PutPod("worker", 0, 2, "n1");
    PutPod("worker", 1, 2, "n1");
  }
  ASSERT_TRUE(Eventually([&] { return drill.Output().find("are members again") != std::string::npos; }));
  // The first word after the kill is not a rise yet; each of the others is.
  for (int word = 1; drill.Output().find("updates rise again") == std::string::npos; ++word) {
    SetStatus("Running", 100 + 10 * static_cast<std::uint64_t>(word), 1000 + word);
    ASSERT_TRUE(server_.WaitForRequests("GET", "/trainingjobs/lenet",
                                        server_.CountRequests("GET", "/trainingjobs/lenet") + 2, absl::Seconds(30)));
    ASSERT_LT(word, 10) << drill.Output();
  }
  SetStatus("Succeeded", 400, 2000);
  EXPECT_EQ(drill.Wait(), 3) << drill.Output() << drill.Errors();
  EXPECT_THAT(drill.Output(), HasSubstr(first ? "killed coordinator-0 and ps-0 on node n1\n"
                                              : "killed worker-0 and worker-1 on node n2\n"));
  EXPECT_THAT(LastLine(drill.Output()),
              StartsWith("drill: 1 kill, the job is over: Succeeded, ledger not read: the job is over"));
}

TEST_F(DrillJobTest, WithoutThePermissionItEndsAndSaysSo) {
  PutJob("Running");
  server_.Inject("DELETE", "/pods/",
                 FakeApiServer::Refuse(403, "Forbidden",
                                       "pods \"lenet-worker-0\" is forbidden: User \"eve\" cannot "
                                       "delete resource \"pods\""));
  Command drill(Drill({"--kill", "worker", "--index", "0", "--yes"}));
  ASSERT_TRUE(Eventually([&] { return server_.CountRequests("DELETE", "/pods/") == 1; })) << drill.Errors();
  SetStatus("Succeeded", 400, 2000);  // nobody is to be waited for who could tell the ledger
  EXPECT_EQ(drill.Wait(), 1) << drill.Output();
  EXPECT_THAT(LastLine(drill.Output()), HasSubstr("drill: 0 kills, worker-0: no permission: pods"));
}

}  // namespace
}  // namespace downpour::cli::testing
