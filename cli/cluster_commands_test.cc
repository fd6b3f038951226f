#include <unistd.h>

#include <atomic>
#include <csignal>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "cli/cluster.h"
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
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

constexpr char kFirst[] = "2026-01-02T03:04:05.1Z";
constexpr char kSecond[] = "2026-01-02T03:04:05.12Z";
constexpr char kThird[] = "2026-01-02T03:04:06Z";

std::vector<std::string> Lines(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

Json JobObject(const std::string& name, const std::string& namespace_name) {
  Json job = TrainingJobObject(namespace_name, name, 1, 2);
  job["metadata"]["generation"] = 1;
  job["spec"]["training"] = {{"epochs", 4}};
  return job;
}

api::TrainingJobStatus RunningStatus() {
  api::TrainingJobStatus status;
  status.observed_generation = 1;
  status.phase = "Running";
  status.start_time = 1000;
  status.coordinator.desired = status.coordinator.ready = 1;
  status.parameter_server.desired = status.parameter_server.ready = 1;
  status.worker.desired = 2;
  status.worker.ready = 1;
  status.restarts_total = 3;
  status.progress.emplace();
  status.progress->step = 100;
  status.progress->total_steps = 400;
  status.progress->samples_per_second = "1200";
  status.progress->loss = "0.5000";
  status.progress->test_accuracy = "0.8125";
  return status;
}

class ClusterCommandsTest : public ::testing::Test {
 protected:
  ClusterCommandsTest() : server_url_(server_.Start()) {
    WriteText(kubeconfig_, absl::StrCat("current-context: test\n"
                                        "clusters: [{name: test, cluster: {server: '",
                                        server_url_,
                                        "'}}]\n"
                                        "users: [{name: test, user: {token: secret}}]\n"
                                        "contexts: [{name: test, context: {cluster: test, user: test, namespace: "
                                        "team}}]\n"));
  }

  // The job's uid.
  std::string PutJob(const std::string& name, const api::TrainingJobStatus& status,
                     const std::string& namespace_name = "team") {
    Json object = JobObject(name, namespace_name);
    object["status"] = Json::parse(api::StatusToJson(status, api::TimeFormat::kRfc3339));
    return kube::ReadMeta(server_.Put(kube::kTrainingJobs, object)).uid;
  }

  void PutPod(const std::string& job_uid, const std::string& role, int index, const std::string& phase) {
    Json pod = {{"metadata",
                 {{"name", absl::StrCat("lenet-", role, "-", index)},
                  {"namespace", "team"},
                  {"labels",
                   {{controller::kJobUidLabel, job_uid},
                    {controller::kRoleLabel, role},
                    {controller::kIndexLabel, absl::StrCat(index)},
                    {controller::kIncarnationLabel, "1"}}}}},
                {"spec", {{"nodeName", phase == "Pending" ? "" : "node-7"}}},
                {"status", {{"phase", phase}}}};
    const bool runs = phase == "Running";
    pod["status"]["conditions"] = Json::array({{{"type", "Ready"}, {"status", runs ? "True" : "False"}}});
    if (phase == "Pending") {
      pod["status"]["conditions"].push_back({{"type", "PodScheduled"},
                                             {"status", "False"},
                                             {"reason", "Unschedulable"},
                                             {"message", "0/1 nodes are available"}});
    }
    server_.Put(kube::kPods, pod);
  }

  // A job that trains with one of two workers, and its pods.
  std::string PutLeNet() {
    const std::string uid = PutJob("lenet", RunningStatus());
    PutPod(uid, "coordinator", 0, "Running");
    PutPod(uid, "ps", 0, "Running");
    PutPod(uid, "worker", 0, "Running");
    PutPod(uid, "worker", 1, "Pending");
    return uid;
  }

  void Complete(const std::string& name) {
    server_.Modify(kube::kTrainingJobs, "team", name, [](Json& object) {
      api::TrainingJobStatus status = RunningStatus();
      status.phase = "Succeeded";
      status.conditions.push_back({planner::kComplete, true, "TrainingFinished", "", 1100, 1});
      object["status"] = Json::parse(api::StatusToJson(status, api::TimeFormat::kRfc3339));
    });
  }

  Command Start(const std::vector<std::string>& arguments) const {
    return Command({arguments, {{"KUBECONFIG", kubeconfig_}}, scratch_.path(), {}});
  }
  // What it printed on standard output, or on standard error if the code is not 0.
  std::string Run(const std::vector<std::string>& arguments, int exit_code = 0) const {
    Command command({arguments, {{"KUBECONFIG", kubeconfig_}}, scratch_.path(), {}});
    EXPECT_EQ(command.Wait(), exit_code) << command.Output() << command.Errors();
    if (exit_code != 0) {
      EXPECT_THAT(Lines(command.Errors()), ElementsAre(StartsWith("downpour: ")));
    }
    return exit_code == 0 ? command.Output() : command.Errors();
  }

  FakeApiServer server_;
  const ScratchFolder scratch_;
  const std::string server_url_;
  const std::string kubeconfig_ = scratch_.path() + "/kubeconfig";
};

TEST_F(ClusterCommandsTest, ProgramsForCredentialsAreRunWhereItIsAllowed) {
  PutLeNet();
  WriteText(
      kubeconfig_,
      absl::StrCat("current-context: test\n"
                   "clusters: [{name: test, cluster: {server: '",
                   server_url_,
                   "'}}]\n"
                   "users:\n- name: test\n  user:\n    exec:\n"
                   "      apiVersion: client.authentication.k8s.io/v1\n      interactiveMode: Never\n"
                   "      command: sh\n      args:\n      - -c\n"
                   "      - echo '{\"kind\":\"ExecCredential\",\"apiVersion\":\"client.authentication.k8s.io/v1\","
                   "\"status\":{\"token\":\"from-a-program\"}}'\n"
                   "contexts: [{name: test, context: {cluster: test, user: test, namespace: team}}]\n"));
  EXPECT_THAT(Run({"get", "-n", "team"}, 2), HasSubstr("users[test].exec: it would run the program sh, which nobody "
                                                       "allowed: give --exec-plugins, or set DOWNPOUR_EXEC_PLUGINS"));
  EXPECT_TRUE(server_.requests().empty());
  EXPECT_THAT(Run({"get", "-n", "team", "--exec-plugins"}), HasSubstr("lenet"));
  EXPECT_EQ(server_.requests().back().headers.at("authorization"), "Bearer from-a-program");
  Command command({{"why", "lenet", "-n", "team"},
                   {{"KUBECONFIG", kubeconfig_}, {"DOWNPOUR_EXEC_PLUGINS", "true"}},
                   scratch_.path(),
                   {}});
  EXPECT_EQ(command.Wait(), 0) << command.Errors();
}

TEST_F(ClusterCommandsTest, ScaleChangesWhatItIsToldAndNothingElse) {
  PutLeNet();
  const auto spec = [this] { return server_.Get(kube::kTrainingJobs, "team", "lenet")->at("spec"); };
  Json expected = spec();
  EXPECT_EQ(Run({"scale", "lenet", "-n", "team", "--ps", "3"}), "lenet: ps 1 -> 3\n");
  expected["parameterServer"]["replicas"] = 3;
  EXPECT_EQ(spec(), expected);
  EXPECT_EQ(Run({"scale", "lenet", "-n", "team", "--ps", "2", "--workers", "5"}), "lenet: ps 3 -> 2, workers 2 -> 5\n");
  expected["parameterServer"]["replicas"] = 2;
  expected["worker"]["replicas"] = 5;
  EXPECT_EQ(spec(), expected);

  EXPECT_THAT(Run({"scale", "lenet", "-n", "team"}, 2), HasSubstr("--ps or --workers"));
  EXPECT_THAT(Run({"scale", "lenet", "--ps", "2"}, 2), HasSubstr("no run folder of that name"));
  EXPECT_THAT(Run({"scale", "lanet", "-n", "team", "--ps", "2"}, 2), HasSubstr("there is lenet"));
  server_.Inject("PATCH", "/trainingjobs/lenet",
                 FakeApiServer::Refuse(422, "Invalid", "must be at least replicationFactor"), 1);
  EXPECT_THAT(Run({"scale", "lenet", "-n", "team", "--ps", "1"}, 2), HasSubstr("must be at least replicationFactor"));
  EXPECT_EQ(spec(), expected);
}

TEST_F(ClusterCommandsTest, AJobWithoutParameterServersGetsNone) {
  PutLeNet();
  server_.Modify(kube::kTrainingJobs, "team", "lenet", [](Json& object) {
    object["spec"].erase("parameterServer");
    object["spec"]["strategy"] = "AllReduce";
  });
  const Json spec = server_.Get(kube::kTrainingJobs, "team", "lenet")->at("spec");
  EXPECT_THAT(Run({"scale", "lenet", "-n", "team", "--ps", "3"}, 2),
              HasSubstr("--ps: lenet has no parameter servers (spec.strategy is AllReduce)"));
  EXPECT_EQ(server_.Get(kube::kTrainingJobs, "team", "lenet")->at("spec"), spec);
  EXPECT_EQ(Run({"scale", "lenet", "-n", "team", "--workers", "5"}), "lenet: workers 2 -> 5\n");
  EXPECT_THAT(Run({"get", "-n", "team"}), Not(HasSubstr("1/1")));
}

TEST_F(ClusterCommandsTest, ALackOfThreadsIsOneError) {
  if (geteuid() != 0) GTEST_SKIP() << "the limit needs a user of its own";
  PutLeNet();
  std::filesystem::permissions(scratch_.path(), std::filesystem::perms::all);
  for (const std::vector<std::string>& arguments :
       {std::vector<std::string>{"get", "-n", "team"}, {"logs", "lenet", "-n", "team", "-f"}}) {
    CommandOptions options{arguments, {{"KUBECONFIG", kubeconfig_}}, scratch_.path(), {}};
    options.process_limit = 1;
    Command command(options);
    EXPECT_EQ(command.Wait(), 1);
    EXPECT_THAT(Lines(command.Errors()), ElementsAre(HasSubstr("cannot be started: Resource temporarily unavailable")));
  }
}

// Whoever may write a status may not write on the terminal of whoever reads it.
TEST_F(ClusterCommandsTest, EscapesOfAStatusAreNotPrinted) {
  api::TrainingJobStatus status = RunningStatus();
  status.reason = "\x1b[2JOops\r";
  status.conditions.push_back({planner::kRecovering, true, "\x1b[31mLost", "a \x1b]0;title\x07 message", 1000, 1});
  PutJob("lenet", status);
  for (const std::vector<std::string>& arguments : {std::vector<std::string>{"get", "-n", "team"},
                                                    {"why", "lenet", "-n", "team"},
                                                    {"top", "lenet", "-n", "team", "--once"}}) {
    const std::string output = Run(arguments);
    EXPECT_THAT(output, Not(HasSubstr("\x1b"))) << arguments.front();
    EXPECT_THAT(output, Not(HasSubstr("\r"))) << arguments.front();
  }
}

TEST_F(ClusterCommandsTest, GetListsTheJobsOfANamespaceOrOfAll) {
  PutJob("lenet", RunningStatus());
  PutJob("another", {}, "other");
  const std::vector<std::string> one = Lines(Run({"get", "-n", "team"}));
  ASSERT_EQ(one.size(), 2u);
  EXPECT_THAT(one[0], StartsWith("NAME   PHASE    WORKERS  PS   STEP  EPOCHS  ACCURACY  RESTARTS"));
  EXPECT_THAT(one[1], StartsWith("lenet  Running  1/2      1/1  100   1.0/4   0.8125    3 "));
  const std::vector<std::string> all = Lines(Run({"get", "-A"}));
  ASSERT_EQ(all.size(), 3u);
  EXPECT_THAT(all[0], StartsWith("NAMESPACE  NAME"));
  EXPECT_THAT(all[1], StartsWith("other      another  Pending  0/2      0/1"));
  EXPECT_THAT(all[1], ::testing::EndsWith("NoStatusYet"));
  const Json json = Json::parse(Run({"get", "lenet", "--context", "test", "-o", "json"}));
  ASSERT_EQ(json.size(), 1u);
  EXPECT_EQ(json[0]["namespace"], "team");
  EXPECT_EQ(json[0]["step"], 100);
  EXPECT_EQ(json[0]["runDirectory"], nullptr);
  EXPECT_EQ(json[0]["testAccuracy"], 0.8125);
  api::TrainingJobStatus status = RunningStatus();
  status.progress->test_accuracy.clear();
  status.progress->test_metrics = {{"MeanAbsoluteError", "0.0312"}};
  PutJob("lenet", status);
  EXPECT_THAT(Run({"get", "-n", "team"}), HasSubstr("-         MeanAbsoluteError 0.0312  3 "));
  EXPECT_THAT(Run({"top", "lenet", "-n", "team", "--once"}), HasSubstr("MeanAbsoluteError 0.0312"));
  EXPECT_EQ(Run({"get", "-n", "empty"}), "no jobs in namespace empty\n");
}

TEST_F(ClusterCommandsTest, OnlyTheOptionsOfAClusterMeanACluster) {
  PutLeNet();
  for (const char* verb : {"get", "top", "why", "logs"}) {
    EXPECT_THAT(Run({verb, "lenet"}, 2), HasSubstr("-n, -A, --context or --kubeconfig")) << verb;
  }
  Command empty = Start({"get", "-n", ""});
  EXPECT_EQ(empty.Wait(), 2) << empty.Output();
  EXPECT_THAT(empty.Errors(), HasSubstr("must not be empty"));
  EXPECT_THAT(server_.requests(), IsEmpty());
  EXPECT_THAT(Run({"why", "lenet", "--kubeconfig", kubeconfig_}), StartsWith("lenet in namespace team"));
}

TEST_F(ClusterCommandsTest, WhatIsWrongIsOneLine) {
  PutLeNet();
  PutJob("resnet", {});
  EXPECT_THAT(Run({"why", "lenett", "-n", "team"}, 2),
              HasSubstr("there is no TrainingJob lenett in namespace team; there is lenet\n"));
  EXPECT_THAT(Run({"top", "zzz", "-n", "team"}, 2), HasSubstr("it has 2: see downpour get -n team"));
  EXPECT_THAT(Run({"logs", "lenet", "-n", "none"}, 2), HasSubstr("nor any other"));
  EXPECT_THAT(Run({"logs", "-n", "team"}, 2), HasSubstr("NAME"));
  EXPECT_THAT(Run({"logs", "lenet", "-n", "team", "--index", "0"}, 2), HasSubstr("--role"));
  EXPECT_THAT(Run({"logs", "lenet", "-n", "team", "--role", "worker", "--index", "7"}, 2), HasSubstr("no such pod"));
  EXPECT_THAT(Run({"get", "-n", "team", "--kubeconfig", "/none"}, 2), HasSubstr("kubeconfig: /none: "));
  EXPECT_THAT(Run({"get", "--context", "other"}, 2), HasSubstr("has no context \"other\""));
  WriteText(scratch_.path() + "/broken", "clusters: [");
  EXPECT_THAT(Run({"get", "--kubeconfig", scratch_.path() + "/broken"}, 2), HasSubstr("not valid YAML"));

  server_.Inject("GET", "/trainingjobs",
                 FakeApiServer::Refuse(403, "Forbidden",
                                       "trainingjobs.training.downpour.dev is forbidden: User \"eve\" cannot list "
                                       "resource \"trainingjobs\""));
  EXPECT_THAT(Run({"get", "-n", "team"}, 1),
              HasSubstr("no permission: trainingjobs.training.downpour.dev is forbidden: User \"eve\" cannot list"));
  server_.Inject("GET", "/trainingjobs", FakeApiServer::Refuse(401, "Unauthorized", "Unauthorized"), -1);
  EXPECT_THAT(Run({"get", "-n", "team"}, 1), HasSubstr("does not accept the credentials"));
  server_.ClearFaults();
  server_.Inject("GET", "/trainingjobs", FakeApiServer::Respond(404, "404 page not found"), -1);
  EXPECT_THAT(Run({"why", "lenet", "-n", "team"}, 1), HasSubstr("is not installed"));
  server_.Stop();
  EXPECT_THAT(Run({"get", "-n", "team"}, 1), HasSubstr(absl::StrCat("no answer from the API server ", server_url_)));
}

TEST_F(ClusterCommandsTest, WhyReadsPodsAndWarningsAndSaysWhatItMayNot) {
  const std::string uid = PutLeNet();
  const auto event = [&](const std::string& name, const std::string& type, const std::string& kind,
                         const std::string& about, const std::string& about_uid, const std::string& message) {
    server_.Put(kube::kEvents, {{"metadata", {{"name", name}, {"namespace", "team"}}},
                                {"involvedObject", {{"kind", kind}, {"name", about}, {"uid", about_uid}}},
                                {"type", type},
                                {"reason", "Reason"},
                                {"message", message}});
  };
  event("a", "Warning", "Pod", "lenet-worker-1", "gone", "of a pod");
  event("b", "Warning", "TrainingJob", "lenet", uid, "of the job");
  event("c", "Normal", "TrainingJob", "lenet", uid, "nothing bad");
  event("d", "Warning", "TrainingJob", "lenet", "another", "of an older job");
  event("e", "Warning", "Pod", "lenet-b-worker-1", "other", "of another job");
  const std::string text = Run({"why", "lenet", "-n", "team"});
  EXPECT_THAT(text, HasSubstr("Training goes on with 1 of 2 workers: worker-1 is pending: Unschedulable: 0/1 nodes"));
  EXPECT_THAT(text, HasSubstr("worker-1: Reason: of a pod"));
  EXPECT_THAT(text, HasSubstr("Reason: of the job"));
  for (const char* other : {"nothing bad", "of an older job", "of another job", "Could not be read"}) {
    EXPECT_THAT(text, Not(HasSubstr(other)));
  }
  server_.Inject("GET", "/events", FakeApiServer::Refuse(403, "Forbidden", "events is forbidden"), -1);
  server_.Inject("GET", "/pods", FakeApiServer::Refuse(403, "Forbidden", "pods is forbidden"), -1);
  const std::string blind = Run({"why", "lenet", "-n", "team"});
  EXPECT_THAT(blind, HasSubstr("pods: no permission: pods is forbidden"));
  EXPECT_THAT(blind, HasSubstr("events: no permission: events is forbidden"));
  EXPECT_LE(Lines(text).size(), 23u);
}

TEST_F(ClusterCommandsTest, TopShowsMembersAndEndsWithTheJob) {
  const std::string uid = PutLeNet();
  server_.Remove(kube::kPods, "team", "lenet-ps-0");
  const std::string text = Run({"top", "lenet", "-n", "team", "--once"});
  EXPECT_THAT(text, HasSubstr("100/400 updates"));
  EXPECT_THAT(text, HasSubstr("0.8125"));
  EXPECT_THAT(text, HasSubstr("Training goes on with 1 of 2 workers: worker-1 is pending"));
  EXPECT_THAT(text, ::testing::ContainsRegex("worker-0 +running +0 +node-7"));
  EXPECT_THAT(text, ::testing::ContainsRegex("worker-1 +Unschedulable"));
  EXPECT_THAT(text, ::testing::ContainsRegex("ps-0 +missing"));

  // Plain lines, as its output is no terminal; an API server that is away for a moment is no reason to end.
  Command watching({{"top", "lenet", "-n", "team"}, {{"KUBECONFIG", kubeconfig_}}, scratch_.path(), {}});
  ASSERT_TRUE(Eventually([&] { return watching.Output().find("worker-1 Unschedulable") != std::string::npos; }));
  server_.Inject("GET", "/trainingjobs", FakeApiServer::Refuse(500, "InternalError", "etcd is away"));
  Complete("lenet");
  EXPECT_EQ(watching.Wait(), 0) << watching.Errors();
  EXPECT_THAT(watching.Output(), HasSubstr("lenet: Succeeded"));
  EXPECT_EQ(watching.Errors(), "");
}

TEST_F(ClusterCommandsTest, LogsOfOneAndOfAll) {
  PutLeNet();
  server_.SetLog("team", "lenet-coordinator-0", absl::StrCat(kFirst, " begins\n"));
  server_.SetLog("team", "lenet-ps-0", absl::StrCat(kFirst, " serves\n"));
  server_.SetLog("team", "lenet-worker-0", absl::StrCat(kFirst, " one\n", kSecond, " two\n"));
  EXPECT_EQ(Run({"logs", "lenet", "-n", "team", "--role", "worker", "--index", "0"}), "one\ntwo\n");
  EXPECT_EQ(server_.requests().back().query.count("tailLines"), 0u);
  EXPECT_EQ(server_.requests().back().query.at("container"), "trainer");
  Command all = Start({"logs", "lenet", "-n", "team"});
  EXPECT_EQ(all.Wait(), 0);
  EXPECT_EQ(all.Output(), "coordinator-0 | begins\nps-0          | serves\nworker-0      | one\nworker-0      | two\n");
  EXPECT_THAT(all.Errors(), StartsWith("downpour: worker-1 has no log: "));
  EXPECT_EQ(server_.requests().back().query.at("tailLines"), "10");
  EXPECT_THAT(Run({"logs", "lenet", "-n", "team", "--role", "worker", "--index", "1"}, 2), HasSubstr("has no log"));
  server_.Inject("GET", "/log", FakeApiServer::Refuse(403, "Forbidden", "cannot get resource \"pods/log\""), -1);
  EXPECT_THAT(Run({"logs", "lenet", "-n", "team"}, 1), HasSubstr("cannot get resource \"pods/log\""));
}

TEST_F(ClusterCommandsTest, AFollowedLogGoesOnWhereItBroke) {
  const std::string uid = PutJob("lenet", RunningStatus());
  PutPod(uid, "worker", 0, "Running");
  server_.Inject("GET", "/log",
                 FakeApiServer::Stream({absl::StrCat(kFirst, " one\n", kSecond, " two\n", kThird, " hal")},
                                       FakeApiServer::Reaction::End::kReset));
  server_.SetLog("team", "lenet-worker-0", absl::StrCat(kFirst, " one\n", kSecond, " two\n", kThird, " half\n"));
  Command follow = Start({"logs", "lenet", "-n", "team", "-f"});
  ASSERT_TRUE(Eventually([&] { return Lines(follow.Output()).size() == 3; })) << follow.Errors();
  PutPod(uid, "worker", 1, "Running");  // comes later
  server_.SetLog("team", "lenet-worker-1", absl::StrCat(kThird, " starts\n"));
  ASSERT_TRUE(Eventually([&] { return Lines(follow.Output()).size() == 4; })) << follow.Errors();
  for (const int index : {0, 1}) PutPod(uid, "worker", index, "Succeeded");
  Complete("lenet");
  EXPECT_EQ(follow.Wait(), 0) << follow.Errors();
  EXPECT_THAT(Lines(follow.Output()),
              ElementsAre("worker-0 | one", "worker-0 | two", "worker-0 | half", "worker-1 | starts"));
  bool resumed = false;
  for (const FakeApiServer::Request& request : server_.requests()) {
    if (!absl::StrContains(request.path, "lenet-worker-0/log")) continue;
    const auto since = request.query.find("sinceTime");
    resumed = resumed || (since != request.query.end() && since->second == kSecond);
  }
  EXPECT_TRUE(resumed);
}

TEST_F(ClusterCommandsTest, FollowingEndsWhenTheUserAsks) {
  const std::string uid = PutJob("lenet", RunningStatus());
  PutPod(uid, "worker", 0, "Running");
  server_.Inject("GET", "/log",
                 FakeApiServer::Stream({absl::StrCat(kFirst, " one\n")}, FakeApiServer::Reaction::End::kHang));
  Command follow = Start({"logs", "lenet", "-n", "team", "-f", "--role", "worker", "--index", "0"});
  ASSERT_TRUE(Eventually([&] { return follow.Output() == "one\n"; })) << follow.Errors();
  follow.Signal(SIGINT);
  EXPECT_EQ(follow.Wait(), 0) << follow.Errors();
}

// It would say after its deadline that there is no answer.
TEST_F(ClusterCommandsTest, NobodyWaitsForAnAnswerWhenTheUserAsksToStop) {
  const std::string uid = PutJob("lenet", RunningStatus());
  const auto stop = [&](const std::vector<std::string>& arguments, const std::string& path) {
    std::atomic<bool> asked = false;
    FakeApiServer::Reaction silent = FakeApiServer::End(FakeApiServer::Reaction::End::kHang);
    silent.before = [&asked] { asked = true; };
    server_.Inject("GET", path, silent);
    Command command = Start(arguments);
    EXPECT_TRUE(Eventually([&] { return asked.load(); })) << command.Errors();
    command.Signal(SIGINT);
    const int code = command.Wait();
    EXPECT_EQ(command.Errors(), "") << arguments[0];
    return code;
  };
  EXPECT_EQ(stop({"top", "lenet", "-n", "team"}, "/trainingjobs"), 0);
  EXPECT_EQ(stop({"top", "lenet", "-n", "team"}, "/pods"), 0);
  EXPECT_EQ(stop({"top", "lenet", "-n", "team", "--once"}, "/trainingjobs"), 128 + SIGINT);
  EXPECT_EQ(stop({"logs", "lenet", "-n", "team", "-f"}, "/trainingjobs"), 0);
  EXPECT_EQ(stop({"logs", "lenet", "-n", "team", "-f"}, "/pods"), 0);
}

TEST(SimilarNamesTest, NearestFirstAndNoneThatIsFar) {
  EXPECT_THAT(SimilarNames("lenet", {"lenet-2", "resnet", "lenot", "alexnet", "le"}),
              ElementsAre("lenot", "lenet-2", "le"));
  EXPECT_THAT(SimilarNames("lenet", {"vgg", "transformer"}), IsEmpty());
  EXPECT_THAT(SimilarNames("a", {"b", "cc"}), ElementsAre("b"));
  EXPECT_THAT(SimilarNames("job", {}), IsEmpty());
}

}  // namespace
}  // namespace downpour::cli::testing
