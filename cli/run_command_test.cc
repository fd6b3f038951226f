// The command as users run it, with real processes that only pretend to train.
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "cli/testing/command_under_test.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace downpour::cli::testing {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::StartsWith;

class RunCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(getenv("DOWNPOUR_COMMAND"), nullptr) << "run this through ctest";
    MakeDataset(Path("data"), 105);
    WriteText(Path("job.yaml"), Manifest(Path("data")));
  }
  void TearDown() override {
    for (const pid_t pid : Pids()) EXPECT_FALSE(IsAlive(pid)) << "an orphan";
  }

  std::string Path(const std::string& name) const { return scratch.path() + "/" + name; }

  CommandOptions Options(std::vector<std::string> arguments, const std::string& misbehaviour = "") const {
    CommandOptions options;
    options.arguments = std::move(arguments);
    options.environment["DOWNPOUR_FAKE"] = misbehaviour;
    options.directory = scratch.path();
    return options;
  }

  CommandOptions RunOptions(const std::string& misbehaviour = "", std::vector<std::string> more = {}) const {
    std::vector<std::string> arguments = {"run", "job.yaml", "--run-dir", Path("run")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return Options(arguments, misbehaviour);
  }

  json Status() const { return json::parse(ReadText(Path("run/status.json")), nullptr, false); }

  // Of every process that the run started last.
  std::vector<pid_t> Pids() const {
    std::vector<pid_t> pids;
    const json status = Status();
    if (!status.is_object()) return pids;
    for (const json& process : status.at("processes")) pids.push_back(process.at("pid").get<pid_t>());
    return pids;
  }

  pid_t Pid(const std::string& name) const {
    const json status = Status();
    if (!status.is_object()) return 0;
    for (const json& process : status.at("processes")) {
      if (process.at("name") == name) return process.at("pid").get<pid_t>();
    }
    return 0;
  }

  // All four processes run, have said so themselves (from then on signals find them ready), and updates are applied.
  bool Trains() const {
    const json status = Status();
    if (!status.is_object() || status.at("processes").size() != 4) return false;
    for (const json& process : status.at("processes")) {
      if (ReadText(Path("run/metrics/" + process.at("name").get<std::string>())).empty()) return false;
    }
    return !ReadText(Path("run/metrics.jsonl")).empty();
  }

  std::vector<std::string> Lines(const std::string& text) const {
    return absl::StrSplit(text, '\n', absl::SkipEmpty());
  }

  ScratchFolder scratch;
};

TEST_F(RunCommandTest, TrainsAndLeavesItsResults) {
  Command command(RunOptions("", {"--output", "json"}));
  ASSERT_EQ(command.Wait(), 0) << command.Errors();
  const json summary = json::parse(command.Output());
  EXPECT_EQ(summary.at("job"), "demo");
  EXPECT_EQ(summary.at("phase"), "Succeeded");
  EXPECT_EQ(summary.at("epochs"), 2.0);
  EXPECT_EQ(summary.at("testAccuracy"), 0.7);
  EXPECT_EQ(summary.at("testMetrics"), json({{"Accuracy", 0.7}, {"Top5Accuracy", 1.0}}));
  EXPECT_EQ(summary.at("restarts"), 0);
  const json ledger = {{"expected", 22}, {"applied", 22}, {"missing", 0}, {"duplicated", 0}, {"skipped", 0}};
  EXPECT_EQ(summary.at("ledger"), ledger);
  EXPECT_GT(summary.at("firstUpdateSeconds"), 0);
  EXPECT_LT(summary.at("firstUpdateSeconds"), summary.at("totalSeconds"));
  EXPECT_EQ(summary.at("modelPath"), Path("run/model.safetensors"));
  EXPECT_EQ(summary.at("jobUid").get<std::string>().size(), 32u);

  EXPECT_EQ(json::parse(ReadText(Path("run/summary.json"))), summary);
  EXPECT_THAT(ReadText(Path("run/report.html")), HasSubstr("<svg"));
  EXPECT_EQ(json::parse(ReadText(Path("run/config.json"))).at("jobUid"), summary.at("jobUid"));
  std::size_t evaluations = 0;
  for (const std::string& line : Lines(ReadText(Path("run/metrics.jsonl")))) {
    if (json::parse(line).at("type") != "evaluation") continue;
    ++evaluations;
    EXPECT_EQ(json::parse(line).at("metrics").at("Accuracy"), json::parse(line).at("accuracy"));
  }
  EXPECT_EQ(evaluations, 2u);
  EXPECT_THAT(ReadText(Path("run/logs/worker-1.log")), StartsWith("==== worker-1, incarnation 1, "));
  EXPECT_EQ(Status().at("status").at("phase"), "Succeeded");
  EXPECT_EQ(Status().at("status").at("progress").at("testMetrics"),
            json::parse(R"([{"name": "Accuracy", "value": "0.7000"}, {"name": "Top5Accuracy", "value": "1.0000"}])"));
}

TEST_F(RunCommandTest, WithoutParameterServersTheWorkersSayWhatIsInTheirModels) {
  WriteText(Path("job.yaml"), RingManifest(Path("data")));
  Command command(RunOptions());
  ASSERT_EQ(command.Wait(), 0) << command.Errors();
  EXPECT_THAT(command.Output(), HasSubstr("exact: each of 22 updates is in every worker's model, once"));
  EXPECT_THAT(command.Output(), HasSubstr("2 workers train together, 2 updates a step"));
  EXPECT_THAT(command.Output(), Not(HasSubstr("ps-")));
  for (const json& process : Status().at("processes")) EXPECT_NE(process.at("role"), "ps");
  EXPECT_EQ(Status().at("status").at("ring").at("members"), 2);
  Command get(Options({"get", Path("run"), "--output", "json"}));
  ASSERT_EQ(get.Wait(), 0) << get.Errors();
  EXPECT_TRUE(json::parse(get.Output()).front().at("ps").is_null());

  for (const auto& [misbehaviour, code, why] :
       {std::tuple("duplicate", 1, "22 of 22 updates are in every worker's model, 1 applied twice"),
        std::tuple("behind", 1, "worker-1 has 11 updates, worker-0 has 22"),
        std::tuple("mute", 3, "the ledger could not be read: the worker at 127.0.0.1:")}) {
    fs::remove_all(Path("run"));
    Command other(RunOptions(misbehaviour, {"--audit-seconds", "0"}));
    EXPECT_EQ(other.Wait(), code) << misbehaviour << other.Errors();
    EXPECT_THAT(absl::StrCat(other.Output(), other.Errors()), HasSubstr(why));
  }
}

TEST_F(RunCommandTest, ARingIsScaledByItsWorkersAndItsTablesAreThoseOfAnyOfThem) {
  WriteText(Path("job.yaml"), RingManifest(Path("data")));
  Command command(RunOptions("endless"));
  const auto address = [this](int worker) { return ReadText(Path(absl::StrCat("run/addresses/worker-", worker))); };
  ASSERT_TRUE(Eventually([&] { return !ReadText(Path("run/metrics.jsonl")).empty() && !address(1).empty(); }));
  const std::string uid = json::parse(ReadText(Path("run/config.json"))).at("jobUid").get<std::string>();
  Command ledger(Options(
      {"ledger", "job.yaml", "--job-uid", uid, "--worker", Lines(address(1)).front(), "--worker", "127.0.0.1:1"}));
  EXPECT_EQ(ledger.Wait(), 0) << ledger.Errors();
  EXPECT_THAT(ledger.Output(), HasSubstr("in every worker's model, once"));

  Command refused(Options({"scale", Path("run"), "--ps", "2"}));
  EXPECT_EQ(refused.Wait(), 2);
  EXPECT_THAT(Lines(refused.Errors()), ElementsAre(HasSubstr("--ps: demo has no parameter servers")));
  Command scaled(Options({"scale", Path("run"), "--workers", "3"}));
  EXPECT_EQ(scaled.Wait(), 0) << scaled.Errors();
  EXPECT_EQ(scaled.Output(), "demo: workers 2 -> 3\n");
  EXPECT_TRUE(Eventually([&] { return !address(2).empty(); }));
  Command why(Options({"why", Path("run")}));
  EXPECT_EQ(why.Wait(), 0) << why.Errors();
  EXPECT_THAT(why.Output(), Not(HasSubstr("ps ")));
  command.Signal(SIGINT);
  EXPECT_EQ(command.Wait(), 130);
}

TEST_F(RunCommandTest, TextHasASummaryAndASecondRunIsRefused) {
  Command command(RunOptions());
  ASSERT_EQ(command.Wait(), 0) << command.Errors();
  EXPECT_THAT(command.Output(), HasSubstr("22 updates"));
  EXPECT_THAT(command.Output(), HasSubstr("test accuracy 0.7000, Top5Accuracy 1.0000, test loss 0.5000"));
  EXPECT_THAT(command.Errors(), IsEmpty());
  const std::string summary = ReadText(Path("run/summary.json"));

  Command again(RunOptions());
  EXPECT_EQ(again.Wait(), 2);
  EXPECT_EQ(Lines(again.Errors()).size(), 1u) << again.Errors();
  EXPECT_THAT(again.Errors(), HasSubstr("is not empty"));
  EXPECT_EQ(ReadText(Path("run/summary.json")), summary);
}

TEST_F(RunCommandTest, BadInputIsToldBeforeAnythingStarts) {
  WriteText(Path("broken.yaml"), "kind: [");
  WriteText(Path("relative.yaml"), Manifest("no/data"));
  WriteText(Path("file"), "");
  struct Case {
    std::vector<std::string> arguments;
    std::string error;
  };
  const Case cases[] = {
      {{"run", "job.yaml", "--set", "worker.replicas=-1"}, "job.yaml: spec.worker.replicas: "},
      {{"run", "job.yaml", "--set", "nonsense=1"}, "job.yaml: spec.nonsense: "},
      {{"run", "job.yaml", "--set", "worker.replicas"}, "expected path=value"},
      {{"run", "job.yaml", "--set", "suspend=true"}, "job.yaml: spec.suspend: "},
      {{"run", "broken.yaml"}, "broken.yaml: "},
      {{"run", "none.yaml"}, "none.yaml: "},
      {{"run", "relative.yaml"},
       Path("no/data") + ": No such file or directory (a relative path is taken from the folder of the manifest)"},
      {{"run", "job.yaml", "--set", "dataset.path=/nowhere"}, "job.yaml: spec.dataset.path: /nowhere"},
      {{"run", "job.yaml", "--set", "output.directory=" + Path("file/below")}, "job.yaml: spec.output.directory: "},
      {{"run", "job.yaml", "--run-dir", Path("file/below")}, Path("file/below")},
      {{"run", "job.yaml", "--output", "xml"}, "--output"},
      {{"run"}, "FILE"},
      {{"fly"}, ""},
      {{"get", "nowhere"}, "nowhere"},
  };
  for (const Case& bad : cases) {
    Command command(Options(bad.arguments));
    EXPECT_EQ(command.Wait(), 2) << bad.error << command.Errors();
    EXPECT_THAT(command.Errors(), HasSubstr(bad.error));
    EXPECT_THAT(command.Output(), IsEmpty());
    EXPECT_FALSE(fs::exists(Path("downpour-runs"))) << bad.error;
  }
  fs::remove(Path("data/t10k-labels-idx1-ubyte"));
  Command command(RunOptions());
  EXPECT_EQ(command.Wait(), 2);
  EXPECT_THAT(command.Errors(), HasSubstr("t10k-labels-idx1-ubyte"));
  EXPECT_EQ(Lines(command.Errors()).size(), 1u);
  EXPECT_FALSE(fs::exists(Path("run")));
}

TEST_F(RunCommandTest, EveryErrorOfAManifestIsALine) {
  Command command(Options({"validate", "job.yaml", "--set", "worker.replicas=-1", "--set", "training.epochs=no"}));
  EXPECT_EQ(command.Wait(), 2);
  EXPECT_EQ(Lines(command.Errors()).size(), 2u) << command.Errors();
  for (const std::string& line : Lines(command.Errors())) EXPECT_THAT(line, StartsWith("job.yaml: spec."));

  Command as_json(Options({"validate", "job.yaml", "--set", "worker.replicas=-1", "--output", "json"}));
  EXPECT_EQ(as_json.Wait(), 2);
  const json document = json::parse(as_json.Output());
  EXPECT_EQ(document.at("valid"), false);
  EXPECT_EQ(document.at("errors").at(0).at("path"), "spec.worker.replicas");

  Command valid(Options({"validate", "job.yaml"}));
  EXPECT_EQ(valid.Wait(), 0);
  EXPECT_EQ(valid.Output(), "job.yaml: valid\n");

  Command large(Options({"validate", "job.yaml", "--set", "training.batchSize=106", "--output", "json"}));
  EXPECT_EQ(large.Wait(), 0);
  EXPECT_EQ(json::parse(large.Output()).at("warnings").at(0).at("path"), "spec.training.batchSize");
}

TEST_F(RunCommandTest, AWorkerThatRefusesItsInputFailsTheRun) {
  Command command(RunOptions("refuse-input"));
  EXPECT_EQ(command.Wait(), 2);
  EXPECT_EQ(Lines(command.Errors()).size(), 1u) << command.Errors();
  EXPECT_THAT(command.Errors(), HasSubstr("bad magic number"));
  const json summary = json::parse(ReadText(Path("run/summary.json")));
  EXPECT_EQ(summary.at("phase"), "Failed");
  EXPECT_EQ(summary.at("modelPath"), "");
}

TEST_F(RunCommandTest, AFailedJobIsOneLineAndExitCodeOne) {
  Command command(RunOptions("fail", {"--output", "json"}));
  EXPECT_EQ(command.Wait(), 1);
  EXPECT_THAT(command.Errors(), HasSubstr("the fake coordinator was told to fail"));
  EXPECT_EQ(json::parse(command.Output()).at("phase"), "Failed");
  EXPECT_EQ(json::parse(command.Output()).at("audit"), nullptr);
}

TEST_F(RunCommandTest, ALedgerThatIsNotExactFailsTheRun) {
  Command command(RunOptions("duplicate", {"--output", "json"}));
  EXPECT_EQ(command.Wait(), 1);
  const json summary = json::parse(command.Output());
  EXPECT_EQ(summary.at("phase"), "Failed");
  EXPECT_EQ(summary.at("ledger").at("duplicated"), 1);
  EXPECT_EQ(summary.at("audit"), "NotExact");
  EXPECT_EQ(summary.at("modelPath"), "");
}

TEST_F(RunCommandTest, AnAuditThatDidNotHappenIsNoSuccess) {
  Command command(RunOptions("mute", {"--audit-seconds", "1"}));
  EXPECT_EQ(command.Wait(), 3);
  EXPECT_EQ(command.Errors(), "");
  const std::vector<std::string> lines = Lines(command.Output());
  EXPECT_THAT(lines.back(), AllOf(StartsWith("Not audited: "), HasSubstr("the fake ps was told to be mute")));
  const json summary = json::parse(ReadText(Path("run/summary.json")));
  EXPECT_EQ(summary.at("phase"), "Succeeded");
  EXPECT_EQ(summary.at("audit"), "NotRead");
  EXPECT_EQ(summary.at("ledger"), nullptr);
}

// Ordinary in companies: nothing of a run goes through them.
TEST_F(RunCommandTest, ProxiesOfTheEnvironmentHaveNoPartInARun) {
  CommandOptions options = RunOptions("", {"--output", "json"});
  for (const char* name : {"http_proxy", "https_proxy", "grpc_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY",
                           "GRPC_PROXY", "ALL_PROXY"}) {
    options.environment[name] = "http://127.0.0.1:9";
  }
  Command command(options);
  ASSERT_EQ(command.Wait(), 0) << command.Errors();
  EXPECT_EQ(json::parse(command.Output()).at("audit"), "Exact");
}

TEST_F(RunCommandTest, WorkersThatMissTheEndAreDismissed) {
  Command command(RunOptions("deaf", {"--output", "json"}));
  ASSERT_EQ(command.Wait(), 0) << command.Errors();
  EXPECT_EQ(json::parse(command.Output()).at("phase"), "Succeeded");
}

TEST_F(RunCommandTest, CrashedWorkersAreReplaced) {
  Command command(RunOptions("crash", {"--output", "json"}));
  ASSERT_EQ(command.Wait(), 0) << command.Errors();
  EXPECT_EQ(json::parse(command.Output()).at("restarts"), 2);
  const std::string log = ReadText(Path("run/logs/worker-0.log"));
  EXPECT_THAT(log, HasSubstr("incarnation 1"));
  EXPECT_THAT(log, HasSubstr("told to crash\n==== worker-0, incarnation 2"));
  EXPECT_EQ(Status().at("status").at("incarnations").at("worker-0"), 2);
}

TEST_F(RunCommandTest, KilledProcessesOfEveryRoleAreReplaced) {
  Command command(RunOptions("endless"));
  ASSERT_TRUE(Eventually([&] { return Trains(); }));
  for (const std::string name : {"worker-0", "coordinator-0", "ps-0", "worker-1"}) {
    const pid_t victim = Pid(name);
    ASSERT_GT(victim, 0) << name;
    ASSERT_EQ(kill(victim, SIGKILL), 0);
    EXPECT_TRUE(Eventually([&] {
      const pid_t now = Pid(name);
      return now > 0 && now != victim && IsAlive(now) && !IsAlive(victim);
    })) << name;
  }
  command.Signal(SIGTERM);
  EXPECT_EQ(command.Wait(), 130);
  EXPECT_EQ(json::parse(ReadText(Path("run/summary.json"))).at("restarts"), 4);
}

TEST_F(RunCommandTest, TheLedgerOfAJobCanBeReadFromOutside) {
  for (const bool doubled : {false, true}) {
    fs::remove_all(Path("run"));
    Command command(RunOptions(doubled ? "endless,duplicate" : "endless"));
    ASSERT_TRUE(Eventually([&] { return Trains() && !ReadText(Path("run/addresses/ps-0")).empty(); }));
    const std::string digits = json::parse(ReadText(Path("run/config.json"))).at("jobUid").get<std::string>();
    const std::string uid = absl::StrCat(digits.substr(0, 8), "-", digits.substr(8));  // as Kubernetes writes it
    const std::string ps = Lines(ReadText(Path("run/addresses/ps-0"))).front();
    const std::vector<std::string> question = {"ledger", "job.yaml", "--job-uid", uid, "--ps", ps, "--output", "json"};
    Command ledger(Options(question));
    EXPECT_EQ(ledger.Wait(), doubled ? 1 : 0);
    ASSERT_EQ(ledger.Errors(), "");
    const json expected = {
        {"exact", !doubled}, {"expected", 22}, {"applied", 22}, {"missing", 0}, {"duplicated", doubled ? 1 : 0},
        {"skipped", 0}};
    EXPECT_EQ(json::parse(ledger.Output()), expected);
    Command other(Options({"ledger", "job.yaml", "--job-uid", "0", "--ps", ps}));
    EXPECT_EQ(other.Wait(), 1);
    EXPECT_THAT(other.Errors(), HasSubstr("serves the job"));
    command.Signal(SIGINT);
    EXPECT_EQ(command.Wait(), 130);
  }
}

TEST_F(RunCommandTest, CtrlCStopsCleanlyWithASummary) {
  for (const int signal : {SIGINT, SIGTERM}) {
    fs::remove_all(Path("run"));
    Command command(RunOptions("endless,fork", {"--output", "json"}));
    ASSERT_TRUE(Eventually([&] { return Trains() && Lines(ReadText(Path("run/children"))).size() == 2; }));
    const std::vector<pid_t> pids = Pids();
    command.Signal(signal);
    EXPECT_EQ(command.Wait(), 130);
    EXPECT_EQ(json::parse(command.Output()).at("phase"), "Stopped");
    EXPECT_EQ(json::parse(ReadText(Path("run/summary.json"))).at("modelPath"), "");
    for (const pid_t pid : pids) EXPECT_FALSE(IsAlive(pid));
    for (const std::string& child : Lines(ReadText(Path("run/children")))) {
      EXPECT_TRUE(Eventually([&] { return !IsAlive(std::stoi(child)); })) << "what a process started goes with it";
    }
  }
}

TEST_F(RunCommandTest, ASecondCtrlCKillsAtOnce) {
  Command command(RunOptions("endless,stubborn"));
  ASSERT_TRUE(Eventually([&] { return Trains(); }));
  const pid_t worker = Pid("worker-0");
  command.Signal(SIGINT);
  // It says that it stops; the worker does not obey.
  ASSERT_TRUE(Eventually([&] { return command.Output().find("worker-0 stopping") != std::string::npos; }));
  EXPECT_TRUE(IsAlive(worker));
  command.Signal(SIGINT);
  EXPECT_EQ(command.Wait(), 130);
  EXPECT_EQ(Status().at("processes").back().at("signal"), SIGKILL);
}

// The screen takes nothing more, as behind a pager that nobody pages on: the run waits in the middle of a line.
TEST_F(RunCommandTest, ASecondSignalEndsARunThatIsStuck) {
  for (const int signal : {SIGTERM, SIGHUP}) {
    fs::remove_all(Path("run"));
    CommandOptions options = RunOptions("endless,stubborn,fork");
    options.unread_output_bytes = 300;
    Command command(options);
    ASSERT_TRUE(Eventually([&] { return Lines(ReadText(Path("run/children"))).size() == 2; }));
    const std::vector<pid_t> pids = Pids();
    EXPECT_EQ(pids.size(), 4u);
    command.Signal(signal);
    command.Signal(SIGINT);
    EXPECT_EQ(command.Wait(), 130);
    EXPECT_THAT(Lines(command.Errors()),
                ElementsAre(StartsWith("downpour: ended by force 3 s after the second signal")));
    for (const pid_t pid : pids) EXPECT_TRUE(Eventually([&] { return !IsAlive(pid); }));
    for (const std::string& child : Lines(ReadText(Path("run/children")))) {
      EXPECT_TRUE(Eventually([&] { return !IsAlive(std::stoi(child)); })) << "of the group of a worker";
    }
  }
}

// Where there are no more threads, everything that wants one fails: the roles, and gRPC in the run itself.
TEST_F(RunCommandTest, ALackOfThreadsIsAnErrorAndNeverAHang) {
  if (geteuid() != 0) GTEST_SKIP() << "the limit needs a user of its own";
  fs::permissions(scratch.path(), fs::perms::all);
  for (const std::uint64_t limit : {1, 2, 3, 4, 5, 6, 8, 12, 16, 24}) {
    SCOPED_TRACE(limit);
    fs::remove_all(Path("run"));
    fs::create_directory(Path("run"));
    fs::permissions(Path("run"), fs::perms::all);
    CommandOptions options = RunOptions("endless");
    options.process_limit = limit;
    Command command(options);
    ASSERT_TRUE(Eventually([&] { return !IsAlive(command.pid()) || Status().is_object(); }));
    for (int signals = 0; signals < 2 && IsAlive(command.pid()); ++signals) command.Signal(SIGTERM);
    const int exit_code = command.Wait();
    EXPECT_TRUE(exit_code == 1 || exit_code == 130) << exit_code;
    EXPECT_THAT(command.Errors(), Not(HasSubstr("terminate called")));
    if (exit_code == 1) {
      EXPECT_THAT(Lines(command.Errors()), ElementsAre(HasSubstr("Resource temporarily unavailable")));
    }
    for (const pid_t pid : Pids()) EXPECT_TRUE(Eventually([&] { return !IsAlive(pid); }));
  }
}

// nohup, and the background jobs of scripts.
TEST_F(RunCommandTest, SignalsThatAreIgnoredFromTheStartStayIgnored) {
  CommandOptions options = RunOptions("endless");
  options.ignored_signals = {SIGHUP, SIGINT, SIGCHLD};
  Command command(options);
  ASSERT_TRUE(Eventually([&] { return Trains(); }));
  for (const int ignored : {SIGHUP, SIGINT, SIGHUP, SIGINT}) command.Signal(ignored);
  // It goes on: a process that is killed is replaced.
  const pid_t victim = Pid("worker-0");
  ASSERT_EQ(kill(victim, SIGKILL), 0);
  EXPECT_TRUE(Eventually([&] { return Pid("worker-0") > 0 && Pid("worker-0") != victim; }));
  command.Signal(SIGTERM);
  EXPECT_EQ(command.Wait(), 130);
  EXPECT_EQ(command.Errors(), "");
  EXPECT_EQ(json::parse(ReadText(Path("run/summary.json"))).at("phase"), "Stopped");
}

TEST_F(RunCommandTest, APathThatIsNoTextIsRefusedByName) {
  const std::string folder = Path(
      "gr\xf6\xdf"
      "er");  // as ISO 8859-1 has it
  fs::create_directory(folder);
  MakeDataset(folder + "/data", 105);
  WriteText(folder + "/job.yaml", Manifest("data"));
  WriteText(folder + "/output.yaml", Manifest(Path("data")) + "  output: {directory: models}\n");
  fs::create_directory_symlink(folder, Path("link"));
  struct Case {
    std::vector<std::string> arguments;
    std::string error;
  };
  const Case cases[] = {
      {{"run", "job.yaml", "--run-dir", folder + "/run"}, R"(gr\xf6\xdf)"},
      {{"run", "job.yaml", "--run-dir", Path("link/run")}, R"(gr\xf6\xdf)"},
      {{"run", folder + "/job.yaml"}, "spec.dataset.path: must be valid UTF-8"},
      {{"validate", folder + "/job.yaml"}, "spec.dataset.path: must be valid UTF-8"},
      {{"run", folder + "/output.yaml"}, "spec.output.directory: must be valid UTF-8"},
      {{"validate", folder + "/output.yaml"}, "spec.output.directory: must be valid UTF-8"},
  };
  for (const Case& bad : cases) {
    SCOPED_TRACE(bad.arguments.back());
    Command command(Options(bad.arguments));
    EXPECT_EQ(command.Wait(), 2);
    ASSERT_EQ(Lines(command.Errors()).size(), 1u) << command.Errors();
    EXPECT_THAT(command.Errors(), HasSubstr(bad.error));
    EXPECT_FALSE(fs::exists(Path("downpour-runs")));
    EXPECT_FALSE(fs::exists(folder + "/run"));
    EXPECT_FALSE(fs::exists(folder + "/models"));
  }
  // The folder that the run would be made in, and paths that --set takes from it.
  for (const std::vector<std::string>& more : {std::vector<std::string>{}, {"--set", "output.directory=models"}}) {
    CommandOptions options = Options({"run", Path("job.yaml")});
    options.arguments.insert(options.arguments.end(), more.begin(), more.end());
    options.directory = folder;
    Command command(options);
    EXPECT_EQ(command.Wait(), 2);
    EXPECT_THAT(Lines(command.Errors()), ElementsAre(HasSubstr(R"(gr\xf6\xdf)")));
    EXPECT_FALSE(fs::exists(folder + "/downpour-runs"));
    EXPECT_FALSE(fs::exists(folder + "/models"));
  }
}

TEST_F(RunCommandTest, ANameIsGeneratedAsTheApiServerDoes) {
  std::string manifest = Manifest(Path("data"));
  manifest.replace(manifest.find("name: demo"), 10, "generateName: demo-");
  WriteText(Path("generated.yaml"), manifest);
  Command valid(Options({"validate", "generated.yaml"}));
  EXPECT_EQ(valid.Wait(), 0) << valid.Errors();
  Command command(Options({"run", "generated.yaml", "--output", "json"}));
  ASSERT_EQ(command.Wait(), 0) << command.Errors();
  const std::string name = json::parse(command.Output()).at("job").get<std::string>();
  EXPECT_THAT(name, ::testing::MatchesRegex("demo-[a-z0-9]{5}"));
  EXPECT_TRUE(fs::exists(Path("downpour-runs/" + name + "-1/model.safetensors")));
  Command list(Options({"get"}));
  ASSERT_EQ(list.Wait(), 0) << list.Errors();
  EXPECT_THAT(list.Output(), HasSubstr(name));
}

TEST_F(RunCommandTest, OneRunAtATimeWritesItsModelIntoAFolder) {
  const std::vector<std::string> output = {"--set", "output.directory=" + Path("models")};
  Command first(RunOptions("endless", output));
  ASSERT_TRUE(Eventually([&] { return Trains(); }));
  std::vector<std::string> arguments = {"run", "job.yaml", "--run-dir", Path("second")};
  arguments.insert(arguments.end(), output.begin(), output.end());
  Command second(Options(arguments));
  EXPECT_EQ(second.Wait(), 2);
  EXPECT_THAT(Lines(second.Errors()), ElementsAre(AllOf(HasSubstr("spec.output.directory: " + Path("models")),
                                                        HasSubstr("another run that is under way"))));
  EXPECT_FALSE(fs::exists(Path("second")));
  first.Signal(SIGTERM);
  EXPECT_EQ(first.Wait(), 130);

  Command third(Options(arguments));
  EXPECT_EQ(third.Wait(), 0);
  EXPECT_EQ(third.Errors(), "");
  fs::remove_all(Path("second"));
  Command fourth(Options(arguments));
  EXPECT_EQ(fourth.Wait(), 0);
  EXPECT_THAT(Lines(fourth.Errors()),
              ElementsAre(AllOf(HasSubstr("warning: spec.output.directory: "), HasSubstr("is of an earlier run"))));
}

TEST_F(RunCommandTest, ProcessesDieWithAParentThatIsKilledAndTheRunIsLost) {
  Command command(RunOptions("endless"));
  ASSERT_TRUE(Eventually([&] { return Trains(); }));
  const std::vector<pid_t> pids = Pids();
  Command running(Options({"get", "run", "--output", "json"}));
  ASSERT_EQ(running.Wait(), 0) << running.Errors();
  EXPECT_THAT(json::parse(running.Output()).at(0).at("phase").get<std::string>(), Not("Lost"));

  command.Signal(SIGKILL);
  EXPECT_EQ(command.Wait(), 128 + SIGKILL);
  for (const pid_t pid : pids) EXPECT_TRUE(Eventually([&] { return !IsAlive(pid); }));
  Command lost(Options({"get", "run", "--output", "json"}));
  ASSERT_EQ(lost.Wait(), 0) << lost.Errors();
  const json overview = json::parse(lost.Output()).at(0);
  EXPECT_EQ(overview.at("phase"), "Lost");
  EXPECT_GT(overview.at("epochs"), 0);
  EXPECT_EQ(overview.at("workers").at("ready"), 0);
  EXPECT_FALSE(fs::exists(Path("run/summary.json")));
}

// The limit on the size of a file fails the writes of the run as a full disk does: before the start, at the status, at
// the metrics.
TEST_F(RunCommandTest, AFullDiskIsOneLineWithoutOrphansOrResults) {
  for (const std::uint64_t limit : {0, 300, 1000, 2500, 4500, 7000}) {
    SCOPED_TRACE(limit);
    fs::remove_all(Path("run"));
    CommandOptions options = RunOptions("", {"--output", "json"});
    options.file_size_limit = limit;
    Command command(options);
    ASSERT_TRUE(Eventually([&] {
      command.Errors();
      return kill(command.pid(), 0) != 0 || !IsAlive(command.pid());
    }));
    EXPECT_EQ(command.Wait(), 1) << command.Errors();
    std::size_t complaints = 0;
    for (const std::string& line : Lines(command.Errors())) {
      if (line.find("File too large") == std::string::npos || !absl::StartsWith(line, "downpour: ")) continue;
      EXPECT_THAT(line, HasSubstr(Path("run")));
      ++complaints;
    }
    EXPECT_EQ(complaints, 1u) << command.Errors();
    if (fs::exists(Path("run/summary.json"))) {
      EXPECT_EQ(json::parse(ReadText(Path("run/summary.json"))).at("phase"), "Failed");
    }
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(scratch.path())) {
      EXPECT_NE(entry.path().extension(), ".tmp");
    }
    for (const pid_t pid : Pids()) EXPECT_FALSE(IsAlive(pid));
  }
}

TEST_F(RunCommandTest, GetListsRunsAndTopShowsTheNewestThatRuns) {
  Command none(Options({"get"}));
  EXPECT_EQ(none.Wait(), 0);
  EXPECT_THAT(none.Output(), HasSubstr("no runs"));
  Command nothing(Options({"top"}));
  EXPECT_EQ(nothing.Wait(), 1);

  Command first(Options({"run", "job.yaml"}));
  ASSERT_EQ(first.Wait(), 0) << first.Errors();
  Command second(Options({"run", "job.yaml"}, "endless"));
  const std::string root = Path("downpour-runs/demo-2");
  ASSERT_TRUE(Eventually([&] { return !ReadText(root + "/metrics.jsonl").empty(); }));

  Command list(Options({"get"}));
  ASSERT_EQ(list.Wait(), 0) << list.Errors();
  const std::vector<std::string> lines = Lines(list.Output());
  ASSERT_EQ(lines.size(), 3u) << list.Output();
  EXPECT_THAT(lines[1], StartsWith("demo-1  Succeeded"));
  EXPECT_THAT(lines[2], StartsWith("demo-2"));

  Command once(Options({"top", "--once"}));
  ASSERT_EQ(once.Wait(), 0) << once.Errors();
  EXPECT_THAT(once.Output(), HasSubstr("worker-1"));

  Command why(Options({"why", "demo-2"}));
  ASSERT_EQ(why.Wait(), 0) << why.Errors();
  EXPECT_THAT(why.Output(), StartsWith("run demo-2  Running, workers "));
  Command log(Options({"logs", root, "--role", "worker", "--index", "1"}));
  ASSERT_EQ(log.Wait(), 0) << log.Errors();
  EXPECT_THAT(log.Output(), StartsWith("==== worker-1, incarnation 1"));
  Command logs(Options({"logs", "-f"}));  // of the newest, to its end
  ASSERT_TRUE(Eventually([&] { return logs.Output().find("worker-1      | ==== worker-1") != std::string::npos; }));

  Command watching(Options({"top"}));
  ASSERT_TRUE(Eventually([&] { return watching.Output().find("worker-1") != std::string::npos; }));
  second.Signal(SIGINT);
  EXPECT_EQ(second.Wait(), 130);
  ASSERT_EQ(watching.Wait(), 0) << watching.Errors();
  EXPECT_THAT(watching.Output(), HasSubstr("demo-2: Stopped"));
  EXPECT_EQ(logs.Wait(), 0) << logs.Errors();
  Command later(Options({"why"}));
  ASSERT_EQ(later.Wait(), 0) << later.Errors();
  EXPECT_THAT(later.Output(), HasSubstr("Stopped by the user."));
}

}  // namespace
}  // namespace downpour::cli::testing
